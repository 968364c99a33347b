/** The graph of the real plan, with live figures on it. A click shows what a node is and what it remembers. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Empty, Problem } from "./basics.tsx";
import { NodePanel } from "./node-panel.tsx";
import { usePolled } from "../broker.ts";
import type { Remembered } from "../model.ts";
import { formatBytes, formatRate, formatSeconds } from "../words.ts";

export interface GraphNode {
  readonly id: string;
  readonly kind: string;
  readonly name?: string | null;
  readonly label?: string;
  readonly stage?: number | string | null;
  readonly rate?: number | null;
  readonly lag_s?: number | null;
  readonly state_bytes?: number | null;
  readonly subscribed?: boolean;
  readonly operator?: string | null;
  readonly remembers?: readonly Remembered[];
  /** Of a link. */
  readonly state?: "up" | "down" | null;
  readonly problem?: string | null;
}

interface GraphData {
  readonly nodes: readonly GraphNode[];
  readonly edges: readonly { readonly from: string; readonly to: string }[];
}

interface Placed {
  readonly places: ReadonlyMap<string, { x: number; y: number }>;
  readonly lines: readonly string[];
  readonly width: number;
  readonly height: number;
}

const NODE_W = 190;
const NODE_H = 58;
/** The height above the graph. */
const HEAD_H = 170;
const ZOOM_STEP = 1.25;
const ZOOM_MIN = 0.2;
/** Texts can be read at this size and above. Where the graph does not fit so, it is scrolled. */
const FIT_MIN = 0.8;
const ZOOM_MAX = 2.5;

export function ProgramGraph() {
  const { data, problem } = usePolled<GraphData>("/program/graph", 2000);
  const [chosen, setChosen] = useState<string | null>(null);
  // The places depend on the shape only, not on the figures.
  const shape = data ? JSON.stringify([data.nodes.map((node) => node.id), data.edges]) : null;
  const [placed, setPlaced] = useState<Placed | null>(null);
  useEffect(() => {
    if (!data) return;
    let isGone = false;
    void import("./layout.ts").then(({ placeGraph }) => {
      if (isGone) return;
      const { clientWidth, clientHeight } = document.getElementById("main")!;
      const room = { width: clientWidth, height: clientHeight - HEAD_H };
      setPlaced(placeGraph(data.nodes.map((node) => node.id), data.edges, { width: NODE_W, height: NODE_H }, room));
    });
    return () => void (isGone = true);
  }, [shape]);
  const scroller = useRef<HTMLDivElement>(null);
  const room = useWidth(scroller, placed !== null);
  /** null: as large as there is room for. */
  const [zoom, setZoom] = useState<number | null>(null);
  const scale = zoom ?? (placed && room > 0 ? Math.max(FIT_MIN, Math.min(1, room / placed.width)) : 1);
  const start = placed && data ? data.nodes.map((item) => placed.places.get(item.id)).find((place) => place !== undefined) : undefined;
  useEffect(() => {
    // Where the graph is wider than the room, it begins at its first stream.
    if (scroller.current && start) scroller.current.scrollLeft = start.x * scale - scroller.current.clientWidth / 2;
  }, [placed, room > 0]);
  const changeZoom = (factor: number) => setZoom(Math.max(ZOOM_MIN, Math.min(ZOOM_MAX, scale * factor)));
  const node = useMemo(() => data?.nodes.find((item) => item.id === chosen) ?? null, [data, chosen]);
  if (problem && !data) return <Problem problem={problem} />;
  if (!data || !placed) return <Empty title="Drawing…" />;
  if (data.nodes.length === 0) return <Empty title="The program is empty" />;
  return (
    <div class={node ? "graph-page with-panel" : "graph-page"}>
      <div class="graph-frame">
      <div class="zoom" role="toolbar" aria-label="Size of the graph">
        <button type="button" onClick={() => changeZoom(1 / ZOOM_STEP)} aria-label="Smaller">−</button>
        <button type="button" onClick={() => setZoom(null)} aria-pressed={zoom === null}>Fit</button>
        <button type="button" onClick={() => changeZoom(ZOOM_STEP)} aria-label="Larger">+</button>
      </div>
      <div class="graph-scroller" ref={scroller} tabIndex={0} role="region" aria-label="Graph of the program">
        <svg class="graph" width={placed.width * scale} height={placed.height * scale} viewBox={`0 0 ${placed.width} ${placed.height}`}>
          <defs>
            <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
              <path d="M0 0L8 4L0 8Z" />
            </marker>
          </defs>
          {placed.lines.map((path) => <path class="edge" d={path} marker-end="url(#arrow)" />)}
          {data.nodes.map((item) => {
            const place = placed.places.get(item.id);
            return place && <NodeBox node={item} place={place} isChosen={item.id === chosen} onChoose={() => setChosen(item.id)} />;
          })}
        </svg>
      </div>
      </div>
      {node && <NodePanel node={node} onClose={() => setChosen(null)} />}
    </div>
  );
}

interface NodeBoxProps {
  readonly node: GraphNode;
  readonly place: { x: number; y: number };
  readonly isChosen: boolean;
  readonly onChoose: () => void;
}

function NodeBox({ node, place, isChosen, onChoose }: NodeBoxProps) {
  const title = node.name ?? node.label ?? node.id;
  const figures = [
    node.state ?? null,
    node.rate !== null && node.rate !== undefined ? formatRate(node.rate) : null,
    node.lag_s ? `${formatSeconds(node.lag_s)} behind` : null,
    node.state_bytes ? formatBytes(node.state_bytes) : null,
  ].filter((text) => text !== null);
  const press = (event: KeyboardEvent) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    onChoose();
  };
  const subtitle = node.name && node.label && node.label !== node.name ? node.label : node.kind;
  return (
    <g
      class={`node ${node.kind} ${node.state ?? ""} ${isChosen ? "chosen" : ""}`} transform={`translate(${place.x - NODE_W / 2} ${place.y - NODE_H / 2})`}
      role="button" tabindex={0} aria-pressed={isChosen} onClick={onChoose} onKeyDown={press}
    >
      <rect width={NODE_W} height={NODE_H} rx="10" />
      <foreignObject width={NODE_W} height={NODE_H}>
        <div class="node-text" title={title}>
          <div class="node-title">{title}</div>
          <div class="node-note">{[subtitle, ...figures].join(" · ")}</div>
        </div>
      </foreignObject>
    </g>
  );
}

/** The width inside the element. */
function useWidth(element: { readonly current: HTMLElement | null }, isThere: boolean): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const host = element.current;
    if (!host) return;
    const observer = new ResizeObserver(() => setWidth(host.clientWidth));
    observer.observe(host);
    return () => observer.disconnect();
  }, [isThere]);
  return width;
}
