"""Deltas of relations: for each row whose knowledge changed, its knowledge before and after. A key occurs only once.

A row that did not exist before has the old mask ABSENT; a row that no longer exists, such as a group that all members
have left, has the new mask ABSENT. After the delta that hides a row permanently, no later delta contains it, unless the
layout includes permanently hidden rows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from smile.columns import knowledge as k, masks
from smile.columns.hashing import hashes, is_injective
from smile.columns.knowledge import KnowledgeColumn
from smile.columns.masks import MaskCodes
from smile.columns.values import Array, Bools, Indices, ValueColumn, ranks, true_indices
from smile.kernels.layout import Layout

C = TypeVar("C", bound=KnowledgeColumn)


class RowSelection(Mapping[str, C], Generic[C]):
    """Selected rows of all columns. A column is taken on first access."""

    def __init__(self, source: Mapping[str, C], indices: Indices) -> None:
        self.source, self.indices = source, indices
        self._columns: dict[str, C] = {}

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[str]:
        return iter(self.source)

    def __getitem__(self, name: str) -> C:
        if name not in self._columns:
            self._columns[name] = self.source[name].take(self.indices)  # type: ignore[assignment]
        return self._columns[name]


class RowConcatenation(Mapping[str, C], Generic[C]):
    """The concatenated rows of several mappings. A column is concatenated on first access."""

    def __init__(self, names: Iterable[str], parts: Sequence[Mapping[str, C]]) -> None:
        self.names, self.parts = tuple(names), parts
        self._columns: dict[str, C] = {}

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> C:
        if name not in self._columns:
            self._columns[name] = k.concat([p[name] for p in self.parts])  # type: ignore[type-var]
        return self._columns[name]


class ColumnSelection(Mapping[str, C], Generic[C]):
    """Selected columns under new names (new name → old name). A column is fetched on access."""

    def __init__(self, source: Mapping[str, C], names: Mapping[str, str]) -> None:
        self.source, self.names = source, names

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> C:
        return self.source[self.names[name]]


class ColumnOverlay(Mapping[str, C], Generic[C]):
    """Columns, with others that are added or replace them."""

    def __init__(self, source: Mapping[str, C], added: Mapping[str, C]) -> None:
        self.source, self.added = source, added

    def __len__(self) -> int:
        return len({*self.source, *self.added})

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.source, *self.added]))

    def __getitem__(self, name: str) -> C:
        return self.added[name] if name in self.added else self.source[name]


@dataclass(frozen=True)
class RowKnowledge:
    """What is known of rows at one time: their evolving columns, masks, and steps (the events that they absorbed)."""

    columns: Mapping[str, KnowledgeColumn]
    mask: MaskCodes
    steps: Array

    def __len__(self) -> int:
        return len(self.mask)

    def take(self, indices: Indices) -> "RowKnowledge":
        return RowKnowledge(RowSelection(self.columns, indices), self.mask[indices], self.steps[indices])


@dataclass(frozen=True)
class Delta:
    """`old` is None if all rows were absent."""

    fixed: Mapping[str, ValueColumn]
    old: RowKnowledge | None
    new: RowKnowledge

    def __len__(self) -> int:
        return len(self.new)

    def take(self, indices: Indices) -> "Delta":
        return Delta(
            RowSelection(self.fixed, indices),
            None if self.old is None else self.old.take(indices),
            self.new.take(indices),
        )

    def old_mask(self) -> MaskCodes:
        return masks.full(masks.ABSENT, len(self)) if self.old is None else self.old.mask


def drop_unchanged_rows(delta: Delta, includes_permanently_hidden: bool) -> Delta:
    """The rows whose knowledge changed. Rows that are permanently hidden from the start are dropped too, unless
    `includes_permanently_hidden`."""
    new, old = delta.new, delta.old
    is_reported = masks.is_present if includes_permanently_hidden else masks.can_be_shown
    if old is None:
        keep = is_reported(new.mask)
        return delta if keep.all() else delta.take(true_indices(keep))
    keep = (old.mask != new.mask) | (old.steps != new.steps)
    candidates = true_indices(~keep)
    if len(candidates):
        keep[candidates[~have_same_columns(old.take(candidates), new.take(candidates))]] = True
    keep &= is_reported(old.mask) | is_reported(new.mask)
    return delta if keep.all() else delta.take(true_indices(keep))


def have_same_columns(old: RowKnowledge, new: RowKnowledge) -> Bools:
    """For each row, whether its evolving columns are known equally."""
    same = np.ones(len(new), bool)
    for name, column in new.columns.items():
        same &= old.columns[name].same(column)  # type: ignore[arg-type]
    return same


def is_row_final(layout: Layout, delta: Delta) -> Bools:
    """Which rows are permanently shown, with all columns known exactly."""
    is_final = delta.new.mask == masks.T
    for name in layout.evolving:
        is_final = is_final & k.is_final(delta.new.columns[name])
    return is_final


def concat_deltas(layout: Layout, parts: Sequence[Delta]) -> Delta:
    """Concatenates deltas; there must be at least one."""
    if len(parts) == 1:
        return parts[0]
    fixed = RowConcatenation(layout.fixed, [p.fixed for p in parts])
    new = concat_knowledge(layout, [p.new for p in parts])
    if all(p.old is None for p in parts):
        return Delta(fixed, None, new)
    return Delta(fixed, concat_knowledge(layout, [p.old or absent_knowledge(p.new) for p in parts]), new)


def concat_knowledge(layout: Layout, parts: Sequence[RowKnowledge]) -> RowKnowledge:
    columns = RowConcatenation(layout.evolving, [p.columns for p in parts])
    return RowKnowledge(columns, np.concatenate([p.mask for p in parts]), np.concatenate([p.steps for p in parts]))


def absent_knowledge(knowledge: RowKnowledge) -> RowKnowledge:
    """The same rows, all of them absent."""
    return RowKnowledge(knowledge.columns, masks.full(masks.ABSENT, len(knowledge)), np.zeros(len(knowledge), np.int64))


def restrict_masks(knowledge: RowKnowledge, codes: MaskCodes) -> RowKnowledge:
    """The conjunction of the rows' masks and `codes`. Absent rows stay absent."""
    mask = masks.all_of(knowledge.mask, codes)
    is_absent = knowledge.mask == masks.ABSENT
    if is_absent.any():
        mask = np.where(is_absent, np.uint8(masks.ABSENT), mask)
    return RowKnowledge(knowledge.columns, mask, knowledge.steps)


