/** What is typed into a field of a column: its value for the broker, and what is wrong with it.
 *
 * Times are written as the page shows them, by the browser's clock; ticks are accepted too.
 */

import { tickOf } from "smile-client";
import type { ColumnInfo } from "../model.ts";

export interface Field {
  readonly value: unknown;
  readonly problem: string | null;
}

const INT_MIN = -(2n ** 63n);
const INT_MAX = 2n ** 63n - 1n;
const TICK_MAX = INT_MAX - 2n ** 61n;
const CLOCK = /^(?:(\d{4}-\d\d-\d\d)[ T])?(\d\d?:\d\d(?::\d\d)?)(?:\.(\d{1,6}))?\s*(Z|UTC|[+-]\d\d:?\d\d)?$/i;

export function parseField(column: ColumnInfo, text: string): Field {
  if (text === "") return column.nullable === false ? wrong(text, "A value is required.") : right(null);
  const isWhole = /^[+-]?\d+$/.test(text);
  switch (column.type) {
    case "int":
      return isWhole ? inRange(text, INT_MIN, INT_MAX) : wrong(text, "Write a whole number.");
    case "time": {
      if (isWhole) return inRange(text, 0n, TICK_MAX);
      const tick = parseTime(text);
      return tick === null ? wrong(text, "Write a time, such as 2026-01-31 12:00:00, or a tick.") : inRange(tick.toString(), 0n, TICK_MAX);
    }
    case "interval":
      if (isWhole) return inRange(text, INT_MIN, INT_MAX);
      return /\d.*[a-z]/i.test(text) ? right(text) : wrong(text, "Write an interval, such as 3 minutes, or a number of ticks.");
    case "float":
      return isNumber(text) && Number.isFinite(Number(text)) ? right(Number(text)) : wrong(text, "Write a number.");
    case "bool":
      return text === "true" || text === "false" ? right(text === "true") : wrong(text, "Write true or false.");
    case "date":
      return isDate(text) ? right(text) : wrong(text, "Write a date, such as 2026-01-31.");
    case "timestamp":
      return isWhole || (isDate(text.slice(0, 10)) && (text.length === 10 || CLOCK.test(text))) ? right(text) : wrong(text, "Write a timestamp, such as 2026-01-31 12:00:00.");
  }
  const decimal = /^decimal\((\d+), ?(\d+)\)$/.exec(column.type);
  return decimal ? parseDecimal(text, Number(decimal[1]), Number(decimal[2])) : right(text);
}

export function placeholder(column: ColumnInfo): string {
  if (column.nullable !== false) return "empty is NULL";
  return {
    int: "42", float: "1.5", bool: "true", date: "2026-01-31", timestamp: "2026-01-31 12:00:00", time: "2026-01-31 12:00:00",
    interval: "3 minutes",
  }[column.type] ?? "";
}

/** The tick of a time of the browser's clock, or of the zone that it names; without a date, it is today's. */
export function parseTime(text: string, today: Date = new Date()): bigint | null {
  const parts = CLOCK.exec(text.trim());
  if (!parts) return null;
  const [, date, clock = "", fraction = "", zone] = parts;
  const two = (n: number) => String(n).padStart(2, "0");
  const day = date ?? `${today.getFullYear()}-${two(today.getMonth() + 1)}-${two(today.getDate())}`;
  const time = `${clock.length < 5 || clock[1] === ":" ? "0" : ""}${clock}${clock.split(":").length < 3 ? ":00" : ""}`;
  const offset = zone === undefined ? "" : /^(z|utc)$/i.test(zone) ? "Z" : zone;
  const at = new Date(`${day}T${time}${offset}`);
  if (!isDate(day) || Number.isNaN(at.getTime())) return null;
  return tickOf(at) + BigInt(fraction.padEnd(6, "0")) * 1024n;
}

function parseDecimal(text: string, digits: number, scale: number): Field {
  if (!isNumber(text)) return wrong(text, "Write a number.");
  const [, whole = "", fraction = ""] = /^[+-]?0*(\d*)\.?(\d*)$/.exec(text) ?? [];
  if (whole.length > digits - scale) return wrong(text, `At most ${digits - scale} digits before the point.`);
  return fraction.length > scale ? wrong(text, `At most ${scale} digits after the point.`) : right(text);
}

function inRange(text: string, least: bigint, greatest: bigint): Field {
  const value = BigInt(text.replace(/^\+/, ""));
  if (value < least || value > greatest) return wrong(text, `Write a number from ${least} to ${greatest}.`);
  return right(Number.isSafeInteger(Number(value)) ? Number(value) : value.toString());
}

function isNumber(text: string): boolean {
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text);
}

/** Also that the day exists: not the 30th of February. */
function isDate(text: string): boolean {
  const at = new Date(`${text}T00:00:00Z`);
  return /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(at.getTime()) && at.toISOString().startsWith(text);
}

function right(value: unknown): Field {
  return { value, problem: null };
}

function wrong(text: string, problem: string): Field {
  return { value: text, problem };
}
