#!/usr/bin/env node
/** `smile-types URL`: prints TypeScript interfaces for the streams and views of a broker, and one of the broker for
 * `connect<Broker>()`. SMILE_TOKEN is its token. */

import { SmileError } from "./errors.js";
import { requestJson } from "./http.js";
import { parseColumn, type Column } from "./values.js";

const USAGE = `usage: smile-types URL > broker.d.ts

Prints TypeScript interfaces for the streams and views of the broker at URL, such as http://127.0.0.1:7400, and the
interface Broker of all of them, for connect<Broker>(…). If the broker requires a token, set SMILE_TOKEN.
`;

interface Relation {
  readonly name: string;
  /** Of a view. */
  readonly key?: readonly string[];
  /** Of a stream: its publishers give the ticks. */
  readonly publisher_timed?: boolean;
  readonly columns: readonly { name: string; type: string; role?: string; nullable?: boolean }[];
}

const TYPES: Record<string, string> = {
  bool: "boolean", int: "number | bigint", float: "number", decimal: "number | bigint | string", string: "string",
  bytes: "string", time: "bigint", interval: "bigint", timestamp: "string", date: "string", json: "Json",
};

function typeText(column: Column): string {
  if (column.kind !== "relation") return TYPES[column.kind] ?? "Value";
  const fields = column.columns.map((inner) => `${JSON.stringify(inner.name)}: ${typeText(inner)} | null`);
  return `readonly { ${fields.join("; ")} }[]`;
}

function interfaceName(kind: string, relation: Relation): string {
  return relation.name.replace(/[^A-Za-z0-9_$]/g, "_").replace(/^\d/, "_$&") + kind;
}

function brokerText(streams: readonly Relation[], views: readonly Relation[]): string {
  const quote = (text: string) => JSON.stringify(text);
  const stream = (one: Relation) => `    ${quote(one.name)}: ${interfaceName("Event", one)};\n`;
  const keyText = (one: Relation) => (one.key ?? []).map(quote).join(" | ") || "never";
  const view = (one: Relation) => `    ${quote(one.name)}: { row: ${interfaceName("Row", one)}; key: ${keyText(one)} };\n`;
  return `/** The streams and views of the broker, for \`connect<Broker>(…)\`. */
export interface Broker {
  streams: {\n${streams.map(stream).join("")}  };
  views: {\n${views.map(view).join("")}  };\n}\n`;
}

function interfaceText(kind: string, relation: Relation): string {
  const name = interfaceName(kind, relation);
  const lines = relation.columns
    .filter((column) => kind === "Row" || column.role !== "tick" || relation.publisher_timed)
    .map((column) => {
      const orNull = column.nullable === false || column.role === "key" ? "" : " | null";
      return `  ${JSON.stringify(column.name)}: ${typeText(parseColumn(column.name, column.type))}${orNull};`;
    });
  return `/** ${kind === "Row" ? "A row of the view" : "An event of the stream"} ${relation.name}. */
export interface ${name} {\n${lines.join("\n")}\n}\n`;
}

async function main(url: string | undefined): Promise<void> {
  if (url === "--help" || url === "-h") {
    process.stdout.write(USAGE);
    return;
  }
  if (url === undefined || url.startsWith("-")) {
    process.stderr.write(USAGE);
    process.exitCode = 2;
    return;
  }
  const address = { url: url.replace(/\/+$/, ""), token: process.env["SMILE_TOKEN"] ?? null };
  const { streams } = await requestJson<{ streams: Relation[] }>(address, "/streams");
  const { views } = await requestJson<{ views: Relation[] }>(address, "/views");
  const texts = [
    ...streams.map((stream) => interfaceText("Event", stream)), ...views.map((view) => interfaceText("Row", view)),
    brokerText(streams, views),
  ];
  const imported = ["Json", "Value"].filter((name) => texts.some((text) => new RegExp(`: ${name}\\b`).test(text)));
  const imports = imported.length > 0 ? `import type { ${imported.join(", ")} } from "smile-client";\n\n` : "";
  process.stdout.write(imports + texts.join("\n"));
}

main(process.argv[2]).catch((problem: unknown) => {
  const text = problem instanceof SmileError ? `error ${problem.code}: ${problem.message}` : String(problem);
  process.stderr.write(`smile-types: ${text}\n`);
  process.exitCode = 1;
});
