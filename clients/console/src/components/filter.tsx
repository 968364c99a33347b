/** Conditions on columns: the broker then sends only these rows. */

import { useRef, useState } from "preact/hooks";
import { formatTick, formatValue, type Schema, type Value } from "smile-client";
import type { LiveView } from "../live-view.ts";
import { compactValue } from "../words.ts";
import { conditionText, isComparable, operatorsOf, type Conditions, type Operator } from "./conditions.ts";
import { parseField, parseTime } from "./fields.ts";

const SUGGESTION_ROWS_MAX = 200;
const SUGGESTIONS_MAX = 50;

interface FilterProps {
  readonly schema: Schema;
  readonly live: LiveView | null;
  readonly conditions: Conditions;
  /** Whether the relation can be queried: then any column can be compared, and not only those that never change. */
  readonly canQuery: boolean;
  readonly onChange: (conditions: Conditions) => void;
}

export function FilterForm({ schema, live, conditions, canQuery, onChange }: FilterProps) {
  const [chosen, setColumn] = useState<string | null>(null);
  const [chosenOperator, setOperator] = useState<Operator>("=");
  const [text, setText] = useState("");
  const input = useRef<HTMLInputElement>(null);
  const constant = constantColumns(schema, live);
  const others = canQuery ? schema.columns.filter((item) => !constant.includes(item.name) && isComparable(item)) : [];
  const columns = [...constant, ...others.map((item) => item.name)];
  const column = chosen ?? constant.find((name) => !isTicks(schema, name)) ?? columns[0] ?? "";
  const operators = operatorsOf(schema.column(column), canQuery);
  const operator = operators.includes(chosenOperator) ? chosenOperator : "=";
  const add = (event: Event) => {
    event.preventDefault();
    if (!text) return;
    const isConstant = constant.includes(column);
    const isExact = operator === "=" && isConstant;
    const { value, problem } = valueOf(schema, live, column, text, isExact);
    if (problem !== null) {
      input.current!.setCustomValidity(problem);
      input.current!.reportValidity();
      return;
    }
    const kept = conditions.filter((other) => other.column !== column || other.operator !== operator);
    onChange([...kept, { column, operator, value, isConstant }]);
    setText("");
  };
  if (columns.length === 0) return null;
  return (
    <>
      <form class="filter" onSubmit={add} title="The broker sends only these rows">
        <select aria-label="Column of the filter" value={column} onChange={(event) => setColumn(event.currentTarget.value)}>
          {columns.map((name) => <option>{name}</option>)}
        </select>
        <select aria-label="Operator of the filter" value={operator} onChange={(event) => setOperator(event.currentTarget.value as Operator)}>
          {operators.map((name) => <option>{name}</option>)}
        </select>
        <input
          ref={input} value={text} placeholder="any value" aria-label="Value of the filter" list="filter-values"
          onInput={(event) => {
            event.currentTarget.setCustomValidity("");
            setText(event.currentTarget.value);
          }}
        />
        <datalist id="filter-values">{suggestions(live, schema, column).map((value) => <option value={value} />)}</datalist>
        <button type="submit">Filter</button>
      </form>
      {conditions.map((condition) => (
        <button
          type="button" class="condition" aria-label={`Remove the filter ${conditionText(condition, schema)}`}
          onClick={() => onChange(conditions.filter((other) => other !== condition))}
        >
          {conditionText(condition, schema)} <span aria-hidden="true">✕</span>
        </button>
      ))}
    </>
  );
}

/** Key columns, and columns that no row says anything uncertain about. */
function constantColumns(schema: Schema, live: LiveView | null): string[] {
  const isConstant = (name: string) => schema.key.includes(name) || (live !== null && live.rows.size > 0 && !live.evolving.has(name));
  return schema.columns.map((column) => column.name).filter(isConstant);
}

/** Whether the values of the column are ticks, which are shown as times. */
function isTicks(schema: Schema, column: string): boolean {
  return ["time", "interval"].includes(schema.column(column)?.kind ?? "");
}

function suggestions(live: LiveView | null, schema: Schema, column: string): string[] {
  if (isTicks(schema, column)) return [...tickTexts(live, schema, column, SUGGESTION_ROWS_MAX).keys()].slice(0, SUGGESTIONS_MAX);
  const values = new Set<string>();
  for (const row of live?.order.slice(0, SUGGESTION_ROWS_MAX) ?? []) values.add(String(row.value(column)));
  return [...values].slice(0, SUGGESTIONS_MAX).sort();
}

/** The ticks of a column by the text that the table shows; with all digits where two would have the same text. */
function tickTexts(live: LiveView | null, schema: Schema, column: string, rowsMax?: number): Map<string, bigint> {
  const ticks = new Map<string, bigint>();
  const definition = schema.column(column);
  for (const row of live?.order.slice(0, rowsMax) ?? []) {
    const tick = row.value(column);
    if (typeof tick !== "bigint") continue;
    const text = compactValue(tick, definition);
    const isTaken = (ticks.get(text) ?? tick) !== tick;
    ticks.set(isTaken ? (definition?.kind === "time" ? formatTick(tick) : formatValue(tick)) : text, tick);
  }
  return ticks;
}

/** The value that a text stands for. An exact time must be that of a row, or a tick: a time has a thousand ticks. */
function valueOf(schema: Schema, live: LiveView | null, column: string, text: string, isExact: boolean): { value: Value; problem: string | null } {
  const definition = schema.column(column);
  if (text === "NULL") return { value: null, problem: null };
  if (isTicks(schema, column)) {
    const shown = tickTexts(live, schema, column).get(text.trim());
    const tick = shown ?? (/^-?\d+$/.test(text.trim()) ? BigInt(text) : isExact ? null : parseTime(text));
    if (tick !== null) return { value: tick, problem: null };
    const problem = isExact
      ? `No row has this ${column}. Choose one from the list, or write a tick.`
      : "Write a time, such as 2026-01-31 12:00:00, or a tick.";
    return { value: null, problem };
  }
  if (isExact) return { value: conditionValue(schema, column, text), problem: null };
  const field = parseField({ name: column, type: definition?.type ?? "string", nullable: false }, text);
  return { value: field.value as Value, problem: field.problem };
}

/** The value of the condition: what looks like a number is one only if the column has numbers. */
function conditionValue(schema: Schema, column: string, text: string): Value {
  const kind = schema.column(column)?.kind;
  if (text === "NULL") return null;
  if (kind === "bool") return text === "true";
  if (kind === "int" || kind === "float" || kind === "decimal") {
    const number = Number(text);
    return Number.isNaN(number) || (kind !== "float" && !Number.isSafeInteger(number)) ? text : number;
  }
  return text;
}
