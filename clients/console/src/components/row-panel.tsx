/** One row: what is known of each column in words, its chart and history, and why it is not final. */

import { useMemo } from "preact/hooks";
import { isClockTick, tickDate, type Change, type Knowledge, type Schema } from "smile-client";
import { useSeconds } from "./basics.tsx";
import { BandChart, type BandPoint } from "./chart.tsx";
import { KnowledgeCell } from "./cell.tsx";
import { FinalityPanel } from "./finality.tsx";
import { useDrawing } from "./table.tsx";
import type { LiveView, Moment } from "../live-view.ts";
import { compactValue, isNumeric, numberOf, rowState, sentence } from "../words.ts";

const HISTORY_SHOWN = 12;
const NEIGHBOURS_MAX = 40;
/** A millisecond. */
const PERIOD_TICKS_MIN = 1_024_000n;

export interface RowPanelProps {
  readonly live: LiveView;
  readonly schema: Schema;
  readonly title: string;
  readonly row: Change;
  readonly column: string;
  readonly onColumn: (column: string) => void;
  readonly onClose: () => void;
}

export function RowPanel({ live, schema, title, row, column, onColumn, onClose }: RowPanelProps) {
  useDrawing(live);
  const current = live.rows.get(row.id);
  const shown = current ?? row;
  const state = rowState(shown);
  const keyText = schema.key.map((name) => compactValue(shown.value(name), schema.column(name)) || '""').join(" · ");
  const chosen = schema.column(column);
  return (
    <aside class="panel" aria-label="Row">
      <header class="panel-head">
        <div>
          <div class="eyebrow">{title}</div>
          <h2>{keyText || "the only row"}</h2>
        </div>
        <button type="button" class="quiet close" onClick={onClose} aria-label="Close the row">✕</button>
      </header>
      {current === undefined && <p class="note-box">This row is not shown any more.</p>}
      <p class={`row-state ${state.certainty}`}>{state.sign && <span class="sign">{state.sign}</span>}{state.title}.</p>
      {chosen && isNumeric(chosen) && <Charts live={live} schema={schema} row={shown} column={column} />}
      {!shown.final && current && <FinalityPanel view={schema.view} schema={schema} row={shown} column={column} />}
      <dl class="cells">
        {schema.columns.map((item) => (
          <div class={item.name === column ? "chosen" : ""}>
            <dt><button type="button" class="link" onClick={() => onColumn(item.name)}>{item.name}</button><span>{item.type}</span></dt>
            <dd>
              <KnowledgeCell known={shown.get(item.name)} column={item} />
              {item.name === column && shown.knowledge[column] && <p>{sentence(shown.get(column), item)}</p>}
            </dd>
          </div>
        ))}
      </dl>
      <History moments={live.history(row.id)} column={column} schema={schema} openedMs={live.openedMs} />
    </aside>
  );
}

function History(props: { moments: readonly Moment[]; column: string; schema: Schema; openedMs: number }) {
  const { moments, column, schema } = props;
  const lines = useMemo(() => distinct(moments, column).slice(-HISTORY_SHOWN).reverse(), [moments.length, moments.at(-1), column]);
  return (
    <section class="history">
      <h3>History of {column}</h3>
      <p class="muted">
        {lines.length === 0 ? "It has not changed" : "What this page has received"} since it was opened, at {new Date(props.openedMs).toTimeString().slice(0, 8)}.
      </p>
      {lines.length > 0 && (
        <ol>
          {lines.map((moment) => (
            <li>
              <time>{new Date(moment.atMs).toTimeString().slice(0, 8)}</time>
              <KnowledgeCell known={moment.change.get(column)} column={schema.column(column)} />
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

/** The moments in which the column changed. */
function distinct(moments: readonly Moment[], column: string): Moment[] {
  return moments.filter((moment, i) => i === 0 || moments[i - 1]!.change.get(column).format() !== moment.change.get(column).format());
}

interface ChartsProps {
  readonly live: LiveView;
  readonly schema: Schema;
  readonly row: Change;
  readonly column: string;
}

function Charts({ live, schema, row, column }: ChartsProps) {
  const now = useSeconds();
  const moments = live.history(row.id);
  const past = useMemo(() => pastPoints(moments, row, column, live.openedMs, now), [moments.length, row, column, now]);
  const neighbours = useMemo(() => neighbourPoints(live, schema, row, column), [live, row, column, now]);
  return (
    <div class="charts">
      {neighbours && neighbours.points.length > 2 && (
        <figure>
          <figcaption>{column} by {neighbours.by}</figcaption>
          <BandChart points={neighbours.points} label={`${column} by ${neighbours.by}`} isTime={neighbours.isTime} isStepped={false} />
        </figure>
      )}
      <figure>
        <figcaption>{column} as it became known</figcaption>
        <BandChart points={past} label={`${column} as it became known`} isTime isStepped />
      </figure>
      <ul class="legend chart-legend" aria-hidden="true">
        <li><i class="swatch line final" /> final</li><li><i class="swatch line open" /> as of now</li>
        <li><i class="swatch band" /> still possible</li>
      </ul>
    </div>
  );
}

function pointOf(atS: number, known: Knowledge): BandPoint {
  const latest = known.kind === "latest" ? { lower: null, upper: null } : { lower: numberOf(known.lower), upper: numberOf(known.upper) };
  return { atS, value: numberOf(known.value), ...latest };
}

function pastPoints(moments: readonly Moment[], row: Change, column: string, openedMs: number, nowMs: number): BandPoint[] {
  const points = moments.map((moment) => pointOf(moment.atMs / 1000, moment.change.get(column)));
  if (points.length === 0) points.push(pointOf(openedMs / 1000, row.get(column)));
  return [...points, pointOf(Math.max(nowMs / 1000, points.at(-1)!.atS + 0.001), row.get(column))];
}

/** The rows with the same key except for its time column. If time is the whole key, rows belong together only if they are
 * periods, and not events, each of which may be about something else. */
function neighbourPoints(live: LiveView, schema: Schema, row: Change, column: string) {
  const by = schema.key.find((name) => schema.column(name)?.kind === "time");
  if (by === undefined) return null;
  const others = schema.key.filter((name) => name !== by);
  const same = [...live.rows.values()].filter((other) => others.every((name) => other.value(name) === row.value(name)));
  const ordered = same.sort((a, b) => ((a.value(by) as bigint) < (b.value(by) as bigint) ? -1 : 1)).slice(-NEIGHBOURS_MAX);
  if (others.length === 0 && !arePeriods(ordered.map((other) => other.value(by) as bigint))) return null;
  const isTime = ordered.every((other) => isClockTick(other.value(by) as bigint));
  const position = (tick: bigint) => (isTime ? tickDate(tick).getTime() / 1000 : Number(tick));
  const points = ordered.map((other) => pointOf(position(other.value(by) as bigint), other.get(column)));
  return { by, isTime, points };
}

/** Whether the ticks are multiples of a period apart. */
function arePeriods(ticks: readonly bigint[]): boolean {
  const distances = ticks.slice(1).map((tick, i) => tick - ticks[i]!);
  const least = distances.reduce((a, b) => (b < a ? b : a), distances[0] ?? 0n);
  return least >= PERIOD_TICKS_MIN && distances.every((distance) => distance % least === 0n);
}
