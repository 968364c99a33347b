"""Evaluates a stream's CHECKs on whole batches. A batch passes if and only if each of its rows does.

Where possible, only the distinct values of a column are evaluated, or only its minimum and maximum.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from smile.algebra import mmpl
from smile.algebra.functions.catalogue import type_of
from smile.algebra.trees import columns_in
from smile.log.decoding.checks import Evaluator, EventRow
from smile.log.decoding.stream_schema import StreamSchema


def first_violation(schema: StreamSchema, events: pa.RecordBatch) -> EventRow | None:
    """The first row that violates the first violated check; None if all rows pass."""
    for check, evaluate in zip(schema.stream.checks, schema.checks, strict=True):
        if not _passes(schema, check, evaluate, events):
            return next(row for row in _rows(events) if evaluate(row) is False)
    return None


def _passes(schema: StreamSchema, check: mmpl.Expr, evaluate: Evaluator, events: pa.RecordBatch) -> bool:
    used = columns_in(check)
    if len(used) != 1:
        return not any(evaluate(row) is False for row in _rows(events))
    (name,) = used
    column, padding = events.column(name), (None,) * list(schema.types).index(name)
    if _is_range_check(schema, check):
        bounds = pc.min_max(column).as_py()
        if evaluate((*padding, bounds["min"])) is True and evaluate((*padding, bounds["max"])) is True:
            return True
    return not any(evaluate((*padding, value)) is False for value in column.unique().to_pylist())


def _is_range_check(schema: StreamSchema, check: mmpl.Expr) -> bool:
    """Whether all values of a column pass if its minimum and maximum do."""
    match check:
        case mmpl.Call("<" | "<=" | ">" | ">=", sides):
            return any(_is_column(schema, side) for side in sides) and any(not columns_in(side) for side in sides)
    return False


def _is_column(schema: StreamSchema, expr: mmpl.Expr) -> bool:
    """Whether this is a column, or a column cast to another numeric type, which keeps the order."""
    match expr:
        case mmpl.Cast(arg, target):
            return isinstance(arg, mmpl.ColumnRef) and type_of(arg, schema.types).is_number and target.is_number
    return isinstance(expr, mmpl.ColumnRef)


def _rows(events: pa.RecordBatch) -> Iterator[EventRow]:
    return zip(*(column.to_pylist() for column in events.columns), strict=True)
