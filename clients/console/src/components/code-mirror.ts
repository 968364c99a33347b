/** An editor for SmileSQL. It lives in a shadow root: there the library needs no inline styles, which the page forbids. */

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { SQLDialect, sql } from "@codemirror/lang-sql";
import { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { forceLinting, linter, lintGutter, lintKeymap, type Diagnostic as LintDiagnostic } from "@codemirror/lint";
import { EditorState, type Text } from "@codemirror/state";
import { EditorView, keymap, lineNumbers, drawSelection, highlightActiveLine } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import type { Diagnostic } from "smile-client";
import { FUNCTIONS, KEYWORDS, TYPES } from "./sql-words.ts";

const DIALECT = SQLDialect.define({
  keywords: KEYWORDS,
  builtin: FUNCTIONS,
  types: TYPES,
  hashComments: false,
  identifierQuotes: '"',
  specialVar: "#",
});

const COLORS = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--code-keyword)", fontWeight: "600" },
  { tag: tags.standard(tags.name), color: "var(--code-function)" },
  { tag: tags.typeName, color: "var(--code-type)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: tags.number, color: "var(--code-number)" },
  { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
]);

const LOOK = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "transparent", fontSize: "13.5px", height: "100%" },
  ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--text)", padding: "10px 0" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--muted)", border: "none" },
  ".cm-activeLine": { backgroundColor: "var(--hover)" },
  ".cm-scroller": { lineHeight: "1.55", overflow: "auto" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px", borderRadius: "8px" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--selection) !important" },
  ".cm-tooltip": { backgroundColor: "var(--surface)", color: "var(--text)", border: "1px solid var(--line)" },
  ".cm-diagnostic": { fontFamily: "var(--sans)", padding: "6px 10px" },
});

export interface EditorOptions {
  readonly host: HTMLElement;
  readonly text: string;
  readonly label: string;
  readonly onChange: (text: string) => void;
  readonly check: (text: string) => Promise<readonly CheckDiagnostic[]>;
  readonly onRun?: () => void;
}

export interface CheckDiagnostic extends Diagnostic {
  readonly severity?: "error" | "warning";
}

const CHECK_DELAY_MS = 400;

export class Editor {
  private readonly view: EditorView;

  constructor(options: EditorOptions) {
    const root = options.host.shadowRoot ?? options.host.attachShadow({ mode: "open" });
    const source = async (view: EditorView) => {
      const diagnostics = await options.check(view.state.doc.toString());
      return diagnostics.map((diagnostic) => toLint(view.state.doc, diagnostic));
    };
    const run = () => {
      options.onRun?.();
      return options.onRun !== undefined;
    };
    this.view = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: options.text,
        extensions: [
          keymap.of([{ key: "Mod-Enter", run }, ...defaultKeymap, ...historyKeymap, ...lintKeymap, indentWithTab]),
          lineNumbers(), history(), drawSelection(), highlightActiveLine(), bracketMatching(),
          sql({ dialect: DIALECT }), syntaxHighlighting(COLORS), LOOK, EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": options.label, tabindex: "0" }),
          lintGutter(), linter(source, { delay: CHECK_DELAY_MS }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) options.onChange(update.state.doc.toString());
          }),
        ],
      }),
    });
  }

  get text(): string {
    return this.view.state.doc.toString();
  }

  setText(text: string): void {
    if (text === this.text) return;
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
    forceLinting(this.view);
  }

  destroy(): void {
    this.view.destroy();
  }
}

function toLint(document: Text, diagnostic: CheckDiagnostic): LintDiagnostic {
  const line = document.line(Math.max(1, Math.min(diagnostic.line ?? 1, document.lines)));
  const from = Math.min(line.from + Math.max(0, (diagnostic.col ?? 1) - 1), line.to);
  const to = Math.min(from + (diagnostic.length ?? 1), document.length);
  const hint = diagnostic.hint ? `\n${diagnostic.hint}` : "";
  return { from, to, severity: diagnostic.severity ?? "error", message: `${diagnostic.code}: ${diagnostic.message}${hint}` };
}
