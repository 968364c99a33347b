/** Publishes an event of a stream: a field for each column. The same as a command, in Python and in JavaScript. */

import { useState } from "preact/hooks";
import { useAction, useBroker } from "../broker.ts";
import type { StreamInfo } from "../model.ts";
import { compactTick } from "../words.ts";
import { Copyable, Problem, Tabs } from "./basics.tsx";
import { parseField, placeholder } from "./fields.ts";

const LANGUAGES = [{ id: "curl", label: "curl" }, { id: "python", label: "Python" }, { id: "javascript", label: "JavaScript" }];

export function PublishForm({ stream, onPublished }: { stream: StreamInfo; onPublished: () => void }) {
  const { client } = useBroker();
  // The broker gives an event its tick, unless the publishers of the stream do.
  const columns = stream.columns.filter((column) => column.role !== "tick" || stream.publisher_timed);
  const [texts, setTexts] = useState<Record<string, string>>({});
  const [answer, setAnswer] = useState<string | null>(null);
  const [language, setLanguage] = useState("curl");
  const fields = columns.map((column) => [column, parseField(column, texts[column.name] ?? "")] as const);
  const event = Object.fromEntries(fields.map(([column, field]) => [column.name, field.value]));
  const isValid = fields.every(([, field]) => field.problem === null);
  const { run, isBusy, problem } = useAction(async () => {
    setAnswer(null);
    const published = await client.publish(stream.name, event);
    setAnswer(`Published at ${compactTick(published.ticks[0]!)}`);
    onPublished();
  });
  return (
    <>
      <form class="publish" onSubmit={(submit) => { submit.preventDefault(); if (isValid) void run(); }}>
        {fields.map(([column, field]) => (
          <label>
            <span>{column.name} <small>{column.type}{column.nullable === false ? ", required" : ""}</small></span>
            <input
              value={texts[column.name] ?? ""} placeholder={placeholder(column)} autocomplete="off"
              aria-invalid={field.problem !== null && (texts[column.name] ?? "") !== ""}
              onInput={(input) => setTexts({ ...texts, [column.name]: input.currentTarget.value })}
            />
            {field.problem && (texts[column.name] ?? "") !== "" && <em>{field.problem}</em>}
          </label>
        ))}
        <div class="form-end">
          <button type="submit" class="primary" disabled={isBusy || !isValid}>Publish</button>
          <span class="muted" role="status">{answer}</span>
        </div>
        <Problem problem={problem} text="refused" />
      </form>
      <Tabs tabs={LANGUAGES} chosen={language} label="Language" onChoose={setLanguage} />
      <Copyable label={LANGUAGES.find((item) => item.id === language)!.label} text={snippet(language, stream.name, event, client.address.token !== null)} />
    </>
  );
}

function snippet(language: string, stream: string, event: object, hasToken: boolean): string {
  const json = JSON.stringify(event);
  const url = location.origin;
  switch (language) {
    case "python": {
      const python = json.replace(/"(?:[^"\\]|\\.)*"|\b(null|true|false)\b/g, (match, word: string | undefined) =>
        word === undefined ? match : { null: "None", true: "True", false: "False" }[word]!,
      );
      const token = hasToken ? "  # with SMILE_TOKEN in the environment" : "";
      return `from smile.client import connect\n\nwith connect("${url}") as client:${token}\n    client.publish(${JSON.stringify(stream)}, ${python})`;
    }
    case "javascript": {
      const token = hasToken ? ", token: process.env.SMILE_TOKEN" : "";
      return `import { connect } from "smile-client";\n\nconst client = connect({ url: "${url}"${token} });\nawait client.publish(${JSON.stringify(stream)}, ${json});\nclient.close();`;
    }
  }
  const token = hasToken ? ` \\\n  -H "Authorization: Bearer $SMILE_TOKEN"` : "";
  return `curl '${url}/streams/${encodeURIComponent(stream)}/events' -H 'Content-Type: application/json'${token} \\\n  -d '${json.replaceAll("'", `'\\''`)}'`;
}
