"""Cells of rows. The knowledge of a Boolean cell is a Mask; that of any other cell is a Range, a LatestValue, a
OnceValue or a NestedRelation."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import Any

from smile.algebra.types import BOOL, INT, DataType, Value
from smile.knowledge.symbolic import Bound
from smile.knowledge.types import ColumnType
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.comparison import comparison_truths
from smile.knowledge.values.latest import LatestValue
from smile.knowledge.values.mask import Mask, Truth
from smile.knowledge.values.nested import NestedRelation
from smile.knowledge.values.once import OnceValue
from smile.knowledge.values.range import MAYBE, Range, hull
from smile.knowledge.values.transfer import to_operand


def to_range(cell: CellKnowledge) -> Range:
    """The knowledge of a cell as a range. The cell must not be a nested relation."""
    if isinstance(cell, OnceValue | LatestValue | Mask):
        return cell.to_range()
    assert isinstance(cell, Range)
    return cell


def null_cell(data: DataType) -> CellKnowledge:
    return Mask.exactly(None) if data == BOOL else Range.exactly(None)


def cell_hull(cells: Sequence[CellKnowledge], now: Any, bottom: CellKnowledge, data: DataType) -> CellKnowledge:
    """A cell whose final value is that of one of `cells`, of which there is at least one. `now` is its current
    value."""
    if len(cells) == 1:
        return cells[0]
    if data.name == "relation":
        return Range(None, None, MAYBE, now)
    cells = [to_operand_in_domain(c, bottom, data) for c in cells]
    if data == BOOL:
        return Mask(frozenset[Truth]().union(*(m.possible for m in cells if isinstance(m, Mask))), now)
    return hull([to_range(c) for c in cells], now)


def optional_cell(data: DataType, cells: Sequence[CellKnowledge]) -> CellKnowledge:
    """The bottom of a column that may also be NULL because its row may be missing."""
    if any(isinstance(c, NestedRelation) for c in cells):
        return cells[0]
    data = BOOL if data == BOOL else INT
    return cell_hull([*cells, null_cell(data)], None, null_cell(data), data)


def to_operand_in_domain(cell: CellKnowledge, bottom: CellKnowledge, data: DataType) -> CellKnowledge:
    """The cell as an operand of an expression. A latest value that may be replaced can become any value of the column's
    domain."""
    if isinstance(cell, NestedRelation):
        return cell
    if isinstance(cell, LatestValue) and not cell.sealed and data != BOOL:
        domain_range = Range() if isinstance(bottom, NestedRelation) else to_range(bottom)
        return Range.bottom(domain_range.lo, domain_range.hi, cell.now)
    return to_operand(cell, data)


def domain_ends(column: ColumnType) -> tuple[Any, Any]:
    """The ends of a column's domain; None for an end that is not a number."""
    if column.range is None:
        return None, None
    return _domain_end(column.range.lo, column.data, floor), _domain_end(column.range.hi, column.data, ceil)


def _domain_end(bound: Bound, data: DataType, rounded: Any) -> Value:
    number = bound.number
    if number is None:
        return None
    if data.name == "decimal":
        exact = Fraction(number)
        return Decimal(exact.numerator) / Decimal(exact.denominator)
    return float(number) if data.name == "float" else int(rounded(number))


def equality_mask(a: CellKnowledge, b: CellKnowledge) -> Mask:
    """The mask of a = b. It is NULL if an operand is NULL."""
    x, y = to_range(a), to_range(b)
    return Mask(comparison_truths("=", x, y), None if x.now is None or y.now is None else x.now == y.now)
