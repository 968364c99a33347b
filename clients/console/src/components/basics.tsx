/** Small parts that all pages use. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { SmileError } from "smile-client";

export function Problem({ problem, text }: { problem: SmileError | null; text?: string | undefined }) {
  if (problem === null) return null;
  return (
    <div class="problem" role="alert">
      <strong>{problem.code}</strong> {text ? `${text}: ` : ""}{problem.message}
      {problem.hint && <div class="hint">{problem.hint}</div>}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

export function Chip({ kind, children }: { kind: string; children: ComponentChildren }) {
  return <span class={`chip ${kind}`}>{children}</span>;
}

export function Copyable({ text, label }: { text: string; label: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <figure class="code">
      <figcaption>
        <span>{label}</span>
        <button type="button" class="quiet" onClick={() => void copy()} aria-label={`Copy ${label}`}>
          {isCopied ? "Copied" : "Copy"}
        </button>
      </figcaption>
      <pre tabIndex={0} aria-label={label}>{text}</pre>
    </figure>
  );
}

export interface Tab {
  readonly id: string;
  readonly label: string;
}

export function Tabs(props: { tabs: readonly Tab[]; chosen: string; label: string; onChoose: (id: string) => void }) {
  const { tabs, chosen, label, onChoose } = props;
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    const at = tabs.findIndex((tab) => tab.id === chosen);
    const next = tabs[(at + step + tabs.length) % tabs.length]!;
    onChoose(next.id);
    document.getElementById(`tab-${next.id}`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {tabs.map((tab) => (
        <button
          type="button" role="tab" id={`tab-${tab.id}`} aria-selected={tab.id === chosen}
          tabIndex={tab.id === chosen ? 0 : -1} onClick={() => onChoose(tab.id)}
        >
          {tab.label}
        </button>
      ))}
    </div>
  );
}

/** A figure with what it means, and its last values as a line. */
export function Figure(props: { label: string; value: string; note?: string; series?: readonly number[] }) {
  return (
    <div class="figure">
      <div class="figure-label">{props.label}</div>
      <div class="figure-value">{props.value}</div>
      {props.series && props.series.length > 1 && <Sparkline values={props.series} />}
      {props.note && <div class="figure-note">{props.note}</div>}
    </div>
  );
}

function Sparkline({ values }: { values: readonly number[] }) {
  const top = Math.max(...values, 1e-9);
  const points = values.map((value, i) => `${((i / (values.length - 1)) * 100).toFixed(1)},${(24 - (value / top) * 22).toFixed(1)}`);
  return (
    <svg class="sparkline" viewBox="0 0 100 26" preserveAspectRatio="none" aria-hidden="true">
      <polygon points={`0,26 ${points.join(" ")} 100,26`} />
      <polyline points={points.join(" ")} />
    </svg>
  );
}

/** The last values of a figure that is polled. */
export function useSeries(value: number | null | undefined, stamp: unknown, length = 60): readonly number[] {
  const values = useRef<number[]>([]);
  const [series, setSeries] = useState<readonly number[]>([]);
  useEffect(() => {
    if (value === null || value === undefined) return;
    values.current = [...values.current, value].slice(-length);
    setSeries(values.current);
  }, [stamp]);
  return series;
}

/** Renders again every second, for times that pass. */
export function useSeconds(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
