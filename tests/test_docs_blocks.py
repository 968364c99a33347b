"""The blocks of the documents that are not run, because they stand for what a reader has: they are at least well formed.

Commands with their output, dialogues and test programs are run by `tests/test_docs.py` and those that it names.
"""

import ast
import json
import re
import shlex
import subprocess
import tomllib
from typing import Any

import pytest
import typer

from smile.cli.main import app
from smile.settings import SETTINGS, SINK_SETTINGS, SOURCE_SETTINGS
from tests.docs import BLOCK, ROOT

PAGES = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "howto").glob("*.md"), ROOT / "README.md"]
BLOCKS = [
    pytest.param(language, title, body, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, (language, title, body) in enumerate(BLOCK.findall(page.read_text()), 1)
    if language in ("sh", "python", "toml", "json")
]
TABLES = {"sources": SOURCE_SETTINGS, "sinks": SINK_SETTINGS}


COMMANDS: Any = typer.main.get_command(app)  # Any: typer has Click's classes under a name of its own


def check_command(words: list[str]) -> None:
    """The command and its options exist."""
    command = COMMANDS
    while hasattr(command, "commands"):
        assert words and (words[0] in command.commands or words[0].startswith("-")), words
        if words[0].startswith("-"):
            return
        command, words = command.commands[words[0]], words[1:]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if re.fullmatch(r"--[a-z][\w-]*(=.*)?", word) and "--help" not in word:
            assert word.partition("=")[0] in options, (command.name, word)


def smile_commands(body: str) -> list[list[str]]:
    """The words after each `smile` of a shell script, as far as they are on its line."""
    found = []
    for line in re.sub(r"\\\n", " ", body).splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a here-document, or a text of several lines
            continue
        for n, word in enumerate(words):
            if (word == "smile" or word.endswith("/bin/smile")) and (n == 0 or words[n - 1] in ("|", "&&", "exec")):
                rest = words[n + 1 :]
                ends = [i for i, w in enumerate(rest) if w in ("|", "&", "&&", ";", ">", "2>&1")]
                found.append(rest[: min(ends, default=len(rest))])
    return found


@pytest.mark.parametrize(("language", "title", "body"), BLOCKS)
def test_a_block_is_well_formed(language: str, title: str, body: str) -> None:
    match language:
        case "python":
            ast.parse(body)
        case "json" if "…" not in body:
            try:
                json.loads(body)
            except ValueError:  # one a line
                assert all(isinstance(json.loads(line), dict) for line in body.splitlines())
        case "toml":
            for name, table in tomllib.loads(body).items():
                assert name in SETTINGS or name in (*TABLES, "brokers", "postgres"), (title, name)
                for connector in table.values() if name in TABLES else ():
                    assert set(connector) <= set(TABLES[name]), (title, connector)
        case "sh":
            checked = subprocess.run(["bash", "-n"], input=body, text=True, capture_output=True)
            assert checked.returncode == 0, checked.stderr
            for words in smile_commands(body):
                check_command(words)


def test_wrong_blocks_are_found() -> None:
    assert smile_commands("cd x && smile serve a --liste y | tee z") == [["serve", "a", "--liste", "y"]]
    for words in (["serve", "--liste", "x"], ["serv"], ["registry", "--nothing"]):
        with pytest.raises(AssertionError):
            check_command(words)
