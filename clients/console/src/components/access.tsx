/** Tokens and grants, for those who may change them. A token is shown once, where it was created. */

import { useState } from "preact/hooks";
import { SmileError } from "smile-client";
import { useAction, useBroker, usePolled } from "../broker.ts";
import type { Access, Principal, StreamInfo, ViewInfo } from "../model.ts";
import { Copyable, Problem } from "./basics.tsx";

const REFRESH_MS = 10_000;
const RIGHTS = ["SUBSCRIBE", "PUBLISH", "READ", "QUERY", "ADMIN"];
/** These are granted on the program, not on streams or views. */
const RIGHTS_ON_PROGRAM = ["QUERY", "ADMIN"];
const CONFLICT = 409;

interface NewToken {
  readonly principal: string;
  readonly token: string;
}

export function AccessSection() {
  const { client } = useBroker();
  const { data, problem, refresh } = usePolled<Access>("/access", REFRESH_MS);
  const [created, setCreated] = useState<NewToken | null>(null);
  const send = async <T,>(path: string, method: string, body?: object): Promise<T> => {
    const options = body ? { method, body: JSON.stringify(body), contentType: "application/json" } : { method };
    return client.get<T>(path, options);
  };
  /** Asks again if the broker says that nobody could administer it afterwards. */
  const revoke = async (path: string) => {
    try {
      await send(path, "DELETE");
    } catch (reason) {
      const isLast = reason instanceof SmileError && reason.status === CONFLICT;
      if (!isLast || !confirm(`${reason.message}. Only somebody at the broker's machine could give access again. Do it nevertheless?`)) throw reason;
      await send(`${path}${path.includes("?") ? "&" : "?"}force=true`, "DELETE");
    }
  };
  const { run, isBusy, problem: refusal } = useAction(async (change: () => Promise<unknown>) => {
    await change();
    refresh();
  });
  const createToken = (principal: string) =>
    run(async () => setCreated(await send<NewToken>("/tokens", "POST", { principal })));
  const grant = (right: string, name: string, principal: string) => run(() => send("/grants", "POST", { right, name, principal }));
  const revokeTokens = (principal: Principal) => {
    const who = principal.name === data?.caller ? "your own" : `${principal.name}'s`;
    if (confirm(`Revoke ${who} ${principal.tokens === 1 ? "token" : `${principal.tokens} tokens`}? Connections that use it end.`)) {
      void run(() => revoke(`/tokens/${encodeURIComponent(principal.name)}`));
    }
  };
  const revokeGrant = (principal: string, right: string, name: string) => {
    const who = principal === data?.caller ? "You lose" : `${principal} loses`;
    const query = new URLSearchParams({ right, name, principal });
    if (confirm(`${who} ${right} ON ${name}.`)) void run(() => revoke(`/grants?${query.toString()}`));
  };
  if (data === null) return <Problem problem={problem} />;
  return (
    <section class="box" aria-labelledby="access">
      <h2 id="access">Tokens and grants</h2>
      {!data.tokens_required ? (
        <p class="muted">This broker requires no tokens: whoever reaches it may do everything.</p>
      ) : (
        <>
          <Problem problem={refusal} />
          {created && <CreatedToken created={created} onClose={() => setCreated(null)} />}
          <div class="scroll-x" tabIndex={0} role="region" aria-label="Principals">
            <table class="simple access">
              <thead><tr><th scope="col">Principal</th><th scope="col">Tokens</th><th scope="col">Grants</th></tr></thead>
              <tbody>
                {data.principals.map((principal) => (
                  <tr key={principal.name}>
                    <th scope="row">{principal.name}{principal.name === data.caller && <span class="muted"> (you)</span>}</th>
                    <td>
                      <span class="token-count">{principal.tokens}</span>
                      <button type="button" disabled={isBusy} onClick={() => void createToken(principal.name)} aria-label={`New token for ${principal.name}`}>New</button>
                      {principal.tokens > 0 && (
                        <button type="button" class="quiet" disabled={isBusy} onClick={() => revokeTokens(principal)} aria-label={`Revoke the tokens of ${principal.name}`}>Revoke</button>
                      )}
                    </td>
                    <td class="grants">
                      {principal.grants.map((given) => (
                        <button
                          type="button" class="condition" disabled={isBusy} onClick={() => revokeGrant(principal.name, given.right, given.name)}
                          aria-label={`Revoke ${given.right} ON ${given.name} from ${principal.name}`}
                        >
                          {given.right} ON {given.name} <span aria-hidden="true">✕</span>
                        </button>
                      ))}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          <GrantForm access={data} isBusy={isBusy} onGrant={(...given) => void grant(...given)} onToken={(principal) => void createToken(principal)} />
        </>
      )}
    </section>
  );
}

function CreatedToken({ created, onClose }: { created: NewToken; onClose: () => void }) {
  return (
    <div class="note-box new-token" role="status">
      <p>A token for <strong>{created.principal}</strong>. It is shown only now: the broker stores its hash.</p>
      <Copyable label="Token" text={created.token} />
      <button type="button" onClick={onClose}>Hide it</button>
    </div>
  );
}

interface GrantFormProps {
  readonly access: Access;
  readonly isBusy: boolean;
  readonly onGrant: (right: string, name: string, principal: string) => void;
  readonly onToken: (principal: string) => void;
}

function GrantForm({ access, isBusy, onGrant, onToken }: GrantFormProps) {
  const { data: views } = usePolled<{ views: ViewInfo[] }>("/views", REFRESH_MS);
  const { data: streams } = usePolled<{ streams: StreamInfo[] }>("/streams", REFRESH_MS);
  const [principal, setPrincipal] = useState("");
  const [right, setRight] = useState(RIGHTS[0]!);
  const [written, setName] = useState("");
  const isOnProgram = RIGHTS_ON_PROGRAM.includes(right);
  const name = isOnProgram ? "program" : written.trim();
  const names = ["*", ...(views?.views ?? []).map((view) => view.name), ...(streams?.streams ?? []).map((stream) => stream.name)];
  const submit = (event: Event) => {
    event.preventDefault();
    if (name && principal.trim()) onGrant(right, name, principal.trim());
  };
  return (
    <form class="toolbar grant-form" onSubmit={submit} aria-label="Give a right">
      <input
        value={principal} placeholder="principal" aria-label="Principal" list="principals" autocomplete="off"
        onInput={(event) => setPrincipal(event.currentTarget.value)}
      />
      <datalist id="principals">{access.principals.map((one) => <option value={one.name} />)}</datalist>
      <button type="button" disabled={isBusy || !principal.trim()} onClick={() => onToken(principal.trim())}>Create a token</button>
      <span class="muted">or</span>
      <select aria-label="Right" value={right} onChange={(event) => setRight(event.currentTarget.value)}>
        {RIGHTS.map((one) => <option>{one}</option>)}
      </select>
      <span>ON</span>
      <input
        value={isOnProgram ? "program" : written} disabled={isOnProgram} placeholder="name, or *" aria-label="Name" list="granted-names"
        autocomplete="off" onInput={(event) => setName(event.currentTarget.value)}
      />
      <datalist id="granted-names">{[...new Set(names)].map((one) => <option value={one} />)}</datalist>
      <button type="submit" class="primary" disabled={isBusy || !name || !principal.trim()}>Grant</button>
    </form>
  );
}
