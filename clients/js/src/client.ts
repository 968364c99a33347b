/** The client: one connection for publications and subscriptions. When the connection is lost or the broker restarted, it
 * reconnects, sends unanswered publications again, and resumes subscriptions. */

import type { AnyBroker, AnyView, BrokerTypes, StreamOf, ViewOf, ViewTypes } from "./broker-types.js";
import type { Change, Schema } from "./changes.js";
import { Connection } from "./connection.js";
import { connectionError, decodeError, SmileError } from "./errors.js";
import { request, requestJson, type Address, type RequestOptions } from "./http.js";
import {
  Subscription, type EncodedFrame, type EncodedSchema, type FrameHandler, type SubscribeOptions, type SubscriptionEvents,
} from "./subscription.js";
import { writeJson } from "./values.js";

/** Publications that are not answered yet; more of them wait. */
const PENDING_MAX = 4_096;
const BROKER_STOPPING = "E098";
const RESUME_TOKEN_WRONG = "E094";
const VIEW_ENDED = "E095";

export interface ConnectOptions {
  /** Such as `https://broker.example.org:7400`. In a page that the broker serves: `location.origin`. */
  readonly url: string;
  readonly token?: string | undefined;
  /** Called when the connection is made (null) or lost. A failure that is permanent ends all calls. */
  readonly onState?: (problem: SmileError | null, isPermanent: boolean) => void;
  /** For environments without a WebSocket of their own. */
  readonly WebSocket?: typeof WebSocket;
}

export interface Published {
  readonly ticks: readonly bigint[];
  /** How many of the events had been logged by an earlier attempt, whose answer was lost. */
  readonly repeated: number;
  /** Columns that may be NULL, and are absent from some of the events. */
  readonly warnings: readonly { readonly column: string; readonly events: number; readonly message: string }[];
}

/** Publications have one producer for each stream, so that their sequence numbers have no gaps. */
interface Pending {
  readonly stream: string;
  readonly count: number;
  /** The events as JSON. */
  readonly events: string;
  /** The number of its first event, from when it is sent first: one that is never sent leaves no gap. */
  seq: number | null;
  readonly resolve: (published: Published) => void;
  /** With an error of the broker or the client, or with the reason of an `AbortSignal`. */
  readonly reject: (problem: unknown) => void;
}

export interface PublishOptions {
  /** Ends the wait for the broker. What has not been sent yet is not published; what has been sent may be. */
  readonly signal?: AbortSignal;
}

export interface Snapshot<V extends ViewTypes = AnyView> {
  readonly rows: readonly Change<V>[];
  readonly progress: { readonly [stream: string]: bigint };
  readonly resume: string;
  readonly schema: Schema;
}

export class Client<B extends BrokerTypes = AnyBroker> {
  readonly address: Address;
  private readonly connection: Connection;
  private readonly producer = Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
  private lastId = 0;
  private readonly sequences = new Map<string, number>();
  private readonly pending = new Map<number, Pending>();
  private readonly subscriptions = new Map<number, Subscription>();
  private turns: (() => void)[] = [];
  /** Why the client has ended. */
  private failure: SmileError | null = null;

  constructor(private readonly options: ConnectOptions) {
    const WebSocketClass = options.WebSocket ?? globalThis.WebSocket;
    if (WebSocketClass === undefined) {
      throw connectionError("there is no WebSocket here", "Use Node 22, or Node 20 with --experimental-websocket.");
    }
    this.address = { url: options.url.replace(/\/+$/, ""), token: options.token ?? null };
    const events = {
      onOpen: () => this.onOpen(),
      onMessage: (message: Record<string, unknown>) => this.onMessage(message),
      onLost: (problem: SmileError, isPermanent: boolean) => this.onLost(problem, isPermanent),
      onTooBig: () => this.failLargest(),
    };
    this.connection = new Connection(this.address, events, WebSocketClass);
    this.connection.open();
  }

  get isConnected(): boolean {
    return this.connection.isOpen;
  }

