/** Conditions on the rows of a view, which the broker applies.
 *
 * Equality with a value that never changes is a condition of the subscription. The broker answers any other one as an
 * ad-hoc query over the view.
 */

import type { Column, Schema, Value } from "smile-client";
import { compactValue } from "../words.ts";

export const OPERATORS = ["=", "<", "≤", ">", "≥"] as const;
export type Operator = (typeof OPERATORS)[number];

export interface Condition {
  readonly column: string;
  readonly operator: Operator;
  readonly value: Value;
  /** Whether the column never changes. */
  readonly isConstant: boolean;
}

export type Conditions = readonly Condition[];

const SQL_OPERATORS: Record<Operator, string> = { "=": "=", "<": "<", "≤": "<=", ">": ">", "≥": ">=" };
const ORDERED: readonly string[] = ["int", "float", "decimal", "time", "timestamp", "date"];

export function operatorsOf(column: Column | undefined, canQuery: boolean): readonly Operator[] {
  return canQuery && column !== undefined && ORDERED.includes(column.kind) ? OPERATORS : ["="];
}

/** What can be compared with a value by a query. */
export function isComparable(column: Column): boolean {
  return ORDERED.includes(column.kind) || column.kind === "string" || column.kind === "bool";
}

export function needsQuery(conditions: Conditions): boolean {
  return conditions.some((condition) => condition.operator !== "=" || !condition.isConstant);
}

/** For a subscription. */
export function whereOf(conditions: Conditions): Record<string, unknown> {
  return Object.fromEntries(conditions.map((condition) => [condition.column, condition.value]));
}

export function queryText(view: string, conditions: Conditions, schema: Schema): string {
  const parts = conditions.map(({ column, operator, value }) =>
    value === null
      ? `${nameText(column)} IS NULL`
      : `${nameText(column)} ${SQL_OPERATORS[operator]} ${literal(value, schema.column(column))}`,
  );
  return `SELECT * FROM ${nameText(view)} WHERE ${parts.join(" AND ")}`;
}

export function conditionText(condition: Condition, schema: Schema): string {
  return `${condition.column} ${condition.operator} ${compactValue(condition.value, schema.column(condition.column))}`;
}

function nameText(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

function literal(value: Value, column: Column | undefined): string {
  const quoted = `'${String(value).replaceAll("'", "''")}'`;
  if (column?.kind === "time") return `CAST(${value} AS time)`;
  if (column?.kind === "timestamp" || column?.kind === "date") return `${column.kind.toUpperCase()} ${quoted}`;
  if (column?.kind === "string") return quoted;
  // Numbers are checked before: text that is none is never written without quotes.
  return /^(true|false|-?[\d.]+(e[+-]?\d+)?)$/i.test(String(value)) ? String(value) : quoted;
}
