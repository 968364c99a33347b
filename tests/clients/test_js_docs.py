"""The examples of docs/javascript.md run in Node, and print what the document says."""

import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.brokers import InProcessBroker
from tests.browser import CLIENT, NPM_S, ROOT, needs_node, needs_npm
from tests.processes import WAIT_S, clean_environment

DOCUMENT = ROOT / "docs" / "javascript.md"
BLOCK = re.compile(r"^```(\S+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@needs_node
def test_examples_print_what_the_document_says(tmp_path: Path) -> None:
    package = tmp_path / "node_modules" / "smile-client"
    package.mkdir(parents=True)
    (package / "index.mjs").write_bytes(CLIENT.read_bytes())
    (package / "package.json").write_text('{"name": "smile-client", "main": "index.mjs"}')
    run_examples(tmp_path)


def test_the_package_has_the_license() -> None:
    assert (ROOT / "clients" / "js" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.slow
@needs_npm
def test_the_package_of_a_broker_can_be_installed(tmp_path: Path) -> None:
    """It needs no registry and no compiler, and has the examples' client and the command for types."""
    (tmp_path / "package.json").write_text('{"name": "user", "private": true}')
    (tmp_path / "broker").mkdir()
    with InProcessBroker(tmp_path / "broker") as broker:
        run_npm("install", f"{broker.url}/assets/smile-client.tgz", cwd=tmp_path)
        command = ["npx", "--no-install", "smile-types", broker.url]
        types = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=NPM_S).stdout
        usage = subprocess.run(
            [*command[:3], "--help"], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout
    assert "SMILE_TOKEN" in usage
    assert "export interface BidsEvent" in types
    assert '    "Bids": BidsEvent;\n' in types
    assert '    "Totals": { row: TotalsRow; key: "issue" };\n' in types
    assert (tmp_path / "node_modules" / "smile-client" / "dist" / "index.d.ts").is_file()
    run_examples(tmp_path)


@pytest.mark.slow
@pytest.mark.nightly
@needs_npm
def test_the_package_that_npm_makes(tmp_path: Path) -> None:
    """It has no dependencies, so it can be installed without a registry. Its examples run, and its types fit them."""
    client = ROOT / "clients" / "js"
    run_npm("ci", cwd=client)
    run_npm("test", cwd=client)
    run_npm("pack", "--pack-destination", str(tmp_path), cwd=client)
    (tarball,) = tmp_path.glob("*.tgz")
    with tarfile.open(tarball) as packed:
        names = packed.getnames()
    assert {"package/LICENSE", "package/README.md", "package/dist/index.js", "package/dist/index.d.ts"} <= {*names}
    assert not any("test" in name or name.endswith(".map") for name in names)
    (tmp_path / "package.json").write_text('{"name": "user", "private": true}')
    run_npm("install", "--offline", str(tarball), cwd=tmp_path)
    run_examples(tmp_path)
    (tmp_path / "use.mts").write_text(USE_OF_TYPES)
    tsc = str(client / "node_modules" / ".bin" / "tsc")
    options = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022", "--ignoreConfig"]
    subprocess.run([tsc, *options, "use.mts"], cwd=tmp_path, check=True, timeout=NPM_S)


USE_OF_TYPES = """
import { connect, type Change, type Client, type Frame, type Knowledge, SmileError } from "smile-client";

const client: Client = connect({ url: "http://127.0.0.1:7400" });
client.subscribe("Volume", { where: { issue: "IBM" } }, (frame: Frame) => {
  for (const change of frame.changes satisfies readonly Change[]) {
    const known: Knowledge = change.get("total");
    const isFinal: boolean = known.isFinal;
    console.log(isFinal, known.format());
  }
});
// @ts-expect-error: the address is required
connect({});
export const isRefused = (problem: unknown): boolean => problem instanceof SmileError && problem.code === "E080";
"""


def run_npm(*arguments: str, cwd: Path) -> None:
    options = ["--no-audit", "--no-fund"] if arguments[0] in ("ci", "install") else []
    subprocess.run(["npm", *arguments, *options], cwd=cwd, check=True, capture_output=True, timeout=NPM_S)


def run_examples(folder: Path) -> None:
    """Runs the examples of the document in a folder where the package is installed."""
    blocks = BLOCK.findall(DOCUMENT.read_text())
    program = next(text for language, text in blocks if language == "sql")
    script = "".join(text for language, text in blocks if language == "js")
    printed = "".join(text for language, text in blocks if language == "text")
    (folder / "examples.mjs").write_text(script)
    with InProcessBroker(folder, program) as broker:
        done = subprocess.run(
            ["node", "--experimental-websocket", "--no-warnings", "examples.mjs"],
            cwd=folder,
            env=clean_environment(SMILE_URL=broker.url),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
    assert done.stdout == printed, done.stderr
    assert done.returncode == 0
