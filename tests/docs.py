"""Documents whose examples run: `python -m tests.docs FILE…` writes what they print into them.

In a document, ```sql file=NAME is a file, ```console has commands after `$` and what they print, ```pycon is a Python
dialogue. All blocks of a document run in one folder, in their order; the project's programs are there too.
"""

import doctest
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def refreshed(document: Path) -> str:
    """The document's text with the output of every command as it is now."""
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
                (folder / file[1]).write_text(body)
            if language == "console":
                parts += [text[end : block.start(3)], _run(body, folder)]
                end = block.end(3)
    return "".join([*parts, text[end:]])


def _run(body: str, folder: Path) -> str:
    commands = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
    return "".join(f"$ {command}\n{_output(command, folder)}" for command in commands)


def _output(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"}
    result = subprocess.run(command, shell=True, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    return result.stdout + result.stderr


def dialogues(document: Path) -> Iterator[doctest.DocTest]:
    """The Python of a document, as one dialogue."""
    text = "\n".join(body for language, _, body in BLOCK.findall(document.read_text()) if language == "pycon")
    yield doctest.DocTestParser().get_doctest(text, {}, document.name, str(document), 0)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        Path(argument).write_text(refreshed(Path(argument)))
