/** How the broker is doing. */

import { AccessSection } from "../components/access.tsx";
import { Chip, Figure, Problem, useSeries } from "../components/basics.tsx";
import { usePolled } from "../broker.ts";
import { routeTo } from "../route.ts";
import { formatBytes, formatCount, formatRate, formatSeconds } from "../words.ts";

/** The part of `/status` that the page shows. */
interface Status {
  readonly at: number;
  readonly since: number;
  readonly health: string;
  readonly engine: string;
  readonly start?: { readonly phase: string | null; readonly for_s: number | null; readonly usual_s: number | null };
  readonly queries?: readonly unknown[];
  readonly log_bytes?: number;
  readonly program: string;
  readonly views: Record<string, { rows: number; subscribers: number; state_bytes: number; lag_s: number | null; behind_s?: number | null; paused: { message?: string } | null }>;
  readonly subscriptions: Record<string, unknown>;
  readonly links: readonly Record<string, unknown>[];
  readonly publisher: { events: number; publications: number; commit_ms: number; waiting_events: number };
  readonly keeper: {
    state: string; ui: string | null; events_per_second?: number; changed_rows_per_second?: number; batches?: number;
    batch_ms?: Record<string, number>; stage_ms?: Record<string, Record<string, number>>; state_bytes?: number; waiting_events?: number;
  };
  readonly memory_bytes: number;
  readonly java_memory_bytes: number | null;
  readonly disk_free_bytes: number;
  readonly troubles: readonly unknown[];
  readonly warnings: readonly unknown[];
  readonly gateway: { connections: number; subscriptions: number; frames: number; rows: number; refused: Record<string, number>; delays_ms?: { delivery?: Delay } };
}

interface Delay {
  readonly median: number;
  readonly p95: number;
}

export function OperationsPage() {
  const { data: status, problem } = usePolled<Status>("/status", 2000);
  const events = useSeries(status?.keeper.events_per_second ?? 0, status);
  const changes = useSeries(status?.keeper.changed_rows_per_second ?? 0, status);
  const batch = useSeries(status?.keeper.batch_ms?.["total"] ?? 0, status);
  const delay = status?.gateway.delays_ms?.delivery;
  return (
    <div class="page">
      <header class="page-head">
        <div><h1>Operations</h1>{status && <p class="lead">{status.program} · engine {status.engine} · up {formatSeconds(status.at - status.since)}</p>}</div>
        {status && <Chip kind={status.health === "ok" ? "good" : "warn"}>{status.health}</Chip>}
      </header>
      <Problem problem={problem} />
      {status && (
        <>
          <Troubles status={status} />
          <div class="figures">
            <Figure label="Events" value={formatRate(status.keeper.events_per_second)} series={events} note={`${formatCount(status.publisher.events)} published since the start`} />
            <Figure label="Changed rows" value={formatRate(status.keeper.changed_rows_per_second)} series={changes} note={`${formatCount(status.gateway.rows)} delivered`} />
            <Figure label="Batch" value={milliseconds(status.keeper.batch_ms?.["total"])} series={batch} note={`${formatCount(status.keeper.batches)} batches`} />
            <Figure label="Delay" value={milliseconds(delay?.median)} note={`from event to subscriber${delay ? `; 95% within ${milliseconds(delay.p95)}` : ""}`} />
            <Figure label="Subscribers" value={formatCount(status.gateway.subscriptions)} note={`${formatCount(status.gateway.connections)} connections, ${formatCount(status.queries?.length)} queries`} />
            <Figure label="State" value={formatBytes(status.keeper.state_bytes)} note={`memory ${formatBytes(status.memory_bytes)}${status.java_memory_bytes ? `, Java ${formatBytes(status.java_memory_bytes)}` : ""}`} />
            <Figure label="Disk free" value={formatBytes(status.disk_free_bytes)} note={`log ${formatBytes(status.log_bytes)}, commit ${milliseconds(status.publisher.commit_ms)}`} />
          </div>
          <div class="columns-2">
            <Engine status={status} />
            <Views status={status} />
          </div>
          <Links status={status} />
          <AccessSection />
        </>
      )}
    </div>
  );
}

function milliseconds(ms: number | null | undefined): string {
  return ms === null || ms === undefined ? "–" : formatSeconds(ms / 1000);
}

function Troubles({ status }: { status: Status }) {
  const all = [...status.troubles, ...status.warnings];
  if (all.length === 0) return null;
  return (
    <section class="box troubles" role="status">
      <h2>Troubles</h2>
      <ul>{all.map((trouble) => <li>{troubleText(trouble)}</li>)}</ul>
    </section>
  );
}

