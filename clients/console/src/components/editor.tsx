/** The editor, which is loaded when a page first needs it, and the errors below it with their carets. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Client } from "smile-client";
import type { CheckDiagnostic, Editor } from "./code-mirror.ts";

export interface CheckAnswer {
  readonly ok: boolean;
  readonly diagnostics: readonly CheckDiagnostic[];
}

/** Checks a program without applying it. */
export async function checkProgram(client: Client, text: string): Promise<CheckAnswer> {
  return client.get<CheckAnswer>("/program/check", { method: "POST", body: text, contentType: "text/plain" });
}

interface EditorProps {
  /** The text that the editor begins with, and again when `revision` changes. Between, the editor has its own. */
  readonly text: string;
  readonly revision: number;
  readonly label: string;
  readonly onChange: (text: string) => void;
  readonly check: (text: string) => Promise<readonly CheckDiagnostic[]>;
  readonly onRun?: () => void;
}

export function CodeEditor(props: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const [isFailed, setFailed] = useState(false);
  useEffect(() => {
    let isGone = false;
    void import("./code-mirror.ts")
      .then(({ Editor }) => {
        if (isGone) return;
        editor.current = new Editor({
          host: host.current!,
          text: latest.current.text,
          label: props.label,
          onChange: (text) => latest.current.onChange(text),
          check: (text) => latest.current.check(text),
          onRun: () => latest.current.onRun?.(),
        });
      })
      .catch(() => setFailed(true));
    return () => {
      isGone = true;
      editor.current?.destroy();
    };
  }, []);
  useEffect(() => editor.current?.setText(props.text), [props.revision]);
  if (isFailed) {
    return (
      <textarea
        class="editor plain-editor" aria-label={props.label} value={props.text} spellcheck={false}
        onInput={(event) => props.onChange(event.currentTarget.value)}
      />
    );
  }
  return <div class="editor" ref={host} />;
}

/** The errors as `smile check` prints them: line, caret, hint. */
export function Diagnostics({ text, diagnostics }: { text: string; diagnostics: readonly CheckDiagnostic[] }) {
  if (diagnostics.length === 0) return null;
  const lines = text.split("\n");
  return (
    <ul class="diagnostics" aria-live="polite">
      {diagnostics.map((item) => (
        <li class={item.severity ?? "error"}>
          <strong>{item.code}</strong> {item.line !== undefined && <span class="muted">line {item.line}</span>} {item.message}
          {item.line !== undefined && (
            <pre tabIndex={0} aria-label={`Line ${item.line}`}>{`${lines[item.line - 1] ?? ""}\n${" ".repeat(Math.max(0, (item.col ?? 1) - 1))}${"^".repeat(Math.max(1, item.length ?? 1))}`}</pre>
          )}
          {item.hint && <span class="hint">{item.hint}</span>}
        </li>
      ))}
    </ul>
  );
}
