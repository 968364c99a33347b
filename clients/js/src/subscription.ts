/** A subscription, independent of connections: it resumes from its last token. */

import type { AnyView, ViewTypes } from "./broker-types.js";
import { Change, Schema, type EncodedRow, type Frame } from "./changes.js";
import { connectionError, type SmileError } from "./errors.js";

/** The broker sends at most this many frames that are not acknowledged. Later changes of a row replace earlier ones
 * meanwhile, so a slow subscriber receives fewer of them. */
const WINDOW_FRAMES = 8;

export interface SubscribeOptions<V extends ViewTypes = AnyView> {
  /** Only rows with these values, of columns that never change. */
  readonly where?: string extends V["key"] ? Record<string, unknown> : Partial<V["row"]>;
  /** Only rows that are final: each comes once. */
  readonly final?: boolean;
  /** The token of an earlier frame, of this program run or another one. */
  readonly resume?: string;
  /** Rows are sent when they include everything up to these ticks. */
  readonly after?: Record<string, bigint | number>;
}

export interface EncodedSchema {
  readonly key: string[];
  readonly columns: Record<string, string>;
  readonly streams: string[];
}

export interface EncodedFrame {
  readonly id: number;
  readonly n: number;
  readonly rows?: readonly EncodedRow[];
  readonly progress?: Record<string, string | number>;
  readonly resume?: string;
  readonly reset?: boolean;
}

/** Receives frames in order. The next one is requested when the promise is fulfilled. */
export type FrameHandler<V extends ViewTypes = AnyView> = (frame: Frame<V>) => void | Promise<void>;

/** What a subscription tells its owner besides frames. */
export interface SubscriptionEvents {
  /** The broker cannot compute the view for now, or (null) it can again. */
  readonly onPaused?: (problem: SmileError | null) => void;
  /** The subscription has ended with an error: the broker has ended it, or refuses the client for good. Not called after
   * `close()`. If nothing observes the error, neither this nor an iterator nor `ready`, it is written to the console. */
  readonly onEnded?: (problem: SmileError) => void;
}

/** The rows of a view, kept up to date. Iterating over it yields the frames from now on. */
export class Subscription<V extends ViewTypes = AnyView> implements AsyncIterable<Frame<V>> {
  schema: Schema | null = null;
  /** The token of the last frame: a later subscription continues from there. */
  resume: string | null;
  /** Why nothing more arrives, for good. */
  error: SmileError | null = null;
  /** Why the view is not maintained now. */
  paused: SmileError | null = null;
  /** The rows by `Change.id`, after the first snapshot is complete. */
  rows: ReadonlyMap<string, Change<V>> = new Map();
  progress: { readonly [stream: string]: bigint } | null = null;

  /** That the view was changed. It is subscribed to again, and continues if it has the same columns. */
  viewChange: SmileError | null = null;

  /** The key and the types of the columns as text. */
  private types = "";
  private readonly whenReady: Promise<void>;
  /** Whether somebody has asked for `ready`, which is not settled yet. */
  private isAwaited = false;
  private live = new Map<string, Change<V>>();
  private snapshot: Map<string, Change<V>> | null = null;
  private hasSnapshot = false;
  private connection = 0;
  private handling: Promise<void> = Promise.resolve();
  private settleReady!: { resolve: () => void; reject: (problem: SmileError) => void };

  constructor(
    readonly id: number,
    readonly view: string,
    private readonly options: SubscribeOptions<V>,
    private readonly handler: FrameHandler<V>,
    private readonly events: SubscriptionEvents,
    private readonly send: (message: object) => void,
    private readonly onClose: () => void,
  ) {
    this.resume = options.resume ?? null;
    this.whenReady = new Promise((resolve, reject) => (this.settleReady = { resolve, reject }));
    this.whenReady.catch(() => undefined); // a caller that only iterates need not handle it
  }

  /** Fulfilled when all rows are there; rejected if the subscription ends before. */
  get ready(): Promise<void> {
    this.isAwaited ||= !this.hasSnapshot;
    return this.whenReady;
  }

  /** Stops it. Its rows stay as they are; `ready` is rejected if it is not fulfilled yet. */
  close(): void {
    if (this.error === null) this.onClose();
    this.stop(connectionError("the subscription was closed"));
  }

  /** Iterating stops with the error that ends the subscription. Leaving the loop closes the subscription. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Frame<V>> {
    const frames = new FrameQueue<V>();
    this.queues.add(frames);
    try {
      if (this.hasSnapshot) {
        yield { changes: [...this.rows.values()], progress: this.progress, resume: this.resume, reset: true };
      }
      for (;;) {
        if (this.error && frames.isEmpty) throw this.error;
        const frame = await frames.next();
        if (frame) yield frame;
      }
    } finally {
      this.queues.delete(frames);
      frames.end();
      this.close();
    }
  }

  private readonly queues = new Set<FrameQueue<V>>();

  // ── messages of the broker ───────────────────────────────────────────────────────────────────────────────────────

  /** The first message on a new connection. */
  subscribeMessage(): object {
    this.connection++;
    this.snapshot = null;
    const { where, final, after } = this.options;
    return {
      subscribe: this.view, id: this.id, window: WINDOW_FRAMES,
      ...(where && Object.keys(where).length > 0 ? { where } : {}),
      ...(final ? { final } : {}),
      ...(this.resume !== null ? { resume: this.resume } : {}),
      ...(after && !this.hasSnapshot ? { after } : {}),
    };
  }

