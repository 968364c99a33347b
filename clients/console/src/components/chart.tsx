/** A number with the band of its possible values, which narrows to a line when it becomes final. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { formatFloat } from "smile-client";

export interface BandPoint {
  readonly atS: number;
  readonly value: number | null;
  /** null: no bound. */
  readonly lower: number | null;
  readonly upper: number | null;
}

export interface BandChartProps {
  readonly points: readonly BandPoint[];
  readonly label: string;
  readonly isTime: boolean;
  /** Whether a value holds until the next one, or is one of several beside each other. */
  readonly isStepped: boolean;
}

const HEIGHT_PX = 165;

export function BandChart({ points, label, isTime, isStepped }: BandChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const latest = useRef(points);
  latest.current = points;
  useEffect(() => {
    const element = host.current!;
    const create = () => {
      chart.current?.destroy();
      const range = () => rangeOf(latest.current);
      chart.current = new uPlot(chartOptions(element, isTime, isStepped, range), dataOf(latest.current), element);
    };
    create();
    const observer = new ResizeObserver(() => chart.current?.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
    observer.observe(element);
    const scheme = new MutationObserver(create);
    scheme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      observer.disconnect();
      scheme.disconnect();
      chart.current?.destroy();
      chart.current = null;
    };
  }, [isTime, isStepped]);
  useEffect(() => chart.current?.setData(dataOf(points)), [points]);
  const last = points.at(-1);
  return <div class="chart" ref={host} role="img" aria-label={`${label}. ${last ? describe(last) : "No values yet"}`} />;
}

function describe(point: BandPoint): string {
  const value = point.value === null ? "unknown" : formatFloat(point.value);
  if (point.lower !== null && point.lower === point.upper) return `Final: ${value}`;
  const lower = point.lower === null ? "no lower bound" : `at least ${formatFloat(point.lower)}`;
  const upper = point.upper === null ? "no upper bound" : `at most ${formatFloat(point.upper)}`;
  return `Now ${value}, ${lower}, ${upper}`;
}

/** Bounds far outside of the values would flatten the picture: the band then reaches the edge. */
function rangeOf(points: readonly BandPoint[]): [number, number] {
  const values = points.flatMap((point) => (point.value === null ? [] : [point.value]));
  if (values.length === 0) return [0, 1];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const spread = high - low || Math.abs(high) || 1;
  const near = points
    .flatMap((point) => [point.lower, point.upper])
    .filter((bound): bound is number => bound !== null && bound >= low - 2 * spread && bound <= high + 2 * spread);
  const [bottom, top] = [Math.min(low, ...near), Math.max(high, ...near)];
  const margin = (top - bottom || spread) * 0.25;
  return [low >= 0 ? Math.max(0, bottom - margin) : bottom - margin, top + margin];
}

function dataOf(points: readonly BandPoint[]): uPlot.AlignedData {
  const [bottom, top] = rangeOf(points);
  const clip = (bound: number | null, edge: number) => (bound === null ? edge : Math.max(bottom, Math.min(top, bound)));
  return [
    points.map((point) => point.atS),
    points.map((point) => (point.value === null && point.lower === null ? null : clip(point.lower, bottom))),
    points.map((point) => (point.value === null && point.upper === null ? null : clip(point.upper, top))),
    points.map((point) => (isFinal(point) ? null : point.value)),
    points.map((point) => (isFinal(point) ? point.value : null)),
  ];
}

function isFinal(point: BandPoint): boolean {
  return point.lower !== null && point.lower === point.upper;
}

function chartOptions(element: HTMLElement, isTime: boolean, isStepped: boolean, range: () => [number, number]): uPlot.Options {
  const color = (name: string) => resolveColor(element, name);
  const paths = isStepped ? uPlot.paths.stepped!({ align: 1 }) : uPlot.paths.linear!();
  const axis = {
    stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), size: 4 },
    font: "11px system-ui, sans-serif",
  };
  const line = (stroke: string, lineWidth: number, points: boolean): uPlot.Series => ({
    stroke, width: lineWidth, paths, points: { show: points, size: 6, fill: stroke }, spanGaps: false,
  });
  const edge: uPlot.Series = { stroke: color("--bounded-edge"), width: 1, paths, points: { show: false } };
  return {
    width: Math.max(element.clientWidth, 80),
    height: HEIGHT_PX,
    legend: { show: false },
    cursor: { show: false },
    padding: [10, 28, 0, 0],
    scales: { x: { time: isTime }, y: { range } },
    axes: [
      { ...axis, space: 70, size: 28, ...(isTime ? { values: timeLabels } : {}) },
      { ...axis, size: 56, space: 34, values: (_: uPlot, ticks: number[]) => ticks.map((tick) => formatFloat(tick)) },
    ],
    series: [
      {}, edge, edge, line(color("--open"), 2, !isStepped), line(color("--final"), 2.5, !isStepped),
    ],
    bands: [{ series: [2, 1], fill: color("--bounded-band") }],
  };
}

/** The present value of a colour: a canvas does not know what light and dark are. */
function resolveColor(element: HTMLElement, name: string): string {
  element.style.color = `var(${name})`;
  const color = getComputedStyle(element).color;
  element.style.color = "";
  return color;
}

function timeLabels(_: uPlot, ticks: number[]): string[] {
  return ticks.map((tick) => new Date(tick * 1000).toTimeString().slice(0, 8));
}
