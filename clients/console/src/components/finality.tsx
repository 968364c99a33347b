/** Why a row is not final: what it waits for, and when it can be final at the earliest. */

import { isClockTick, type Change, type Schema } from "smile-client";
import { useSeconds } from "./basics.tsx";
import { usePolled } from "../broker.ts";
import type { Finality, Waiting } from "../model.ts";
import { compactTick, distance } from "../words.ts";

const REFRESH_MS = 2_000;

const KIND_WORDS: Record<string, string> = {
  horizon: "Horizon", gap: "Gap", window: "Open window", neighbour: "Neighbour", end: "End of the stream",
  maintenance: "The view is behind", paused: "Paused", open: "Open global stream",
};

export function FinalityPanel(props: { view: string; schema: Schema; row: Change; column: string }) {
  const { view, schema, row, column } = props;
  const key = JSON.stringify(Object.fromEntries(schema.key.map((name) => [name, jsonValue(row.key[name])])));
  const cell = row.knowledge[column] ? `&column=${encodeURIComponent(column)}` : "";
  const path = `/views/${encodeURIComponent(view)}/finality?key=${encodeURIComponent(key)}${cell}`;
  const { data, problem } = usePolled<Finality>(path, REFRESH_MS);
  const waits = data ? waitsOf(data) : [];
  const earliest = data?.earliest ?? null;
  return (
    <section class="finality" aria-label="Why is this not final?">
      <h3>Why is this not final?</h3>
      {problem && <p class="muted">{problem.message}</p>}
      {data === null && !problem && <p class="muted">Asking the broker…</p>}
      {data && waits.length === 0 && <p>{data.text}</p>}
      <ul class="waits">{waits.map((wait) => <Wait wait={wait} />)}</ul>
      {earliest !== null && (
        <p class="earliest">
          Final at the earliest <strong>{compactTick(BigInt(earliest), "up")}</strong> <Distance tick={BigInt(earliest)} />
        </p>
      )}
    </section>
  );
}

/** How long it still takes. A countdown would be read aloud every second, so it is not. */
function Distance({ tick }: { tick: bigint }) {
  const now = useSeconds();
  return <span aria-hidden="true">{distance(tick, now)}</span>;
}

function Wait({ wait }: { wait: Waiting }) {
  return (
    <li>
      <span class="wait-kind">{KIND_WORDS[wait.kind] ?? wait.kind}</span>
      <span>{wait.parts.map((part) => (typeof part === "string" ? part : tickWords(BigInt(part.tick))))}</span>
    </li>
  );
}

/** A time as everywhere on the page. */
function tickWords(tick: bigint): string {
  return isClockTick(tick) ? compactTick(tick) : `tick ${tick}`;
}

/** What the cells wait for, often the same; if they are final, what the row waits for. */
function waitsOf(finality: Finality): Waiting[] {
  const ofCells = Object.values(finality.cells).flatMap((cell) => cell.waits_for);
  const waits = ofCells.length > 0 ? ofCells : finality.waits_for;
  return [...new Map(waits.map((wait) => [wait.text, wait])).values()];
}

function jsonValue(value: unknown): unknown {
  return typeof value === "bigint" ? (Number.isSafeInteger(Number(value)) ? Number(value) : value.toString()) : value;
}
