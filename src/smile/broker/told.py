"""What a subscriber is told at once: rows with all that is known of them, and how far everything is known then.

It never changes. What is said of a row is written as JSON once, by the first who asks for it, whoever is told of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import pyarrow as pa

from smile.broker.rows import Chunk, Part, changes_of, gathered
from smile.columns.values import Array, Indices
from smile.engine.delivery import arrow_changes
from smile.engine.messages import messages
from smile.kernels.shown import Shown
from smile.kernels.transform import Input
from smile.knowledge.json import tick_json

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Told:
    """With `reset`, what the subscriber had before is to be forgotten. `progress` is there only if it has been told
    everything up to these horizons; `resume` is the token that goes with it."""

    source: Input
    parts: Sequence[Part]
    horizons: Mapping[str, int]
    reset: bool
    progress: Mapping[str, int] | None
    resume: str | None

    @cached_property
    def rows(self) -> int:
        return sum(len(at) for _, at in self.parts)

    def json(self) -> bytes:
        """The rows' messages, `{…},{…}`."""
        return self._json

    @cached_property
    def _json(self) -> bytes:
        return b",".join(self._messages())

    def lines(self) -> bytes:
        """The rows' messages, one a line."""
        return b"".join(message + b"\n" for message in self._messages())

    def _messages(self) -> list[bytes]:
        return [message for chunk, at in self.parts for message in self._written(chunk, at).tolist()]

    def _written(self, chunk: Chunk, at: Indices) -> Array:
        found = chunk.messages[at]
        missing = np.flatnonzero(found == None)  # noqa: E711  # of each of them
        if len(missing):
            source, rows = self.source, at[missing]
            changes = gathered(source.layout, [(chunk.changes, rows)])
            told = messages(source.name, source.type, source.layout, changes, self.horizons, every=True)
            # Two threads may do the same at once: they write the same.
            chunk.messages[rows] = [encode(message) for message in told]
            found = chunk.messages[at]
        return found

    @cached_property
    def progress_json(self) -> bytes:
        """The horizons, as an object."""
        assert self.progress is not None
        return encode({stream: tick_json(tick) for stream, tick in self.progress.items()})

    def arrow(self) -> pa.RecordBatch:
        return self._arrow

    @cached_property
    def _arrow(self) -> pa.RecordBatch:
        layout, shown = self.source.layout, Shown(self.source)
        changes = changes_of(layout, self.parts) if self.parts else shown.rows(shown.empty())
        return arrow_changes(self.source, changes, self.horizons, every=True)
