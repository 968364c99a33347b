"""Columns of matches that may be missing: the cells of a missing row are NULL.

Each row is in one of five states: it is certain; it is permanently missing; it is present, but uncertain; it is present
and uncertain, and another row may take its place (replaceable); or it is absent and may still come (pending). A column
is computed when it is read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from smile.algebra.types import BOOL, DataType
from smile.columns import knowledge as k, masks, values as v
from smile.columns.knowledge import KnowledgeColumn, LatestColumn, MaskColumn, RangeColumn
from smile.columns.masks import MaskCodes
from smile.columns.ranges import to_kind
from smile.columns.values import Array, Bools, Indices, ValueColumn
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import cell_hull, null_cell
from smile.knowledge.values.range import MAYBE, ONLY

CERTAIN, MISSING, UNCERTAIN, REPLACEABLE, PENDING = range(5)
_MAYBE_NULL: Final = k.NULLABILITY_BY_CODE.index(MAYBE)
_ALWAYS_NULL: Final = k.NULLABILITY_BY_CODE.index(ONLY)


def optional_kinds(layout: Layout) -> dict[str, EvolvingColumnLayout]:
    """The layouts of the columns of optional rows. All of them evolve."""
    fixed = {name: EvolvingColumnLayout(k.column_kind(data, "range"), data) for name, data in layout.fixed.items()}
    return {**fixed, **layout.evolving}


def presence_states(mask: MaskCodes, can_come: Array) -> Array:
    """The states of rows by their masks, F for those that are absent, and by whether another row may still come."""
    if_open = np.where(mask == masks.F, PENDING, REPLACEABLE)
    if_closed = np.where(mask == masks.F, MISSING, UNCERTAIN)
    return np.where(mask == masks.T, CERTAIN, np.where(can_come, if_open, if_closed))


@dataclass(frozen=True)
class OptionalRows:
    """Optional rows with their states; `is_shown` says which are shown at present. `fixed` and `columns` are the
    columns of those that are present. `probe_values` has, for columns equated to a probe column, the value that
    a pending row will have."""

    kinds: Mapping[str, EvolvingColumnLayout]
    bottoms: Mapping[str, CellKnowledge]
    state: Array
    is_shown: Array
    fixed: Mapping[str, ValueColumn]
    columns: Mapping[str, KnowledgeColumn]
    probe_values: Mapping[str, ValueColumn]

    def column(self, name: str) -> KnowledgeColumn:
        state, column = self.state, self.columns[name] if name in self.columns else self.fixed[name]
        present_rows = np.flatnonzero((state == CERTAIN) | (state == UNCERTAIN))
        if len(present_rows) == len(state):
            return self._present_column(name, column, state == UNCERTAIN, self.is_shown)
        absent_rows = np.flatnonzero((state == MISSING) | (state == PENDING))
        if len(absent_rows) == len(state):
            return self._absent_column(name, absent_rows)
        replaceable_rows = np.flatnonzero(state == REPLACEABLE)
        parts = [
            self._present_column(
                name, column.take(present_rows), state[present_rows] == UNCERTAIN, self.is_shown[present_rows]
            ),
            self._replaceable_column(name, column.take(replaceable_rows), replaceable_rows),
            self._absent_column(name, absent_rows),
        ]
        positions = np.empty(len(state), np.int64)
        positions[np.concatenate([present_rows, replaceable_rows, absent_rows])] = np.arange(len(state))
        return k.concat([part for part in parts if len(part)]).take(positions)  # type: ignore[type-var]

    def _to_kind(self, name: str, column: KnowledgeColumn) -> KnowledgeColumn:
        evolving = self.kinds[name]
        return to_kind(column, evolving.kind, evolving.data)

    def _replaceable_column(self, name: str, column: KnowledgeColumn, indices: Indices) -> KnowledgeColumn:
        """The column of rows that are present, and that others may replace: only the current value is theirs."""
        column, shown = self._to_kind(name, column), self.is_shown[indices]
        replacement = self._absent_column(name, indices)
        if isinstance(column, RangeColumn) and isinstance(replacement, RangeColumn):
            now = ValueColumn(column.now.data, column.now.is_valid() & shown)
            return RangeColumn(now, replacement.lo, replacement.hi, replacement.nulls)
        if isinstance(column, LatestColumn) and isinstance(replacement, LatestColumn):
            # No event decides: another row may take the place of this one.
            ends = replacement.bounds
            now = ValueColumn(column.now.data, column.now.is_valid() & shown)
            return LatestColumn.from_ranges(RangeColumn(now, ends.lo, ends.hi, ends.nulls))
        if isinstance(column, MaskColumn) and isinstance(replacement, MaskColumn):
            return MaskColumn(replacement.possible, np.where(shown, column.now, replacement.now))
        data = self.kinds[name].data
        pairs = [[k.knowledge_at(c, i, data) for c in (replacement, column)] for i in range(len(column))]
        points = [cell_hull(p, p[1].now, data) if shown[i] else p[0] for i, p in enumerate(pairs)]
        return k.from_points(points, "object", data)

    def _present_column(self, name: str, column: KnowledgeColumn, uncertain: Array, shown: Array) -> KnowledgeColumn:
        """The column of rows that are present; also NULL is possible where they are uncertain."""
        evolving, column = self.kinds[name], self._to_kind(name, column)
        if not uncertain.any():
            return column
        hidden = uncertain & ~shown
        if isinstance(column, RangeColumn):
            return _nullable_ranges(column, uncertain, hidden)
        if isinstance(column, LatestColumn):
            # The row may be missing in the end, and then no event decides.
            ticks = ValueColumn(column.tick.data, column.tick.is_valid() & ~uncertain)
            return LatestColumn(_nullable_ranges(column.bounds, uncertain, hidden), column.value, ticks, column.source)
        if isinstance(column, MaskColumn):
            now_bits = np.where(hidden, np.uint8(4), column.now)
            return MaskColumn(np.where(uncertain, column.possible | np.uint8(4), column.possible), now_bits)
        return _uncertain_points(column, uncertain, shown, evolving.data)

    def _absent_column(self, name: str, indices: Indices) -> KnowledgeColumn:
        """The column of rows that are not present: NULL, or NULL and whatever may come."""
        evolving = self.kinds[name]
        data, is_pending = evolving.data, self.state[indices] != MISSING
        bottom = self.bottoms[name]
        if name in self.probe_values and is_pending.any() and data != BOOL and evolving.kind == "range":
            values = self.probe_values[name].take(indices)
            ends = ValueColumn(values.data, is_pending if values.valid is None else values.valid & is_pending)
            return RangeColumn(
                v.nulls_like(values, len(indices)),
                ends,
                ends,
                np.where(is_pending, np.uint8(_MAYBE_NULL), np.uint8(_ALWAYS_NULL)),
            )
        if name in self.probe_values and is_pending.any():
            values = self.probe_values[name].take(indices)
            points = [
                cell_hull([null_cell(data), k.knowledge_at(values, i, data)], None, data)
                if is_pending[i]
                else null_cell(data)
                for i in range(len(indices))
            ]
            return k.from_points(points, evolving.kind, data)
        null_and_pending = [null_cell(data), cell_hull([null_cell(data), bottom], None, data)]
        return k.from_points(null_and_pending, evolving.kind, data).take(is_pending.astype(np.int64))


def _nullable_ranges(ranges: RangeColumn, uncertain: Bools, hidden: Bools) -> RangeColumn:
    """The ranges, with NULL possible in uncertain rows, and the current value where these are hidden."""
    null_codes = ranges.null_codes()
    now = ValueColumn(ranges.now.data, ranges.now.is_valid() & ~hidden)
    can_be_null = uncertain & (null_codes != _ALWAYS_NULL)
    return RangeColumn(now, ranges.lo, ranges.hi, np.where(can_be_null, np.uint8(_MAYBE_NULL), null_codes))


def _uncertain_points(column: KnowledgeColumn, uncertain: Bools, shown: Bools, data: DataType) -> KnowledgeColumn:
    points: list[Any] = [k.knowledge_at(column, i, data) for i in range(len(column))]
    for i in np.flatnonzero(uncertain).tolist():
        points[i] = cell_hull([points[i], null_cell(data)], points[i].now if shown[i] else None, data)
    return k.from_points(points, "object", data)


class OptionalColumns(Mapping[str, KnowledgeColumn]):
    """The columns of optional rows, each computed when it is read."""

    def __init__(self, rows: OptionalRows) -> None:
        self.rows = rows
        self._cache: dict[str, KnowledgeColumn] = {}

    def __len__(self) -> int:
        return len(self.rows.kinds)

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows.kinds)

    def __getitem__(self, name: str) -> KnowledgeColumn:
        if name not in self._cache:
            self._cache[name] = self.rows.column(name)
        return self._cache[name]
