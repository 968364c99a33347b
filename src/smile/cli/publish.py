"""`smile publish`: every line or row is published once, or reported as refused, with its number. Without --skip-bad,
nothing after a refused line is published."""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast
from urllib.parse import quote

import typer

from smile import limits
from smile.cli.client import CaOption, UrlOption, open_client
from smile.cli.event_files import Blocks, InputLine, column_kinds, is_table, read_lines, read_table
from smile.errors import SmileError, error

if TYPE_CHECKING:
    from rich.progress import Progress

    from smile.client import Client

EVENT_ERROR_CODES = ("E071", "E072", "E073", "E074", "E075", "E077", "E078", "E079", "E080", "E081", "E082")
"""Errors of a single event, not of the publication as a whole."""


class RefusedLineError(Exception):
    """A line was refused, and the remaining lines are not published."""


@dataclass
class LinePublisher:
    client: "Client"
    stream: str
    print_ticks: bool
    skip_bad: bool
    source_name: str
    event_count: int = 0
    refused_count: int = 0
    absent: Counter[str] = field(default_factory=Counter)
    """How many events lack a column, and have NULL there."""
    started: float = field(default_factory=time.perf_counter)

    def publish(self, lines: Sequence[InputLine]) -> None:
        """Publishes all lines at once. If they are refused, publishes each half, until the bad line is found."""
        if not lines:
            return
        try:
            published = self.client.publish(self.stream, [_decode_line(line) for line in lines])
        except SmileError as problem:
            if problem.diagnostics[0].code not in EVENT_ERROR_CODES:
                raise
            if len(lines) == 1:
                self._refuse(lines[0], problem)
                return
            middle = len(lines) // 2
            self.publish(lines[:middle])
            self.publish(lines[middle:])
            return
        self.event_count += len(published)
        self.absent.update(published.absent)
        if self.print_ticks:
            print("\n".join(map(str, published)), flush=True)

    def _refuse(self, line: InputLine, problem: SmileError) -> None:
        diagnostic = problem.diagnostics[0]
        print(f"{self.source_name}:{line.number}: error {diagnostic.code}: {diagnostic.message}", file=sys.stderr)
        excerpt = line.text.decode(errors="replace").strip()
        print(f"  {excerpt[: limits.excerpt_chars_max]}", file=sys.stderr)
        hint = diagnostic.hint
        if diagnostic.code == "E073" and self.source_name == "standard input" and line.text.lstrip()[:1] not in b"{[":
            hint = "Standard input has an event on each line, in JSON. Name the file of a table, such as rows.csv."
        if hint:
            print(f"  hint: {hint}", file=sys.stderr)
        self.refused_count += 1
        if not self.skip_bad:
            raise RefusedLineError

    def summary(self) -> str:
        seconds = time.perf_counter() - self.started
        rate = self.event_count / seconds if seconds else 0
        published_text = f"{_count_text(self.event_count, 'event')} published in {seconds:.2f} s ({rate:,.0f} events/s)"
        if self.refused_count:
            published_text += f"; {_count_text(self.refused_count, 'line')} refused"
        absent = (
            f"\nwarning: {_count_text(n, 'event')} had no {c}, which is NULL there" for c, n in self.absent.items()
        )
        return published_text + "".join(absent)


def _decode_line(line: InputLine) -> str:
    if line.problem is not None:
        raise line.problem
    try:
        return line.text.decode()
    except UnicodeDecodeError:
        raise error("E072", "the line is not valid UTF-8") from None


def _count_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


EventsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[EVENT]…|[FILE]",
        help="Events, each a JSON object; or a file, as for --file [default: lines of standard input].",
    ),
]


def publish(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream to publish to.")],
    events: EventsArgument = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="A table if its name ends in .csv, .parquet, .arrow or .feather; otherwise a JSON object a line. - is "
            "standard input.",
        ),
    ] = None,
    ticks: Annotated[bool, typer.Option("--ticks", help="Print the tick of each event, one a line.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Continue after a refused line.")] = False,
    url: UrlOption = None,
    ca: CaOption = None,
) -> None:
    """Publish events to a stream: JSON objects, from the command line, a file or standard input; or a table's rows.

    Every event is published once, even if the connection is lost meanwhile. A refused line or row is reported with its
    number, and ends the command; with --skip-bad the others are published. The columns of a table have the names of the
    stream's; an empty field of CSV is NULL. If the broker requires a token, set SMILE_TOKEN.

    Examples:

    smile publish BuyBids '{"issue":"IBM","price":10000,"#bid":300}'

    smile publish BuyBids bids.csv
    """
    if events is not None and file is None and len(events) == 1 and not events[0].lstrip().startswith(("{", "[")):
        file, events = events[0], None
    if events and file is not None:
        raise typer.BadParameter("give events or a file, not both")
    with _open_source(file) as (source, total), open_client(url, ca) as client:
        source_name = "argument" if events else "standard input" if file in (None, "-") else str(file)
        publisher = LinePublisher(client, stream, ticks, skip_bad, source_name)
        try:
            if events:
                publisher.publish(
                    [InputLine(i, text.encode(errors="surrogateescape")) for i, text in enumerate(events, 1)]
                )
            elif file is not None and is_table(file):
                blocks, total = read_table(source, file, _read_column_kinds(stream, url, ca))
                _publish_blocks(publisher, blocks, total)
            else:
                _publish_blocks(publisher, read_lines(source), total)
            exit_code = 0
        except RefusedLineError:
            exit_code = 1
        except KeyboardInterrupt:
            exit_code = 130
        except SmileError:
            if publisher.event_count:
                print(publisher.summary(), file=sys.stderr)
            raise
        print(publisher.summary(), file=sys.stderr)
    if exit_code:
        raise typer.Exit(exit_code)


def _read_column_kinds(stream: str, url: str | None, ca: str | None) -> dict[str, str]:
    """The types of the stream's columns, which the broker knows."""
    import asyncio  # noqa: PLC0415  # slow to import, as the following
    import json  # noqa: PLC0415

    from smile.client.address import BrokerAddress  # noqa: PLC0415
    from smile.client.connection import http_request  # noqa: PLC0415

    path = f"/streams/{quote(stream, safe='')}?newest=0"
    return column_kinds(json.loads(asyncio.run(http_request(BrokerAddress.resolve(url, ca=ca), "GET", path))))


def _publish_blocks(publisher: LinePublisher, blocks: Blocks, total: int | None) -> None:
    with _progress_bar(total is not None and not publisher.print_ticks) as progress:
        task = progress.add_task("0 events", total=total)
        for lines, completed in blocks:
            publisher.publish(lines)
            progress.update(task, completed=completed, description=_count_text(publisher.event_count, "event"))


@contextmanager
def _open_source(file: str | None) -> Iterator[tuple[BufferedReader, int | None]]:
    """The lines, and their size in bytes if it is known."""
    if file is None or file == "-":
        yield cast(BufferedReader, sys.stdin.buffer), None
        return
    try:
        opened_file = Path(file).open("rb")  # noqa: SIM115  # closed below
    except OSError as problem:
        print(f"smile: {file} cannot be read: {problem.strerror}", file=sys.stderr)
        raise typer.Exit(1) from None
    with opened_file:
        yield opened_file, Path(file).stat().st_size


@contextmanager
def _progress_bar(visible: bool) -> "Iterator[Progress]":
    """A progress bar on standard error, if that is a terminal."""
    from rich.console import Console  # noqa: PLC0415  # slow to import
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    hidden = not visible or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as progress:
        yield progress


def register(app: typer.Typer) -> None:
    app.command()(publish)
