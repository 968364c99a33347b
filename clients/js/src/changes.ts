/** Changes of a view. A change is the whole present knowledge of one row, so the last change of a row replaces all
 * earlier ones. */

import type { AnyView, ColumnOf, KeyOf, ValueOf, ValuesOf, ViewTypes } from "./broker-types.js";
import { didYouMean, SmileError } from "./errors.js";
import { Knowledge, type EncodedKnowledge } from "./knowledge.js";
import { formatValue } from "./text.js";
import { decodeRow, parseColumn, writeJson, type Column, type Row } from "./values.js";

/** What is known of a view: its key, its columns, and the streams it is computed from. */
export class Schema {
  readonly columns: readonly Column[];
  private readonly byName: ReadonlyMap<string, Column>;

  constructor(
    readonly view: string,
    readonly key: readonly string[],
    types: Record<string, string>,
    readonly streams: readonly string[],
  ) {
    this.columns = Object.entries(types).map(([name, type]) => parseColumn(name, type));
    this.byName = new Map(this.columns.map((column) => [column.name, column]));
  }

  column(name: string): Column | undefined {
    return this.byName.get(name);
  }

  /** The column, or E022 if there is none of this name. */
  requireColumn(name: string): Column {
    const column = this.byName.get(name);
    if (column !== undefined) return column;
    const names = [...this.byName.keys()];
    const hint = didYouMean(name, names) ?? `It has ${names.join(", ")}.`;
    throw new SmileError([{ code: "E022", message: `${this.view} has no column ${name}`, hint }]);
  }
}

/** A row as the broker sends it. */
export interface EncodedRow {
  readonly key: Record<string, unknown>;
  readonly row?: Record<string, unknown>;
  readonly knowledge?: Record<string, EncodedKnowledge>;
  readonly final?: boolean;
  readonly stays?: boolean;
  readonly deleted?: boolean;
  readonly steps?: number;
}

export class Change<V extends ViewTypes = AnyView> {
  /** Equal for changes of the same row. */
  readonly id: string;

  constructor(
    readonly schema: Schema,
    readonly key: KeyOf<V>,
    /** The current values of the columns outside the key. */
    readonly row: ValuesOf<V>,
    /** The knowledge of the columns that evolve. */
    readonly knowledge: { readonly [column: string]: Knowledge },
    /** The row will not change any more. */
    readonly final: boolean,
    /** The row is hidden. */
    readonly deleted: boolean,
    /** The row is shown for good, though its values may change. */
    readonly stays: boolean,
    /** How many events the row has absorbed. */
    readonly steps: number,
  ) {
    this.id = writeJson(schema.key.map((name) => (key as Row)[name]));
  }

  static decode(schema: Schema, encoded: EncodedRow): Change {
    const key = decodeRow(schema.columns, encoded.key);
    const row = decodeRow(schema.columns, encoded.row ?? {});
    const knowledge: Record<string, Knowledge> = {};
    for (const [name, known] of Object.entries(encoded.knowledge ?? {})) {
      knowledge[name] = Knowledge.decode(known, row[name] ?? null, schema.column(name));
    }
    const final = encoded.final ?? false;
    const stays = final || (encoded.stays ?? false);
    return new Change(schema, key, row, knowledge, final, encoded.deleted ?? false, stays, encoded.steps ?? 0);
  }

  /** That a row is gone which a new snapshot does not have. */
  static deletion(of: Change): Change {
    return new Change(of.schema, of.key, {}, {}, false, true, false, of.steps);
  }

  /** The current value of a column; null if the row is deleted. E022 if the view has no such column. */
  value<C extends ColumnOf<V>>(column: C): ValueOf<V, C> | null {
    this.schema.requireColumn(column);
    const value = (this.row as Row)[column] ?? (this.key as Row)[column] ?? null;
    return value as ValueOf<V, C> | null;
  }

  /** The knowledge of a column. A column that does not evolve is final. */
  get<C extends ColumnOf<V>>(column: C): Knowledge<ValueOf<V, C>> {
    const described = this.schema.requireColumn(column);
    const known = this.knowledge[column] ?? Knowledge.exactly(this.value(column), described);
    return known as unknown as Knowledge<ValueOf<V, C>>;
  }

  /** A column for people: its knowledge, or just its value if it cannot evolve. */
  format(column: ColumnOf<V>): string {
    const described = this.schema.requireColumn(column);
    return this.knowledge[column]?.format() ?? formatValue(this.value(column), described);
  }
}

/** Changes that arrived together. With `progress`, all changes up to these ticks have been received, and `resume` is the
 * token to continue from. With `reset`, they are all rows: others are gone. */
export interface Frame<V extends ViewTypes = AnyView> {
  readonly changes: readonly Change<V>[];
  readonly progress: { readonly [stream: string]: bigint } | null;
  readonly resume: string | null;
  readonly reset: boolean;
}
