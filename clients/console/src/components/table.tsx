/** The live table. Only the rows in sight are in the document, so a hundred thousand rows scroll as ten do. */

import { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import type { Change, Column, Schema } from "smile-client";
import type { Flash, LiveView, Sorting } from "../live-view.ts";
import { cellParts, compactValue, isNumeric, rowState } from "../words.ts";
import { KnowledgeCell } from "./cell.tsx";

const ROW_PX = 34;
/** Of the selected cell, for screen readers. */
const CHOSEN_ID = "chosen-cell";
const ROWS_BEYOND = 8;
const SAMPLE_ROWS = 200;
/** On a page of this width or less, a value that evolves stands beside the first key. */
const NARROW = "(max-width: 760px)";
/** The width of a column at most, in characters. On a narrow page only text is cut short: part of a number is a lie. */
const WIDTH_CH_MAX = 38;
const NARROW_TEXT_CH_MAX = 16;
const NARROW_TEXTS: readonly string[] = ["string", "bytes", "json", "relation"];
/** Columns are made wider at most that often. */
const WIDEN_MS = 250;

export interface TableProps {
  readonly live: LiveView;
  readonly schema: Schema;
  readonly label: string;
  readonly sorting: Sorting | null;
  readonly selected: { readonly id: string; readonly column: string } | null;
  readonly onSort: (sorting: Sorting | null) => void;
  readonly onSelect: (row: Change, column: string) => void;
}

/** Renders the component again before each drawing of the view. */
export function useDrawing(live: LiveView | null): void {
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  useEffect(() => live?.listen(() => redraw(undefined)), [live]);
}

export function LiveTable(props: TableProps) {
  const { live, schema, sorting, selected } = props;
  useDrawing(live);
  const scroller = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  useLayoutEffect(() => {
    const element = scroller.current!;
    const observer = new ResizeObserver(() => setHeight(element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const { order } = live;
  const first = Math.max(0, Math.min(Math.floor(top / ROW_PX) - ROWS_BEYOND, order.length - 1));
  const last = Math.min(order.length, Math.ceil((top + height) / ROW_PX) + ROWS_BEYOND);
  const isNarrow = useMedia(NARROW);
  const columns = useMemo(() => (isNarrow ? narrowOrder(live, schema) : schema.columns), [isNarrow, live, schema, live.evolving.size]);
  const widths = useWidths(live, schema, isNarrow, order.slice(first, last));
  const isInSight = selected !== null && order.slice(first, last).some((row) => row.id === selected.id);
  const focusRow = (index: number, columnName: string) => {
    const row = order[index];
    if (!row) return;
    const element = scroller.current!;
    const [rowTop, room] = [index * ROW_PX, element.clientHeight - 2 * ROW_PX];
    if (rowTop < element.scrollTop) element.scrollTop = rowTop;
    else if (rowTop > element.scrollTop + room) element.scrollTop = rowTop - room;
    props.onSelect(row, columnName);
  };
  const move = (event: KeyboardEvent) => {
    const index = selected ? order.findIndex((row) => row.id === selected.id) : -1;
    const at = columns.findIndex((column) => column.name === selected?.column);
    const page = Math.max(1, Math.floor(height / ROW_PX) - 2);
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    const step = steps[event.key];
    const side = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step !== undefined) focusRow(Math.max(0, Math.min(order.length - 1, index + step)), selected?.column ?? columns[0]!.name);
    else if (event.key === "Home") focusRow(0, selected?.column ?? columns[0]!.name);
    else if (event.key === "End") focusRow(order.length - 1, selected?.column ?? columns[0]!.name);
    else if (side !== undefined && index >= 0) focusRow(index, columns[Math.max(0, Math.min(columns.length - 1, at + side))]!.name);
    else return;
    event.preventDefault();
  };
  return (
    <div class="table-scroller" ref={scroller} onKeyDown={move} onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
      <table
        class="live" role="grid" tabIndex={0} aria-rowcount={order.length + 1} aria-label={props.label}
        aria-activedescendant={isInSight ? CHOSEN_ID : undefined}
      >
        <colgroup>
          <col class="state-column" />
          {columns.map((column) => <col style={{ width: `${widths.get(column.name) ?? 12}ch` }} />)}
          <col class="rest" />
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            <th scope="col"><span class="state-text">State</span></th>
            {columns.map((column) => (
              <ColumnHead column={column} isKey={schema.key.includes(column.name)} sorting={sorting} onSort={props.onSort} />
            ))}
            <th class="rest" aria-hidden="true" />
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr class="spacer" aria-hidden="true" style={{ height: `${first * ROW_PX}px` }} />}
          {order.slice(first, last).map((row, i) => {
            const current = live.rows.get(row.id) ?? row;
            return (
              <TableRow
                key={row.id} row={current} index={first + i} columns={columns} flash={live.flash(row.id)}
                selected={selected?.id === row.id ? selected.column : null} onSelect={props.onSelect}
              />
            );
          })}
          {last < order.length && (
            <tr class="spacer" aria-hidden="true" style={{ height: `${(order.length - last) * ROW_PX}px` }} />
          )}
        </tbody>
      </table>
    </div>
  );
}

function ColumnHead(props: { column: Column; isKey: boolean; sorting: Sorting | null; onSort: TableProps["onSort"] }) {
  const { column, isKey, sorting, onSort } = props;
  const isSorted = sorting?.column === column.name;
  const next = () => {
    if (!isSorted) onSort({ column: column.name, isDescending: isNumeric(column) });
    else if (sorting.isDescending === isNumeric(column)) onSort({ column: column.name, isDescending: !sorting.isDescending });
    else onSort(null);
  };
  const order = !isSorted ? "none" : sorting.isDescending ? "descending" : "ascending";
  return (
    <th scope="col" aria-sort={order} class={isNumeric(column) ? "numeric" : ""}>
      <button type="button" onClick={next} title={`${column.name}: ${column.type}${isKey ? ", key" : ""}`}>
        {isKey && <span class="key-mark" aria-label="key">◆</span>}
        <span class="head-name">{column.name}</span>
        {isSorted && <span aria-hidden="true">{sorting.isDescending ? "↓" : "↑"}</span>}
      </button>
    </th>
  );
}

interface RowProps {
  readonly row: Change;
  readonly index: number;
  readonly columns: readonly Column[];
  readonly flash: Flash | null;
  readonly selected: string | null;
  readonly onSelect: TableProps["onSelect"];
}

function TableRow({ row, index, columns, flash, selected, onSelect }: RowProps) {
  const state = rowState(row);
  // Alternating names restart the animation for each change.
  const pulse = flash ? `flash-${Math.round(flash.atMs) % 2}` : "";
  const classes = [state.certainty, selected === null ? "" : "selected", flash?.becameFinal ? `settled ${pulse}` : ""];
  return (
    <tr class={classes.join(" ").trim()} aria-rowindex={index + 2} aria-selected={selected !== null}>
      <td class="state" title={state.title} onClick={() => onSelect(row, columns[0]!.name)}>
        <span class={`known ${state.certainty}`}>{state.sign && <span class="sign">{state.sign}</span>}<span class="state-text">{state.text}</span></span>
      </td>
      {columns.map((column) => {
        const isChanged = flash?.columns.has(column.name) ?? false;
        const cell = [isNumeric(column) ? "numeric" : "", isChanged ? pulse : "", selected === column.name ? "chosen" : ""];
        return (
          <td class={cell.join(" ").trim()} id={selected === column.name ? CHOSEN_ID : undefined} onClick={() => onSelect(row, column.name)}>
            <CellContent row={row} column={column} />
          </td>
        );
      })}
      <td class="rest" aria-hidden="true" />
    </tr>
  );
}

function CellContent({ row, column }: { row: Change; column: Column }) {
  const known = row.knowledge[column.name];
  if (known) return <KnowledgeCell known={known} column={column} />;
  const value = row.value(column.name);
  const text = compactValue(value, column);
  return <span class={value === null ? "plain null" : "plain"} title={text.length > 24 ? text.slice(0, 2000) : undefined}>{text.slice(0, 500)}</span>;
}

/** Widths that fit a sample of the rows, and those in sight. A column never becomes narrower, so that columns stay where
 * they are while values change. */
function useWidths(live: LiveView, schema: Schema, isNarrow: boolean, inSight: readonly Change[]): ReadonlyMap<string, number> {
  const generation = Math.ceil(Math.log10(live.order.length + 1));
  const kept = useMemo(() => ({ widths: widen(new Map(), live.order.slice(0, SAMPLE_ROWS), schema, isNarrow), atMs: 0 }), [live, schema, generation, isNarrow]);
  const now = performance.now();
  if (now - kept.atMs > WIDEN_MS) {
    kept.atMs = now;
    kept.widths = widen(kept.widths, inSight.map((row) => live.rows.get(row.id) ?? row), schema, isNarrow);
  }
  return kept.widths;
}

function widen(before: ReadonlyMap<string, number>, rows: readonly Change[], schema: Schema, isNarrow: boolean): ReadonlyMap<string, number> {
  const widthOf = (column: Column) => {
    let width = isNarrow ? 0 : column.name.length + (schema.key.includes(column.name) ? 5 : 3);
    for (const row of rows) {
      const known = row.knowledge[column.name];
      const parts = known ? cellParts(known, column) : null;
      const text = parts ? `${parts.value}${parts.note ? ` ${parts.note}` : ""}   ` : compactValue(row.value(column.name), column);
      width = Math.max(width, text.length + 2);
    }
    const widest = isNarrow && NARROW_TEXTS.includes(column.kind) ? NARROW_TEXT_CH_MAX : WIDTH_CH_MAX;
    return Math.max(before.get(column.name) ?? 0, Math.min(Math.max(width + 2, 9), widest));
  };
  return new Map(schema.columns.map((column) => [column.name, widthOf(column)]));
}

/** The first key, the first column that evolves, and then the others. */
function narrowOrder(live: LiveView, schema: Schema): readonly Column[] {
  const first = schema.columns.find((column) => schema.key.includes(column.name));
  const evolving = schema.columns.find((column) => live.evolving.has(column.name));
  const front = [first, evolving].filter((column) => column !== undefined);
  return [...front, ...schema.columns.filter((column) => !front.includes(column))];
}

/** Whether the page is as the query says, now and later. */
function useMedia(query: string): boolean {
  const [isMatching, setMatching] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const media = matchMedia(query);
    const update = () => setMatching(media.matches);
    media.addEventListener("change", update);
    return () => media.removeEventListener("change", update);
  }, [query]);
  return isMatching;
}
