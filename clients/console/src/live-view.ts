/** The rows of a view as the page shows them, what has changed in them of late, and their order.
 *
 * A frame is acknowledged when it is drawn. So a page that is slow, hidden or paused receives fewer changes: the broker
 * merges what waits.
 */

import {
  compareValues, type Change, type Client, type Frame, type Schema, type SmileError, type Subscription,
} from "smile-client";

/** A hidden page draws nothing; it takes a frame that often. */
const HIDDEN_FRAME_MS = 500;
/** The order is computed again at most that often, and takes at most a tenth of the time. */
const ORDER_MS_MIN = 250;
const ORDER_TIME_SHARE = 10;
const HISTORY_CHANGES_MAX = 120;
const HISTORY_ROWS_MAX = 2_000;
const FLASH_MS = 1_200;

export interface Sorting {
  readonly column: string;
  readonly isDescending: boolean;
}

export interface Moment {
  readonly atMs: number;
  readonly change: Change;
}

export interface Flash {
  readonly atMs: number;
  /** Columns whose knowledge changed. */
  readonly columns: ReadonlySet<string>;
  readonly becameFinal: boolean;
}

export type Shown = "all" | "open" | "final";

export class LiveView {
  schema: Schema | null = null;
  problem: SmileError | null = null;
  paused: SmileError | null = null;
  isComplete = false;
  finals = 0;
  changeCount = 0;
  readonly rows = new Map<string, Change>();
  /** The columns that some row has had knowledge of: those that can change. */
  readonly evolving = new Set<string>();
  /** What is shown, in order. */
  order: readonly Change[] = [];

  private readonly subscription: Subscription;
  private readonly flashes = new Map<string, Flash>();
  private readonly histories = new Map<string, Moment[]>();
  private readonly listeners = new Set<() => void>();
  private sorting: readonly Sorting[] = [];
  private search = "";
  private shown: Shown = "all";
  private isOrderStale = true;
  private nextOrderMs = 0;
  private held: (() => void) | null = null;
  private isHeld = false;
  private drawRequest = 0;
  private orderTimer: ReturnType<typeof setTimeout> | undefined;
  readonly openedMs = Date.now();

  constructor(client: Client, view: string, where: Record<string, unknown>) {
    const handle = (frame: Frame) => this.receive(frame);
    const notify = () => this.requestDraw();
    this.subscription = client.subscribe(
      view,
      {
        where,
        onPaused: (problem) => {
          this.paused = problem;
          notify();
        },
        onEnded: (problem) => {
          this.problem = problem;
          notify();
        },
      },
      handle,
    );
  }

  close(): void {
    this.listeners.clear();
    this.subscription.close();
    this.held?.();
    cancelAnimationFrame(this.drawRequest);
    clearTimeout(this.orderTimer);
  }

  /** Calls the listener before each drawing. */
  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  get isPausedByUser(): boolean {
    return this.isHeld;
  }

  /** While it is held, the rows stay as they are, and the broker merges what changes. */
  hold(isHeld: boolean): void {
    this.isHeld = isHeld;
    if (!isHeld) {
      this.held?.();
      this.held = null;
    }
    this.requestDraw();
  }

  /** `sorting` has the first column first; the key decides between equal rows. */
  arrange(sorting: readonly Sorting[], search: string, shown: Shown): void {
    [this.sorting, this.search, this.shown] = [sorting, search.toLowerCase(), shown];
    this.isOrderStale = true;
    this.nextOrderMs = 0;
    this.requestDraw();
  }

  flash(id: string): Flash | null {
    const flash = this.flashes.get(id);
    return flash && performance.now() - flash.atMs < FLASH_MS ? flash : null;
  }

  /** What the row was since the page has been open, oldest first. */
  history(id: string): readonly Moment[] {
    return this.histories.get(id) ?? [];
  }

  // ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────

  private async receive(frame: Frame): Promise<void> {
    if (this.isHeld) await new Promise<void>((resolve) => (this.held = resolve));
    this.schema = this.subscription.schema;
    const nowMs = performance.now();
    if (frame.reset) this.removeOthers(frame.changes);
    for (const change of frame.changes) this.apply(change, nowMs, frame.reset && !this.isComplete);
    this.changeCount += frame.reset ? 0 : frame.changes.length;
    if (frame.progress) this.isComplete = true;
    this.prune(nowMs);
    await this.requestDraw();
  }

