// Builds the page and the client for browsers into src/smile/console/static. `--out DIR` builds elsewhere.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const given = process.argv.indexOf("--out");
const out = given > 0 ? resolve(process.argv[given + 1]) : join(here, "../../src/smile/console/static");
const assets = join(out, "assets");
rmSync(assets, { recursive: true, force: true });
mkdirSync(assets, { recursive: true });

const common = {
  absWorkingDir: here,
  bundle: true,
  format: "esm",
  minify: true,
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  alias: { "smile-client": "../js/src/index.ts" },
};
const page = await build({
  ...common,
  entryPoints: { console: "src/main.tsx" },
  outdir: assets,
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  splitting: true,
  jsx: "automatic",
  jsxImportSource: "preact",
  metafile: true,
});
// A page of another site can import the client by this name, without npm.
await build({ ...common, entryPoints: ["../js/src/index.ts"], outfile: join(assets, "smile-client.js") });
writeFileSync(join(assets, "smile-client.tgz"), packClient(join(here, "../js")));

const entry = Object.entries(page.metafile.outputs).find(([, output]) => output.entryPoint === "src/main.tsx");
const address = (path) => `/${relative(out, resolve(here, path)).replaceAll("\\", "/")}`;
const icon = readFileSync(join(here, "src/icon.svg"));
const iconName = `icon-${createHash("sha256").update(icon).digest("hex").slice(0, 8)}.svg`;
writeFileSync(join(assets, iconName), icon);
const html = readFileSync(join(here, "src/index.html"), "utf8")
  .replace("{script}", address(entry[0]))
  .replace("{style}", address(entry[1].cssBundle))
  .replace("{icon}", `/assets/${iconName}`);
writeFileSync(join(out, "index.html"), html);
for (const name of readdirSync(assets).sort()) console.log(name, readFileSync(join(assets, name)).length);

/** The package that npm installs from a broker, as `npm pack` makes it, but the same bytes for the same files: without times
 * and owners, and not compressed. Its `dist` is what `npm ci` has built. */
function packClient(folder) {
  const built = readdirSync(join(folder, "dist")).sort().map((name) => `dist/${name}`);
  const names = ["package.json", "LICENSE", "README.md", ...built];
  const entries = names.flatMap((name) => {
    const content = readFileSync(join(folder, name));
    return [tarHeader(`package/${name}`, content.length), content, Buffer.alloc(-content.length & 511)];
  });
  const packed = gzipSync(Buffer.concat([...entries, Buffer.alloc(1024)]), { level: 0 });
  packed[9] = 255; // the system that packed it: unknown
  return packed;
}

function tarHeader(name, size) {
  const header = Buffer.alloc(512);
  const octal = (number, digits) => `${number.toString(8).padStart(digits, "0")}\0`;
  const fields = { 0: name, 100: octal(0o644, 7), 108: octal(0, 7), 116: octal(0, 7), 124: octal(size, 11), 136: octal(0, 11) };
  for (const [at, text] of Object.entries({ ...fields, 148: "        ", 156: "0", 257: "ustar\u000000" })) header.write(text, Number(at));
  header.write(`${header.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, "0")}\0 `, 148);
  return header;
}
