"""Evaluates a stream's CHECKs on batches of events. Only false violates a CHECK; NULL does not.

There is one exception. Seals rely on inequalities between times, so such a CHECK must not become NULL by an overflow:
it is violated then. PostgreSQL refuses these events too, with an error of its own.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl, trees
from smile.algebra.arrow_types import arrow_type
from smile.algebra.coercions import describe_value
from smile.algebra.printer import print_expression
from smile.algebra.time_forms import time_constraints
from smile.algebra.trees import columns_in
from smile.algebra.types import BOOL, DataType, Value
from smile.columns.values import Bools, Indices, ValueColumn, from_arrow
from smile.decoding.values import shorten
from smile.kernels.expressions import compile_expression
from smile.kernels.layout import Layout


def enforced_check(check: mmpl.Expr, types: Mapping[str, DataType]) -> mmpl.Expr:
    """The condition that events must not violate: an inequality between times is false if it overflows."""
    return trees.conjunction([_without_overflow(conjunct, types) for conjunct in trees.conjuncts(check)])


def _without_overflow(conjunct: mmpl.Expr, types: Mapping[str, DataType]) -> mmpl.Expr:
    if not any(time_constraints(conjunct, types)) or not _can_overflow(conjunct):
        return conjunct
    condition: mmpl.Expr = mmpl.Constant(False, BOOL)
    for name in sorted(trees.columns_in(conjunct)):
        condition = mmpl.Call("or", (condition, mmpl.Call("is null", (mmpl.ColumnRef(name),))))
    return mmpl.Call("coalesce", (conjunct, condition))


def _can_overflow(expr: mmpl.Expr) -> bool:
    operands = trees.operands_of(expr)
    return any(not isinstance(o, mmpl.ColumnRef | mmpl.Constant) or _can_overflow(o) for o in operands)


class StreamChecks:
    """The CHECKs of a stream, compiled to expressions over columns. `types` are those of a row's values. Batches of
    events need only have the columns that the CHECKs use."""

    def __init__(self, stream: mmpl.StreamDef, types: Mapping[str, DataType]) -> None:
        self._stream = stream
        self._types = types
        layout = Layout((stream.tick,), types)
        self._expressions = [compile_expression(enforced_check(c, types), layout) for c in stream.checks]
        self.need_tick = any(stream.tick in columns_in(check) for check in stream.checks)
        used = dict.fromkeys(name for check in stream.checks for name in sorted(columns_in(check)))
        # A batch needs a column to have rows, also if the CHECKs use none.
        self._columns = list(used) or [stream.tick]

    def record_batch(self, columns: Sequence[Sequence[Value]]) -> pa.RecordBatch:
        """An Arrow batch of those columns that the CHECKs use. `columns` has all of them: the tick first."""
        used = {name: data for name, data in zip(self._types, columns, strict=True) if name in self._columns}
        return pa.record_batch({name: pa.array(data, arrow_type(self._types[name])) for name, data in used.items()})

    def violations(self, events: pa.RecordBatch) -> Indices:
        """The rows that violate a CHECK, in ascending order."""
        is_violated = np.zeros(events.num_rows, bool)
        for violated in self._evaluate(events):
            is_violated |= violated
        return is_violated.nonzero()[0]

    def describe(self, events: pa.RecordBatch, row: int) -> str:
        """The first CHECK that the row violates, and the values it uses."""
        check = self._first_violated(events, row)
        used = columns_in(check)
        values = [
            f"{name} is {_value_text(value, data)}"
            for name, data in self._types.items()
            if name in used
            for value in [events.column(name)[row].as_py()]
        ]
        return f"{self._stream.name} requires {shorten(print_expression(check))}, but {', '.join(values)}"

    def violated_column(self, events: pa.RecordBatch, row: int) -> str | None:
        """The column of the first CHECK that the row violates, if it has only one."""
        used = columns_in(self._first_violated(events, row)) - {self._stream.tick}
        return min(used) if len(used) == 1 else None

    def _first_violated(self, events: pa.RecordBatch, row: int) -> mmpl.Expr:
        violated = self._evaluate(events.slice(row, 1))
        return next(check for check, bits in zip(self._stream.checks, violated, strict=True) if bits[0])

    def _evaluate(self, events: pa.RecordBatch) -> list[Bools]:
        """For each CHECK, the rows in which it is false."""
        columns = {name: from_arrow(events.column(name)) for name in self._columns}
        violated = []
        for expression in self._expressions:
            result = expression(columns, {}, events.num_rows)
            assert isinstance(result, ValueColumn), "all columns of a stream are fixed"
            violated.append(~result.data if result.valid is None else ~result.data & result.valid)
        return violated


def _value_text(value: Value, data: DataType) -> str:
    if value is None:
        return "NULL"
    return "''" if value == "" else shorten(describe_value(value, data))
