"""`smile postgres serve`: runs a broker whose program is the event types of a database."""

import inspect
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import typer

from smile.cli.exits import load_settings
from smile.cli.postgres import DatabaseArgument
from smile.cli.serve import add_flags, serve_source
from smile.settings import PostgresSettings
from smile.source import Source

POLL_S: Final = 1.0


def serve(url: str, config: str | None, **flags: Any) -> None:  # Any: the flags are str, bool or None
    """Run a broker beside a database: its event types are streams, and its subscriptions are served.

    Views over the streams are added with `smile apply`, or over HTTP. To serve a database beside a program of your own,
    set `[postgres] url` and use `smile serve`. All settings and flags are those of `smile serve`.

    Example: smile postgres serve postgresql://alice@localhost/shop --engine local
    """
    settings = load_settings(config, **flags)
    settings = msgspec.structs.replace(settings, postgres=PostgresSettings(url=url))
    serve_source(lambda: _first_program(url, Path(settings.data)), settings)


def _first_program(url: str, data: Path) -> Source | None:
    """The streams of all event types, if no program has run yet. A program is not empty: so it waits for the first
    type."""
    if (data / "broker.json").exists():
        return None
    from smile.broker.program_streams import add_streams  # noqa: PLC0415  # slow to import, as the following
    from smile.postgres.catalogue import read_catalogue  # noqa: PLC0415
    from smile.postgres.database import Database  # noqa: PLC0415

    is_told = False
    with Database(url).connect("start") as connection:
        while not (types := [t for t in read_catalogue(connection).types.values() if not t.is_dropped]):
            if not is_told:
                print("waiting for the first event type of the database", flush=True)
                is_told = True
            time.sleep(POLL_S)
    return add_streams(Source("database.smile", ""), [event_type.stream for event_type in types])


def register(commands: typer.Typer) -> None:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    add_flags(serve, inspect.Parameter("url", kind, annotation=DatabaseArgument))
    commands.command()(serve)
