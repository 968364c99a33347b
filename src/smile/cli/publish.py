"""`smile publish`: every line is published once, or reported as refused, with its number. Without --skip-bad, nothing
after a refused line is published."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from smile import limits
from smile.cli.client import CaOption, UrlOption, open_client
from smile.errors import SmileError, error

if TYPE_CHECKING:
    from rich.progress import Progress

    from smile.client import Client

BLOCK_BYTES = 2**17
"""Bytes of a file to publish at once. From a pipe or a terminal it is what is available."""

EVENT_ERROR_CODES = ("E071", "E072", "E073", "E074", "E075", "E077", "E078", "E079", "E080", "E081", "E082")
"""Errors of a single event, not of the publication as a whole."""


@dataclass(frozen=True)
class InputLine:
    number: int
    text: bytes


class RefusedLineError(Exception):
    """A line was refused, and the remaining lines are not published."""


def read_lines(file: BufferedReader) -> Iterator[tuple[list[InputLine], int]]:
    """Lines as they become available, and the number of bytes read so far. Blank lines are skipped."""
    remainder, number, size = b"", 0, 0
    while block := file.read1(BLOCK_BYTES):
        size += len(block)
        *complete, remainder = (remainder + block).split(b"\n")
        yield [InputLine(number + i, text) for i, text in enumerate(complete, 1) if text.strip()], size
        number += len(complete)
        if len(remainder) > limits.event_line_bytes_max:
            # It cannot be an event, and reading it to its end could exhaust the memory.
            raise error("E071", f"line {number + 1} is longer than {limits.event_line_bytes_max:,} bytes")
    if remainder.strip():
        yield [InputLine(number + 1, remainder)], size


@dataclass
class LinePublisher:
    client: "Client"
    stream: str
    print_ticks: bool
    skip_bad: bool
    source_name: str
    event_count: int = 0
    refused_count: int = 0
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
        if self.print_ticks:
            print("\n".join(map(str, published)), flush=True)

    def _refuse(self, line: InputLine, problem: SmileError) -> None:
        diagnostic = problem.diagnostics[0]
        print(f"{self.source_name}:{line.number}: error {diagnostic.code}: {diagnostic.message}", file=sys.stderr)
        excerpt = line.text.decode(errors="replace").strip()
        print(f"  {excerpt[: limits.excerpt_chars_max]}", file=sys.stderr)
        if diagnostic.hint:
            print(f"  hint: {diagnostic.hint}", file=sys.stderr)
        self.refused_count += 1
        if not self.skip_bad:
            raise RefusedLineError

    def summary(self) -> str:
        seconds = time.perf_counter() - self.started
        rate = self.event_count / seconds if seconds else 0
        published_text = f"{_count_text(self.event_count, 'event')} published in {seconds:.2f} s ({rate:,.0f} events/s)"
        if not self.refused_count:
            return published_text
        return f"{published_text}; {_count_text(self.refused_count, 'line')} refused"


def _decode_line(line: InputLine) -> str:
    try:
        return line.text.decode()
    except UnicodeDecodeError:
        raise error("E072", "the line is not valid UTF-8") from None


def _count_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


EventsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[EVENT]…", help="Events, each a JSON object [default: lines of standard input]."),
]


def publish(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream to publish to.")],
    events: EventsArgument = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="FILE", help="Events, a JSON object a line; - for standard input.")
    ] = None,
    ticks: Annotated[bool, typer.Option("--ticks", help="Print the tick of each event, one a line.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Continue after a refused line.")] = False,
    url: UrlOption = None,
    ca: CaOption = None,
) -> None:
    """Publish events to a stream: JSON objects, from the command line, a file or standard input.

    Every event is published once, even if the connection is lost meanwhile. A refused line is reported with its number,
    and ends the command; with --skip-bad the others are published. If the broker requires a token, set SMILE_TOKEN.

    Example: smile publish BuyBids '{"issue":"IBM","price":10000,"#bid":300}'
    """
    if events and file is not None:
        raise typer.BadParameter("give events or --file, not both")
    with _open_source(file) as (source, total), open_client(url, ca) as client:
        source_name = "argument" if events else "standard input" if file in (None, "-") else str(file)
        publisher = LinePublisher(client, stream, ticks, skip_bad, source_name)
        try:
            if events:
                publisher.publish(
                    [InputLine(i, text.encode(errors="surrogateescape")) for i, text in enumerate(events, 1)]
                )
            else:
                _publish_source(publisher, source, total)
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


def _publish_source(publisher: LinePublisher, source: BufferedReader, total: int | None) -> None:
    with _progress_bar(total is not None and not publisher.print_ticks) as progress:
        task = progress.add_task("0 events", total=total)
        for lines, bytes_read in read_lines(source):
            publisher.publish(lines)
            progress.update(task, completed=bytes_read, description=_count_text(publisher.event_count, "event"))


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