  /** Returns why it ends if the view was changed, and has other columns now. */
  receiveSchema(message: EncodedSchema): SmileError | null {
    const types = JSON.stringify([message.key, message.columns]);
    if (this.viewChange !== null && types !== this.types) return this.viewChange;
    this.viewChange = null;
    this.types = types;
    this.schema = new Schema(this.view, message.key, message.columns, message.streams);
    this.receivePause(null);
    return null;
  }

  receivePause(problem: SmileError | null): void {
    if (problem === null && this.paused === null) return;
    this.paused = problem;
    this.events.onPaused?.(problem);
  }

  receiveFrame(message: EncodedFrame): void {
    const { schema, connection } = this;
    if (schema === null) return;
    const changes = (message.rows ?? []).map((row) => Change.decode(schema, row) as unknown as Change<V>);
    const frame = this.apply(changes, message);
    const acknowledge = () => {
      if (connection === this.connection && this.error === null) this.send({ ack: this.id, n: message.n });
    };
    const handled = frame === null ? this.handling : this.handling.then(() => this.deliver(frame));
    this.handling = handled.then(acknowledge, (problem: unknown) => {
      acknowledge();
      reportError(problem);
    });
  }

  /** The subscription has ended, and its user has not closed it. */
  end(problem: SmileError): void {
    if (this.error !== null) return;
    const isObserved = this.events.onEnded !== undefined || this.queues.size > 0 || this.isAwaited;
    this.stop(problem);
    this.events.onEnded?.(problem);
    if (!isObserved) console.error(`smile: the subscription to ${this.view} has ended: ${problem.describe()}`);
  }

  /** Nothing more arrives. */
  stop(problem: SmileError): void {
    if (this.error !== null) return;
    this.error = problem;
    this.settleReady.reject(problem);
    for (const queue of this.queues) queue.end();
  }

  /** All rows come again, of another history or definition. */
  beginAnew(): void {
    this.resume = null;
    if (this.options.final) this.live = new Map();
  }

  /** Applies changes to the rows. Returns what to deliver: nothing while a snapshot is incomplete. */
  private apply(changes: readonly Change<V>[], message: EncodedFrame): Frame<V> | null {
    if (this.options.final) return this.applyFinal(changes, message);
    if (message.reset) this.snapshot = new Map();
    const target = this.snapshot ?? this.live;
    for (const change of changes) {
      if (change.deleted) target.delete(change.id);
      else target.set(change.id, change);
    }
    const progress = message.progress ? decodeTicks(message.progress) : null;
    this.resume = message.resume ?? this.resume;
    this.progress = progress ?? this.progress;
    const resume = this.resume;
    if (this.snapshot === null) {
      if (progress) this.becomeReady();
      return { changes, progress, resume, reset: false };
    }
    if (progress === null) return null;
    this.live = this.snapshot;
    this.snapshot = null;
    this.becomeReady();
    return { changes: [...this.live.values()], progress, resume, reset: true };
  }

  /** Final rows stay as they are, so those that come again in a new snapshot are left out. */
  private applyFinal(all: readonly Change<V>[], message: EncodedFrame): Frame<V> {
    const changes = all.filter((change) => !this.live.has(change.id));
    for (const change of changes) this.live.set(change.id, change);
    const progress = message.progress ? decodeTicks(message.progress) : null;
    this.resume = message.resume ?? this.resume;
    this.progress = progress ?? this.progress;
    if (progress) this.becomeReady();
    return { changes, progress, resume: this.resume, reset: false };
  }

  private becomeReady(): void {
    this.rows = this.live;
    if (this.hasSnapshot) return;
    this.hasSnapshot = true;
    this.isAwaited = false;
    this.settleReady.resolve();
  }

  /** The frame is handled when all who iterate have taken it. */
  private async deliver(frame: Frame<V>): Promise<void> {
    await this.handler(frame);
    await Promise.all([...this.queues].map((queue) => queue.put(frame)));
  }
}

/** Frames for one iterator. */
class FrameQueue<V extends ViewTypes> {
  private frames: { frame: Frame<V>; taken: () => void }[] = [];
  private wake: (() => void) | null = null;
  private isEnded = false;

  get isEmpty(): boolean {
    return this.frames.length === 0;
  }

  put(frame: Frame<V>): Promise<void> {
    if (this.isEnded) return Promise.resolve();
    return new Promise((taken) => {
      this.frames.push({ frame, taken });
      this.wake?.();
    });
  }

  /** The next frame, or null if there will be none. */
  async next(): Promise<Frame<V> | null> {
    while (this.isEmpty && !this.isEnded) await new Promise<void>((resolve) => (this.wake = resolve));
    const item = this.frames.shift();
    item?.taken();
    return item?.frame ?? null;
  }

  end(): void {
    this.isEnded = true;
    this.wake?.();
  }
}

function decodeTicks(ticks: Record<string, string | number>): Record<string, bigint> {
  return Object.fromEntries(Object.entries(ticks).map(([stream, tick]) => [stream, BigInt(tick)]));
}

/** An error of a handler must not stop the subscription, and must not be lost either. */
function reportError(problem: unknown): void {
  queueMicrotask(() => {
    throw problem;
  });
}
