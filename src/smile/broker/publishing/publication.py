"""Publications: what a publisher submits, and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from smile.decoding.stream_schema import EventRow
from smile.errors import SmileError

EventRows: TypeAlias = Sequence[EventRow] | pa.RecordBatch
"""Events of one stream, in the order of its columns, without the tick; in a publisher-timed stream, the tick comes
first."""


@dataclass(frozen=True)
class ProducerSequence:
    """The producer's name and the sequence number of the first event; the other events have consecutive numbers. Each
    principal has producers of its own: equal names of two principals are two producers. `note` is logged with the
    events, in place of the producer's earlier note; None leaves that as it is."""

    principal: str
    producer: str
    seq: int
    note: str | None = None

    @property
    def producer_key(self) -> str:
        """Identifies the producer in the log. The name of a principal has no slash."""
        return f"{self.principal}/{self.producer}"


@dataclass(frozen=True)
class Publication:
    """Decoded events: the values have the columns' types. The CHECKs are evaluated when the events have their
    ticks."""

    stream: str
    rows: EventRows
    sequence: ProducerSequence | None = None
    absent: Mapping[str, int] = field(default_factory=dict)
    """How many of the events lack a column that may be NULL, by its name: the acknowledgement says so."""


@dataclass(frozen=True)
class AtomicPublication:
    """Events of several streams that are logged in one commit, which no batch divides, or not at all. They get ticks in
    the order of `parts`. The streams are broker-timed. The numbers of a producer increase from part to part."""

    parts: Sequence[Publication]


class AtomicRefusal(SmileError):
    """An atomic publication has events that violate a CHECK or UNIQUE. `problems` has the error of the first such event
    of each part, by the part's index; of violations of UNIQUE, only one."""

    def __init__(self, problems: Mapping[int, SmileError]) -> None:
        self.problems = problems
        super().__init__([d for problem in problems.values() for d in problem.diagnostics])


@dataclass(frozen=True)
class SilencePublication:
    """Declares that a publisher-timed stream has no more events up to this tick."""

    stream: str
    to: int


@dataclass(frozen=True)
class PublishResult:
    """The ticks of the events, in their order. The events are on the disk; the first `repeated` of them were
    already."""

    ticks: Sequence[int]
    repeated: int = 0
    absent: Mapping[str, int] = field(default_factory=dict)
    """As in the publication."""
