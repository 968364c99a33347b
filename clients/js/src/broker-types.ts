/** Types of a broker's streams and views, for `connect<Broker>()`: `smile-types` prints the interface `Broker`. */

import type { Row, Value } from "./values.js";

/** A view: all columns of its rows, and the names of those that are its key. */
export interface ViewTypes {
  readonly row: object;
  readonly key: string;
}

export interface BrokerTypes {
  readonly streams: { readonly [stream: string]: object };
  readonly views: { readonly [view: string]: ViewTypes };
}

/** A view of which nothing is known. */
export interface AnyView {
  readonly row: Row;
  readonly key: string;
}

/** A broker of which nothing is known. */
export interface AnyBroker {
  readonly streams: { readonly [stream: string]: object };
  readonly views: { readonly [view: string]: AnyView };
}

export type StreamOf<B extends BrokerTypes> = keyof B["streams"] & string;
export type ViewOf<B extends BrokerTypes> = keyof B["views"] & string;
export type ColumnOf<V extends ViewTypes> = keyof V["row"] & string;
export type ValueOf<V extends ViewTypes, C extends ColumnOf<V>> = Extract<V["row"][C], Value>;
/** The columns of the key. */
export type KeyOf<V extends ViewTypes> = string extends V["key"] ? Row : Pick<V["row"], V["key"] & keyof V["row"]>;
/** The other columns. A deleted row has none of them. */
export type ValuesOf<V extends ViewTypes> = string extends V["key"] ? Row : Partial<Omit<V["row"], V["key"]>>;
