"""A stream's definition prepared for reading events: types, Arrow schema and compiled CHECKs, computed once."""

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema, stream_types
from smile.algebra.coercions import literal_text
from smile.algebra.printer import print_expression
from smile.algebra.trees import columns_in
from smile.algebra.types import INT_MAX, DataType, Value
from smile.log.decoding.checks import Evaluator, EventRow, compile_evaluator
from smile.log.decoding.values import shorten

TICK_MAX = INT_MAX - 1
"""The greatest tick of an event. The next tick is the horizon of a finished stream."""


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
    def arrow_schema(self) -> pa.Schema:
        return stream_schema(self.stream)

    @cached_property
    def checks(self) -> list[Evaluator]:
        """The compiled CHECKs. Only False violates a check; NULL does not."""
        return [compile_evaluator(check, self.types) for check in self.stream.checks]

    def describe_violation(self, row: EventRow) -> str:
        """The check that the row violates, and the values it uses."""
        check = next(
            check for evaluate, check in zip(self.checks, self.stream.checks, strict=True) if evaluate(row) is False
        )
        used = columns_in(check)
        values = [
            f"{name} is {'NULL' if value is None else shorten(literal_text(value, data))}"
            for (name, data), value in zip(self.types.items(), row, strict=True)
            if name in used
        ]
        return f"{self.name} requires {shorten(print_expression(check))}, but {', '.join(values)}"

    def record_batch(self, cells: list[Value]) -> pa.RecordBatch:
        """An Arrow batch of rows; `cells` has their values in one flat list."""
        columns = [pa.array(cells[i :: self.width], data) for i, data in enumerate(self.arrow_schema.types)]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)


ParsedLine = tuple[StreamSchema | None, int | None, EventRow | None]
"""The content of a line: stream, tick and values. With values (of all columns except the tick) it is an event; its tick
may be None, and is then derived from the lines before. Without values it is a silence up to the tick; without a stream,
of all streams."""
