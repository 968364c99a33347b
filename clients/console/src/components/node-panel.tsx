/** What a node of the graph is: its SQL and MMPL, its types, and what is remembered for it and until when. */

import { Chip, Copyable, Problem } from "./basics.tsx";
import type { GraphNode } from "./graph.tsx";
import { usePolled } from "../broker.ts";
import type { ColumnInfo, ViewInfo } from "../model.ts";
import { routeTo } from "../route.ts";
import { formatBytes, formatRate, formatSeconds } from "../words.ts";

const OWN_FIELDS = ["id", "kind", "name", "label", "stage", "rate", "lag_s", "state_bytes", "subscribed", "mmpl", "sql", "columns", "key",
  "view", "rows", "operator", "remembers", "changes_per_s", "state", "streams", "problem"];

export function NodePanel({ node, onClose }: { node: GraphNode; onClose: () => void }) {
  const isView = node.kind === "view" && node.name;
  const { data, problem } = usePolled<ViewInfo>(isView ? `/views/${encodeURIComponent(node.name!)}/description` : null, 5000);
  const description = { ...node, ...(data ?? {}) } as Record<string, unknown>;
  const columns = (description["columns"] ?? []) as readonly ColumnInfo[];
  const operator = node.operator && node.operator !== node.label ? node.operator : null;
  const remembers = data?.remembers ?? node.remembers ?? [];
  const others = Object.entries(description).filter(([name, value]) => !OWN_FIELDS.includes(name) && isText(value));
  return (
    <aside class="panel" aria-label="Node">
      <header class="panel-head">
        <div><div class="eyebrow">{node.kind}</div><h2>{node.name ?? node.label ?? node.id}</h2></div>
        <button type="button" class="quiet close" onClick={onClose} aria-label="Close the node">✕</button>
      </header>
      <p>
        {isView && node.subscribed !== false && <a class="button" href={routeTo("views", node.name!)}>Watch it</a>}
        {node.kind === "stream" && node.name && <a class="button" href={routeTo("streams", node.name)}>Open the stream</a>}
        {node.subscribed === false && isView && <Chip kind="quiet">not subscribed</Chip>}
      </p>
      <dl class="facts">
        {node.state && <div><dt>Link</dt><dd>{node.state}{node.problem ? `: ${node.problem}` : ""}</dd></div>}
        {node.stage !== null && node.stage !== undefined && <div><dt>Stage</dt><dd>{String(node.stage)}</dd></div>}
        {node.rate !== null && node.rate !== undefined && <div><dt>Rate</dt><dd>{formatRate(node.rate)}</dd></div>}
        {node.lag_s !== null && node.lag_s !== undefined && <div><dt>Behind</dt><dd>{formatSeconds(node.lag_s)}</dd></div>}
        {node.state_bytes !== null && node.state_bytes !== undefined && <div><dt>State</dt><dd>{formatBytes(node.state_bytes)}</dd></div>}
        {others.map(([name, value]) => <div><dt>{name.replaceAll("_", " ")}</dt><dd>{textOf(value)}</dd></div>)}
      </dl>
      {operator && <Copyable label="Operator" text={operator} />}
      {remembers.length > 0 && (
        <section>
          <h3>Remembered</h3>
          <ul class="waits">{remembers.map((item) => <li>{item.what}{item.until && <span class="muted">until {item.until}</span>}</li>)}</ul>
        </section>
      )}
      <Problem problem={problem} />
      {columns.length > 0 && <Types columns={columns} />}
      {typeof description["sql"] === "string" && <Copyable label="SQL" text={description["sql"]} />}
      {typeof description["mmpl"] === "string" && <Copyable label="MMPL" text={description["mmpl"]} />}
    </aside>
  );
}

function Types({ columns }: { columns: readonly ColumnInfo[] }) {
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label="Types">
      <table class="simple">
        <thead><tr><th scope="col">column</th><th scope="col">type</th><th scope="col">knowledge</th></tr></thead>
        <tbody>
          {columns.map((column) => (
            <tr>
              <td>{column.name}</td><td>{column.type}</td>
              <td>{[column.domain, column.direction, rangeText(column.range)].filter(Boolean).join(" · ") || "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function rangeText(range: ColumnInfo["range"]): string {
  return Array.isArray(range) ? `[${range.join("..")}]` : String(range ?? "");
}

function isText(value: unknown): boolean {
  return typeof value === "string" || typeof value === "number" || (Array.isArray(value) && value.length > 0 && value.every(isText));
}

function textOf(value: unknown): string {
  return Array.isArray(value) ? value.join("; ") : String(value);
}
