/** Knowledge and figures in words and signs. */

import {
  compareValues, formatTick, formatValue, isClockTick, tickDate,
  type Change, type Column, type Knowledge, type Rounding, type Value,
} from "smile-client";

const TICKS_PER_MS = 1000n * 1024n;

/** How much is known: the three colours of the page. */
export type Certainty = "final" | "bounded" | "open";

export function certaintyOf(known: Knowledge): Certainty {
  if (known.isFinal) return "final";
  if (known.kind === "rows") return known.isOpen ? "open" : "bounded";
  return known.kind === "unknown" || known.kind === "latest" ? "open" : "bounded";
}

export interface CellParts {
  readonly sign: string;
  readonly value: string;
  /** Bounds that the current value does not say itself. */
  readonly note: string;
}

/** A cell in three parts: sign, current value, and what else is known for good. */
export function cellParts(known: Knowledge, column: Column | undefined): CellParts {
  const value = known.value === null && known.kind !== "exactly" ? "" : compactValue(known.value, column);
  const [lower, upper] = [compactValue(known.lower, column, "down"), compactValue(known.upper, column, "up")];
  const bounded = (sign: string, bound: Value, text: string): CellParts => {
    const isBoundItself = known.value === null || compareValues(known.value, bound, column) === 0;
    return isBoundItself ? { sign, value: text, note: "" } : { sign: "~", value, note: sign + text };
  };
  switch (known.kind) {
    case "exactly":
      return { sign: "=", value, note: "" };
    case "at_least":
      return bounded("≥", known.lower, lower);
    case "at_most":
      return bounded("≤", known.upper, upper);
    case "between":
      if (known.value !== null && compareValues(known.value, known.lower, column) === 0) return { sign: "≥", value, note: `≤${upper}` };
      if (known.value !== null && compareValues(known.value, known.upper, column) === 0) return { sign: "≤", value, note: `≥${lower}` };
      return { sign: "~", value, note: `${lower} to ${upper}` };
    case "rows":
      return { sign: known.isOpen ? "~" : "=", value: known.format(), note: "" };
    case "latest":
      return { sign: "~", value, note: `at ${compactTick(known.at ?? 0n)}` };
    case "unknown":
      return { sign: known.value === null ? "?" : "~", value: known.value === null ? "unknown" : value, note: "" };
  }
}

/** A value in a table: times to the millisecond, and no NULL in capitals among the numbers. */
export function compactValue(value: Value, column?: Column, rounding: Rounding = "nearest"): string {
  if (value === null) return "NULL";
  if (column?.kind === "time" && typeof value === "bigint") return compactTick(value, rounding);
  return formatValue(value, column, rounding);
}

/** Rounded up, it is an upper bound of the tick. */
export function compactTick(tick: bigint, rounding: Rounding = "nearest"): string {
  if (!isClockTick(tick)) return formatTick(tick);
  const rounded = rounding === "up" ? tick + TICKS_PER_MS - 1n : tick;
  return formatTick(rounded - (rounded % TICKS_PER_MS)).replace(/(\.\d{3})0+$/, "$1");
}

/** What is known of a value, as a sentence. */
export function sentence(known: Knowledge, column?: Column): string {
  const value = compactValue(known.value, column);
  const [lower, upper] = [compactValue(known.lower, column, "down"), compactValue(known.upper, column, "up")];
  const now = (bound: Value) => (compareValues(known.value, bound, column) === 0 ? "" : `; now ${value}`);
  switch (known.kind) {
    case "exactly":
      return `It is ${value}, for good.`;
    case "at_least":
      return `It is at least ${lower}, whatever comes${now(known.lower)}.`;
    case "at_most":
      return `It is at most ${upper}, whatever comes${now(known.upper)}.`;
    case "between":
      return `It is ${value} now, and will be between ${lower} and ${upper}.`;
    case "latest":
      return `It was ${compactValue(known.latest, column)} at ${compactTick(known.at ?? 0n)}. A later value may come.`;
    case "rows":
      return known.isOpen ? "Rows may still come or leave." : "No row comes or leaves any more; values may change.";
    case "unknown":
      return known.value === null ? "Nothing is known yet." : `It is ${value} now. Any value is still possible.`;
  }
}

export function rowState(row: Change): { certainty: Certainty; sign: string; text: string; title: string } {
  if (row.final) return { certainty: "final", sign: "✓", text: "final", title: "This row will never change" };
  if (row.stays) return { certainty: "bounded", sign: "", text: "open", title: "This row stays; its values may still change" };
  return { certainty: "open", sign: "~", text: "may leave", title: "This row may still change or leave" };
}

/** The number of a value, if it has one: for charts. */
export function numberOf(value: Value): number | null {
  if (value === null || typeof value === "object" || typeof value === "boolean") return null;
  const number = Number(value);
  return Number.isFinite(number) ? number : null;
}

export function isNumeric(column: Column): boolean {
  return ["int", "float", "decimal"].includes(column.kind);
}

export function formatCount(count: number | null | undefined): string {
  return count === null || count === undefined ? "–" : Math.round(count).toLocaleString("en");
}

/** `1 row`, `2 rows`. */
export function counted(count: number, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

export function formatRate(rate: number | null | undefined): string {
  if (rate === null || rate === undefined) return "–";
  if (rate > 0 && rate < 0.05) return "<0.1/s";
  return `${rate >= 10 || rate === 0 ? formatCount(rate) : rate.toFixed(1)}/s`;
}

export function formatBytes(bytes: number | null | undefined): string {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = bytes < 1 ? 0 : Math.min(Math.floor(Math.log2(bytes) / 10), units.length - 1);
  const amount = bytes / 1024 ** power;
  return `${amount >= 100 || power === 0 ? Math.round(amount) : amount.toFixed(1)} ${units[power]}`;
}

export function formatSeconds(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 90) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129_600 ? `${(seconds / 3600).toFixed(1)} h` : `${Math.round(seconds / 86_400)} days`;
}

/** How far a tick is from now: `2.1 s ago`, `in 40 s`. Empty if it is no time of a clock. */
export function distance(tick: bigint, nowMs = Date.now()): string {
  if (!isClockTick(tick)) return "";
  const seconds = (tickDate(tick).getTime() - nowMs) / 1000;
  if (Math.abs(seconds) < 0.5) return "now";
  return seconds < 0 ? `${formatSeconds(-seconds)} ago` : `in ${formatSeconds(seconds)}`;
}
