"""A stream as its events are read: all that can be settled before the first line is settled once."""

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema, stream_types
from smile.algebra.coercions import literal_text
from smile.algebra.printer import print_expression
from smile.algebra.trees import columns_in
from smile.algebra.types import INT_MAX, DataType, Value
from smile.log.checks import Evaluator, EventRow, compile_evaluator
from smile.log.values import shorten

TICK_MAX = INT_MAX - 1
"""The last tick that an event may have. The one after it is the horizon of a stream that is finished."""


@dataclass(frozen=True)
class StreamSchema:
    stream: mmpl.StreamDef

    @cached_property
    def name(self) -> str:
        return self.stream.name

    @cached_property
    def width(self) -> int:
        """How many values a row has, its tick included."""
        return len(self.types)

    @cached_property
    def types(self) -> dict[str, DataType]:
        """Of a row: the tick's, then the columns'."""
        return stream_types(self.stream)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        return stream_schema(self.stream)

    @cached_property
    def checks(self) -> list[Evaluator]:
        """Of a row. Only False breaks a check, NULL does not."""
        return [compile_evaluator(check, self.types) for check in self.stream.checks]

    def describe_violation(self, row: EventRow) -> str:
        """What the row breaks, and with which values."""
        check = next(
            check for evaluate, check in zip(self.checks, self.stream.checks, strict=True) if evaluate(row) is False
        )
        used = columns_in(check)
        values = [
            f"{name} is {'NULL' if value is None else shorten(literal_text(value, data))}"
            for (name, data), value in zip(self.types.items(), row, strict=True)
            if name in used
        ]
        return f"{self.name} requires {shorten(print_expression(check))}, and {', '.join(values)}"

    def record_batch(self, cells: list[Value]) -> pa.RecordBatch:
        """Of rows, one after the other."""
        columns = [pa.array(cells[i :: self.width], data) for i, data in enumerate(self.arrow_schema.types)]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)


ParsedLine = tuple[StreamSchema | None, int | None, EventRow | None]
"""What a line says. With values, one for each column but the tick: an event at a tick. Without: a silence up to a tick,
of all streams if there is no shape. An event without tick has one that follows from the lines before."""
