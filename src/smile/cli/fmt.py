"""`smile fmt`: lays out programs in one style. A file is replaced only if its program can be parsed."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from smile.cli.exits import error_exit
from smile.cli.files import replace_file
from smile.cli.loading import loading
from smile.errors import SmileError, error
from smile.source import Source


def fmt(
    programs: Annotated[list[str], typer.Argument(metavar="PROGRAM…", help="SmileSQL programs; - for standard input.")],
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; list the files that would change, with exit code 1.")
    ] = False,
) -> None:
    """Lay out SmileSQL in one style. Words and comments stay; spaces, line ends and the case of keywords are uniform.

    What is read from standard input is written to standard output.

    Example: smile fmt program.smile
    """
    exit_code = 0
    for program in programs:
        source = Source(program, "")
        try:
            source = _read(program)
            text = _format(source)
            if program == "-" and not check:
                sys.stdout.write(text)
            elif text != source.text:
                print(f"{program} {'is not in the style' if check else 'is changed'}", file=sys.stderr)
                exit_code = max(exit_code, int(check))
                if not check:
                    _replace(Path(program), text)
        except SmileError as problem:
            exit_code = error_exit(problem, source).exit_code
    if exit_code:
        raise typer.Exit(exit_code)


def _read(program: str) -> Source:
    with loading():
        from smile.program import read_source  # noqa: PLC0415

    if program.lower().endswith(".mmpl"):
        raise error("E168", f"{program} is in MMPL, which has one layout", hint="smile explain --as mmpl prints it.")
    return read_source(program)


def _format(source: Source) -> str:
    """The program in the style."""
    with loading():
        from smile.lang import format_program  # noqa: PLC0415

    return format_program(source)


def _replace(path: Path, text: str) -> None:
    try:
        replace_file(path, text)
    except OSError as problem:
        raise error("E168", f"{path} cannot be written: {problem.strerror}") from None


def register(app: typer.Typer) -> None:
    app.command()(fmt)
