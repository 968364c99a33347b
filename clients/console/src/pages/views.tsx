/** All views. */

import { Chip, Empty, Problem } from "../components/basics.tsx";
import { usePolled } from "../broker.ts";
import type { ViewInfo } from "../model.ts";
import { routeTo } from "../route.ts";
import { formatCount, formatRate, formatSeconds } from "../words.ts";

export function ViewsPage() {
  const { data, problem } = usePolled<{ views: ViewInfo[] }>("/views", 2000);
  const views = [...(data?.views ?? [])].sort((a, b) => Number(b.subscribed ?? true) - Number(a.subscribed ?? true));
  return (
    <div class="page">
      <header class="page-head"><div><h1>Views</h1><p class="lead">What the program keeps up to date. Open one to watch it.</p></div></header>
      <Problem problem={problem} />
      {data && views.length === 0 && (
        <Empty title="There are no views yet"><p>Write one on the <a href={routeTo("program")}>Program</a> page.</p></Empty>
      )}
      <ul class="cards">
        {views.map((view) => <ViewCard view={view} />)}
      </ul>
    </div>
  );
}

function ViewCard({ view }: { view: ViewInfo }) {
  const isOpen = view.subscribed ?? true;
  return (
    <li class={isOpen ? "card" : "card inner"}>
      <div class="card-head">
        {isOpen ? <a class="card-title" href={routeTo("views", view.name)}>{view.name}</a> : <span class="card-title">{view.name}</span>}
        {!isOpen && <Chip kind="quiet">not subscribed</Chip>}
        {isOpen && (view.state === "paused" || view.state === "filling") && <Chip kind="warn">{view.state}</Chip>}
      </div>
      <p class="column-list">
        {view.columns.map((column) => (
          <span class={view.key.includes(column.name) ? "key" : ""} title={`${column.name}: ${column.type}`}>{column.name}</span>
        ))}
      </p>
      {isOpen && (
        <p class="card-figures">
          <span><b>{formatCount(view.rows)}</b> {view.rows === 1 ? "row" : "rows"}</span>
          <span><b>{formatRate(view.changes_per_s)}</b> changes</span>
          <span><b>{formatCount(view.subscribers)}</b> {view.subscribers === 1 ? "subscriber" : "subscribers"}</span>
          {view.lag_s !== null && view.lag_s !== undefined && <span><b>{formatSeconds(view.lag_s)}</b> behind</span>}
        </p>
      )}
    </li>
  );
}
