"""Shared by all commands that talk to a broker: the options for its address, and the handling of errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from smile.cli.exits import discard_stdout, error_exit
from smile.errors import SmileError

if TYPE_CHECKING:
    from smile.client import Client

UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The broker's URL [default: SMILE_URL, else http://127.0.0.1:7400]."),
]
CaOption = Annotated[
    str | None,
    typer.Option("--ca", metavar="FILE", help="Certificates to trust in addition to the system's [default: SMILE_CA]."),
]


@contextmanager
def open_client(url: str | None, ca: str | None) -> "Iterator[Client]":
    """Connects to a broker. An error is printed and ends the command."""
    from smile.client import connect  # noqa: PLC0415  # asyncio is slow to import

    with report_errors():
        client = connect(url, ca=ca)
        try:
            yield client
        finally:
            client.close()


@contextmanager
def report_errors() -> Iterator[None]:
    try:
        yield
    except SmileError as problem:
        raise error_exit(problem) from None
    except KeyboardInterrupt:
        # Ctrl-C is the usual way to end such a command.
        discard_stdout()
        raise typer.Exit(0) from None
    except BrokenPipeError:
        discard_stdout()
        raise typer.Exit(0) from None
