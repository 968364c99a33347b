"""How much of each stream's log a program can still need: an event may be forgotten once every row that it can affect
is sealed in every stream that can affect the row."""

from collections.abc import Mapping
from dataclasses import dataclass

from smile.algebra import mmpl
from smile.algebra.coercions import interval_text
from smile.knowledge.analysis import Analysis
from smile.knowledge.seals import START
from smile.knowledge.types import RelationType


@dataclass(frozen=True)
class LogNeed:
    """`behind` is how far below the least horizon of `horizons` events are still needed; None is all of them, for the
    reason given."""

    stream: str
    behind: int | None
    horizons: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        if not self.horizons:
            return "nothing: no subscribed view reads it"
        if self.behind is None:
            return f"all of it, or a hard checkpoint: {self.reason}"
        least = self.horizons[0] if len(self.horizons) == 1 else f"the least of {', '.join(self.horizons)}"
        if self.behind == 0:
            return f"nothing at or below the horizon of {least}"
        return f"the last {_distance(self.behind)} below the horizon of {least}"


def _distance(ticks: int) -> str:
    if ticks % 1024 in (0, 1023):
        return interval_text(ticks + (ticks % 1024 == 1023))
    return f"{ticks} ticks"


def log_needs(program: mmpl.Program, analysis: Analysis) -> list[LogNeed]:
    return [_need(s.name, program, analysis) for s in program.streams]


def _need(stream: str, program: mmpl.Program, analysis: Analysis) -> LogNeed:
    behind = 0
    horizons: dict[str, None] = {}
    for name in program.subscriptions:
        view = analysis.relations[name]
        if stream not in view.seals:
            continue
        reach = view.reach.get(stream, {})
        for other, seal in view.seals.items():
            horizons[other] = None
            if seal.is_never:
                return LogNeed(stream, None, (other,), f"{name} has no last tick in {other}")
            for column, offset in seal.at:
                reason = _endless(stream, name, column, offset, view, reach)
                if reason:
                    return LogNeed(stream, None, (other,), reason)
                behind = max(behind, offset + reach[column])
    return LogNeed(stream, behind, tuple(horizons), "")


def _endless(
    stream: str, name: str, column: str, offset: int, view: RelationType, reach: Mapping[str, int]
) -> str | None:
    """Why no distance bounds what is needed, if none does."""
    if column == START:
        return f"{name} is sealed at tick {offset}, and not before"
    if view.columns[column].nullable:
        return f"rows of {name} whose {column} is NULL are never sealed"
    if column not in reach:
        return f"an event of {stream} can affect rows of {name} whatever their {column}"
    return None
