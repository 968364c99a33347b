"""What a subscriber is told at once: rows with all that is known of them, and how far everything is known then.

It never changes, so that many can be told the same; its JSON is made once, by the first who asks for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec
import pyarrow as pa

from smile.engine.delivery import arrow_changes
from smile.engine.messages import messages
from smile.kernels.changes import Changes
from smile.kernels.shown import Shown
from smile.kernels.transform import Input
from smile.knowledge.json import tick_json

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Told:
    """With `reset`, what the subscriber had before is to be forgotten. `progress` is there only if it has been told
    everything up to these horizons; `resume` is the token that goes with it."""

    source: Input
    changes: Changes | None
    horizons: Mapping[str, int]
    reset: bool
    progress: Mapping[str, int] | None
    resume: str | None

    @property
    def rows(self) -> int:
        return 0 if self.changes is None else len(self.changes)

    @cached_property
    def _messages(self) -> list[bytes]:
        if self.changes is None:
            return []
        source = self.source
        told = messages(source.name, source.type, source.layout, self.changes, self.horizons, every=True)
        return [encode(message) for message in told]

    def json(self) -> bytes:
        """The rows' messages, `{…},{…}`."""
        return self._json

    @cached_property
    def _json(self) -> bytes:
        return b",".join(self._messages)

    def lines(self) -> bytes:
        """The rows' messages, one a line."""
        return b"".join(message + b"\n" for message in self._messages)

    @cached_property
    def progress_json(self) -> bytes:
        """The horizons, as an object."""
        assert self.progress is not None
        return encode({stream: tick_json(tick) for stream, tick in self.progress.items()})

    def arrow(self) -> pa.RecordBatch:
        return self._arrow

    @cached_property
    def _arrow(self) -> pa.RecordBatch:
        changes = self.changes
        if changes is None:
            shown = Shown(self.source)
            changes = shown.rows(shown.empty())
        return arrow_changes(self.source, changes, self.horizons, every=True)
