"""Why a row is not final: which horizons have not reached its seals, and what holds them back.

When every wait is satisfied, the row is final. While one is not, it is not final, unless what is known decides it
earlier: a threshold that is reached, or a value at the end of its range.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from smile.algebra import mmpl
from smile.algebra.coercions import to_text
from smile.algebra.types import TICKS_PER_MICROSECOND, TIMESTAMP
from smile.horizons import END, HORIZON_MIN, split_name
from smile.knowledge.seals import Seal

WaitKind = Literal["window", "horizon", "end", "neighbour", "gap", "maintenance", "paused", "open"]
"""window: a period has to end. horizon: events up to a tick can still come. end: any later event matters. The others
say why the horizon does not follow: a link to a neighbour, a gap in an import, views that are behind the log, or
paused; or a global stream is open, so that other producers may come."""


@dataclass(frozen=True)
class InputStream:
    """What moves the horizon of a stream of the log. `name` is what the program calls it, `brokers` are those that it
    is imported from. `base` is the stream that an imported view is computed from."""

    name: str
    publisher_timed: bool
    brokers: tuple[str, ...] = ()
    base: str = ""

    @property
    def text(self) -> str:
        return f"{self.base} behind {self.name}" if self.base else self.name

    @property
    def follows_clock(self) -> bool:
        return not self.publisher_timed and not self.brokers


@dataclass(frozen=True)
class Obstacle:
    """Why the horizon of a stream does not follow."""

    kind: WaitKind
    text: str


@dataclass(frozen=True)
class TickReference:
    """A tick in a sentence. Who shows the sentence chooses the clock: `text` is for those who have none."""

    tick: int
    is_time: bool

    @property
    def text(self) -> str:
        if self.is_time:
            return f"{to_text(self.tick // TICKS_PER_MICROSECOND, TIMESTAMP)} UTC"
        return f"tick {self.tick}"


@dataclass(frozen=True)
class HorizonWait:
    """A horizon that has not reached a seal. `stream` and `origin` name it; without `origin` it is that of the whole
    stream. `needs_tick` is None if only the end of the stream seals the row. `parts` are a sentence about it."""

    kind: WaitKind
    stream: str
    origin: str | None
    needs_tick: int | None
    now_tick: int
    parts: tuple[str | TickReference, ...]

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)


@dataclass(frozen=True)
class RowFinality:
    """`waits_for` is empty for a final row. `open_cells` are the columns that may still change. `earliest` is the tick
    from which on the row is final even if nothing else happens; None if that is never."""

    is_final: bool
    waits_for: tuple[HorizonWait, ...] = ()
    open_cells: tuple[str, ...] = ()
    earliest: int | None = None
    text: str = "this row is final: nothing that can still happen changes it"


@dataclass(frozen=True)
class FinalityContext:
    """What is known of the streams of a view. `inputs` are those of the log, by name; `log_horizons` are further than
    `horizons` if the view is behind the log."""

    inputs: Mapping[str, InputStream]
    horizons: Mapping[str, int]
    log_horizons: Mapping[str, int] = field(default_factory=dict)
    obstacles: Mapping[str, Obstacle] = field(default_factory=dict)
    """By stream, or by the name of an origin's horizon."""
    epochs: Mapping[str, str] = field(default_factory=dict)
    """The closed epoch with respect to which something is final, by stream: those that are global."""


def input_streams(program: mmpl.Program) -> dict[str, InputStream]:
    """What moves the horizons of the streams that a program reads from its log."""
    streams = {s.name: InputStream(s.name, s.publisher_timed) for s in program.streams}
    for i in program.imports:
        if i.stream is not None:
            streams[i.stream.name] = InputStream(i.name, True, i.brokers)
        else:
            streams |= {i.horizon_name(s): InputStream(i.name, True, i.brokers, s) for s in i.base_streams}
    return streams


def explain_final_row(streams: Iterable[str], context: FinalityContext) -> RowFinality:
    """A row that is final, with the epochs of the global streams that it depends on."""
    epochs = [f"epoch {context.epochs[s]} of {context.inputs[s].name}" for s in streams if context.epochs.get(s)]
    if not epochs:
        return RowFinality(True)
    return RowFinality(True, text=f"this row is final with respect to {' and '.join(epochs)}")


