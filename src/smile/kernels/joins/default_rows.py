"""Default rows in joins: in a total relation every key has a row, which is the default row while it is absent."""

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

import numpy as np

from smile.columns import knowledge as k, masks
from smile.columns.knowledge import KnowledgeColumn
from smile.columns.values import Bools, Indices, ValueColumn, true_indices
from smile.kernels.delta import RowKnowledge
from smile.kernels.joins.join_sides import JoinRows, JoinSide
from smile.kernels.seals import Horizons, SealIndex
from smile.knowledge.types import ColumnType

C = TypeVar("C", bound=KnowledgeColumn)


class PatchedColumns(Mapping[str, C], Generic[C]):
    """Columns in which some rows are replaced; each column is computed when it is read."""

    def __init__(
        self, names: tuple[str, ...], rows: Mapping[str, C], replacements: Mapping[str, C], indices: Indices, count: int
    ):
        self.names, self.rows, self.replacements = names, rows, replacements
        self.indices, self.count = indices, count
        self._cache: dict[str, C] = {}

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> C:
        if name not in self._cache:
            self._cache[name] = self._patch(name)
        return self._cache[name]

    def _patch(self, name: str) -> C:
        if len(self.indices) == self.count:
            return self.replacements[name]
        positions = np.arange(self.count)
        positions[self.indices] = np.arange(self.count, self.count + len(self.indices))
        return k.concat([self.rows[name], self.replacements[name]]).take(positions)  # type: ignore[type-var, return-value]


def with_defaults(
    side: JoinSide, rows: JoinRows, key: Mapping[str, ValueColumn], is_wanted: Bools | None, horizons: Horizons
) -> JoinRows:
    """The rows of a total relation for these keys, with default rows in place of absent ones. Rows that are not wanted
    stay absent; `is_wanted` is None if all are wanted."""
    absent = rows.knowledge.mask == masks.ABSENT
    if is_wanted is not None:
        absent &= is_wanted
    absent_rows = true_indices(absent)
    if not len(absent_rows):
        return rows
    count = len(rows)
    is_all_absent = len(absent_rows) == count
    transform = side.source.transform
    assert transform is not None, "a stream is never total"
    defaults = transform.default_rows(
        key if is_all_absent else {c: column.take(absent_rows) for c, column in key.items()}, len(absent_rows), horizons
    )
    names = (tuple(side.layout.fixed), tuple(side.layout.evolving))
    fixed = PatchedColumns(names[0], rows.fixed, defaults.fixed, absent_rows, count)
    columns = PatchedColumns(names[1], rows.knowledge.columns, defaults.new.columns, absent_rows, count)
    mask, steps = rows.knowledge.mask.copy(), rows.knowledge.steps.copy()
    mask[absent_rows], steps[absent_rows] = defaults.new.mask, defaults.new.steps
    return JoinRows(fixed, RowKnowledge(columns, mask, steps))


def default_row_seals(
    side: JoinSide, lookup_columns: Mapping[str, str], types: Mapping[str, ColumnType]
) -> list[SealIndex]:
    """When the default rows of a total side change, in terms of the other side's columns that are its key."""
    transform = side.source.transform
    assert transform is not None, "a stream is never total"
    result = []
    data = {name: column.data for name, column in types.items()}
    for number, seals in enumerate(transform.default_seals(side.source.type.seals)):
        renamed = {stream: seal.rename(lookup_columns) for stream, seal in seals.items()}
        result.append(SealIndex(renamed, data, f"default {number} "))
    return result
