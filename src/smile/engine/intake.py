"""The intake: knowledge of streams in any order, repeated and in pieces, becomes frames, each a part of the prefix."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema
from smile.log.gaps import TickRange
from smile.log.inbox import Inbox
from smile.log.input_batch import HORIZON_MIN, InputBatch


class Intake:
    """Begins where `horizons` say that all is known already."""

    def __init__(self, streams: Sequence[mmpl.StreamDef], horizons: Mapping[str, int]) -> None:
        self.inboxes = {s.name: Inbox(s, horizons.get(s.name, HORIZON_MIN)) for s in streams}

    def receive(self, stream: str, from_tick: int, to_tick: int, events: pa.RecordBatch | None = None) -> None:
        """All that happened on the stream in (from_tick, to_tick]; nothing, if there are no events."""
        if events is None:
            events = pa.RecordBatch.from_pylist([], stream_schema(self.inboxes[stream].stream))
        self.inboxes[stream].receive(from_tick, to_tick, events)

    def next_batch(self) -> InputBatch | None:
        """What has become known without a gap since the last one; None if nothing has."""
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
        """What to ask upstream for, of each stream."""
        return {name: inbox.gaps for name, inbox in self.inboxes.items() if inbox.gaps}
