/** One view, live. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { counted, formatRate, formatCount } from "../words.ts";
import { useBroker, usePolled } from "../broker.ts";
import { LiveView, type Shown, type Sorting } from "../live-view.ts";
import { Legend } from "../components/cell.tsx";
import { Empty, Problem } from "../components/basics.tsx";
import { LiveTable, useDrawing } from "../components/table.tsx";
import { RowPanel } from "../components/row-panel.tsx";
import { needsQuery, queryText, whereOf, type Conditions } from "../components/conditions.ts";
import { FilterForm } from "../components/filter.tsx";
import { DownloadMenu } from "../components/download.tsx";
import type { RowOrder, ViewInfo } from "../model.ts";
import { SmileError, type Change, type Client, type Schema } from "smile-client";

/** How often the order of a view is asked for: it changes with the program. */
const ORDER_MS = 60_000;

export interface Focus {
  /** The cell of the first row in this column is selected when it appears. */
  readonly column: string;
}

/** The whole page of a view. */
export function ViewPage({ name, focus }: { name: string; focus: Focus | null }) {
  const { data } = usePolled<{ views: ViewInfo[] }>("/views", ORDER_MS);
  const order = data?.views.find((view) => view.name === name)?.order;
  return (
    <div class="page view-page">
      <LiveRelation key={name} view={name} title={name} focus={focus} order={order} canDownload />
    </div>
  );
}

interface RelationProps {
  readonly view: string;
  readonly title: string;
  readonly focus: Focus | null;
  /** How the rows are sorted until the user chooses. */
  readonly order: RowOrder | undefined;
  readonly canDownload: boolean;
}

interface Selection {
  readonly row: Change;
  readonly column: string;
}

/** A live table with its tools and the panel of the selected row. */
export function LiveRelation(props: RelationProps) {
  const { view, title, focus, order = [] } = props;
  const { client } = useBroker();
  const [conditions, setConditions] = useState<Conditions>(NO_CONDITIONS);
  const { live, source, problem } = useFiltered(client, view, conditions);
  useDrawing(live);
  const [sorting, setSorting] = useState<Sorting | null>(null);
  const [search, setSearch] = useState("");
  const [shown, setShown] = useState<Shown>("all");
  const [selection, setSelection] = useState<Selection | null>(null);
  const orderText = JSON.stringify(order);
  useEffect(() => {
    const own = order.map((part) => ({ column: part.column, isDescending: part.descending }));
    live?.arrange(sorting ? [sorting] : own, search, shown);
  }, [live, sorting, search, shown, orderText]);
  useFocus(live, focus, setSelection);
  const searchBox = useRef<HTMLInputElement>(null);
  useShortcuts(searchBox, () => setSelection(null));
  // The columns stay while the rows of other conditions come: what is typed into the form stays too.
  const known = useRef<Schema | null>(null);
  const schema = (known.current = live?.schema ?? known.current);
  if (live?.problem && schema === null) {
    return <div class="relation"><div><header class="page-head"><h1>{title}</h1></header><Problem problem={live.problem} /></div></div>;
  }
  return (
    <div class={selection ? "relation with-panel" : "relation"}>
      <div class="relation-main">
        <header class="page-head">
          <div>
            <h1>{title}</h1>
            <Counts live={live} />
          </div>
        </header>
        <div class="toolbar" role="toolbar" aria-label="Table">
          <input
            type="search" ref={searchBox} value={search} placeholder="Search rows" aria-label="Search rows"
            onInput={(event) => setSearch(event.currentTarget.value)}
          />
          {schema && <FilterForm schema={schema} live={live} conditions={conditions} canQuery={props.canDownload} onChange={setConditions} />}
          <select aria-label="Which rows" value={shown} onChange={(event) => setShown(event.currentTarget.value as Shown)}>
            <option value="all">All rows</option>
            <option value="open">Open rows</option>
            <option value="final">Final rows</option>
          </select>
          <span class="room" />
          <button
            type="button" aria-pressed={live?.isPausedByUser ?? false} disabled={!live}
            onClick={() => live?.hold(!live.isPausedByUser)}
          >
            {live?.isPausedByUser ? "▶ Resume" : "❚❚ Pause"}
          </button>
          {props.canDownload && <DownloadMenu view={source} name={view} where={needsQuery(conditions) ? {} : whereOf(conditions)} />}
        </div>
        {live?.isPausedByUser && <p class="note-box">Paused. The broker merges what changes meanwhile; nothing is lost.</p>}
        <Problem problem={live?.paused ?? null} text="the view is paused by the broker" />
        <Problem problem={live?.problem ?? null} />
        <Problem problem={problem} text="the filter is refused, and the rows are those of before" />
        <Body live={live} title={title} sorting={sorting} selection={selection} onSort={setSorting} onSelect={setSelection} search={search} />
        <Legend />
      </div>
      {selection && schema && live && (
        <RowPanel
          live={live} schema={schema} title={title} row={selection.row} column={selection.column}
          onColumn={(column) => setSelection({ row: selection.row, column })} onClose={() => setSelection(null)}
        />
      )}
    </div>
  );
}

