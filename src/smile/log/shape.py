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
from smile.log.checks import Evaluator, Row, compiled
from smile.log.values import cut

TICK_MAX = INT_MAX - 1
"""The last tick that an event may have. The one after it is the horizon of a stream that is finished."""


@dataclass(frozen=True)
class Shape:
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
    def schema(self) -> pa.Schema:
        return stream_schema(self.stream)

    @cached_property
    def checks(self) -> list[Evaluator]:
        """Of a row. Only False breaks a check, NULL does not."""
        return [compiled(check, self.types) for check in self.stream.checks]

    def broken_check(self, row: Row) -> str:
        """What the row breaks, and with which values."""
        check = next(check for holds, check in zip(self.checks, self.stream.checks, strict=True) if holds(row) is False)
        used = columns_in(check)
        found = [
            f"{name} is {'NULL' if value is None else cut(literal_text(value, data))}"
            for (name, data), value in zip(self.types.items(), row, strict=True)
            if name in used
        ]
        return f"{self.name} requires {cut(print_expression(check))}, and {', '.join(found)}"

    def batch(self, cells: list[Value]) -> pa.RecordBatch:
        """Of rows, one after the other."""
        columns = [pa.array(cells[i :: self.width], data) for i, data in enumerate(self.schema.types)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


Said = tuple[Shape | None, int | None, Row | None]
"""What a line says. With values, one for each column but the tick: an event at a tick. Without: a silence up to a tick,
of all streams if there is no shape. An event without tick has one that follows from the lines before."""