  /** Publishes all of the events or none. Fulfilled when they are on the broker's disk. */
  async publish<S extends StreamOf<B>>(
    stream: S,
    events: B["streams"][S] | readonly B["streams"][S][],
    { signal }: PublishOptions = {},
  ): Promise<Published> {
    const list: readonly object[] = Array.isArray(events) ? events : [events];
    const encoded = encodeEvents(stream, list);
    let id: number | null = null;
    const abort = () => (id === null ? this.wakeWaiting() : this.abandon(id, signal?.reason));
    signal?.addEventListener("abort", abort);
    try {
      while (this.pending.size >= PENDING_MAX && !this.failure && !signal?.aborted) {
        await new Promise<void>((resolve) => this.turns.push(resolve));
      }
      signal?.throwIfAborted();
      if (this.failure) throw this.failure;
      return await new Promise((resolve, reject) => {
        id = ++this.lastId;
        const pending = { stream, count: list.length, events: encoded, seq: null, resolve, reject };
        this.pending.set(id, pending);
        this.sendPublication(id, pending);
      });
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  /** Subscribes to a view. `handler` is called with each frame, first with all rows; the result has the rows. */
  subscribe<V extends ViewOf<B>>(
    view: V,
    options: SubscribeOptions<B["views"][V]> & SubscriptionEvents = {},
    handler: FrameHandler<B["views"][V]> = () => undefined,
  ): Subscription<B["views"][V]> {
    if (this.failure) throw this.failure;
    const id = ++this.lastId;
    const close = () => {
      if (this.subscriptions.delete(id)) this.connection.send({ unsubscribe: id });
    };
    const send = (message: object) => this.connection.send(message);
    const subscription = new Subscription<B["views"][V]>(id, view, options, handler, options, send, close);
    this.subscriptions.set(id, subscription as unknown as Subscription);
    this.connection.send(subscription.subscribeMessage());
    return subscription;
  }

  /** All rows of a view, once. */
  async snapshot<V extends ViewOf<B>>(view: V, options: SubscribeOptions<B["views"][V]> = {}): Promise<Snapshot<B["views"][V]>> {
    const subscription = this.subscribe(view, options);
    try {
      await subscription.ready;
      const { rows, progress, resume, schema } = subscription;
      return { rows: [...rows.values()], progress: progress ?? {}, resume: resume ?? "", schema: schema! };
    } finally {
      subscription.close();
    }
  }

  /** The key, the columns and the streams of a view. */
  async schema(view: ViewOf<B>): Promise<Schema> {
    return (await this.snapshot(view)).schema;
  }

  /** A request over HTTP, such as `get("/status")`. */
  get<T>(path: string, options: RequestOptions = {}): Promise<T> {
    return requestJson<T>(this.address, path, options);
  }

  request(path: string, options: RequestOptions = {}): Promise<Response> {
    return request(this.address, path, options);
  }

  /** Makes a new connection at once, for example when the network is back. */
  reconnect(): void {
    this.connection.reconnect();
  }

  /** Closes at once. Publications that are not answered may or may not have been logged. */
  close(): void {
    this.connection.close();
    const problem = connectionError("the client was closed");
    for (const subscription of this.subscriptions.values()) subscription.stop(problem);
    this.subscriptions.clear();
    this.fail(problem);
  }

  // ── the connection ───────────────────────────────────────────────────────────────────────────────────────────────

  private onOpen(): void {
    for (const subscription of this.subscriptions.values()) this.connection.send(subscription.subscribeMessage());
    for (const [id, pending] of this.pending) this.sendPublication(id, pending);
    this.options.onState?.(null, false);
  }

  private sendPublication(id: number, pending: Pending): void {
    if (!this.connection.isOpen) return;
    const { stream, count, events } = pending;
    if (pending.seq === null) {
      pending.seq = this.sequences.get(stream) ?? 1;
      this.sequences.set(stream, pending.seq + count);
    }
    const head = writeJson({ publish: stream, id, producer: `${this.producer}-${stream}`, seq: pending.seq });
    this.connection.send(`${head.slice(0, -1)},"events":${events}}`);
  }

  /** Nobody waits for the publication any more. One that was sent is kept until it is answered: the numbers of later ones
   * follow its own. */
  private abandon(id: number, reason: unknown): void {
    const pending = this.pending.get(id);
    if (pending?.seq === null) this.settle(id);
    pending?.reject(reason);
  }

  private onLost(problem: SmileError, isPermanent: boolean): void {
    if (isPermanent) this.fail(problem);
    this.options.onState?.(problem, isPermanent);
  }

  private fail(problem: SmileError): void {
    this.failure = problem;
    const [pending, subscriptions] = [[...this.pending.values()], [...this.subscriptions.values()]];
    this.pending.clear();
    this.subscriptions.clear();
    for (const publication of pending) publication.reject(problem);
    for (const subscription of subscriptions) subscription.end(problem);
    this.wakeWaiting();
  }

  /** The broker does not say which message was too large: the largest is the most likely. */
  private failLargest(): void {
    const [id] = [...this.pending].sort((a, b) => b[1].events.length - a[1].events.length)[0] ?? [];
    if (id === undefined) return;
    const message = "the broker does not accept a message of this size";
    this.settle(id)?.reject(decodeError({ code: "E092", message, hint: "Publish fewer events at a time." }));
  }

  private onMessage(message: Record<string, unknown>): void {
    const id = message["id"] as number;
    const subscription = this.subscriptions.get(id);
    const problem = message["error"] ?? message["ended"];
    if (problem) {
      this.onError(id, subscription, decodeError(problem));
    } else if (subscription) {
      if ("subscribed" in message) this.onSubscribed(subscription, message as unknown as EncodedSchema);
      else if ("paused" in message) {
        subscription.receivePause(message["paused"] ? decodeError(message["paused"]) : null);
      } else if ("n" in message) subscription.receiveFrame(message as unknown as EncodedFrame);
    } else if ("published" in message) {
      const ticks = (message["published"] as (string | number)[]).map(BigInt);
      const warnings = (message["warnings"] as Published["warnings"] | undefined) ?? [];
      this.settle(id)?.resolve({ ticks, repeated: (message["repeated"] as number | undefined) ?? 0, warnings });
    }
  }

  private onSubscribed(subscription: Subscription, schema: EncodedSchema): void {
    const problem = subscription.receiveSchema(schema);
    if (problem === null) return;
    this.connection.send({ unsubscribe: subscription.id });
    this.subscriptions.delete(subscription.id);
    subscription.end(problem);
  }

  private onError(id: number, subscription: Subscription | undefined, problem: SmileError): void {
    if (problem.code === BROKER_STOPPING) {
      this.connection.reconnect(); // its successor answers everything that is unanswered
    } else if (subscription && problem.code === RESUME_TOKEN_WRONG && subscription.resume !== null) {
      this.subscribeAnew(subscription);
    } else if (subscription && problem.code === VIEW_ENDED && subscription.schema && !subscription.viewChange) {
      subscription.viewChange = problem;
      this.subscribeAnew(subscription);
    } else if (subscription) {
      this.subscriptions.delete(id);
      subscription.end(subscription.viewChange ?? problem);
    } else {
      this.settle(id)?.reject(problem);
    }
  }

  private subscribeAnew(subscription: Subscription): void {
    subscription.beginAnew();
    this.connection.send(subscription.subscribeMessage());
  }

  private settle(id: number): Pending | undefined {
    const pending = this.pending.get(id);
    this.pending.delete(id);
    if (this.pending.size < PENDING_MAX) this.wakeWaiting();
    return pending;
  }

  private wakeWaiting(): void {
    const turns = this.turns;
    this.turns = [];
    for (const turn of turns) turn();
  }
}

/** The events as JSON, which has no NaN: it would become NULL. */
function encodeEvents(stream: string, events: readonly object[]): string {
  events.forEach((event, i) => {
    for (const [column, value] of Object.entries(event ?? {}) as [string, unknown][]) {
      if (typeof value !== "number" || Number.isFinite(value)) continue;
      const message = `event ${i + 1}: ${stream}.${column} is ${value}, which no column can hold`;
      const hint = "Publish null if the value is not known.";
      throw new SmileError([{ code: "E078", message, hint, event: i + 1, column }]);
    }
  });
  return writeJson(events);
}

/** Connects to a broker. It returns at once: calls wait for the connection. With the type that `smile-types` prints, as in
 * `connect<Broker>(…)`, names and values are checked by the compiler. */
export function connect<B extends BrokerTypes = AnyBroker>(options: ConnectOptions): Client<B> {
  return new Client<B>(options);
}

