/** What the broker says about itself over HTTP. Fields that may be missing are so in brokers without them. */

export interface ColumnInfo {
  readonly name: string;
  readonly type: string;
  readonly role?: "tick" | "key" | "value";
  readonly nullable?: boolean;
  readonly domain?: string;
  readonly range?: readonly (string | number)[] | string | null;
  readonly direction?: string;
}

/** What is kept in memory and on disk, and until when. */
export interface Remembered {
  readonly what: string;
  readonly until?: string | null;
}

export interface OriginInfo {
  readonly origin: string;
  readonly horizon?: string | number;
  readonly broker?: string;
  readonly state?: string;
  readonly holds_back?: boolean;
}

export interface StreamEvent {
  readonly at: string | number;
  readonly origin?: string;
  readonly event: Record<string, unknown>;
}

export interface StreamInfo {
  readonly name: string;
  readonly columns: readonly ColumnInfo[];
  readonly origins?: readonly OriginInfo[] | number | string;
  readonly horizon?: string | number | null;
  readonly events?: number;
  readonly rate?: number;
  readonly publishable?: boolean;
  readonly publisher_timed?: boolean;
  readonly source?: string;
  readonly checks?: readonly string[];
  readonly newest?: readonly StreamEvent[];
}

/** The order of ORDER BY … LIMIT. */
export type RowOrder = readonly { readonly column: string; readonly descending: boolean }[];

export interface ViewInfo {
  readonly name: string;
  readonly key: readonly string[];
  readonly order?: RowOrder;
  readonly columns: readonly ColumnInfo[];
  readonly rows?: number;
  readonly changes_per_s?: number | null;
  readonly lag_s?: number | null;
  readonly subscribers?: number;
  readonly subscribed?: boolean;
  readonly state?: string;
  readonly sql?: string;
  readonly mmpl?: string;
  readonly remembers?: readonly Remembered[];
}

export interface Waiting {
  readonly kind: string;
  readonly text: string;
  /** The text, with ticks instead of times. */
  readonly parts: readonly (string | { readonly tick: string | number })[];
}

export interface Finality {
  readonly final: boolean;
  readonly cells: { readonly [column: string]: { readonly waits_for: readonly Waiting[] } };
  readonly waits_for: readonly Waiting[];
  readonly earliest: string | number | null;
  readonly text: string;
}

export interface Principal {
  readonly name: string;
  readonly tokens: number;
  readonly grants: readonly { readonly right: string; readonly name: string }[];
}

export interface Access {
  readonly tokens_required: boolean;
  readonly caller: string;
  readonly principals: readonly Principal[];
}

export interface TourStep {
  readonly title: string;
  readonly text: string;
  readonly view?: string | null;
  readonly column?: string | null;
  /** A page that has no name, such as program. */
  readonly page?: string | null;
}

export interface Tour {
  readonly title: string;
  readonly steps: readonly TourStep[];
  /** The step that the demo is at, from 0. */
  readonly running?: number | null;
}
