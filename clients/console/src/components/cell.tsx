/** One cell of a table: the sign and the colour say how much is known. */

import type { Column, Knowledge } from "smile-client";
import { cellParts, certaintyOf, sentence } from "../words.ts";

export function KnowledgeCell({ known, column }: { known: Knowledge; column: Column | undefined }) {
  const { sign, value, note } = cellParts(known, column);
  const certainty = certaintyOf(known);
  return (
    <span class={`known ${certainty}`} title={sentence(known, column)}>
      <span class="sign">{sign}</span>
      <span class="value">{value}</span>
      {note && <span class="note">{note}</span>}
    </span>
  );
}

/** What signs and colours mean. */
export function Legend() {
  return (
    <ul class="legend" aria-label="Legend">
      <li><span class="known final"><span class="sign">=</span></span> final: will never change</li>
      <li><span class="known bounded"><span class="sign">≥</span><span class="sign">≤</span></span> bounded: true whatever comes</li>
      <li><span class="known open"><span class="sign">~</span></span> as of now: may still change</li>
      <li><span class="known open"><span class="sign">?</span></span> unknown</li>
      <li><span class="known final"><span class="sign">✓</span></span> the whole row is final</li>
    </ul>
  );
}
