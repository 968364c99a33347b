"""CHECKs of whole batches: a batch passes just if each of its rows does. Few rows are looked at where few decide."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from smile.algebra import mmpl
from smile.algebra.scalars import type_of
from smile.algebra.trees import columns_in
from smile.log.checks import Evaluator, Row
from smile.log.shape import Shape


def breaking(shape: Shape, events: pa.RecordBatch) -> Row | None:
    """The first row that breaks the first check that is broken."""
    for check, holds in zip(shape.stream.checks, shape.checks, strict=True):
        if not _passes(shape, check, holds, events):
            return next(row for row in _rows(events) if holds(row) is False)
    return None


def _passes(shape: Shape, check: mmpl.Expr, holds: Evaluator, events: pa.RecordBatch) -> bool:
    used = columns_in(check)
    if len(used) != 1:
        return not any(holds(row) is False for row in _rows(events))
    (name,) = used
    column, before = events.column(name), (None,) * list(shape.types).index(name)
    if _is_bound(shape, check):
        ends = pc.min_max(column).as_py()
        if holds((*before, ends["min"])) is True and holds((*before, ends["max"])) is True:
            return True
    return not any(holds((*before, value)) is False for value in column.unique().to_pylist())


def _is_bound(shape: Shape, check: mmpl.Expr) -> bool:
    """What a column's least and greatest value pass, all in between pass."""
    match check:
        case mmpl.Call("<" | "<=" | ">" | ">=", sides):
            return any(_is_column(shape, side) for side in sides) and any(not columns_in(side) for side in sides)
    return False


def _is_column(shape: Shape, expr: mmpl.Expr) -> bool:
    """Or one as another kind of number, which keeps the order."""
    match expr:
        case mmpl.Cast(arg, target):
            return isinstance(arg, mmpl.Column) and type_of(arg, shape.types).is_number and target.is_number
    return isinstance(expr, mmpl.Column)


def _rows(events: pa.RecordBatch) -> Iterator[Row]:
    return zip(*(column.to_pylist() for column in events.columns), strict=True)
