"""A stream's definition prepared for its events: types, Arrow schema and compiled CHECKs, computed once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema, stream_types
from smile.algebra.types import TICK_MAX, DataType, Value
from smile.decoding.checks import StreamChecks

EventRow = tuple[Value, ...]
"""The values of an event, in the order of the columns."""

AbsentColumns = dict[str, int]
"""How many of the events lack a column, by its name."""

BROKER_TICK_HINT: Final = (
    "The broker sets the tick: remove it. To keep recorded times, declare the stream WITH (TICKS = PUBLISHER), or give "
    "the time a column of its own: docs/howto/time.md."
)
SAME_TICK_HINT: Final = (
    "Each event has a tick of its own: of several at the same time, add a microsecond to each next one "
    "(docs/notebooks.md)."
)


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
    def has_deletions(self) -> bool:
        """Whether it has the changes of a table with a primary key. A deletion needs no other columns."""
        return mmpl.IS_KEYED_CHANGE in self.stream.checks

    @cached_property
    def warned_columns(self) -> frozenset[str]:
        """The columns that publishers are told of if they are absent: those that may be NULL. Of the changes of a
        table, `change` has a meaning when it is absent."""
        required = {
            check.args[0]
            for check in self.stream.checks
            if isinstance(check, mmpl.Call) and check.function == "is not null"
        }
        unwarned = {mmpl.CHANGE_COLUMN} if self.has_deletions else set[str]()
        return frozenset(c for c, _ in self.stream.columns if mmpl.ColumnRef(c) not in required) - unwarned

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


def with_added_columns(events: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The events with NULL in the columns that their stream has got since."""
    missing = list(schema)[events.num_columns :]
    if not missing or not events.schema.equals(pa.schema(list(schema)[: events.num_columns])):
        return events
    added = [pa.nulls(events.num_rows, field.type) for field in missing]
    return pa.RecordBatch.from_arrays([*events.columns, *added], schema=schema)


def is_tick(value: Value) -> bool:
    return isinstance(value, int) and 0 <= value <= TICK_MAX
