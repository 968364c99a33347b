export type { AnyBroker, AnyView, BrokerTypes, ColumnOf, KeyOf, ValueOf, ValuesOf, ViewTypes } from "./broker-types.js";
export { Change, Schema, type EncodedRow, type Frame } from "./changes.js";
export { Client, connect, type ConnectOptions, type Published, type PublishOptions, type Snapshot } from "./client.js";
export { SmileError, type Diagnostic } from "./errors.js";
export type { RequestOptions } from "./http.js";
export { Knowledge, type KnowledgeKind } from "./knowledge.js";
export { Subscription, type FrameHandler, type SubscribeOptions, type SubscriptionEvents } from "./subscription.js";
export { formatFloat, formatInterval, formatTick, formatValue, isClockTick, tickDate, tickOf, type Rounding } from "./text.js";
export { compareValues, parseColumn, parseJson, writeJson, type Column, type Json, type Kind, type Row, type Value } from "./values.js";
