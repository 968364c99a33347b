"""Cells of rows. The knowledge of a Boolean cell is a Mask; that of any other cell is a Range, a LatestValue, a
OnceValue or a NestedRelation."""

from collections.abc import Mapping, Sequence
from typing import Any

from smile.algebra.mmpl import Expr
from smile.algebra.types import BOOL, INT, DataType
from smile.knowledge.implied_values import narrow_sets
from smile.knowledge.value_set import ValueSet
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


def cell_hull(cells: Sequence[CellKnowledge], now: Any, data: DataType) -> CellKnowledge:
    """A cell whose final value is that of one of `cells`, of which there is at least one. `now` is its current
    value."""
    if len(cells) == 1:
        return cells[0]
    if data.name == "relation":
        return Range(None, None, MAYBE, now)
    operands = [to_operand(c, data) for c in cells]
    if data == BOOL:
        return Mask(frozenset[Truth]().union(*(m.possible for m in operands if isinstance(m, Mask))), now)
    return hull([r for r in operands if isinstance(r, Range)], now)


def clipped_cell(cell: CellKnowledge, domain: CellKnowledge, data: DataType) -> CellKnowledge:
    """What remains of the cell in the domain of a column; the cell itself where nothing remains."""
    if data == BOOL or data.name == "relation":
        return cell
    limits, operand = to_operand(domain, data), to_operand(cell, data)
    assert isinstance(limits, Range) and isinstance(operand, Range)
    return ValueSet.from_range(limits).clip(operand) or cell


def optional_cell(data: DataType, cells: Sequence[CellKnowledge]) -> CellKnowledge:
    """The bottom of a column that may also be NULL because its row may be missing."""
    if any(isinstance(c, NestedRelation) for c in cells):
        return cells[0]
    data = BOOL if data == BOOL else INT
    return cell_hull([*cells, null_cell(data)], None, data)


def narrow_cells(
    cells: Mapping[str, CellKnowledge], predicate: Expr, types: Mapping[str, DataType]
) -> dict[str, CellKnowledge]:
    """The cells of a row for which the predicate is true in the end."""
    sets = {n: _cell_values(c) for n, c in cells.items() if isinstance(c, Range | Mask)}
    narrow = narrow_sets(sets, predicate, types)
    if narrow is None:
        return dict(cells)  # there is no such row
    return {n: cell_from_values(narrow[n], types[n]) if n in sets else c for n, c in cells.items()}


def _cell_values(cell: Range | Mask) -> ValueSet:
    if isinstance(cell, Range):
        return ValueSet.from_range(cell)
    return ValueSet.of((v for v in cell.possible if v is not None), None in cell.possible)


def cell_from_values(values: ValueSet, data: DataType) -> CellKnowledge:
    """A cell of which only its possible values are known."""
    if data != BOOL:
        return values.to_range()
    return Mask.from_truths(v for v in (True, False, None) if values.contains(v))


def equality_mask(a: CellKnowledge, b: CellKnowledge) -> Mask:
    """The mask of a = b. It is NULL if an operand is NULL."""
    x, y = to_range(a), to_range(b)
    return Mask(comparison_truths("=", x, y), None if x.now is None or y.now is None else x.now == y.now)
