/** Errors of the broker and of this client. */

/** One error as the broker sends it. A position is that of a text that was sent, counted from 1. */
export interface Diagnostic {
  readonly code: string;
  readonly message: string;
  readonly hint?: string;
  readonly line?: number;
  readonly col?: number;
  readonly length?: number;
  /** Of a refused publication, where it is known: which event, counted from 1, and which of its columns. */
  readonly event?: number;
  readonly column?: string;
}

const TOKEN_WRONG = "E091";
/** The broker's hint is about the header of a request. */
const TOKEN_HINT = "Give the token as connect({ url, token }).";

/** `code` is stable, and listed in the broker's documentation. E103 means that there is no connection. */
export class SmileError extends Error {
  readonly code: string;
  readonly hint: string | undefined;
  readonly diagnostics: readonly Diagnostic[];
  /** The status of the HTTP response, if the error is one. */
  readonly status: number | undefined;

  constructor(diagnostics: readonly Diagnostic[], status?: number) {
    const first = diagnostics[0] ?? { code: "E103", message: "the answer is not that of a broker" };
    super(first.message);
    this.name = "SmileError";
    this.code = first.code;
    this.hint = first.hint;
    this.diagnostics = diagnostics;
    this.status = status;
  }

  /** Code, message and hint, in one line. */
  describe(): string {
    return `${this.code} ${this.message}${this.hint === undefined ? "" : `. ${this.hint}`}`;
  }
}

export function connectionError(message: string, hint?: string): SmileError {
  return new SmileError([hint === undefined ? { code: "E103", message } : { code: "E103", message, hint }]);
}

/** Decodes `{"code":…,"message":…}`, or `{"errors":[…]}` of several. */
export function decodeError(encoded: unknown, status?: number): SmileError {
  const { errors, ...single } = (encoded ?? {}) as { errors?: Diagnostic[] } & Diagnostic;
  const list = Array.isArray(errors) && errors.length > 0 ? errors : [single];
  const diagnostics = list.filter((item) => typeof item.code === "string");
  return new SmileError(diagnostics.map((item) => (item.code === TOKEN_WRONG ? { ...item, hint: TOKEN_HINT } : item)), status);
}

/** A hint with the name that is most similar, or undefined if none is. */
export function didYouMean(name: string, candidates: readonly string[]): string | undefined {
  const distances = candidates.map((candidate) => ({ candidate, distance: editDistance(name.toLowerCase(), candidate.toLowerCase()) }));
  const [nearest] = distances.sort((a, b) => a.distance - b.distance);
  return nearest && 3 * nearest.distance <= Math.max(name.length, 3) ? `Did you mean ${nearest.candidate}?` : undefined;
}

/** How many characters must be inserted, deleted or replaced. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}
