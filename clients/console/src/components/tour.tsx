/** The story of a demo, told in steps beside the live view. It follows the step that the demo is at, until the reader
 * turns the pages. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { usePolled } from "../broker.ts";
import type { Tour, TourStep } from "../model.ts";
import { routeTo, type Route } from "../route.ts";
import type { Focus } from "../pages/view.tsx";

const POLL_MS = 1_000;
/** How often a tour is read that follows nothing, or that is not there. */
const REST_MS = 60_000;

/** The tour of the broker, and where the reader is in it. */
export interface TourState {
  readonly tour: Tour | null;
  readonly isOpen: boolean;
  readonly at: number;
  readonly isFollowing: boolean;
  /** The cell that the step speaks of, if the page shows its view. */
  readonly focus: Focus | null;
  readonly open: (isOpen: boolean) => void;
  /** To a step; null follows the demo. */
  readonly move: (at: number | null) => void;
}

/** Whoever comes to no page in particular is shown the tour. */
const isFirstPage = location.hash.replace(/^#\/?/, "") === "";

export function useTour(route: Route): TourState {
  const [everyMs, setEveryMs] = useState(POLL_MS);
  const { data } = usePolled<Tour>("/tour", everyMs);
  const tour = data !== null && data.steps.length > 0 ? data : null;
  const running = tour?.running ?? null;
  const [isOpen, setOpen] = useState(false);
  const [chosen, setChosen] = useState<number | null>(null);
  useEffect(() => setEveryMs(data === null || running !== null ? POLL_MS : REST_MS), [data === null, running === null]);
  useEffect(() => {
    if (tour !== null && isFirstPage) setOpen(true);
  }, [tour !== null]);
  const at = tour === null ? 0 : Math.min(chosen ?? running ?? 0, tour.steps.length - 1);
  const step = tour?.steps[at] ?? null;
  const isShown = isOpen && step !== null;
  const address = step === null ? "" : addressOf(step);
  // A reader who has gone elsewhere is not called back by a step of the demo.
  const last = useRef("");
  const isWanted = useRef(true);
  useEffect(() => {
    if (!isShown || address === "") return;
    const isWithTour = location.hash === last.current || location.hash === "";
    if (isWanted.current || isWithTour) location.hash = last.current = address;
    isWanted.current = false;
  }, [isShown, address, at]);
  const column = isShown && step.view === route.name ? step.column : null;
  const focus = useMemo(() => (column ? { column } : null), [column, at, route.name]);
  const open = (next: boolean) => {
    isWanted.current = true;
    setOpen(next);
  };
  const move = (next: number | null) => {
    isWanted.current = true;
    setChosen(next);
    if (address !== "" && (next ?? running) === at) location.hash = last.current = address;
  };
  return { tour, isOpen: isShown, at, isFollowing: chosen === null && running !== null, focus, open, move };
}

function addressOf(step: TourStep): string {
  return step.view ? routeTo("views", step.view) : step.page ? routeTo(step.page) : "";
}

export function TourPanel({ state }: { state: TourState }) {
  const { tour, at, isFollowing, move } = state;
  const [isFolded, setFolded] = useState(false);
  if (tour === null) return null;
  const step = tour.steps[at]!;
  const running = tour.running ?? null;
  const words = running === null || isFollowing ? `${at + 1} of ${tour.steps.length}` : `${at + 1} of ${tour.steps.length}; the demo is at ${running + 1}`;
  return (
    <section class={isFolded ? "tour folded" : "tour"} aria-label="Tour">
      <header>
        <span class="eyebrow">{tour.title} · {words}</span>
        <span>
          <button type="button" class="quiet" onClick={() => setFolded(!isFolded)} aria-expanded={!isFolded}>{isFolded ? "Show" : "Fold"}</button>
          <button type="button" class="quiet" onClick={() => state.open(false)} aria-label="End the tour">✕</button>
        </span>
      </header>
      {!isFolded && (
        <>
          <div class="tour-text" aria-live="polite">
            <h2>{step.title}</h2>
            {step.text.split(/\n\s*\n/).map((paragraph) => <p>{paragraph}</p>)}
          </div>
          <div class="tour-buttons">
            <ol class="dots" aria-hidden="true">{tour.steps.map((_, i) => <li class={i === at ? "here" : i === running ? "running" : ""} />)}</ol>
            {running !== null && <button type="button" aria-pressed={isFollowing} onClick={() => move(isFollowing ? at : null)}>Follow the demo</button>}
            <button type="button" disabled={at === 0} onClick={() => move(at - 1)}>Back</button>
            {at + 1 < tour.steps.length
              ? <button type="button" class="primary" onClick={() => move(at + 1)}>Next</button>
              : <button type="button" class="primary" onClick={() => state.open(false)}>Done</button>}
          </div>
        </>
      )}
    </section>
  );
}
