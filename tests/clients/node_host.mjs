// Reads commands from standard input, a JSON object a line, and answers each with a line.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const smile = await import(process.argv[2]);
const makeDriver = eval(readFileSync(new URL("./driver.js", import.meta.url), "utf8"));
const drive = makeDriver(smile);
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await drive(JSON.parse(line)))}\n`);
}
process.exit(0);
