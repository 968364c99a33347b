"""Documents whose examples run: `python -m tests.docs FILE…` writes what they print into them.

In a document, ```sql file=NAME is a file, ```console has commands after `$` and what they print, ```pycon is a Python
dialogue, ```test is a test program with its events and rows (docs/test-files.md). All blocks of a document run in
one folder, in their order; the project's programs are there too.
"""

import doctest
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from smile.testing.acceptance import accepted_text
from smile.testing.comparison import compare_rows
from smile.testing.reader import CaseFile, read_case
from tests.brokers import InProcessBroker
from tests.processes import invoke_smile
from tests.reference.shown import shown_rows

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

PROGRAMS = {
    "client.md": "trades.smile",
    "tutorial.md": "shop.smile",
    "alerts.md": "errors.smile",
    "resuming.md": "trades.smile",
}
"""The program of the broker that runs beside a document: a file that is in it."""


@contextmanager
def beside_its_broker(document: Path) -> Iterator[None]:
    """Starts the broker of a document, if it has one; commands and dialogues find it by SMILE_URL."""
    if document.name not in PROGRAMS:
        yield
        return
    file = PROGRAMS[document.name]
    program = next(body for _, title, body in BLOCK.findall(document.read_text()) if f"file={file}" in title)
    with (
        tempfile.TemporaryDirectory() as folder,
        InProcessBroker(Path(folder), program, name=file) as broker,
        mock.patch.dict(os.environ, {"SMILE_URL": broker.url}),
    ):
        os.environ.pop("SMILE_TOKEN", None)
        yield


def refreshed(document: Path) -> str:
    """The document's text with the output of every command, and the rows of every test program, as they are now."""
    text = document.read_text()
    parts: list[str] = []
    end = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "programs").symlink_to(ROOT / "programs")
        for block in BLOCK.finditer(text):
            language, title, body = block.groups()
            file = re.search(r"file=(\S+)", title)
            if file:
                (folder / file[1]).parent.mkdir(exist_ok=True)
                (folder / file[1]).write_text(body)
            if language in ("console", "test"):
                now = _run(body, folder) if language == "console" else _with_rows(_case(body, folder))
                parts += [text[end : block.start(3)], now]
                end = block.end(3)
    return "".join([*parts, text[end:]])


# ── test programs ───────────────────────────────────────────────────────────────────────────────────────────────────


def cases(document: Path, folder: Path) -> Iterator[CaseFile]:
    """The test programs of a document; `folder` gets their files."""
    for language, _, body in BLOCK.findall(document.read_text()):
        if language == "test":
            yield _case(body, folder)


def _case(body: str, folder: Path) -> CaseFile:
    path = folder / "example.test"
    path.write_text(body)
    return read_case(path)


def _with_rows(case: CaseFile) -> str:
    """The file of the test program, with the rows that the reference shows in each section that expects rows."""
    compared = (compare_rows(expected, shown_rows(case, cut)) for cut, expected in case.rows.items())
    return accepted_text(case, [difference for difference in compared if difference is not None])


# ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _run(body: str, folder: Path) -> str:
    commands = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
    return "".join(f"$ {command}\n{_output(command, folder)}" for command in commands)


def _output(command: str, folder: Path) -> str:
    """What the command prints. A plain `smile` command runs in this process, which saves a second; others in a shell."""
    first, pipe, rest = command.partition(" | ")
    plain, redirection, _ = re.fullmatch(r"(.*?)( 2>/dev/null| 2>&1)?( *)", first).groups()  # type: ignore[union-attr]
    if not plain.startswith("smile ") or re.search(r"[$`<>&;*|]", plain) or _needs_a_process(plain):
        return _shell_output(command, folder)
    result = invoke_smile(*shlex.split(plain)[1:], cwd=folder, **_variables())
    if redirection == " 2>&1":
        output, errors = result.output, ""
    else:
        output, errors = result.stdout, "" if redirection else result.stderr
    return (_shell_output(rest, folder, output) if pipe else output) + errors


def _needs_a_process(command: str) -> bool:
    """Spark must not be started in this process. What was just published is in a view a moment later: a process gives it
    the time that a person's next command does."""
    starts_spark = command.startswith("smile replay ") and "--engine local" not in command
    return starts_spark or command.startswith("smile subscribe ")


def _variables() -> dict[str, str]:
    """Those by which commands find the broker of a document, and the width of the page."""
    return {"COLUMNS": "100", **{name: value for name, value in os.environ.items() if name == "SMILE_URL"}}


def _shell_output(command: str, folder: Path, stdin: str | None = None) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"}
    result = subprocess.run(
        command, shell=True, cwd=folder, env=env, input=stdin, capture_output=True, text=True, timeout=600
    )
    return result.stdout + result.stderr


def dialogues(document: Path) -> Iterator[doctest.DocTest]:
    """The Python of a document, as one dialogue."""
    text = "\n".join(body for language, _, body in BLOCK.findall(document.read_text()) if language == "pycon")
    yield doctest.DocTestParser().get_doctest(text, {}, document.name, str(document), 0)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        with beside_its_broker(Path(argument)):
            Path(argument).write_text(refreshed(Path(argument)))
