/** Values as text for people: ticks are local times, floats have about six digits. `Value`s themselves are exact. */

import { writeJson, type Column, type Row, type Value } from "./values.js";

const TICKS_PER_MICROSECOND = 1024n;
/** Smaller ticks, before the middle of January 1970, are a publisher's. */
const CLOCK_TICK_MIN = 2n ** 50n;
/** Ticks from here on, after the year 2112, mean the end of the stream. */
const CLOCK_TICK_MAX = 2n ** 62n;
const DIGITS = 6;

export type Rounding = "nearest" | "down" | "up";

/** Whether a tick is a time of a broker's clock, and not a number that a publisher chose. */
export function isClockTick(tick: bigint): boolean {
  return CLOCK_TICK_MIN <= tick && tick < CLOCK_TICK_MAX;
}

/** The time of a tick, to the millisecond. */
export function tickDate(tick: bigint): Date {
  return new Date(Number(tick / TICKS_PER_MICROSECOND / 1000n));
}

/** The first tick at this time. */
export function tickOf(date: Date): bigint {
  return BigInt(date.getTime()) * 1000n * TICKS_PER_MICROSECOND;
}

/** The local time of a tick, without the date if it is today's. A tick that cannot be a clock's is a number. */
export function formatTick(tick: bigint, now: Date = new Date()): string {
  if (!isClockTick(tick)) return tick.toString();
  const date = tickDate(tick);
  const two = (n: number) => String(n).padStart(2, "0");
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}${fractionText(tick / TICKS_PER_MICROSECOND)}`;
  if (date.toDateString() === now.toDateString()) return time;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}

/** Days, hours, minutes and seconds, or a number of ticks if it is less than a microsecond. */
export function formatInterval(ticks: bigint): string {
  const size = ticks < 0n ? -ticks : ticks;
  if (size < TICKS_PER_MICROSECOND) return ticks.toString();
  const micros = size / TICKS_PER_MICROSECOND;
  const seconds = micros / 1_000_000n;
  const two = (n: bigint) => n.toString().padStart(2, "0");
  const days = seconds / 86_400n;
  const dayText = days === 0n ? "" : `${days} day${days === 1n ? "" : "s"}, `;
  const clock = `${(seconds / 3600n) % 24n}:${two((seconds / 60n) % 60n)}:${two(seconds % 60n)}`;
  return `${ticks < 0n ? "-" : ""}${dayText}${clock}${fractionText(micros)}`;
}

/** The fraction of a second, if there is one: `.250000`. */
function fractionText(micros: bigint): string {
  const fraction = micros % 1_000_000n;
  return fraction === 0n ? "" : `.${fraction.toString().padStart(6, "0")}`;
}

/** Six significant digits, but all digits before the point. Rounded down or up, it is a bound of the number. What is
 * rounded is the shortest text of the number: one that has six digits is shown as it was written, also as a bound. */
export function formatFloat(value: number, rounding: Rounding = "nearest"): string {
  if (!Number.isFinite(value) || value === 0) return String(value === 0 ? 0 : value);
  const [mantissa = "", power = "0"] = Math.abs(value).toExponential().split("e");
  const exponent = Number(power);
  const isPlain = exponent > -DIGITS && exponent < 15;
  const count = isPlain ? Math.max(DIGITS, exponent + 1) : DIGITS;
  const shortest = mantissa.replace(".", "").padEnd(count, "0");
  const [kept, rest] = [BigInt(shortest.slice(0, count)), shortest.slice(count)];
  const rounded = (isAway(kept, rest, value < 0, rounding) ? kept + 1n : kept).toString();
  const sign = value < 0 ? "-" : "";
  if (!isPlain) return sign + scientific(rounded, exponent + rounded.length - count);
  const fraction = count - exponent - 1;
  const padded = rounded.padStart(fraction + 1, "0");
  const whole = padded.slice(0, padded.length - fraction);
  const digits = padded.slice(padded.length - fraction).replace(/0+$/, "");
  return sign + whole + (digits && `.${digits}`);
}

/** Whether the digits that are kept are rounded away from zero. */
function isAway(kept: bigint, rest: string, isNegative: boolean, rounding: Rounding): boolean {
  if (rounding !== "nearest") return /[1-9]/.test(rest) && isNegative === (rounding === "down");
  const half = `5${"0".repeat(Math.max(0, rest.length - 1))}`;
  return rest > half || (rest === half && kept % 2n === 1n);
}

function scientific(digits: string, exponent: number): string {
  const fraction = digits.slice(1).replace(/0+$/, "");
  const power = String(Math.abs(exponent)).padStart(2, "0");
  return `${digits.slice(0, 1)}${fraction && `.${fraction}`}e${exponent < 0 ? "-" : "+"}${power}`;
}

/** `column` says what numbers are: without it, a tick is just a number. */
export function formatValue(value: Value, column?: Column, rounding: Rounding = "nearest"): string {
  if (value === null) return "NULL";
  if (typeof value === "object") {
    return Array.isArray(value) && column?.kind !== "json" ? formatRows(value as readonly Row[], column) : writeJson(value);
  }
  if (column?.kind === "time" && typeof value === "bigint") return formatTick(value);
  if (column?.kind === "interval" && typeof value === "bigint") return formatInterval(value);
  if (column?.kind === "float" && typeof value === "number") return formatFloat(value, rounding);
  return String(value);
}

/** A nested relation. A row that may leave or change is marked, and `…` stands for rows that may still come. */
export function formatRows(
  rows: readonly Row[], column?: Column, states: readonly string[] = [], isOpen = false,
): string {
  const texts = rows.map((row, i) => {
    const cells = Object.entries(row).map(
      ([name, value]) => `${name} ${formatValue(value, column?.columns.find((inner) => inner.name === name))}`,
    );
    return cells.join(", ") + ((states[i] ?? "final") === "final" ? "" : "~");
  });
  return `{${[...texts, ...(isOpen ? ["…"] : [])].join("; ")}}`;
}
