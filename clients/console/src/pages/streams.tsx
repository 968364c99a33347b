/** All streams, and one of them: horizons, newest events, publishing. */

import { parseColumn, isClockTick } from "smile-client";
import { Chip, Empty, Figure, Problem, useSeconds, useSeries } from "../components/basics.tsx";
import { PublishForm } from "../components/publish-form.tsx";
import { usePolled } from "../broker.ts";
import type { OriginInfo, StreamEvent, StreamInfo } from "../model.ts";
import { routeTo } from "../route.ts";
import { compactTick, compactValue, distance, formatCount, formatRate } from "../words.ts";

export function StreamsPage() {
  const { data, problem } = usePolled<{ streams: StreamInfo[] }>("/streams", 2000);
  const now = useSeconds();
  return (
    <div class="page">
      <header class="page-head"><div><h1>Streams</h1><p class="lead">Where events come in. A horizon is the time up to which everything is known.</p></div></header>
      <Problem problem={problem} />
      {data?.streams.length === 0 && <Empty title="There are no streams yet" />}
      <ul class="cards">
        {data?.streams.map((stream) => (
          <li class="card">
            <div class="card-head">
              <a class="card-title" href={routeTo("streams", stream.name)}>{stream.name}</a>
              {stream.source && stream.source !== "program" && <Chip kind="quiet">{stream.source}</Chip>}
            </div>
            <p class="column-list">
              {stream.columns.map((column) => (
                <span class={column.role === "tick" ? "key" : ""} title={`${column.name}: ${column.type}`}>{column.name}</span>
              ))}
            </p>
            <p class="card-figures">
              <span><b>{formatCount(stream.events)}</b> events</span>
              <span><b>{formatRate(stream.rate)}</b></span>
              <span>known up to <b><Horizon tick={stream.horizon} now={now} /></b></span>
            </p>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Horizon({ tick, now }: { tick: string | number | null | undefined; now: number }) {
  if (tick === null || tick === undefined) return <>–</>;
  const at = BigInt(tick);
  if (at < 0n) return <>nothing</>;
  if (at >= 2n ** 62n) return <>the end</>;
  return <span title={at.toString()}>{isClockTick(at) ? distance(at, now) : at.toString()}</span>;
}

export function StreamPage({ name }: { name: string }) {
  const path = `/streams/${encodeURIComponent(name)}?newest=20`;
  const { data, problem, refresh } = usePolled<StreamInfo>(path, 1500);
  const now = useSeconds();
  const rates = useSeries(data?.rate, data);
  const origins = Array.isArray(data?.origins) ? (data.origins as OriginInfo[]) : [];
  return (
    <div class="page">
      <header class="page-head">
        <div><div class="eyebrow"><a href={routeTo("streams")}>Streams</a></div><h1>{name}</h1></div>
      </header>
      <Problem problem={problem} />
      {data && (
        <>
          <div class="figures">
            <Figure label="Events" value={formatCount(data.events)} />
            <Figure label="Rate" value={formatRate(data.rate)} series={rates} />
            <div class="figure">
              <div class="figure-label">Known up to</div>
              <div class="figure-value"><Horizon tick={data.horizon} now={now} /></div>
              <div class="figure-note">{data.horizon !== null && data.horizon !== undefined && compactTick(BigInt(data.horizon))}</div>
            </div>
          </div>
          {origins.length > 1 && <Origins origins={origins} now={now} />}
          <div class="columns-2">
            <section class="box">
              <h2>Newest events</h2>
              <Newest stream={data} />
            </section>
            <section class="box">
              <h2>Publish</h2>
              {data.publishable === false
                ? <p class="muted">You cannot publish to this stream here.</p>
                : <PublishForm stream={data} onPublished={refresh} />}
            </section>
          </div>
        </>
      )}
    </div>
  );
}

function Origins({ origins, now }: { origins: readonly OriginInfo[]; now: number }) {
  return (
    <section class="box">
      <h2>Origins</h2>
      <table class="simple">
        <thead><tr><th scope="col">Origin</th><th scope="col">Broker</th><th scope="col">State</th><th scope="col">Known up to</th></tr></thead>
        <tbody>
          {origins.map((origin) => (
            <tr>
              <td>{origin.origin}</td><td>{origin.broker ?? "–"}</td>
              <td>{origin.state ?? "–"}{origin.holds_back && <Chip kind="warn">holds back</Chip>}</td>
              <td><Horizon tick={origin.horizon} now={now} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Newest({ stream }: { stream: StreamInfo }) {
  const columns = stream.columns.filter((column) => column.role !== "tick");
  if (stream.newest === undefined) return <p class="muted">You may not read the events of this stream.</p>;
  if (stream.newest.length === 0) return <p class="muted">No events yet.</p>;
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label="Newest events">
      <table class="simple">
        <thead><tr><th scope="col">Time</th>{columns.map((column) => <th scope="col">{column.name}</th>)}</tr></thead>
        <tbody>
          {stream.newest.map((event: StreamEvent) => (
            <tr key={`${event.origin ?? ""}-${event.at}`}>
              <td class="muted">{compactTick(BigInt(event.at))}</td>
              {columns.map((column) => <td>{eventText(event.event[column.name], column.name, column.type)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function eventText(value: unknown, name: string, type: string): string {
  if (value === null || value === undefined) return "NULL";
  const column = parseColumn(name, type);
  const isTick = column.kind === "time" || column.kind === "interval";
  return compactValue(isTick ? BigInt(value as string | number) : (value as string), column).slice(0, 200);
}
