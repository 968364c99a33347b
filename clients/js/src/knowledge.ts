/** Knowledge of one value: the set of values that it may still have in the end. The set only shrinks, until it has one
 * element and the knowledge is final. */

import { formatRows, formatTick, formatValue } from "./text.js";
import { compareValues, decodeValue, type Column, type Row, type Value } from "./values.js";

export type KnowledgeKind = "exactly" | "at_least" | "at_most" | "between" | "latest" | "rows" | "unknown";

/** Knowledge as the broker sends it. */
export interface EncodedKnowledge {
  readonly exactly?: unknown;
  readonly at_least?: unknown;
  readonly at_most?: unknown;
  readonly between?: readonly [unknown, unknown];
  readonly latest?: unknown;
  readonly at?: number | string;
  readonly source?: number;
  readonly rows?: readonly string[];
  readonly open?: boolean;
}

export class Knowledge<T extends Value = Value> {
  constructor(
    readonly kind: KnowledgeKind,
    /** The current value: the one in the end if there are no more events. */
    readonly value: T | null,
    /** The final value is at least this; null is no bound. */
    readonly lower: T | null = null,
    /** The final value is at most this; null is no bound. */
    readonly upper: T | null = null,
    /** The tick of a latest value. */
    readonly at: bigint | null = null,
    /** Which of several sources a latest value is of: of two at one tick, the greater is later. */
    readonly source: number | null = null,
    /** The state of each row of a nested relation: final, stays or shown. */
    readonly rowStates: readonly string[] = [],
    /** Whether rows of a nested relation may come or leave. */
    readonly isOpen: boolean = false,
    /** The latest value, which the current one may differ from. */
    readonly latest: T | null = null,
    private readonly column?: Column,
  ) {}

  static exactly(value: Value, column?: Column): Knowledge {
    return new Knowledge("exactly", value, value, value, null, null, [], false, null, column);
  }

  /** `value` is the current value, already decoded. */
  static decode(encoded: EncodedKnowledge, value: Value, column?: Column): Knowledge {
    const decode = (item: unknown) => decodeValue(column, item);
    const make = (kind: KnowledgeKind, lower: Value, upper: Value) =>
      new Knowledge(kind, value, lower, upper, null, null, [], false, null, column);
    if ("exactly" in encoded) return Knowledge.exactly(decode(encoded.exactly), column);
    if ("at_least" in encoded) return make("at_least", decode(encoded.at_least), null);
    if ("at_most" in encoded) return make("at_most", null, decode(encoded.at_most));
    if (encoded.between) return make("between", decode(encoded.between[0]), decode(encoded.between[1]));
    if (encoded.at !== undefined) {
      const [at, source] = [BigInt(encoded.at), encoded.source ?? null];
      return new Knowledge("latest", value, null, null, at, source, [], false, decode(encoded.latest), column);
    }
    if (encoded.rows) {
      const isOpen = encoded.open ?? false;
      return new Knowledge("rows", value, null, null, null, null, encoded.rows, isOpen, null, column);
    }
    return make("unknown", null, null);
  }

  get isFinal(): boolean {
    return this.kind === "exactly";
  }

  /** Rows of a nested relation that will always be in it. Those that are not final may still change. */
  get rowsForGood(): readonly Row[] {
    const rows = (this.value ?? []) as Value as readonly Row[];
    return this.isFinal ? rows : rows.filter((_, i) => this.rowStates[i] !== "shown");
  }

  /** The sign of the knowledge without its value: `=`, `≥`, `≤`, `[]`, `@`, `{}`, `~` or `?`. */
  get sign(): string {
    if (this.kind === "unknown") return this.value === null ? "?" : "~";
    const signs = { exactly: "=", at_least: "≥", at_most: "≤", between: "[]", latest: "@", rows: "{}" };
    return signs[this.kind];
  }

  /** For people. `≥3` is also the current value, 3. A current value that is not itself a bound is marked, as in `7~` and
   * `5~ ≥3`: it may rise and fall. `3 [3..9]` can only rise. `?` is for what is not known at all. */
  format(): string {
    if (this.kind === "rows") return formatRows((this.value ?? []) as Value as readonly Row[], this.column, this.rowStates, this.isOpen);
    const bounds = this.formatBounds();
    const stated = { exactly: this.lower, at_least: this.lower, at_most: this.upper, latest: this.latest };
    const inText = this.kind in stated ? stated[this.kind as keyof typeof stated] : null;
    if (this.value === null || (inText !== null && this.isNow(inText))) return bounds || "?";
    const isBound = this.kind === "between" && [this.lower, this.upper].some((bound) => this.isNow(bound));
    return `${formatValue(this.value, this.column)}${isBound ? "" : "~"} ${bounds}`.trimEnd();
  }

  /** Whether this is the current value. */
  private isNow(bound: Value): boolean {
    return compareValues(this.value, bound, this.column) === 0;
  }

  /** What is known for good, or empty text. Rounded bounds are rounded outwards, so that they hold too. */
  formatBounds(): string {
    const lower = () => formatValue(this.lower, this.column, "down");
    const upper = () => formatValue(this.upper, this.column, "up");
    switch (this.kind) {
      case "exactly":
        return `=${formatValue(this.lower, this.column)}`;
      case "at_least":
        return `≥${lower()}`;
      case "at_most":
        return `≤${upper()}`;
      case "between":
        return `[${lower()}..${upper()}]`;
      case "latest": {
        const source = this.source === null ? "" : `/${this.source}`;
        return `${formatValue(this.latest, this.column)}@${formatTick(this.at ?? 0n)}${source}`;
      }
      default:
        return "";
    }
  }

  toString(): string {
    return this.format();
  }

  // Questions. True and false are permanent; null means undecided. A final NULL compares as false.

  atLeast(bound: T | null): boolean | null {
    return this.decide(this.lower, (lower) => lower >= 0, this.upper, (upper) => upper < 0, bound);
  }

  atMost(bound: T | null): boolean | null {
    return this.decide(this.upper, (upper) => upper <= 0, this.lower, (lower) => lower > 0, bound);
  }

  moreThan(bound: T | null): boolean | null {
    const answer = this.atMost(bound);
    return this.isFinal && this.lower === null ? false : answer === null ? null : !answer;
  }

  lessThan(bound: T | null): boolean | null {
    const answer = this.atLeast(bound);
    return this.isFinal && this.lower === null ? false : answer === null ? null : !answer;
  }

  /** `holds` and `fails` test how a bound compares with the asked one: negative if it is less. */
  private decide(
    proof: Value, holds: (order: number) => boolean, refutation: Value, fails: (order: number) => boolean, bound: Value,
  ): boolean | null {
    if (this.isFinal && this.lower === null) return false;
    if (proof !== null && holds(compareValues(proof, bound, this.column))) return true;
    return refutation !== null && fails(compareValues(refutation, bound, this.column)) ? false : null;
  }
}
