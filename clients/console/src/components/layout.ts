/** Places the nodes of a graph in layers. Loaded when it is first needed. */

import { Graph, layout } from "@dagrejs/dagre";

export interface Size {
  readonly width: number;
  readonly height: number;
}

export interface Edge {
  readonly from: string;
  readonly to: string;
}

/** From left to right or from top to bottom, whichever is larger in the room that there is. */
export function placeGraph(ids: readonly string[], edges: readonly Edge[], node: Size, room: Size) {
  const [across, down] = [place(ids, edges, node, "LR"), place(ids, edges, node, "TB")];
  const scale = (graph: Size) => Math.min(1, room.width / graph.width, room.height / graph.height);
  return scale(down) > scale(across) ? down : across;
}

function place(ids: readonly string[], edges: readonly Edge[], node: Size, direction: "LR" | "TB") {
  const graph = new Graph();
  const isAcross = direction === "LR";
  graph.setGraph({ rankdir: direction, nodesep: 22, ranksep: isAcross ? 56 : 38, marginx: 16, marginy: 16 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const id of ids) graph.setNode(id, { width: node.width, height: node.height });
  for (const edge of edges) if (graph.hasNode(edge.from) && graph.hasNode(edge.to)) graph.setEdge(edge.from, edge.to);
  layout(graph);
  const places = new Map(ids.map((id) => [id, { x: graph.node(id).x as number, y: graph.node(id).y as number }]));
  const lines = graph.edges().map((edge) => smoothPath(graph.edge(edge).points as { x: number; y: number }[], isAcross));
  const { width = 0, height = 0 } = graph.graph();
  return { places, lines, width, height };
}

function smoothPath(points: readonly { x: number; y: number }[], isAcross: boolean): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let path = `M${first.x} ${first.y}`;
  let previous = first;
  for (const point of rest) {
    const [x, y] = [(previous.x + point.x) / 2, (previous.y + point.y) / 2];
    path += isAcross
      ? ` C${x} ${previous.y} ${x} ${point.y} ${point.x} ${point.y}`
      : ` C${previous.x} ${y} ${point.x} ${y} ${point.x} ${point.y}`;
    previous = point;
  }
  return path;
}