const NO_CONDITIONS: Conditions = [];

/** The rows that satisfy the conditions, and the relation that has them: the view, or a query over it. While a query is
 * opened, and if it is refused, the rows stay as they are. */
function useFiltered(client: Client, view: string, conditions: Conditions) {
  const [live, setLive] = useState<LiveView | null>(null);
  const [source, setSource] = useState(view);
  const [problem, setProblem] = useState<SmileError | null>(null);
  const isQuery = needsQuery(conditions);
  const schema = live?.schema ?? null;
  useEffect(() => {
    let isGone = false;
    let opened: LiveView | null = null;
    let query: string | null = null;
    const end = () => {
      if (query !== null) void client.request(`/queries/${encodeURIComponent(query)}`, { method: "DELETE" }).catch(() => undefined);
    };
    const show = (name: string, where: Record<string, unknown>) => {
      opened = new LiveView(client, name, where);
      setSource(name);
      setLive(opened);
    };
    const ask = async () => {
      try {
        const body = queryText(view, conditions, schema!);
        query = (await client.get<{ view: string }>("/queries", { method: "POST", body, contentType: "text/plain" })).view;
        if (isGone) end();
        else show(query, {});
      } catch (reason) {
        if (!isGone) setProblem(reason instanceof SmileError ? reason : new SmileError([{ code: "E103", message: String(reason) }]));
      }
    };
    setProblem(null);
    if (isQuery) void ask();
    else show(view, whereOf(conditions));
    return () => {
      isGone = true;
      opened?.close();
      end();
    };
  }, [client, view, conditions]);
  return { live, source, problem };
}

interface BodyProps {
  readonly live: LiveView | null;
  readonly title: string;
  readonly search: string;
  readonly sorting: Sorting | null;
  readonly selection: Selection | null;
  readonly onSort: (sorting: Sorting | null) => void;
  readonly onSelect: (selection: Selection) => void;
}

function Body({ live, title, search, sorting, selection, onSort, onSelect }: BodyProps) {
  const selected = useMemo(() => (selection ? { id: selection.row.id, column: selection.column } : null), [selection]);
  if (live?.problem && live.rows.size === 0) return null;
  if (!live?.schema || (!live.isComplete && live.rows.size === 0)) return <Empty title="Waiting for the rows…" />;
  return (
    <>
      <LiveTable
        live={live} schema={live.schema} label={`Rows of ${title}`} sorting={sorting} selected={selected} onSort={onSort}
        onSelect={(row, column) => onSelect({ row, column })}
      />
      {live.order.length === 0 && (
        <p class="table-empty">{search || live.rows.size > 0 ? "No row matches." : "There are no rows at the moment. They appear here by themselves."}</p>
      )}
    </>
  );
}

function Counts({ live }: { live: LiveView | null }) {
  const rate = useRate(live);
  if (!live?.isComplete) return <p class="counts muted">connecting…</p>;
  const open = live.rows.size - live.finals;
  return (
    <p class="counts">
      <span>{counted(live.rows.size, "row")}</span>
      <span class="final-text">{formatCount(live.finals)} final</span>
      <span>{formatCount(open)} open</span>
      <span>{formatRate(rate)} changes</span>
    </p>
  );
}

/** Changes a second, over about three seconds. */
function useRate(live: LiveView | null): number {
  const samples = useRef<{ atMs: number; count: number }[]>([]);
  if (live) {
    const now = performance.now();
    const last = samples.current.at(-1);
    if (!last || now - last.atMs > 250) {
      if (last && last.count > live.changeCount) samples.current = [];
      samples.current = [...samples.current, { atMs: now, count: live.changeCount }].filter((sample) => now - sample.atMs < 3000);
    }
  }
  const [first, last] = [samples.current[0], samples.current.at(-1)];
  if (!first || !last || first === last) return 0;
  return ((last.count - first.count) * 1000) / (last.atMs - first.atMs);
}

/** On a narrow page the row would hide the table that the tour speaks of. */
const FOCUS_PX_MIN = 1050;

/** Selects a cell of the column that the tour speaks of, once it is there. */
function useFocus(live: LiveView | null, focus: Focus | null, select: (selection: Selection) => void): void {
  const done = useRef<Focus | null>(null);
  useEffect(() => {
    if (!live || !focus || innerWidth < FOCUS_PX_MIN) return;
    const look = () => {
      if (done.current === focus || !live.schema) return;
      const row = live.order[0];
      if (!row) return;
      done.current = focus;
      select({ row, column: focus.column });
    };
    look();
    return live.listen(look);
  }, [live, focus]);
}

function useShortcuts(searchBox: { current: HTMLInputElement | null }, onEscape: () => void): void {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const isTyping = (event.target as HTMLElement).closest("input, textarea, select, [contenteditable=true], .cm-editor");
      if (event.key === "/" && !isTyping) {
        searchBox.current?.focus();
        event.preventDefault();
      } else if (event.key === "Escape") onEscape();
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, []);
}
