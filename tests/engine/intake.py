"""Collects knowledge of streams that arrives in any order, repeated and in parts, and forms input batches from it.

Each batch continues the previous one without a gap, and each event is in exactly one batch.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema
from smile.horizons import HORIZON_MIN, origin_name
from smile.log.input_batch import InputBatch


class Intake:
    """For each stream, or each origin of a stream with many, the horizon up to which batches were formed, and the events
    of each range that has come. `origins` are those of streams with many origins."""

    def __init__(self, streams: Sequence[mmpl.StreamDef], origins: Mapping[str, Sequence[str]]) -> None:
        self.origins = {s.name: [origin_name(s.name, o) for o in origins[s.name]] for s in streams if s.many_origins}
        self.streams = {name: s for s in streams for name in self.origins.get(s.name, [s.name])}
        self.horizons = dict.fromkeys(self.streams, HORIZON_MIN)
        self.pieces: dict[str, list[tuple[int, int, pa.RecordBatch]]] = {name: [] for name in self.streams}

    def receive(self, stream: str, from_tick: int, to_tick: int, events: pa.RecordBatch) -> None:
        """Accepts all events of the stream in (from_tick, to_tick]."""
        self.pieces[stream].append((from_tick, to_tick, events))

    def next_batch(self) -> InputBatch | None:
        """What has become known without a gap since the last batch; None if nothing has."""
        events, horizons = {}, {}
        for name, stream in self.streams.items():
            before, horizon = self.horizons[name], self.horizons[name]
            for lo, hi, _ in sorted(self.pieces[name], key=lambda piece: piece[:2]):
                horizon = max(horizon, hi) if lo <= horizon else horizon
            if horizon == before:
                continue
            rows = {row[stream.tick]: row for _, _, batch in self.pieces[name] for row in batch.to_pylist()}
            new_rows = [row for tick, row in sorted(rows.items()) if before < tick <= horizon]
            if new_rows:
                events[name] = pa.RecordBatch.from_pylist(new_rows, stream_schema(stream))
            self.horizons[name] = horizons[name] = horizon
        least = {s: min(self.horizons[name] for name in names) for s, names in self.origins.items() if names}
        return InputBatch(events, {**horizons, **least}) if horizons else None

    @property
    def incomplete_streams(self) -> list[str]:
        """Streams of which something has come that lies behind a gap."""
        return [name for name, pieces in self.pieces.items() if any(hi > self.horizons[name] for _, hi, _ in pieces)]
