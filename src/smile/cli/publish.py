"""`smile publish`: every line is published once, or refused with its number; without --skip-bad nothing is published
after one that is refused."""

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
from smile.cli.client import Ca, Url, talking
from smile.errors import SmileError, error

if TYPE_CHECKING:
    from rich.progress import Progress

    from smile.client import Client

BLOCK_BYTES = 2**17
"""So much of a file is published at once; of a pipe or a terminal, whatever there is."""

OF_AN_EVENT = ("E071", "E072", "E073", "E074", "E075", "E077", "E078", "E079", "E080", "E081", "E082")
"""Errors that are one event's, and not the publication's as a whole."""


@dataclass(frozen=True)
class Line:
    number: int
    text: bytes


class Refused(Exception):
    """A line was refused, and no more are to be published."""


def lines_of(file: BufferedReader) -> Iterator[tuple[list[Line], int]]:
    """Lines as they become available, and how many bytes have been read; blank ones are passed over."""
    rest, number, size = b"", 0, 0
    while block := file.read1(BLOCK_BYTES):
        size += len(block)
        *whole, rest = (rest + block).split(b"\n")
        yield [Line(number + i, text) for i, text in enumerate(whole, 1) if text.strip()], size
        number += len(whole)
        if len(rest) > limits.event_line_bytes_max:
            # It cannot be an event; that it is read to its end would fill the memory.
            raise error("E071", f"line {number + 1} is longer than {limits.event_line_bytes_max:,} bytes")
    if rest.strip():
        yield [Line(number + 1, rest)], size


@dataclass
class Publishing:
    client: "Client"
    stream: str
    ticks: bool
    skip_bad: bool
    what: str
    events: int = 0
    refused: int = 0
    started: float = field(default_factory=time.perf_counter)

    def publish(self, lines: Sequence[Line]) -> None:
        """All at once; and if that is refused, in halves, until the line is found that is to blame."""
        if not lines:
            return
        try:
            published = self.client.publish(self.stream, [_text(line) for line in lines])
        except SmileError as problem:
            if problem.diagnostics[0].code not in OF_AN_EVENT:
                raise
            if len(lines) == 1:
                self._refuse(lines[0], problem)
                return
            middle = len(lines) // 2
            self.publish(lines[:middle])
            self.publish(lines[middle:])
            return
        self.events += len(published)
        if self.ticks:
            print("\n".join(map(str, published)), flush=True)

    def _refuse(self, line: Line, problem: SmileError) -> None:
        found = problem.diagnostics[0]
        print(f"{self.what}:{line.number}: error {found.code}: {found.message}", file=sys.stderr)
        shown = line.text.decode(errors="replace").strip()
        print(f"  {shown[: limits.excerpt_chars_max]}", file=sys.stderr)
        if found.hint:
            print(f"  hint: {found.hint}", file=sys.stderr)
        self.refused += 1
        if not self.skip_bad:
            raise Refused

    def text(self) -> str:
        seconds = time.perf_counter() - self.started
        rate = self.events / seconds if seconds else 0
        told = f"{_count(self.events, 'event')} published in {seconds:.2f} s ({rate:,.0f} events/s)"
        return f"{told}; {_count(self.refused, 'line')} refused" if self.refused else told


def _text(line: Line) -> str:
    try:
        return line.text.decode()
    except UnicodeDecodeError:
        raise error("E072", "the line is not text in UTF-8") from None


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


Events = Annotated[
    list[str] | None,
    typer.Argument(metavar="[EVENT]…", help="Events, each a JSON object; else lines of standard input."),
]


def publish(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream to publish to.")],
    events: Events = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="FILE", help="Events, a JSON object a line; - for standard input.")
    ] = None,
    ticks: Annotated[bool, typer.Option("--ticks", help="Print the tick of each event, a line each.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Go on after a line that is refused.")] = False,
    url: Url = None,
    ca: Ca = None,
) -> None:
    """Publish events to a stream: JSON objects, from the command line, a file or standard input.

    Every event is published once, whatever happens to the connection. A line that is refused is told with its number,
    and ends it; with --skip-bad the others go on. A broker that asks for a token is given SMILE_TOKEN.

    Example: smile publish BuyBids '{"issue":"IBM","price":10000,"#bid":300}'
    """
    if events and file is not None:
        raise typer.BadParameter("give events or --file, not both")
    with _opened(file) as (source, total), talking(url, ca) as client:
        what = "argument" if events else "standard input" if file in (None, "-") else str(file)
        publishing = Publishing(client, stream, ticks, skip_bad, what)
        try:
            if events:
                publishing.publish([Line(i, text.encode(errors="surrogateescape")) for i, text in enumerate(events, 1)])
            else:
                _published(publishing, source, total)
            code = 0
        except Refused:
            code = 1
        except KeyboardInterrupt:
            code = 130
        except SmileError:
            if publishing.events:
                print(publishing.text(), file=sys.stderr)
            raise
        print(publishing.text(), file=sys.stderr)
    if code:
        raise typer.Exit(code)


def _published(publishing: Publishing, source: BufferedReader, total: int | None) -> None:
    with _progress(total is not None and not publishing.ticks) as progress:
        task = progress.add_task("0 events", total=total)
        for lines, read in lines_of(source):
            publishing.publish(lines)
            progress.update(task, completed=read, description=_count(publishing.events, "event"))


@contextmanager
def _opened(file: str | None) -> Iterator[tuple[BufferedReader, int | None]]:
    """The lines, and how many bytes they are, where that is known."""
    if file is None or file == "-":
        yield cast(BufferedReader, sys.stdin.buffer), None
        return
    try:
        opened = Path(file).open("rb")  # noqa: SIM115  # closed below
    except OSError as problem:
        print(f"smile: {file} cannot be read: {problem.strerror}", file=sys.stderr)
        raise typer.Exit(1) from None
    with opened:
        yield opened, Path(file).stat().st_size


@contextmanager
def _progress(wanted: bool) -> "Iterator[Progress]":
    """A bar on standard error, if that is a terminal."""
    from rich.console import Console  # noqa: PLC0415  # it takes a while to load
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    hidden = not wanted or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as progress:
        yield progress


def register(app: typer.Typer) -> None:
    app.command()(publish)
