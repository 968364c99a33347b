"""Compares what the queries of a broker have received of a global stream with the logs of its producers, event by
event."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smile.decoding.stream_schema import StreamSchema
from smile.log.storage.durable import DurableLog
from smile.registry.conditions import parse_condition
from smile.registry.schema import global_schema

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Comparison:
    """What a query should have received, by the logs of all producers, and what the log of its broker has."""

    query: str
    published: int
    lost: int
    doubled: int

    def __str__(self) -> str:
        return f"{self.published:,} events {self.query}: lost {self.lost:,}, doubled {self.doubled:,}"


def compare_logs(
    relation: str, producers: Iterable[Path], consumer: Path, plans: Sequence[Mapping[str, Any]]
) -> list[Comparison]:
    """Compares what the queries of a broker have received with what was published, event by event. `plans` are those of
    its registry report. Nothing may be published meanwhile."""
    published = Counter[Row]()
    for path in producers:
        published.update(_read_events(path, relation))
    (stream,) = (s for s in DurableLog.read_definitions(str(consumer)) if s.name == relation)
    schema, names = global_schema(stream), list(StreamSchema(stream).types)
    comparisons = []
    for plan in plans:
        condition = parse_condition(schema, plan["where"])
        expected = Counter(
            {row: n for row, n in published.items() if condition.is_true_of(dict(zip(names, row, strict=True)))}
        )
        received = Counter(_read_events(consumer, plan["name"]))
        text = "in all" if plan["where"] == "TRUE" else f"with {plan['where']}"
        lost, doubled = (expected - received).total(), (received - expected).total()
        comparisons.append(Comparison(text, expected.total(), lost, doubled))
    return comparisons


def _read_events(path: Path, stream: str) -> Iterator[Row]:
    log = DurableLog(str(path), DurableLog.read_definitions(str(path)))
    try:
        events = log.read(stream, log.start(), log.newest())
        yield from zip(*(column.to_pylist() for column in events.columns), strict=True)
    finally:
        log.close()
