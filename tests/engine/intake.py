"""Collects knowledge of streams that arrives in any order, repeated and in parts, and forms input batches from it.

Each batch continues the previous one without a gap, and each event is in exactly one batch.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema
from smile.horizons import HORIZON_MIN
from smile.log.gaps import TickRange
from smile.log.inbox import Inbox
from smile.log.input_batch import InputBatch


class Intake:
    """Starts at `horizons`: everything up to them is already known."""

    def __init__(self, streams: Sequence[mmpl.StreamDef], horizons: Mapping[str, int]) -> None:
        self.inboxes = {s.name: Inbox(s, horizons.get(s.name, HORIZON_MIN)) for s in streams}

    def receive(self, stream: str, from_tick: int, to_tick: int, events: pa.RecordBatch | None = None) -> None:
        """Accepts all events of the stream in (from_tick, to_tick]; None means silence."""
        if events is None:
            events = pa.RecordBatch.from_pylist([], stream_schema(self.inboxes[stream].stream))
        self.inboxes[stream].receive(from_tick, to_tick, events)

    def next_batch(self) -> InputBatch | None:
        """What has become known without a gap since the last batch; None if nothing has."""
        events, horizons = {}, {}
        for name, inbox in self.inboxes.items():
            taken = inbox.take()
            if taken is not None:
                events[name], horizons[name] = taken
        return (
            InputBatch({name: batch for name, batch in events.items() if batch.num_rows}, horizons)
            if horizons
            else None
        )

    @property
    def gaps(self) -> dict[str, tuple[TickRange, ...]]:
        """For each stream, the tick ranges to request from upstream."""
        return {name: inbox.gaps for name, inbox in self.inboxes.items() if inbox.gaps}
