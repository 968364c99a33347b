"""Cells of rows: what is known of one. That of a Boolean is a Mask; any other is a Range, a Latest or a Nested."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import Any

from smile.algebra.types import BOOL, DataType, Value
from smile.knowledge.comparison import compare
from smile.knowledge.known import Known
from smile.knowledge.latest import Latest
from smile.knowledge.mask import Mask, Truth
from smile.knowledge.nested import Nested
from smile.knowledge.once import Once
from smile.knowledge.range import MAYBE, Range, hull
from smile.knowledge.symbolic import Bound
from smile.knowledge.transfer import operand
from smile.knowledge.types import ColumnType


def range_of(known: Known) -> Range:
    """What is known of a cell that is not a nested relation, as a range."""
    if isinstance(known, Once | Latest | Mask):
        return known.range()
    assert isinstance(known, Range)
    return known


def null(data: DataType) -> Known:
    return Mask.exactly(None) if data == BOOL else Range.exactly(None)


def one_of(cells: Sequence[Known], now: Any, bottom: Known, data: DataType) -> Known:
    """The cell that will turn out to be one of these; `now` is what it is at present. There is at least one."""
    if len(cells) == 1:
        return cells[0]
    if data.name == "relation":
        return Range(None, None, MAYBE, now)
    cells = [as_operand(c, bottom, data) for c in cells]
    if data == BOOL:
        return Mask(frozenset[Truth]().union(*(m.possible for m in cells if isinstance(m, Mask))), now)
    return hull([range_of(c) for c in cells], now)


def as_operand(known: Known, bottom: Known, data: DataType) -> Known:
    """The cell as expressions use it. Of a latest value that may be replaced only the column's domain is known."""
    if isinstance(known, Nested):
        return known
    if isinstance(known, Latest) and not known.sealed and data != BOOL:
        around = Range() if isinstance(bottom, Nested) else range_of(bottom)
        return Range.bottom(around.lo, around.hi, known.now)
    return operand(known, data)


def domain(column: ColumnType) -> tuple[Any, Any]:
    """The ends of a column's domain that are numbers; None where there is none."""
    if column.range is None:
        return None, None
    return _end(column.range.lo, column.data, floor), _end(column.range.hi, column.data, ceil)


def _end(bound: Bound, data: DataType, rounded: Any) -> Value:
    number = bound.number
    if number is None:
        return None
    if data.name == "decimal":
        exact = Fraction(number)
        return Decimal(exact.numerator) / Decimal(exact.denominator)
    return float(number) if data.name == "float" else int(rounded(number))


def equal(a: Known, b: Known) -> Mask:
    """a = b, with NULL for NULL."""
    x, y = range_of(a), range_of(b)
    return Mask(compare("=", x, y), None if x.now is None or y.now is None else x.now == y.now)