function troubleText(trouble: unknown): string {
  const { code, subject, message, what } = trouble as Record<string, string | undefined>;
  return [code, subject, message ?? what].filter(Boolean).join(": ");
}

function Engine({ status }: { status: Status }) {
  const { keeper } = status;
  const parts = Object.entries(keeper.batch_ms ?? {}).filter(([name]) => name !== "total");
  const total = parts.reduce((sum, [, ms]) => sum + ms, 0) || 1;
  return (
    <section class="box">
      <h2>{status.engine === "spark" ? "Spark" : "Engine"} <Chip kind={keeper.state === "running" ? "good" : "warn"}>{keeper.state}</Chip></h2>
      <Start start={status.start} />
      <ul class="bars" aria-label="Parts of a batch">
        {parts.map(([name, ms]) => (
          <li><span>{name}</span><meter min={0} max={total} value={ms} aria-label={`${name}: ${milliseconds(ms)}`} /><b>{milliseconds(ms)}</b></li>
        ))}
      </ul>
      <table class="simple">
        <thead><tr><th scope="col">Stage</th><th scope="col">read</th><th scope="col">kernels</th><th scope="col">save</th><th scope="col">pack</th></tr></thead>
        <tbody>
          {Object.entries(keeper.stage_ms ?? {}).map(([stage, times]) => (
            <tr><td>{stage}</td>{["read", "kernels", "save", "pack"].map((part) => <td>{milliseconds(times[part])}</td>)}</tr>
          ))}
        </tbody>
      </table>
      {typeof keeper.ui === "string" && /^https?:\/\//.test(keeper.ui) && <p><a href={keeper.ui} rel="noreferrer" target="_blank">Spark's own page</a></p>}
    </section>
  );
}

/** What the engine is doing while it starts, and how long that usually takes. */
function Start({ start }: { start: Status["start"] }) {
  if (!start?.phase) return null;
  const usual = start.usual_s ? `; it usually takes ${formatSeconds(start.usual_s)}` : "";
  return <p class="note-box" role="status">{start.phase}: for {formatSeconds(start.for_s)}{usual}.</p>;
}

function Views({ status }: { status: Status }) {
  return (
    <section class="box">
      <h2>Views</h2>
      <div class="scroll-x" tabIndex={0} role="region" aria-label="Views">
        <table class="simple">
          <thead><tr><th scope="col">View</th><th scope="col">Rows</th><th scope="col">State</th><th scope="col">Subscribers</th><th scope="col">Slowest</th><th scope="col">Behind</th></tr></thead>
          <tbody>
            {Object.entries(status.views).map(([name, view]) => (
              <tr>
                <td><a href={routeTo("views", name)}>{name}</a>{view.paused && <Chip kind="warn">paused</Chip>}</td>
                <td>{formatCount(view.rows)}</td><td>{formatBytes(view.state_bytes)}</td>
                <td>{formatCount(view.subscribers)}</td><td>{formatSeconds(view.behind_s)}</td><td>{formatSeconds(view.lag_s)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Links({ status }: { status: Status }) {
  const durable = Object.entries(status.subscriptions);
  if (status.links.length === 0 && durable.length === 0) return null;
  return (
    <div class="columns-2">
      {status.links.length > 0 && <ObjectTable title="Links to other brokers" rows={status.links} />}
      {durable.length > 0 && (
        <ObjectTable title="Durable subscriptions" rows={durable.map(([name, value]) => ({ name, ...(value as object) }))} />
      )}
    </div>
  );
}

function ObjectTable({ title, rows }: { title: string; rows: readonly Record<string, unknown>[] }) {
  const isSimple = (value: unknown) => value === null || typeof value !== "object";
  const names = [...new Set(rows.flatMap((row) => Object.keys(row).filter((name) => isSimple(row[name]))))].slice(0, 7);
  return (
    <section class="box">
      <h2>{title}</h2>
      <div class="scroll-x" tabIndex={0} role="region" aria-label={title}>
        <table class="simple">
          <thead><tr>{names.map((name) => <th scope="col">{name.replaceAll("_", " ")}</th>)}</tr></thead>
          <tbody>{rows.map((row) => <tr>{names.map((name) => <td>{String(row[name] ?? "–")}</td>)}</tr>)}</tbody>
        </table>
      </div>
    </section>
  );
}
