/** Values of columns, as JavaScript has them and as the broker sends them.
 *
 * | type of the column         | JavaScript |
 * |----------------------------|------------|
 * | int, decimal without digits| number, or bigint if a number cannot hold it |
 * | time, interval             | bigint: ticks |
 * | decimal                    | number, or text if a number cannot hold all of its digits |
 * | float                      | number |
 * | bool, string               | boolean, string |
 * | date, timestamp, bytes     | text as the broker writes it |
 * | relation                   | array of objects |
 * | json                       | what JSON.parse makes of it; integers that a number cannot hold are text |
 */

export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };
export type Value = null | boolean | number | bigint | string | readonly Row[] | Json;
export type Row = { readonly [column: string]: Value };

export type Kind =
  | "bool" | "int" | "float" | "decimal" | "string" | "bytes" | "time" | "interval" | "timestamp" | "date"
  | "relation" | "json";

const SIMPLE_KINDS: readonly string[] = [
  "bool", "int", "float", "string", "bytes", "time", "interval", "timestamp", "date",
];

/** A column of a view or a stream. `scale` counts the digits of a decimal after the point; `columns` are those of a
 * nested relation. */
export interface Column {
  readonly name: string;
  readonly type: string;
  readonly kind: Kind;
  readonly scale: number;
  readonly columns: readonly Column[];
}

/** Reads a type as the broker writes it, such as `decimal(10, 2)` or `relation{a: int}`. */
export function parseColumn(name: string, type: string): Column {
  const decimal = /^decimal\((\d+), ?(\d+)\)$/.exec(type);
  if (decimal) return { name, type, kind: "decimal", scale: Number(decimal[2]), columns: [] };
  if (type.startsWith("relation{") && type.endsWith("}")) {
    const columns = splitColumns(type.slice("relation{".length, -1)).map((text) => {
      const at = text.indexOf(": ");
      return parseColumn(text.slice(0, at), text.slice(at + 2));
    });
    return { name, type, kind: "relation", scale: 0, columns };
  }
  return { name, type, kind: SIMPLE_KINDS.includes(type) ? (type as Kind) : "json", scale: 0, columns: [] };
}

/** Splits `a: int, b: decimal(6, 2)` at the commas that follow a type and are outside brackets. */
function splitColumns(text: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let start = 0;
  for (let i = 0; i < text.length; i++) {
    const char = text.charAt(i);
    if ("({".includes(char)) depth++;
    if (")}".includes(char)) depth--;
    if (char === "," && depth === 0 && text.slice(start, i).includes(": ")) {
      parts.push(text.slice(start, i));
      start = i + 2;
    }
  }
  return text ? [...parts, text.slice(start)] : [];
}

/** A long number of the JSON text: a number of JavaScript would lose its last digits. */
const STRING_OR_LONG_NUMBER = /"(?:[^"\\]|\\.)*"|(?<![\d.eE+-])-?\d{16,}(?![\d.eE])/g;

/** Parses JSON. Integers that a number cannot hold become text, as the broker writes long ticks. */
export function parseJson(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(
    text.replace(STRING_OR_LONG_NUMBER, (match) =>
      match.startsWith('"') || Number.isSafeInteger(Number(match)) ? match : `"${match}"`,
    ),
  );
}

/** Writes JSON. A bigint is a number in it, or text beyond 2^53. */
export function writeJson(value: unknown): string {
  return JSON.stringify(value, (_, item: unknown) => (typeof item === "bigint" ? writeInt(item) : item));
}

function writeInt(value: bigint): number | string {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value.toString();
}

export function decodeValue(column: Column | undefined, encoded: unknown): Value {
  if (encoded === null || encoded === undefined) return null;
  switch (column?.kind) {
    case "time":
    case "interval":
      return BigInt(encoded as string | number);
    case "int":
      return decodeInt(encoded as string | number);
    case "decimal":
      return column.scale === 0 ? decodeInt(encoded as string | number) : (encoded as number | string);
    case "float":
      return Number(encoded);
    case "relation":
      return (encoded as Record<string, unknown>[]).map((row) => decodeRow(column.columns, row));
    default:
      return encoded as Value;
  }
}

function decodeInt(encoded: string | number): number | bigint {
  const number = Number(encoded);
  return Number.isSafeInteger(number) ? number : BigInt(encoded);
}

export function decodeRow(columns: readonly Column[], encoded: Record<string, unknown>): Row {
  const row: Record<string, Value> = {};
  for (const [name, value] of Object.entries(encoded)) {
    row[name] = decodeValue(columns.find((column) => column.name === name), value);
  }
  return row;
}

/** Orders two values of one column: negative if `a` is less. NULL is the least. */
export function compareValues(a: Value, b: Value, column?: Column): number {
  if (a === null || b === null) return (a === null ? 0 : 1) - (b === null ? 0 : 1);
  if (column?.kind === "decimal" && (typeof a === "string" || typeof b === "string")) {
    return compareDecimals(String(a), String(b));
  }
  if (typeof a === "object" || typeof b === "object") return writeJson(a) < writeJson(b) ? -1 : 1;
  return a < b ? -1 : a > b ? 1 : 0;
}

function compareDecimals(a: string, b: string): number {
  const digits = Math.max(a.split(".")[1]?.length ?? 0, b.split(".")[1]?.length ?? 0);
  const scaled = (text: string) => {
    const [whole = "0", fraction = ""] = text.split(".");
    return BigInt(whole + fraction.padEnd(digits, "0"));
  };
  const difference = scaled(a) - scaled(b);
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}
