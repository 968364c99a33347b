"""Frames of a view: rows with everything that is known about them, and the horizons at which this holds.

A frame is immutable. Each row is encoded as JSON once, when it is first needed, for all frames that contain it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import pyarrow as pa

from smile.broker.views.view_store import ChunkRows, RowChunk, chunk_delta, gather_rows
from smile.columns.values import Array, Indices
from smile.engine.arrow_changes import arrow_changes
from smile.engine.json_changes import json_changes
from smile.kernels.materialized_view import MaterializedView
from smile.kernels.transform import InputRelation
from smile.knowledge.values.json import tick_json

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class ViewFrame:
    """With `reset`, the subscriber must discard all earlier rows. `progress` is set only if the subscriber then has
    everything up to these horizons; `resume` is the token for it."""

    source: InputRelation
    parts: Sequence[ChunkRows]
    horizons: Mapping[str, int]
    reset: bool
    progress: Mapping[str, int] | None
    resume: str | None

    @cached_property
    def row_count(self) -> int:
        return sum(len(rows) for _, rows in self.parts)

    def rows_json(self) -> bytes:
        """The encoded rows, separated by commas: `{…},{…}`."""
        return self._rows_json

    @cached_property
    def _rows_json(self) -> bytes:
        return b",".join(self._messages())

    def rows_ndjson(self) -> bytes:
        """The encoded rows, one a line."""
        return b"".join(message + b"\n" for message in self._messages())

    def _messages(self) -> list[bytes]:
        return [message for chunk, rows in self.parts for message in self._encode_rows(chunk, rows).tolist()]

    def _encode_rows(self, chunk: RowChunk, indices: Indices) -> Array:
        encoded = chunk.messages[indices]
        missing = np.flatnonzero(encoded == None)  # noqa: E711  # element by element
        if len(missing):
            source, rows = self.source, indices[missing]
            delta = gather_rows(source.layout, [(chunk.delta, rows)])
            row_messages = json_changes(
                source.name, source.type, source.layout, delta, self.horizons, include_hidden=True
            )
            # Two threads may do this at the same time: they write the same bytes.
            chunk.messages[rows] = [encode(message) for message in row_messages]
            encoded = chunk.messages[indices]
        return encoded

    @cached_property
    def progress_json(self) -> bytes:
        """The horizons as a JSON object."""
        assert self.progress is not None
        return encode({stream: tick_json(tick) for stream, tick in self.progress.items()})

    def arrow(self) -> pa.RecordBatch:
        return self._arrow

    @cached_property
    def _arrow(self) -> pa.RecordBatch:
        layout, shown = self.source.layout, MaterializedView(self.source)
        delta = chunk_delta(layout, self.parts) if self.parts else shown.read_rows(shown.empty_state())
        return arrow_changes(self.source, delta, self.horizons, include_hidden=True)
