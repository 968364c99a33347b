/** A WebSocket to the broker that is made again when it is lost, with growing delays between attempts. */

import { connectionError, SmileError } from "./errors.js";
import { request, type Address } from "./http.js";
import { parseJson, writeJson } from "./values.js";

const DELAY_MS_MIN = 50;
const DELAY_MS_MAX = 5_000;
/** A broker that says nothing for this long, not even an answer to a ping, is gone. */
const SILENCE_MS_MAX = 20_000;
const PING_MS = 8_000;
const CLOSE_POLICY = 1008;
const CLOSE_MESSAGE_TOO_BIG = 1009;
/** Answers that another attempt would not change. */
const PERMANENT_STATUSES = [400, 401, 403, 404];

export interface ConnectionEvents {
  onOpen(): void;
  onMessage(message: Record<string, unknown>): void;
  /** If it is permanent, there are no further attempts. */
  onLost(problem: SmileError, isPermanent: boolean): void;
  /** The broker has refused a message because of its size. */
  onTooBig(): void;
}

export class Connection {
  private socket: WebSocket | null = null;
  private delayMs = DELAY_MS_MIN;
  private heardAt = 0;
  private timer: ReturnType<typeof setInterval> | undefined;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private isClosed = false;
  isOpen = false;

  constructor(
    private readonly address: Address,
    private readonly events: ConnectionEvents,
    private readonly WebSocketClass: typeof WebSocket,
  ) {}

  open(): void {
    const { url, token } = this.address;
    const protocols = token === null ? ["smile"] : ["smile", `smile.token.${token}`];
    const socket = new this.WebSocketClass(`ws${url.replace(/^http/, "")}/ws`, protocols);
    this.socket = socket;
    socket.onopen = () => {
      this.isOpen = true;
      this.heardAt = Date.now();
      this.timer = setInterval(() => this.watch(), PING_MS);
      this.events.onOpen();
    };
    socket.onmessage = (event: MessageEvent) => this.receive(event.data);
    socket.onclose = (event: CloseEvent) => void this.lose(socket, event.code);
    socket.onerror = () => {
      if (!this.isOpen) void this.lose(socket, 0); // Node 20 reports a failed handshake by this event alone
    };
  }

  send(message: object | string): void {
    if (this.isOpen) this.socket?.send(typeof message === "string" ? message : writeJson(message));
  }

  /** Makes a new connection at once. */
  reconnect(): void {
    if (this.isClosed) return;
    if (this.socket) void this.lose(this.socket, 0);
  }

  close(): void {
    this.isClosed = true;
    clearTimeout(this.retry);
    this.detach();
  }

  private receive(data: unknown): void {
    this.heardAt = Date.now();
    this.delayMs = DELAY_MS_MIN;
    let message: Record<string, unknown>;
    try {
      message = parseJson(String(data)) as Record<string, unknown>;
    } catch {
      this.reconnect(); // the protocol is broken; a new connection begins anew
      return;
    }
    this.events.onMessage(message);
  }

  private watch(): void {
    if (Date.now() - this.heardAt > SILENCE_MS_MAX) this.reconnect();
    else this.send({ ping: 1 });
  }

  private detach(): void {
    clearInterval(this.timer);
    this.isOpen = false;
    const socket = this.socket;
    this.socket = null;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = socket.onerror = null;
    socket.close();
  }

  private async lose(socket: WebSocket, code: number): Promise<void> {
    if (this.isClosed || socket !== this.socket) return;
    const wasOpen = this.isOpen;
    this.detach();
    if (code === CLOSE_MESSAGE_TOO_BIG) this.events.onTooBig();
    const lost = connectionError(`${this.address.url}: the connection was lost`);
    const problem = !wasOpen || code === CLOSE_POLICY ? ((await this.findRefusal()) ?? lost) : lost;
    if (this.isClosed) return;
    const isPermanent = problem.status !== undefined && PERMANENT_STATUSES.includes(problem.status);
    this.events.onLost(problem, isPermanent);
    if (isPermanent) return;
    this.retry = setTimeout(() => this.open(), this.delayMs * (0.5 + Math.random() / 2));
    this.delayMs = Math.min(2 * this.delayMs, DELAY_MS_MAX);
  }

  /** A browser does not say why a handshake failed; the same question over HTTP does. */
  private async findRefusal(): Promise<SmileError | null> {
    try {
      await request(this.address, "/subscriptions");
      return null;
    } catch (reason) {
      return reason instanceof SmileError ? reason : null;
    }
  }
}
