/** Asks for a token. It is kept for this tab only, and sent in headers only. */

import { useState } from "preact/hooks";
import type { SmileError } from "smile-client";

export function SignIn({ problem, hadToken, onToken }: { problem: SmileError; hadToken: boolean; onToken: (token: string) => void }) {
  const [token, setToken] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    if (token.trim()) onToken(token.trim());
  };
  return (
    <main class="sign-in">
      <form onSubmit={submit}>
        <h1><Logo /> SMILE</h1>
        <p>This broker requires a token.</p>
        {hadToken && <div class="problem" role="alert"><strong>{problem.code}</strong> {problem.message}</div>}
        <label>
          <span>Token</span>
          <input type="password" value={token} autocomplete="off" autofocus onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        <button type="submit" class="primary">Sign in</button>
        <p class="muted">It is kept until this tab is closed. <code>smile token NAME</code> makes one.</p>
      </form>
    </main>
  );
}

export function Logo() {
  return (
    <svg class="logo" viewBox="0 0 32 32" width="26" height="26" aria-hidden="true">
      <rect width="32" height="32" rx="8" class="logo-back" />
      <path d="M7 9c5 0 7 7 18 7C14 16 12 23 7 23Z" class="logo-band" />
      <path d="M7 16h18" class="logo-line" />
    </svg>
  );
}
