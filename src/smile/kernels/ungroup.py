"""UNGROUP: a row for each element of an array.

A row whose array changes has before and after the batch as many rows as its array had and has elements. While the array
is not final, its rows are shown for now, and their elements are not known.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from smile.algebra import mmpl
from smile.algebra.arrays import decode_array
from smile.algebra.types import BOOL, INT, Value
from smile.columns import knowledge as k, masks, values as v
from smile.columns.knowledge import NULLABILITY_BY_CODE, KnowledgeColumn, RangeColumn
from smile.columns.ranges import to_mask_column
from smile.columns.row_limit import check_row_count
from smile.columns.values import Bools, ValueColumn
from smile.kernels.delta import ColumnOverlay, Delta, RowKnowledge, restrict_masks
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.kernels.transform import InputRelation, OutputRelation, RowWiseTransform
from smile.knowledge.values.range import MAYBE, NEVER, ONLY

_NEVER, _MAYBE, _ONLY = map(NULLABILITY_BY_CODE.index, (NEVER, MAYBE, ONLY))


class _Elements(NamedTuple):
    """The rows of an array: positions and elements. Without elements, a row that is kept has the position None."""

    positions: list[int | None]
    values: list[Value]


_NOTHING = _Elements([], [])


class UngroupTransform(RowWiseTransform):
    def __init__(self, rel: mmpl.Ungroup, source: InputRelation, output: OutputRelation) -> None:
        super().__init__(source)
        self.column, (self.name,), self.ordinality, self.keeps_empty = (
            rel.column, rel.names, rel.ordinality, rel.keeps_empty,
        )  # fmt: skip
        self.data = source.layout.types[rel.column].element
        self.is_fixed = rel.column in source.layout.fixed
        fixed, evolving = {**source.layout.fixed, rel.ordinality: INT}, dict(source.layout.evolving)
        if self.is_fixed:
            fixed[self.name] = self.data
        else:
            evolving[self.name] = EvolvingColumnLayout("mask" if self.data == BOOL else "range", self.data)
        certain = source.layout.certain and self.is_fixed
        hidden = output.includes_permanently_hidden
        self.layout = Layout(output.type.heading.key, fixed, evolving, certain, hidden)

    def apply(self, delta: Delta) -> Delta:
        return self._of_fixed(delta) if self.is_fixed else self._of_evolving(delta)

    def _elements(self, arrays: ValueColumn, present: Bools | None = None) -> list[_Elements]:
        """The rows of each array; of arrays that are not `present`, none."""
        is_valid = arrays.is_valid().tolist()
        is_present = [True] * len(arrays) if present is None else present.tolist()
        result = []
        for encoded, valid, exists in zip(arrays.data.to_pylist(), is_valid, is_present, strict=True):
            values = decode_array(encoded, self.data) if valid and exists else []
            positions: list[int | None] = list(range(1, len(values) + 1))
            if not values and exists and self.keeps_empty:
                positions, values = [None], [None]
            result.append(_Elements(positions, values))
        return result

    def _of_fixed(self, delta: Delta) -> Delta:
        rows = self._elements(delta.fixed[self.column])
        counts = np.fromiter((len(row.positions) for row in rows), np.int64, len(rows))
        check_row_count(int(counts.sum()), "elements of arrays")
        repeated = delta.take(np.repeat(np.arange(len(rows)), counts))
        added = {
            self.ordinality: v.from_python([p for row in rows for p in row.positions], INT),
            self.name: v.from_python([e for row in rows for e in row.values], self.data),
        }
        return Delta(ColumnOverlay(repeated.fixed, added), repeated.old, repeated.new)

    def _of_evolving(self, delta: Delta) -> Delta:
        after = self._elements_of(delta.new)
        before = [_NOTHING] * len(delta) if delta.old is None else self._elements_of(delta.old)
        numbers, positions = list[int](), list[int | None]()
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            union = dict.fromkeys([*new.positions, *old.positions])
            numbers += [number] * len(union)
            positions += union
        check_row_count(len(numbers), "elements of arrays")
        indices = np.array(numbers, np.int64)
        repeated = delta.take(indices)
        keys = list(zip(numbers, positions, strict=True))
        fixed = ColumnOverlay(repeated.fixed, {self.ordinality: v.from_python(positions, INT)})
        old_rows = None if repeated.old is None else self._with_elements(repeated.old, keys, before)
        return Delta(fixed, old_rows, self._with_elements(repeated.new, keys, after))

    def _elements_of(self, rows: RowKnowledge) -> list[_Elements]:
        return self._elements(k.current_values(rows.columns[self.column]), masks.is_present(rows.mask))

    def _with_elements(
        self, rows: RowKnowledge, keys: list[tuple[int, int | None]], elements: list[_Elements]
    ) -> RowKnowledge:
        """The repeated rows. Those that the array has no element for are absent."""
        by_key: Mapping[tuple[int, int | None], Value] = {
            (number, position): value
            for number, row in enumerate(elements)
            for position, value in zip(row.positions, row.values, strict=True)
        }
        exists = np.fromiter((key in by_key for key in keys), bool, len(keys))
        is_final = k.is_final(rows.columns[self.column])
        codes = np.where(is_final, np.uint8(masks.T), np.uint8(masks.SHOWN))
        restricted = restrict_masks(rows, codes)
        mask = np.where(exists, restricted.mask, np.uint8(masks.ABSENT))
        now = v.from_python([by_key.get(key) for key in keys], self.data)
        columns = ColumnOverlay(rows.columns, {self.name: self._column(now, is_final)})
        return RowKnowledge(columns, mask, rows.steps)

    def _column(self, now: ValueColumn, is_final: Bools) -> KnowledgeColumn:
        bounds = v.where(is_final, now, v.nulls_like(now, len(now)))
        nulls = np.where(is_final, np.where(now.is_valid(), _NEVER, _ONLY), _MAYBE).astype(np.uint8)
        ranges = RangeColumn(now, bounds, bounds, nulls)
        return to_mask_column(ranges) if self.data == BOOL else ranges
