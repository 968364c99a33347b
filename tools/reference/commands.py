"""docs/reference/commands.md: the command line, from the commands themselves."""

from collections.abc import Iterator
from typing import Any

import typer

from smile.cli.main import app
from tools.reference.markdown import code, page, table

INTRODUCTION = """
`smile COMMAND --help` prints the same. Exit codes: 0 success, 1 failure (a wrong program, event or file), 2 a wrong
command line, 70 an internal error, 130 interrupted. With `SMILE_DEBUG` set, an internal error shows its traceback.
"""

Command = Any  # Typer has these classes within itself


def commands_page() -> str:
    return page("Command line", INTRODUCTION, *_sections(typer.main.get_command(app), "smile"))


def _sections(command: Command, path: str) -> Iterator[str]:
    """The sections of the command and of those below it."""
    if hasattr(command, "commands"):
        if path != "smile":
            yield f"## {path}\n\n{_prose(command.help)}"
        for name in sorted(command.commands):
            yield from _sections(command.commands[name], f"{path} {name}")
        return
    context = command.make_context(path, [], resilient_parsing=True)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    parts = [f"## {path}", f"```text\n{usage}\n```", _prose(command.help)]
    if records := [record for p in command.params if (record := p.get_help_record(context)) is not None]:
        parts.append(table(["argument or option", "meaning"], ([code(name), meaning] for name, meaning in records)))
    yield "\n\n".join(parts)


def _prose(text: str | None) -> str:
    paragraphs = (text or "").replace("\b", "").split("\n\n")
    return "\n\n".join(_example(" ".join(p.split())) for p in paragraphs)


def _example(paragraph: str) -> str:
    head, is_example, command = paragraph.partition("Example: ")
    return f"Example: `{command}`" if is_example and not head else paragraph
