"""The output columns of ASOF JOIN: the latest match of each left row, with the latest settled match as a bound."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from smile.algebra.types import DataType
from smile.columns import knowledge as k, values as v
from smile.columns.knowledge import ColumnKind, KnowledgeColumn
from smile.columns.timed_values import TimedValues, latest_column
from smile.columns.values import Array, Bools, Indices, ValueColumn
from smile.knowledge.types import ColumnType
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import to_range
from smile.knowledge.values.range import Range

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


def latest_match_kind(column: ColumnType) -> ColumnKind:
    """The kind of the output column."""
    return "object" if column.data.name == "relation" else "latest"


def latest_match_column(
    latest: LatestMatches,
    column: KnowledgeColumn,
    sealed: Bools,
    is_certain: Bools,
    data: DataType,
    domain: CellKnowledge,
) -> KnowledgeColumn:
    """The output column; `column` is that of the right rows, and `domain` its bottom. `sealed`: no more matches can
    come. `is_certain`: there is a match that stays."""
    if data.name == "relation":
        return _nested_column(latest, column, sealed, data)
    current = k.current_values(column)
    tick, source = (_take_or_null(ValueColumn(times), latest.settled) for times in (latest.tick, latest.source))
    settled = TimedValues(tick, source.data, _take_or_null(current, latest.settled))
    now = settled.value if latest.shown is latest.settled else _take_or_null(current, latest.shown)
    is_final = sealed & (latest.settled == latest.present)
    return latest_column(settled, now, is_final, is_certain, to_range(domain), data)


def _take_or_null(values: ValueColumn, indices: Indices) -> ValueColumn:
    """The values at these indices; NULL where the index is -1."""
    if not len(values):
        return v.nulls_like(values, len(indices))
    is_present = indices >= 0
    taken = values.take(np.maximum(indices, 0))
    return taken if is_present.all() else ValueColumn(taken.data, taken.is_valid() & is_present)


def _nested_column(latest: LatestMatches, column: KnowledgeColumn, sealed: Bools, data: DataType) -> KnowledgeColumn:
    """The output column of a nested relation, row by row. Until it is final, only its current rows are known."""
    points: list[Range] = []
    for settled, shown, is_last in zip(latest.settled, latest.shown, latest.settled == latest.present, strict=True):
        is_final = is_last and sealed[len(points)]
        row = settled if is_final else shown
        rows = k.knowledge_at(column, row, data).now if row >= 0 else None
        points.append(Range.exactly(rows) if is_final else Range.bottom(now=rows))
    return k.from_points(points, "object", data)
