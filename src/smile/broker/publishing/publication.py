"""Publications: what a publisher submits, and its result."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from smile.decoding.stream_schema import EventRow

EventRows: TypeAlias = Sequence[EventRow] | pa.RecordBatch
"""Events of one stream, in the order of its columns, without the tick; in a publisher-timed stream, the tick comes
first."""


@dataclass(frozen=True)
class ProducerSequence:
    """The producer's name and the sequence number of the first event; the other events have consecutive numbers. Each
    principal has producers of its own: equal names of two principals are two producers."""

    principal: str
    producer: str
    seq: int

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
