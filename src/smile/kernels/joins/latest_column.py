"""The output columns of ASOF JOIN: the latest match of each left row, with the latest settled match as a bound."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from smile.algebra.types import BOOL
from smile.columns import knowledge as k, values as v
from smile.columns.knowledge import ColumnKind, KnowledgeColumn, LatestColumn, MaskColumn, RangeColumn
from smile.columns.values import Array, Bools, Indices, ValueColumn
from smile.kernels.layout import EvolvingColumnLayout
from smile.knowledge.types import ColumnType
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import to_operand_in_domain, to_range
from smile.knowledge.values.latest import LatestValue

Columns = Mapping[str, KnowledgeColumn]


@dataclass(frozen=True)
class LatestMatches:
    """For each left row the numbers of right rows, -1 for none: the latest match that is shown, the latest that is
    permanently shown with a final value, and the latest that can be shown. `tick` and `source` are of the right
    rows."""

    shown: Indices
    settled: Indices
    present: Indices
    tick: Array
    source: Array


def latest_kind(column: ColumnType) -> ColumnKind:
    """The kind of the output column."""
    if column.data.name == "relation":
        return "object"
    return "latest" if column.domain == "latest" else "mask" if column.data == BOOL else "range"


def latest_column(
    latest: LatestMatches, column: KnowledgeColumn, sealed: Bools, evolving: EvolvingColumnLayout, bottom: CellKnowledge
) -> KnowledgeColumn:
    """The output column; `column` is that of the right rows. `sealed`: no more matches can come. In a column of kind
    "range", a value that may be replaced has the bounds of the column's domain."""
    if evolving.kind == "object":
        return _nested_column(latest, column, sealed, evolving, bottom)
    current = k.current_values(column)
    now, value = _take_or_null(current, latest.shown), _take_or_null(current, latest.settled)
    sealed = sealed & (latest.settled == latest.present)
    if evolving.kind == "latest":
        tick, source = (
            _take_or_null(ValueColumn(latest.tick), latest.settled),
            _take_or_null(ValueColumn(latest.source), latest.settled),
        )
        return LatestColumn(value, tick, source.data, sealed, now)
    if evolving.kind == "mask":
        bits = np.where(now.is_valid(), np.where(now.data, 1, 2), 4).astype(np.uint8)
        return MaskColumn(np.where(sealed, bits, np.uint8(7)), bits)
    domain = to_range(bottom)
    lo, hi = (v.constant(end, evolving.data, len(now)) for end in (domain.lo, domain.hi))
    nulls = np.where(sealed, np.where(value.is_valid(), 0, 2), 1).astype(np.uint8)
    return RangeColumn(now, v.where(sealed, value, lo), v.where(sealed, value, hi), nulls)


def _take_or_null(values: ValueColumn, indices: Indices) -> ValueColumn:
    """The values at these indices; NULL where the index is -1."""
    if not len(values):
        return v.nulls_like(values, len(indices))
    is_present = indices >= 0
    taken = values.take(np.maximum(indices, 0))
    return taken if is_present.all() else ValueColumn(taken.data, taken.is_valid() & is_present)


def _nested_column(
    latest: LatestMatches, column: KnowledgeColumn, sealed: Bools, evolving: EvolvingColumnLayout, bottom: CellKnowledge
) -> KnowledgeColumn:
    """The output column of a nested relation, row by row."""
    points = []
    for i, last in enumerate(latest.settled):
        shown = latest.shown[i]
        now = k.knowledge_at(column, shown, evolving.data).now if shown >= 0 else None
        is_sealed = bool(sealed[i] and last == latest.present[i])
        if last < 0:
            latest_value = LatestValue(sealed=is_sealed, now=now)
        else:
            time = (int(latest.tick[last]), int(latest.source[last]))
            latest_value = LatestValue(k.knowledge_at(column, last, evolving.data).now, time, is_sealed, now)
        points.append(to_operand_in_domain(latest_value, bottom, evolving.data))
    return k.from_points(points, "object", evolving.data)
