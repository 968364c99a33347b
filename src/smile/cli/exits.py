"""How commands end that talk of brokers: 0 done, 1 it could not be done, 2 the command or a setting is wrong."""

import os
import sys

import typer

from smile.errors import SmileError, render
from smile.settings import Settings, read_settings
from smile.source import Source

MISUSE_CODES = {"E067", "E093", "E100", "E107"}
"""What is wrong with what the user asked for, rather than with programs, files or machines."""


def error_exit(problem: SmileError, source: Source | None = None) -> typer.Exit:
    """Tells what went wrong; what is about no place in the program is about files, and the message names them."""
    has_position = source is not None and any(d.span is not None for d in problem.diagnostics)
    print(render(problem.diagnostics, source if source and has_position else Source("smile", "")), file=sys.stderr)
    return typer.Exit(2 if problem.diagnostics[0].code in MISUSE_CODES else 1)


def load_settings(config: str | None, **flags: str | bool | None) -> Settings:
    """The settings as a broker here would have them; or what is wrong with them, and the end."""
    try:
        return read_settings(config, os.environ, flags)
    except SmileError as problem:
        raise error_exit(problem) from None


def discard_stdout() -> None:
    """Nothing more may be written to standard output, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
