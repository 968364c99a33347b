"""Exit codes of the commands for brokers: 0 success, 1 failure, 2 a wrong command line or setting, 130 an interrupted
`publish` or `apply`."""

import os
import sys

import typer

from smile.errors import SmileError, render
from smile.settings import Settings, read_settings
from smile.source import Source

MISUSE_CODES = {"E067", "E093", "E100", "E107"}
"""Errors in the command line or the settings, not in programs, files or machines."""


def error_exit(problem: SmileError, source: Source | None = None) -> typer.Exit:
    """Prints an error. If it has no position in the program, it is about files, and its message names them."""
    has_position = source is not None and any(d.span is not None for d in problem.diagnostics)
    print(render(problem.diagnostics, source if source and has_position else Source("smile", "")), file=sys.stderr)
    return typer.Exit(2 if problem.diagnostics[0].code in MISUSE_CODES else 1)


def load_settings(config: str | None, **flags: str | bool | None) -> Settings:
    """The settings that a broker started here would have. An error is printed and ends the command."""
    try:
        return read_settings(config, os.environ, flags)
    except SmileError as problem:
        raise error_exit(problem) from None


def discard_stdout() -> None:
    """Redirects standard output to the null device, so that flushing it at exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
