"""A stream's definition prepared for its events: types, Arrow schema and compiled CHECKs, computed once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema, stream_types
from smile.algebra.types import TICK_MAX, DataType, Value
from smile.decoding.checks import StreamChecks

EventRow = tuple[Value, ...]
"""The values of an event, in the order of the columns."""


@dataclass(frozen=True)
class StreamSchema:
    stream: mmpl.StreamDef

    @cached_property
    def name(self) -> str:
        return self.stream.name

    @cached_property
    def width(self) -> int:
        """The number of values in a row, including its tick."""
        return len(self.types)

    @cached_property
    def types(self) -> dict[str, DataType]:
        """The types of a row's values: the tick, then the columns."""
        return stream_types(self.stream)

    @cached_property
    def published_types(self) -> dict[str, DataType]:
        """The types of the columns that publishers send. The tick is one of them if they set it."""
        return self.types if self.stream.publisher_timed else dict(self.stream.columns)

    @cached_property
    def no_events(self) -> pa.RecordBatch:
        """An empty batch."""
        return self.record_batch([])

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        return stream_schema(self.stream)

    @cached_property
    def published_schema(self) -> pa.Schema:
        """The Arrow schema of the columns that publishers send."""
        return pa.schema([self.arrow_schema.field(name) for name in self.published_types])

    @cached_property
    def checks(self) -> StreamChecks:
        return StreamChecks(self.stream, self.types)

    def record_batch(self, cells: Sequence[Value]) -> pa.RecordBatch:
        """An Arrow batch of rows; `cells` has their values in one flat list."""
        columns = [pa.array(cells[i :: self.width], data) for i, data in enumerate(self.arrow_schema.types)]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)


def is_tick(value: Value) -> bool:
    return isinstance(value, int) and 0 <= value <= TICK_MAX
