/** The connection of the page to its broker, and what pages read from it over HTTP. */

import { createContext } from "preact";
import { useCallback, useContext, useEffect, useRef, useState } from "preact/hooks";
import { connect, type Client, SmileError } from "smile-client";

const TOKEN_KEY = "smile.token";

export type ConnectionState = "connecting" | "connected" | "away" | "refused";

export interface Broker {
  readonly client: Client;
  readonly state: ConnectionState;
  readonly problem: SmileError | null;
}

export const BrokerContext = createContext<Broker | null>(null);

export function useBroker(): Broker {
  const broker = useContext(BrokerContext);
  if (broker === null) throw new Error("there is no broker");
  return broker;
}

export function storedToken(): string | undefined {
  return sessionStorage.getItem(TOKEN_KEY) ?? undefined;
}

/** The token lives as long as the tab. */
export function storeToken(token: string | undefined): void {
  if (token === undefined) sessionStorage.removeItem(TOKEN_KEY);
  else sessionStorage.setItem(TOKEN_KEY, token);
}

/** Connects with this token, and anew when it changes. */
export function useConnection(token: string | undefined): Broker | null {
  const [broker, setBroker] = useState<Broker | null>(null);
  useEffect(() => {
    let state: ConnectionState = "connecting";
    const client = connect({
      url: location.origin,
      token,
      onState: (problem, isPermanent) => {
        state = problem === null ? "connected" : isPermanent ? "refused" : "away";
        setBroker({ client, state, problem });
      },
    });
    setBroker({ client, state, problem: null });
    const online = () => client.reconnect();
    window.addEventListener("online", online);
    return () => {
      window.removeEventListener("online", online);
      client.close();
    };
  }, [token]);
  return broker;
}

export interface Polled<T> {
  readonly data: T | null;
  readonly problem: SmileError | null;
  readonly refresh: () => void;
}

/** Reads a path now and every `everyMs` while the page is visible. `null` reads nothing. */
export function usePolled<T>(path: string | null, everyMs: number): Polled<T> {
  const { client, state } = useBroker();
  const [result, setResult] = useState<{ path: string | null; data: T | null; problem: SmileError | null }>({
    path: null, data: null, problem: null,
  });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (path === null) return;
    const abort = new AbortController();
    const read = async () => {
      if (document.hidden) return;
      try {
        const data = await client.get<T>(path, { signal: abort.signal });
        setResult({ path, data, problem: null });
      } catch (problem) {
        if (abort.signal.aborted) return;
        const error = problem instanceof SmileError ? problem : null;
        setResult((before) => ({ path, data: before.path === path ? before.data : null, problem: error }));
      }
    };
    void read();
    const timer = setInterval(() => void read(), everyMs);
    return () => {
      abort.abort();
      clearInterval(timer);
    };
  }, [client, path, everyMs, turn, state === "connected"]);
  const refresh = useCallback(() => setTurn((n) => n + 1), []);
  const isCurrent = result.path === path;
  return { data: isCurrent ? result.data : null, problem: isCurrent ? result.problem : null, refresh };
}

/** Runs an action of the user, and keeps its outcome. */
export function useAction<A extends unknown[]>(action: (...args: A) => Promise<void>) {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<SmileError | null>(null);
  const isMounted = useRef(true);
  useEffect(() => () => void (isMounted.current = false), []);
  const run = async (...args: A) => {
    setBusy(true);
    setProblem(null);
    try {
      await action(...args);
    } catch (reason) {
      const error = reason instanceof SmileError ? reason : new SmileError([{ code: "E103", message: String(reason) }]);
      if (isMounted.current) setProblem(error);
    } finally {
      if (isMounted.current) setBusy(false);
    }
  };
  return { run, isBusy, problem, clear: () => setProblem(null) };
}
