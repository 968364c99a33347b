"""Publications: what a publisher hands in, and what becomes of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from smile.log.checks import EventRow

EventRows: TypeAlias = Sequence[EventRow] | pa.RecordBatch
"""Events of one stream, as its columns stand, without the tick; of a publisher-timed stream with the tick in front."""


@dataclass(frozen=True)
class ProducerSequence:
    """Who publishes, and the sequence number of the first event; the others follow it without a gap."""

    producer: str
    seq: int


@dataclass(frozen=True)
class Publication:
    """Checked already: its values are of the columns' types, and no CHECK is broken."""

    stream: str
    rows: EventRows
    sequence: ProducerSequence | None = None


@dataclass(frozen=True)
class SilencePublication:
    """Of a publisher-timed stream: nothing happens up to this tick but what was published."""

    stream: str
    to: int


@dataclass(frozen=True)
class PublishResult:
    """The ticks of the events, in their order; they are on the disk. `repeated` of them, the first ones, were there
    before."""

    ticks: Sequence[int]
    repeated: int = 0
