"""How much of each stream's log a program may still need. An event is needed until every row that it can affect is
sealed in every stream that can affect the row."""

from collections.abc import Mapping
from dataclasses import dataclass

from smile.algebra import mmpl
from smile.algebra.coercions import interval_text
from smile.algebra.time_forms import START
from smile.analysis.type_analysis import TypeAnalysis
from smile.knowledge.seals import PeriodEnd, SealPoint, columns_of_point
from smile.knowledge.types import RelationType


@dataclass(frozen=True)
class LogRetention:
    """Events are needed down to `ticks_behind` below the least horizon of the streams `horizons`. If it is None, all of
    them are needed, for the given reason."""

    stream: str
    ticks_behind: int | None
    horizons: tuple[str, ...]
    reason: str
    is_cache: bool = False
    """Rows of an imported view: what is lost is imported again."""

    def __str__(self) -> str:
        if self.is_cache:
            return "a cache: rows that are lost are imported again"
        if not self.horizons:
            return "nothing: no subscribed view reads it"
        if self.ticks_behind is None:
            return f"all of it, or a hard checkpoint: {self.reason}"
        horizon_text = self.horizons[0] if len(self.horizons) == 1 else f"the least of {', '.join(self.horizons)}"
        if self.ticks_behind == 0:
            return f"nothing at or below the horizon of {horizon_text}"
        return f"the last {_format_distance(self.ticks_behind)} below the horizon of {horizon_text}"


def _format_distance(ticks: int) -> str:
    if ticks % 1024 in (0, 1023):
        return interval_text(ticks + (ticks % 1024 == 1023))
    return f"{ticks} ticks"


def log_retentions(program: mmpl.Program, analysis: TypeAnalysis) -> list[LogRetention]:
    imported_views = (i for i in program.imports if i.stream is None)
    caches = [LogRetention(i.name, None, (), "", is_cache=True) for i in imported_views]
    return [*(_stream_retention(s.name, program, analysis) for s in program.input_streams), *caches]


def _stream_retention(stream: str, program: mmpl.Program, analysis: TypeAnalysis) -> LogRetention:
    ticks_behind = 0
    horizons: dict[str, None] = {}
    for name in program.subscriptions:
        view = analysis.relations[name]
        if stream not in view.seals:
            continue
        reach = view.reach.get(stream, {})
        for other_stream, seal in view.seals.items():
            horizons[other_stream] = None
            if seal.is_never:
                return LogRetention(stream, None, (other_stream,), f"{name} has no last tick in {other_stream}")
            for point, offset in seal.sorted_terms:
                reason = _unbounded_reason(stream, name, point, offset, view, reach)
                if reason:
                    return LogRetention(stream, None, (other_stream,), reason)
                length = point.ticks_max if isinstance(point, PeriodEnd) else 0
                ticks_behind = max(ticks_behind, *(offset + length + reach[c] for c in columns_of_point(point)))
    return LogRetention(stream, ticks_behind, tuple(horizons), "")


def _unbounded_reason(
    stream: str, name: str, point: SealPoint, offset: int, view: RelationType, reach: Mapping[str, int]
) -> str | None:
    """Why no distance bounds the events that are needed; None if one does."""
    if point == START:
        return f"{name} is sealed at tick {offset}, and not before"
    for column in sorted(columns_of_point(point)):
        if view.columns[column].nullable:
            return f"rows of {name} whose {column} is NULL are never sealed"
        if column not in reach:
            return f"an event of {stream} can affect rows of {name} whatever their {column}"
    return None