def explain_row(
    seals: Mapping[str, Seal],
    ticks: Mapping[str, int],
    open_cells: Iterable[str],
    context: FinalityContext,
) -> RowFinality:
    """Why a row is not final. `seals` are those of its relation, and `ticks` where they are for this row, by stream:
    END for never."""
    waits = [wait for s, seal in seals.items() for wait in _waits(s, seal, ticks[s], context)]
    needed = [wait.needs_tick for wait in waits]
    earliest = None if None in needed else max((tick for tick in needed if tick is not None), default=None)
    return RowFinality(False, tuple(waits), tuple(open_cells), earliest, _summary(waits))


def _waits(stream: str, seal: Seal, tick: int, context: FinalityContext) -> Iterable[HorizonWait]:
    """The horizons of the stream, or of its origins, that are below the tick."""
    behind = {name: h for name, h in _horizons_of(stream, context).items() if h < tick}
    for name, now in behind.items():
        input_ = context.inputs.get(stream) or InputStream(stream, publisher_timed=True)
        origin = split_name(name, context.inputs.keys() | {stream})[1]
        kind, reason = _reason(seal, tick, input_)
        obstacle = context.obstacles.get(name) or context.obstacles.get(stream)
        if context.log_horizons.get(name, HORIZON_MIN) >= tick:
            obstacle = obstacle or Obstacle("maintenance", "the log is there already, and the view follows")
        subject = input_.text if origin is None else f"origin {origin} of {input_.text}"
        known: tuple[str | TickReference, ...] = (f"nothing of {subject} is known",)
        if now > HORIZON_MIN:
            known = f"{subject} is known up to ", _said(now, input_)
        moves = obstacle.text if obstacle is not None else _movement(input_, tick)
        yield HorizonWait(
            kind if obstacle is None else obstacle.kind,
            input_.name,
            origin,
            None if tick >= END else tick,
            now,
            (*reason, "; ", *known, f"; {moves}"),
        )


def _horizons_of(stream: str, context: FinalityContext) -> Mapping[str, int]:
    """The horizons of the origins of a stream if it has many, else its own."""
    names = context.inputs.keys() | {stream}
    origins = {n: h for n, h in context.horizons.items() if n not in names and split_name(n, names)[0] == stream}
    return origins or {stream: context.horizons.get(stream, HORIZON_MIN)}


def _reason(seal: Seal, tick: int, input_: InputStream) -> tuple[WaitKind, tuple[str | TickReference, ...]]:
    if tick >= END:
        return "end", (f"any later event of {input_.text} can change it",)
    # A seal before the end of a period is that of the whole period, whose end is not part of it.
    if any((offset + 1) % TICKS_PER_MICROSECOND == 0 and offset != 0 for _, offset in seal.terms):
        return "window", ("its period ends at ", _said(tick + 1, input_))
    return "horizon", (f"events of {input_.text} up to ", _said(tick, input_), " can change it")


def _movement(input_: InputStream, tick: int) -> str:
    """What has to happen for the horizon to reach the tick."""
    if input_.brokers:
        return f"{' or '.join(input_.brokers)} has to send more"
    if tick >= END:
        return "only the end of the stream makes it final, unless its value is decided before"
    if input_.publisher_timed:
        return "its publisher has to publish a later event, or declare silence"
    return "the clock has to pass it"


def _summary(waits: list[HorizonWait]) -> str:
    if not waits:
        return "nothing more is known of why this row is open"
    streams = ", ".join(dict.fromkeys(wait.stream for wait in waits))
    if any(wait.needs_tick is None for wait in waits):
        return f"this row may change as long as there are events of {streams}"
    return f"this row waits for {streams}: {waits[0].text}" + (f"; and for {len(waits) - 1} more" if waits[1:] else "")


def _said(tick: int, input_: InputStream) -> str | TickReference:
    return "its end" if tick >= END else TickReference(tick, input_.follows_clock)
