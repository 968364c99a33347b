"""`smile subscribe`: the rows of a view and their changes, as a live table in a terminal or lines of JSON in a pipe. If
the broker is lost, it waits for it."""

import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smile.cli.client import CaOption, UrlOption, open_client
from smile.client.values import message_text
from smile.errors import SmileError, render
from smile.source import Source

if TYPE_CHECKING:
    from smile.client import Client, Frame, Subscription

NO_EVENTS = "E142"
EVENTS_PRINTED_MAX = 1_000
"""Events that are printed before they are acknowledged."""
PAUSE_CHECK_S = 1.0
"""How soon a pause of the view is reported, if no frame arrives."""
REFRESH_S = 0.1
"""More than ten updates a second are of no use to a person."""


class ScopeKind(StrEnum):
    local = "local"
    all = "global"


class StartKind(StrEnum):
    all = "all"
    kept = "kept"
    new = "new"


def subscribe(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view to subscribe to.")],
    where: Annotated[
        str | None,
        typer.Argument(metavar="[WHERE]", help="Only some rows, such as \"WHERE issue = 'IBM'\"; AND is allowed."),
    ] = None,
    changes: Annotated[
        bool, typer.Option("--changes", help="Print lines of JSON in a terminal too: each change, and the progress.")
    ] = False,
    final: Annotated[bool, typer.Option("--final", help="Only rows that are final: each comes once.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Print the current rows, and end.")] = False,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="A durable subscription: continue after what was printed last."),
    ] = None,
    start: Annotated[
        StartKind,
        typer.Option("--start", help="Where a new name begins: all events, those that the log has kept, or new ones."),
    ] = StartKind.all,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="TOKEN", help="Continue from this token, from another broker.")
    ] = None,
    scope: Annotated[
        ScopeKind,
        typer.Option("--scope", help="For --name: the events of this broker's program, or those of all brokers."),
    ] = ScopeKind.local,
    filter_text: Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="PREDICATE",
            help="For --name: only events that satisfy this predicate in SmileSQL, which may read tables.",
        ),
    ] = None,
    url: UrlOption = None,
    ca: CaOption = None,
) -> None:
    """Subscribe to a view: show all of its rows, and then every change, with the knowledge of each value.

    In a terminal it is a live table: ≥3 may still grow, 7~ may rise and fall, =4 is final, and final rows are marked;
    ticks are shown as local times. In a pipe it is a JSON object a line. Ctrl-C ends it. If the
    broker requires a token, set SMILE_TOKEN.

    With --name, VIEW may also be a stream. A stream, or a selection of one, is printed event by event, each once, and
    the broker stores what was printed; after a crash, the last lines may come again. `smile subscriptions` lists names.
    With --scope global, VIEW is a stream, and all brokers that publish one of this name and can be reached are asked.

    Example: smile subscribe Matchable "WHERE issue = 'IBM'"
    """
    if once and changes:
        raise typer.BadParameter("choose one of --once and --changes")
    if name is not None and once:
        raise typer.BadParameter("choose one of --once and --name")
    is_for_names = resume is not None or filter_text is not None or start is not StartKind.all
    if name is None and (is_for_names or scope is not ScopeKind.local):
        raise typer.BadParameter("--start, --resume, --filter and --scope are for --name")
    condition = _read_condition(where) if where is not None else {}
    with open_client(url, ca) as client:
        if name is not None:
            _write_durably(client, view, condition, name, start.value, resume, scope.value, filter_text, final)
        elif once:
            show_once(client, view, condition, final)
        elif changes or not sys.stdout.isatty():
            with client.subscribe(view, condition, final=final) as subscription:
                write_frames(subscription)
        else:
            show_live(client, view, condition, final)


def _write_durably(
    client: "Client",
    relation: str,
    condition: dict[str, Any],
    name: str,
    start: str,
    resume: str | None,
    scope: str,
    filter_text: str | None,
    final: bool,
) -> None:
    """Prints events, or changes of rows, and acknowledges what is printed."""
    try:
        subscription = client.durable(relation, name, condition, start, resume, scope, filter_text)
    except SmileError as problem:
        if filter_text is not None and problem.diagnostics[0].span is not None:
            print(render(problem.diagnostics, Source("filter", filter_text)), file=sys.stderr)
            raise typer.Exit(2) from None
        if problem.diagnostics[0].code != NO_EVENTS or filter_text is not None:
            raise
        with client.subscribe(relation, condition, name=name, final=final) as rows:
            for frame in rows.frames():
                write_frame(frame)
                rows.ack()
    with subscription:
        while True:
            events = [subscription.event()]
            while subscription.ready and len(events) < EVENTS_PRINTED_MAX:
                events.append(subscription.event())
            _write_messages([event.to_json() for event in events])
            subscription.ack()


def _read_condition(where: str) -> dict[str, Any]:
    from smile.lang.conditions import parse_condition  # noqa: PLC0415  # only needed for a condition

    source = Source("condition", where)
    try:
        return dict(parse_condition(source))
    except SmileError as problem:
        print(render(problem.diagnostics, source), file=sys.stderr)
        raise typer.Exit(2) from None


def write_frames(subscription: "Subscription") -> None:
    """Prints frames. Says on standard error when the view is paused or resumed."""
    paused: SmileError | None = None
    while True:
        try:
            write_frame(subscription.frame(PAUSE_CHECK_S))
        except SmileError as problem:
            if problem.diagnostics[0].code != "E108":
                raise
        if subscription.paused is not paused:
            paused = subscription.paused
            print(f"smile: {paused or 'the view is maintained again'}", file=sys.stderr)


def write_frame(frame: "Frame") -> None:
    """Prints the changes and the progress as the broker sends them."""
    messages = [change.to_json() for change in frame.changes]
    messages += [frame.progress_json()] if frame.progress is not None else []
    _write_messages(messages)


def _write_messages(messages: list[dict[str, Any]]) -> None:
    text = "".join(message_text(message) + "\n" for message in messages)
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def show_once(client: "Client", view: str, condition: dict[str, Any], final: bool = False) -> None:
    rows = client.snapshot(view, condition, final=final)
    if not sys.stdout.isatty():
        _write_messages([row.to_json() for row in rows])
        return
    from rich.console import Console  # noqa: PLC0415  # slow to import

    from smile.cli.view_display import ViewDisplay  # noqa: PLC0415

    console = Console()
    console.print(ViewDisplay(rows, lambda: True, time.time).render(console.width, None))


def show_live(client: "Client", view: str, condition: dict[str, Any], final: bool = False) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    from smile.cli.view_display import ViewDisplay  # noqa: PLC0415

    console = Console()
    with client.table(view, condition, final=final) as table:
        display = ViewDisplay(table, lambda: client.connected, time.time, lambda: table.paused)
        table.changed(display.record_changes)
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            while table.error is None:
                if display.is_stale():
                    live.update(display.render(console.width, console.height), refresh=True)
                time.sleep(REFRESH_S)
            live.update(display.render(console.width, console.height), refresh=True)
        raise table.error


def register(app: typer.Typer) -> None:
    app.command()(subscribe)
