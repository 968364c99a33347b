"""Columns of matches that may be missing: the cells of a missing row are NULL.

Each row is in one of four states: it is certain; it is permanently missing; it is present, but uncertain; or it is
absent and may still come (pending). A column is computed when it is read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from smile.algebra.types import BOOL, DataType
from smile.columns import knowledge as k, masks, values as v
from smile.columns.knowledge import KnowledgeColumn, MaskColumn, RangeColumn
from smile.columns.masks import MaskCodes
from smile.columns.values import Array, Indices, ValueColumn
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import cell_hull, null_cell
from smile.knowledge.values.range import MAYBE, ONLY

CERTAIN, MISSING, UNCERTAIN, PENDING = range(4)
_MAYBE_NULL: Final = k.NULLABILITY_BY_CODE.index(MAYBE)
_ALWAYS_NULL: Final = k.NULLABILITY_BY_CODE.index(ONLY)


def optional_kinds(layout: Layout) -> dict[str, EvolvingColumnLayout]:
    """The layouts of the columns of optional rows. All evolve; kinds that cannot represent NULL become "object"."""
    kinds = {}
    for name, data in layout.types.items():
        kind = layout.evolving[name].kind if name in layout.evolving else k.column_kind(data, "range")
        kinds[name] = EvolvingColumnLayout(kind if kind in ("range", "mask") else "object", data)
    return kinds


def presence_states(mask: MaskCodes) -> Array:
    """The states of rows that are present, by their masks."""
    return np.where(mask == masks.T, CERTAIN, np.where(mask == masks.F, MISSING, UNCERTAIN))


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
        evolving = self.kinds[name]
        present_rows = np.flatnonzero((self.state == CERTAIN) | (self.state == UNCERTAIN))
        column = self.columns[name] if name in self.columns else self.fixed[name]
        if len(present_rows) == len(self.state):
            return self._present_column(name, column, self.state == UNCERTAIN, self.is_shown)
        absent_rows = np.flatnonzero((self.state == MISSING) | (self.state == PENDING))
        absent_column = self._absent_column(name, evolving, absent_rows)
        if not len(present_rows):
            return absent_column
        present_column = self._present_column(
            name, column.take(present_rows), self.state[present_rows] == UNCERTAIN, self.is_shown[present_rows]
        )
        positions = np.empty(len(self.state), np.int64)
        positions[present_rows], positions[absent_rows] = (
            np.arange(len(present_rows)),
            np.arange(len(present_rows), len(positions)),
        )
        return k.concat([present_column, absent_column]).take(positions)  # type: ignore[type-var]

    def _present_column(self, name: str, column: KnowledgeColumn, uncertain: Array, shown: Array) -> KnowledgeColumn:
        """The column of rows that are present; also NULL is possible where they are uncertain."""
        evolving = self.kinds[name]
        if isinstance(column, ValueColumn):
            column = k.exact_column(column, evolving.kind, evolving.data)
        if evolving.kind == "object":
            column = k.to_object_column(column, evolving.data)
        if not uncertain.any():
            return column
        hidden = uncertain & ~shown
        if isinstance(column, RangeColumn):
            null_codes = column.null_codes()
            now = ValueColumn(column.now.data, column.now.is_valid() & ~hidden)
            return RangeColumn(
                now,
                column.lo,
                column.hi,
                np.where(uncertain & (null_codes != _ALWAYS_NULL), np.uint8(_MAYBE_NULL), null_codes),
            )
        if isinstance(column, MaskColumn):
            now_bits = np.where(hidden, np.uint8(4), column.now)
            return MaskColumn(np.where(uncertain, column.possible | np.uint8(4), column.possible), now_bits)
        return self._uncertain_points(name, column, uncertain, shown, evolving.data)

    def _uncertain_points(
        self, name: str, column: KnowledgeColumn, uncertain: Array, shown: Array, data: DataType
    ) -> KnowledgeColumn:
        points: list[Any] = [k.knowledge_at(column, i, data) for i in range(len(column))]
        for i in np.flatnonzero(uncertain).tolist():
            points[i] = cell_hull(
                [points[i], null_cell(data)], points[i].now if shown[i] else None, self.bottoms[name], data
            )
        return k.from_points(points, "object", data)

    def _absent_column(self, name: str, evolving: EvolvingColumnLayout, indices: Indices) -> KnowledgeColumn:
        """The column of rows that are not present: NULL, or NULL and whatever may come."""
        data, is_pending = evolving.data, self.state[indices] == PENDING
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
                cell_hull([null_cell(data), k.knowledge_at(values, i, data)], None, bottom, data)
                if is_pending[i]
                else null_cell(data)
                for i in range(len(indices))
            ]
            return k.from_points(points, evolving.kind, data)
        null_and_pending = [null_cell(data), cell_hull([null_cell(data), bottom], None, bottom, data)]
        return k.from_points(null_and_pending, evolving.kind, data).take(is_pending.astype(np.int64))


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