class RowGroups:
    """Groups of rows with equal keys. `group_numbers` has the group of each row; groups are numbered in the order of
    their hashes."""

    def __init__(self, key: Sequence[ValueColumn], count: int, row_hashes: Array | None = None) -> None:
        """`row_hashes` are the hashes of the keys, if they are known."""
        if count == 1:
            self.order = self.starts = self.group_numbers = self.first = self.last = np.zeros(1, np.int64)
            self.count = 1
            return
        row_hashes = hashes(key, count) if row_hashes is None else row_hashes
        order = row_hashes.argsort(kind="stable")
        ranked = row_hashes[order]
        starts = np.ones(count, bool)
        if count > 1:
            starts[1:] = ranked[1:] != ranked[:-1]
            if key and not is_injective(key):
                order, starts = _split_hash_collisions(key, order, starts)
        self.order = order
        """The row numbers sorted by group; within a group in their original order."""
        self.starts = true_indices(starts)
        """Where in `order` each group starts."""
        self.count = len(self.starts)
        self.group_numbers = np.empty(count, np.int64)
        self.group_numbers[order] = starts.cumsum() - 1
        self.first = order[self.starts]
        """The first row of each group."""
        ends = np.append(self.starts[1:], count) - 1
        self.last = order[ends] if count else order
        """The last row of each group."""

    def sums(self, values: Array) -> Array:
        """The sum of each group. The caller ensures that int64 does not overflow."""
        return np.add.reduceat(values[self.order], self.starts) if self.count else values[:0]

    def maxima(self, values: Array) -> Array:
        """The greatest value of each group."""
        return np.maximum.reduceat(values[self.order], self.starts) if self.count else values[:0]


def _split_hash_collisions(key: Sequence[ValueColumn], order: Indices, starts: Bools) -> tuple[Indices, Bools]:
    """Puts rows with equal hashes but different keys into different groups."""
    inner = true_indices(~starts)
    equal = np.ones(len(inner), bool)
    for column in key:
        equal &= column.take(order[inner]).same(column.take(order[inner - 1]))
    if equal.all():
        return order, starts
    codes = [ranks(column) for column in key]
    order = np.lexsort(codes)
    starts = np.ones(len(order), bool)
    starts[1:] = np.logical_or.reduce([c[order][1:] != c[order][:-1] for c in codes])
    return order, starts
