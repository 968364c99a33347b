"""Hulls: columns whose cell in each row is one of several alternatives. A hull contains all of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smile.algebra.types import DataType
from smile.columns import knowledge as k, values as v
from smile.columns.knowledge import KnowledgeColumn, LatestColumn, MaskColumn, ObjectColumn, RangeColumn
from smile.columns.ranges import to_range_column
from smile.columns.values import Indices, ValueColumn, true_indices
from smile.kernels.expressions.choices import RangeClip
from smile.kernels.expressions.operands import (
    ALWAYS_NULL,
    MAYBE_NULL,
    NEVER_NULL,
    NULL,
    canonical_mask,
    canonical_ranges,
)
from smile.kernels.layout import EvolvingColumnLayout
from smile.knowledge.value_set import ValueSet
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import cell_hull, null_cell
from smile.knowledge.values.range import Range
from smile.knowledge.values.transfer import to_operand


@dataclass(frozen=True)
class Alternatives:
    """Pairs of a row and an alternative, in any order. Each of the `count` rows has at least one. `current` is the
    alternative that is the current one, -1 where the current value is NULL."""

    rows: Indices
    alternatives: Indices
    current: Indices
    count: int


def null_column(evolving: EvolvingColumnLayout, count: int) -> KnowledgeColumn:
    """NULL in all rows."""
    if evolving.kind == "object":
        return k.from_points([null_cell(evolving.data)] * count, "object", evolving.data)
    return k.exact_column(v.nulls(evolving.data, count), evolving.kind, evolving.data)


def domain_column(bottom: CellKnowledge, evolving: EvolvingColumnLayout) -> KnowledgeColumn:
    """One row: any value of the column's domain."""
    return k.from_points([bottom], evolving.kind, evolving.data)


def clipped_column(column: KnowledgeColumn, domain: CellKnowledge, data: DataType) -> KnowledgeColumn:
    """As `clipped_cell`, for each row. The data is neither Boolean nor a relation."""
    limits = to_operand(domain, data)
    assert isinstance(limits, Range)
    return RangeClip(ValueSet.from_range(limits), data)(to_range_column(column))


def hull_column(column: KnowledgeColumn, choice: Alternatives, data: DataType) -> KnowledgeColumn:
    """The hull of the alternatives of each row, which are cells of `column`. A single alternative stays as it is."""
    assert not isinstance(column, ValueColumn)
    order = np.argsort(choice.rows, kind="stable")
    alternatives = choice.alternatives[order]
    starts = choice.rows[order].searchsorted(np.arange(choice.count + 1))
    is_single = np.diff(starts) == 1
    if is_single.all():
        return column.take(alternatives)
    several = true_indices(~is_single)
    chosen = np.isin(choice.rows, several)
    inner = Alternatives(
        np.searchsorted(several, choice.rows[chosen]),
        choice.alternatives[chosen],
        choice.current[several],
        len(several),
    )
    if isinstance(column, RangeColumn):
        hulls: KnowledgeColumn = _range_hulls(column, inner)
    elif isinstance(column, MaskColumn):
        hulls = _mask_hulls(column, inner)
    elif isinstance(column, LatestColumn):
        hulls = LatestColumn.from_ranges(_range_hulls(column.bounds, inner))
    else:
        hulls = _object_hulls(column, inner, data)
    positions = alternatives[starts[:-1]]
    positions[several] = len(column) + np.arange(len(several))
    return k.concat([column, hulls]).take(positions)  # type: ignore[type-var]


def _range_hulls(column: RangeColumn, choice: Alternatives) -> RangeColumn:
    null_codes = column.null_codes()[choice.alternatives]
    can_have_value, can_be_null = np.zeros(choice.count, bool), np.zeros(choice.count, bool)
    with_value = true_indices(null_codes != ALWAYS_NULL)
    can_have_value[choice.rows[with_value]] = True
    can_be_null[choice.rows[null_codes != NEVER_NULL]] = True
    rows, alternatives = choice.rows[with_value], choice.alternatives[with_value]
    lo = _outermost(column.lo, rows, alternatives, choice.count, is_lower=True)
    hi = _outermost(column.hi, rows, alternatives, choice.count, is_lower=False)
    nulls = np.where(can_have_value, np.where(can_be_null, MAYBE_NULL, NEVER_NULL), ALWAYS_NULL).astype(np.uint8)
    now = column.now.take(np.maximum(choice.current, 0))
    is_current = (choice.current >= 0) & can_have_value
    return canonical_ranges(ValueColumn(now.data, now.is_valid() & is_current), lo, hi, nulls)


def _outermost(
    ends: ValueColumn | None, rows: Indices, alternatives: Indices, count: int, is_lower: bool
) -> ValueColumn | None:
    """The least lower end or the greatest upper end of each row; there is none if an alternative has none."""
    if ends is None:
        return None
    end_ranks = v.ranks(ends)[alternatives]
    order = np.lexsort((end_ranks, rows))
    ordered = rows[order]
    starts = ordered.searchsorted(np.arange(count), side="left" if is_lower else "right") - (0 if is_lower else 1)
    has_end = np.zeros(count, bool)
    has_end[rows] = True
    has_end[rows[ends.is_null()[alternatives]]] = False
    if not len(order):
        return v.nulls_like(ends, count)
    outermost = ends.take(alternatives[order[np.clip(starts, 0, len(order) - 1)]])
    return ValueColumn(outermost.data, has_end)


def _mask_hulls(column: MaskColumn, choice: Alternatives) -> MaskColumn:
    possible = np.zeros(choice.count, np.uint8)
    np.bitwise_or.at(possible, choice.rows, column.possible[choice.alternatives])
    now = np.where(choice.current >= 0, column.now[np.maximum(choice.current, 0)], np.uint8(NULL))
    return canonical_mask(possible, now)


def _object_hulls(column: ObjectColumn, choice: Alternatives, data: DataType) -> KnowledgeColumn:
    cells: list[list[CellKnowledge]] = [[] for _ in range(choice.count)]
    for row, alternative in zip(choice.rows.tolist(), choice.alternatives.tolist(), strict=True):
        cells[row].append(column.points[alternative])
    current = [None if i < 0 else column.points[i].now for i in choice.current.tolist()]
    points: Sequence[CellKnowledge] = [cell_hull(c, now, data) for c, now in zip(cells, current, strict=True)]
    return k.from_points(points, "object", data)
