"""`smile apply`: replaces the program of a running broker, after the user has confirmed the difference.

The program is compiled here first, so that its errors are reported without the broker. A program with imports is
compiled by the broker, which has the types of what is imported.
"""

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import unified_diff
from typing import TYPE_CHECKING, Annotated

import typer

from smile import limits
from smile.cli.client import CaOption, UrlOption
from smile.cli.exits import error_exit
from smile.cli.loading import loading
from smile.cli.program_client import ProgramClient
from smile.client.address import BrokerAddress
from smile.errors import SmileError, error, render
from smile.source import Source

if TYPE_CHECKING:
    from smile.program import CompiledProgram

POLL_S = 0.5
"""Interval at which the progress shown in a terminal is updated."""


def apply(
    program: Annotated[
        str, typer.Argument(metavar="PROGRAM", help="A SmileSQL program, or MMPL if its name ends in .mmpl.")
    ],
    url: UrlOption = None,
    ca: CaOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the difference.")] = False,
) -> None:
    """Change the program that a broker runs: show the difference, ask, and wait until new views have caught up.

    Unchanged views continue without interruption, and so do their subscriptions. If the broker requires tokens, the
    principal of SMILE_TOKEN needs ADMIN ON program.

    Example: smile apply programs/tradefloor.smile --dry-run
    """
    with loading():  # the compiler
        from smile.program import compile_program, imported_relations, read_program  # noqa: PLC0415
    source = Source(program, "")
    try:
        source = read_program(program)
        # Only the broker knows the types of what it imports.
        compiled = None if imported_relations(source) else compile_program(source)
        with ProgramClient(BrokerAddress.resolve(url, ca=ca)) as broker:
            running_text = broker.fetch_program()
            difference = broker.fetch_difference(source)
            streams = [] if compiled is None else [stream.name for stream in compiled.original.streams]
            _print_difference(running_text, source, streams, difference)
            if compiled is not None:
                _print_warnings(compiled, (*difference["added"], *difference["changed"]))
            is_same = running_text == source.text and not _has_effect(difference)
            if dry_run or is_same:
                return
            if not yes and not _confirm():
                return
            with _show_progress(broker, (*difference["added"], *difference["changed"])):
                broker.apply_program(source)
    except SmileError as problem:
        raise error_exit(problem, source) from None
    except KeyboardInterrupt:
        print("smile: interrupted: the broker finishes what it has begun", file=sys.stderr)
        raise typer.Exit(130) from None
    print("smile: applied", file=sys.stderr)


def _print_difference(
    before: str, new_source: Source, streams: Sequence[str], difference: Mapping[str, Sequence[str]]
) -> None:
    """Prints the changed lines of the text, then the effect on each stream and view."""
    from rich.console import Console  # noqa: PLC0415  # it takes a while to load
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False, soft_wrap=True)
    styles = {"+": "green", "-": "red", "~": "yellow", "@": "cyan"}

    def show(line: str) -> None:
        console.print(Text(line, style=styles.get(line[:1], "")))

    if before == new_source.text and not _has_effect(difference):
        show(f"The broker runs this program already: {new_source.name}")
        return
    for line in unified_diff(
        before.splitlines(), new_source.text.splitlines(), "running", new_source.name, lineterm=""
    ):
        show("".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in line))
    show("")
    added, dropped = difference["streams_added"], difference["streams_dropped"]
    for sign, noun, names, effect in [
        ("+", "stream", added, "added"),
        ("-", "stream", dropped, "dropped; its events stay in the log"),
        (" ", "stream", [name for name in streams if name not in added], "unchanged"),
        ("~", "import", difference["imports_changed"], "changed at the broker that it comes from: begins anew"),
        ("+", "view", difference["added"], "added"),
        ("~", "view", difference["changed"], "changed: computed anew; its subscriptions end"),
        ("-", "view", difference["dropped"], "dropped; its subscriptions end"),
        (" ", "view", difference["unchanged"], "unchanged"),
    ]:
        for name in names:
            show(f"{sign} {noun} {name}: {effect}")


def _has_effect(difference: Mapping[str, Sequence[str]]) -> bool:
    """A program with the same text has an effect if what it imports has changed."""
    return any(names for kind, names in difference.items() if kind != "unchanged")


def _print_warnings(compiled: "CompiledProgram", views: Sequence[str]) -> None:
    """Prints the warnings about these views."""
    spans = [view.span for view in compiled.original.views if view.name in views and view.span is not None]
    warnings = [w for w in compiled.warnings if any(w.span and s.start <= w.span.start < s.end for s in spans)]
    if warnings:
        print(render(warnings, compiled.source), file=sys.stderr)


def _confirm() -> bool:
    if not sys.stdin.isatty():
        raise error(
            "E093", "cannot ask for confirmation: standard input is not a terminal", hint="Use --yes or --dry-run."
        )
    if typer.confirm("Apply?", default=False, err=True):
        return True
    print("smile: nothing was changed", file=sys.stderr)
    return False


@contextmanager
def _show_progress(broker: ProgramClient, views: Sequence[str]) -> Iterator[None]:
    """Shows in a terminal how many rows the views under backfill have."""
    if not views or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415

    done = threading.Event()
    with Console(stderr=True).status(f"backfilling {', '.join(views)}") as line:

        def watch() -> None:
            while not done.wait(POLL_S):
                try:
                    view_status = broker.fetch_status()["views"]
                    rows = [f"{name}: {view_status[name]['rows']:,} rows" for name in views if name in view_status]
                except (SmileError, KeyError, TypeError, ValueError):
                    continue  # the response to the PUT reports errors
                line.update(f"backfilling {', '.join(rows)}")

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join(limits.client_timeout_s)


def register(app: typer.Typer) -> None:
    app.command()(apply)