  private removeOthers(changes: readonly Change[]): void {
    const present = new Set(changes.map((change) => change.id));
    for (const id of this.rows.keys()) if (!present.has(id)) this.remove(id);
  }

  private remove(id: string): void {
    const before = this.rows.get(id);
    if (!before) return;
    if (before.final) this.finals--;
    this.rows.delete(id);
    this.flashes.delete(id);
    this.isOrderStale = true;
  }

  private apply(change: Change, nowMs: number, isFirst: boolean): void {
    const { id } = change;
    if (change.deleted) {
      this.remove(id);
      return;
    }
    const before = this.rows.get(id);
    if (before?.final) this.finals--;
    if (change.final) this.finals++;
    for (const name in change.knowledge) this.evolving.add(name);
    this.rows.set(id, change);
    if (isFirst) {
      this.isOrderStale = true;
      return;
    }
    const columns = changedColumns(before, change);
    const becameFinal = change.final && before !== undefined && !before.final;
    if (columns.size > 0 || becameFinal) {
      this.flashes.set(id, { atMs: nowMs, columns, becameFinal });
      this.remember(before, change);
    }
    const isMoved = this.sorting.some((sorting) => columns.has(sorting.column));
    if (before === undefined || isMoved || this.search || (becameFinal && this.shown !== "all")) this.isOrderStale = true;
  }

  private remember(before: Change | undefined, change: Change): void {
    const history = this.histories.get(change.id) ?? (before ? [{ atMs: this.openedMs, change: before }] : []);
    history.push({ atMs: Date.now(), change });
    if (history.length > HISTORY_CHANGES_MAX) history.shift();
    this.histories.delete(change.id);
    this.histories.set(change.id, history); // the last to be forgotten
    if (this.histories.size > HISTORY_ROWS_MAX) this.histories.delete(this.histories.keys().next().value as string);
  }

  private prune(nowMs: number): void {
    if (this.flashes.size < 500) return;
    for (const [id, flash] of this.flashes) if (nowMs - flash.atMs > FLASH_MS) this.flashes.delete(id);
  }

  // ── drawing ──────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Fulfilled when the listeners were called: before the browser draws next. */
  private requestDraw(): Promise<void> {
    return new Promise((resolve) => {
      const draw = () => {
        this.updateOrder();
        for (const listener of [...this.listeners]) listener();
        resolve();
      };
      if (document.hidden) setTimeout(draw, HIDDEN_FRAME_MS);
      else this.drawRequest = requestAnimationFrame(draw);
    });
  }

  private updateOrder(): void {
    const startMs = performance.now();
    if (!this.isOrderStale) return;
    if (startMs < this.nextOrderMs) {
      this.orderTimer ??= setTimeout(() => {
        this.orderTimer = undefined; // it may be called too early by a part of a millisecond, and is set again then
        void this.requestDraw();
      }, this.nextOrderMs - startMs);
      return;
    }
    clearTimeout(this.orderTimer);
    this.orderTimer = undefined;
    this.isOrderStale = false;
    this.order = this.computeOrder();
    const endMs = performance.now();
    this.nextOrderMs = endMs + Math.max(ORDER_MS_MIN, ORDER_TIME_SHARE * (endMs - startMs));
  }

  private computeOrder(): Change[] {
    const { schema, search, shown } = this;
    if (schema === null) return [];
    const rows: Change[] = [];
    for (const row of this.rows.values()) {
      if (shown !== "all" && row.final !== (shown === "final")) continue;
      if (search && !matches(row, schema, search)) continue;
      rows.push(row);
    }
    const columns = [...this.sorting.map((sorting) => sorting.column), ...schema.key];
    const descending = columns.map((name, i) => this.sorting[i]?.isDescending ?? schema.column(name)?.kind === "time");
    return rows.sort((a, b) => {
      for (let i = 0; i < columns.length; i++) {
        const name = columns[i]!;
        const order = compareValues(a.value(name), b.value(name), schema.column(name));
        if (order !== 0) return descending[i] ? -order : order;
      }
      return 0;
    });
  }
}

function matches(row: Change, schema: Schema, search: string): boolean {
  return schema.columns.some((column) => row.format(column.name).toLowerCase().includes(search));
}

function changedColumns(before: Change | undefined, after: Change): Set<string> {
  const names = [...Object.keys(after.row)];
  if (before === undefined) return new Set([...Object.keys(after.key), ...names]);
  return new Set(names.filter((name) => before.format(name) !== after.format(name)));
}
