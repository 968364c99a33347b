/** The program: its graph, and an editor that shows what a change would do before it is applied. */

import { structuredPatch } from "diff";
import { useEffect, useMemo, useState } from "preact/hooks";
import { checkProgram, CodeEditor, Diagnostics } from "../components/editor.tsx";
import type { CheckDiagnostic } from "../components/code-mirror.ts";
import { Problem, Tabs } from "../components/basics.tsx";
import { ProgramGraph } from "../components/graph.tsx";
import { useAction, useBroker } from "../broker.ts";

const CONTEXT_LINES = 2;
const TABS = [{ id: "graph", label: "Graph" }, { id: "editor", label: "Editor" }];

export function ProgramPage() {
  const [tab, setTab] = useState("graph");
  return (
    <div class="page program-page">
      <header class="page-head"><div><h1>Program</h1><p class="lead">How views are computed from streams.</p></div></header>
      <Tabs tabs={TABS} chosen={tab} label="Program" onChoose={setTab} />
      {tab === "graph" ? <ProgramGraph /> : <ProgramEditor />}
    </div>
  );
}

interface Difference {
  readonly added: readonly string[];
  readonly changed: readonly string[];
  readonly dropped: readonly string[];
  readonly unchanged: readonly string[];
  readonly streams_added: readonly string[];
  readonly streams_dropped: readonly string[];
}

function ProgramEditor() {
  const { client } = useBroker();
  const [running, setRunning] = useState<string | null>(null);
  const [text, setText] = useState("");
  const [diagnostics, setDiagnostics] = useState<readonly CheckDiagnostic[]>([]);
  const [revision, setRevision] = useState(0);
  const [difference, setDifference] = useState<Difference | null>(null);
  const [applied, setApplied] = useState<string | null>(null);
  const load = useAction(async () => {
    const program = await (await client.request("/program", { accept: "text/plain" })).text();
    setRunning(program);
    setText(program);
  });
  useEffect(() => void load.run(), [client]);
  const check = async (program: string) => {
    const answer = await checkProgram(client, program);
    setDiagnostics(answer.diagnostics);
    return answer.diagnostics;
  };
  const put = (query: string) => client.get<Difference>(`/program${query}`, { method: "PUT", body: text, contentType: "text/plain" });
  const preview = useAction(async () => setDifference(await put("?dry_run=true")));
  const apply = useAction(async () => {
    setDifference(await put(""));
    setRunning(text);
    setApplied("Applied. Views that did not change were not interrupted.");
  });
  const change = (program: string) => {
    setText(program);
    setDifference(null);
    setApplied(null);
  };
  const undo = (program: string) => {
    change(program);
    setRevision(revision + 1);
  };
  const hasErrors = diagnostics.some((item) => (item.severity ?? "error") === "error");
  const isChanged = running !== null && text !== running;
  return (
    <div class="columns-editor">
      <Problem problem={load.problem} />
      {running !== null && <CodeEditor text={text} revision={revision} label="The program" onChange={change} check={check} />}
      <div class="toolbar">
        <button type="button" disabled={!isChanged || hasErrors || preview.isBusy} onClick={() => void preview.run()}>Show the difference</button>
        <button type="button" class="primary" disabled={!isChanged || difference === null || apply.isBusy} onClick={() => void apply.run()}>Apply</button>
        {isChanged && <button type="button" class="quiet" onClick={() => undo(running)}>Undo all</button>}
        <span class="muted" role="status">{applied ?? (isChanged ? "Not applied yet." : "This is what runs.")}</span>
      </div>
      <Problem problem={preview.problem ?? apply.problem} />
      {difference && <DifferenceList difference={difference} />}
      {isChanged && difference && running !== null && <LineDifference before={running} after={text} />}
      <Diagnostics text={text} diagnostics={diagnostics} />
    </div>
  );
}

function DifferenceList({ difference }: { difference: Difference }) {
  const parts: [string, string, readonly string[]][] = [
    ["added", "New views", difference.added], ["changed", "Changed views, computed anew", difference.changed],
    ["dropped", "Dropped views", difference.dropped], ["added", "New streams", difference.streams_added],
    ["dropped", "Dropped streams (their events stay in the log)", difference.streams_dropped],
    ["unchanged", "Not touched", difference.unchanged],
  ];
  return (
    <dl class="difference" aria-label="Difference">
      {parts.filter(([, , names]) => names.length > 0).map(([kind, label, names]) => (
        <div class={kind}><dt>{label}</dt><dd>{names.join(", ")}</dd></div>
      ))}
    </dl>
  );
}

/** What was removed and added, with a few lines around each change. */
function LineDifference({ before, after }: { before: string; after: string }) {
  const hunks = useMemo(() => structuredPatch("", "", before, after, "", "", { context: CONTEXT_LINES }).hunks, [before, after]);
  return (
    <pre class="line-difference" tabIndex={0} aria-label="Changed lines">
      {hunks.map((hunk, i) => (
        <>
          {i > 0 && <span class="muted">{"⋯\n"}</span>}
          {hunk.lines.map((line) => <DifferenceLine line={line} />)}
        </>
      ))}
    </pre>
  );
}

function DifferenceLine({ line }: { line: string }) {
  const text = `${line.slice(0, 1)} ${line.slice(1)}\n`;
  if (line.startsWith("-")) return <del>{text}</del>;
  if (line.startsWith("+")) return <ins>{text}</ins>;
  return line.startsWith("\\") ? null : <span>{text}</span>;
}
