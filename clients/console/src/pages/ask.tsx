/** A question: a SELECT over any stream or view, answered for as long as the page is open. */

import { useEffect, useRef, useState } from "preact/hooks";
import { CodeEditor } from "../components/editor.tsx";
import { Problem } from "../components/basics.tsx";
import { LiveRelation } from "./view.tsx";
import { useAction, useBroker, usePolled } from "../broker.ts";
import type { RowOrder, StreamInfo, ViewInfo } from "../model.ts";

interface Opened {
  readonly view: string;
  readonly order?: RowOrder;
}

const NO_CHECK = () => Promise.resolve([]);

export function AskPage({ initial }: { initial: string | null }) {
  const { client } = useBroker();
  const { data: views } = usePolled<{ views: ViewInfo[] }>("/views", 15_000);
  const { data: streams } = usePolled<{ streams: StreamInfo[] }>("/streams", 15_000);
  const [text, setText] = useState(initial ?? "");
  const [revision, setRevision] = useState(0);
  const [query, setQuery] = useState<Opened | null>(null);
  const current = useRef<string | null>(null);
  const drop = (name: string | null) => {
    if (name) void client.request(`/queries/${encodeURIComponent(name)}`, { method: "DELETE" }).catch(() => undefined);
  };
  useEffect(() => () => drop(current.current), [client]);
  const { run, isBusy, problem } = useAction(async () => {
    const answer = await client.get<Opened>("/queries", { method: "POST", body: text, contentType: "text/plain" });
    drop(current.current);
    current.current = answer.view;
    setQuery(answer);
  });
  const choose = (example: string) => {
    setText(example);
    setRevision(revision + 1);
  };
  const examples = exampleQueries(views?.views ?? [], streams?.streams ?? []);
  return (
    <div class="page ask-page">
      <header class="page-head"><div><h1>Ask</h1><p class="lead">A SELECT over streams and views. The answer is live, and ends when you leave.</p></div></header>
      <div class="ask-editor">
        <CodeEditor text={text} revision={revision} label="The question, a SELECT" onChange={setText} check={NO_CHECK} onRun={() => void run()} />
      </div>
      <div class="toolbar">
        <button type="button" class="primary" disabled={isBusy || text.trim() === ""} onClick={() => void run()}>Ask</button>
        <span class="muted">or Ctrl+Enter</span>
        {text === "" && examples.map((example) => <button type="button" class="condition" onClick={() => choose(example)}>{example}</button>)}
      </div>
      <Problem problem={problem} />
      {query !== null && <LiveRelation key={query.view} view={query.view} title="Answer" focus={null} order={query.order} canDownload={false} />}
    </div>
  );
}

function exampleQueries(views: readonly ViewInfo[], streams: readonly StreamInfo[]): string[] {
  const examples: string[] = [];
  const stream = streams[0];
  const text = stream?.columns.find((column) => column.type === "string");
  if (stream && text) examples.push(`SELECT ${text.name}, COUNT(*) AS n FROM ${stream.name} GROUP BY ${text.name}`);
  if (views[0]) examples.push(`SELECT * FROM ${views[0].name}`);
  return examples;
}
