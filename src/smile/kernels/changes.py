"""Changes of a relation: of each row that is known otherwise than before, what was known of it and what is; one a key.

A row nobody had heard of has no mask before (ABSENT); one of which nothing is left, such as a group that all members
moved away from, has none after. Rows that are hidden for good are heard of no more after the change that says so.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from smile.columns import knowledge as k, masks
from smile.columns.hashing import hashes, is_injective
from smile.columns.knowledge import Column
from smile.columns.masks import Codes
from smile.columns.values import Array, Bools, Indices, Values, places_of, ranks
from smile.kernels.layout import Layout

C = TypeVar("C", bound=Column)


class Taken(Mapping[str, C], Generic[C]):
    """Some rows of all columns, each column taken when it is asked for."""

    def __init__(self, source: Mapping[str, C], at: Indices) -> None:
        self.source, self.at = source, at
        self._taken: dict[str, C] = {}

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[str]:
        return iter(self.source)

    def __getitem__(self, name: str) -> C:
        if name not in self._taken:
            self._taken[name] = self.source[name].take(self.at)  # type: ignore[assignment]
        return self._taken[name]


class Joined(Mapping[str, C], Generic[C]):
    """The rows of several mappings one after the other, each column when it is asked for."""

    def __init__(self, names: Iterable[str], parts: Sequence[Mapping[str, C]]) -> None:
        self.names, self.parts = tuple(names), parts
        self._joined: dict[str, C] = {}

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> C:
        if name not in self._joined:
            self._joined[name] = k.concat([p[name] for p in self.parts])  # type: ignore[type-var]
        return self._joined[name]


class Picked(Mapping[str, C], Generic[C]):
    """Some columns, each by the name that it has here; none is fetched before it is asked for."""

    def __init__(self, source: Mapping[str, C], names: Mapping[str, str]) -> None:
        self.source, self.names = source, names

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> C:
        return self.source[self.names[name]]


class Extended(Mapping[str, C], Generic[C]):
    """Columns, and others beside them or in their place."""

    def __init__(self, source: Mapping[str, C], added: Mapping[str, C]) -> None:
        self.source, self.added = source, added

    def __len__(self) -> int:
        return len({*self.source, *self.added})

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.source, *self.added]))

    def __getitem__(self, name: str) -> C:
        return self.added[name] if name in self.added else self.source[name]


@dataclass(frozen=True)
class Version:
    """What is known of rows at one point: their evolving columns, masks, and the events they have absorbed."""

    columns: Mapping[str, Column]
    mask: Codes
    steps: Array

    def __len__(self) -> int:
        return len(self.mask)

    def take(self, at: Indices) -> "Version":
        return Version(Taken(self.columns, at), self.mask[at], self.steps[at])


@dataclass(frozen=True)
class Changes:
    """`old` is None if nobody had heard of any of the rows."""

    fixed: Mapping[str, Values]
    old: Version | None
    new: Version

    def __len__(self) -> int:
        return len(self.new)

    def take(self, at: Indices) -> "Changes":
        return Changes(Taken(self.fixed, at), None if self.old is None else self.old.take(at), self.new.take(at))

    def old_mask(self) -> Codes:
        return masks.full(masks.ABSENT, len(self)) if self.old is None else self.old.mask


def differing(changes: Changes, heeded: bool) -> Changes:
    """Those whose rows are known otherwise than before. Rows hidden for good from the first are not worth a word,
    unless they are `heeded`."""
    new, old = changes.new, changes.old
    told = masks.heard if heeded else masks.live
    if old is None:
        keep = told(new.mask)
        return changes if keep.all() else changes.take(places_of(keep))
    keep = (old.mask != new.mask) | (old.steps != new.steps)
    rest = places_of(~keep)
    if len(rest):
        same = np.ones(len(rest), bool)
        for name, column in new.columns.items():
            same &= old.columns[name].take(rest).same(column.take(rest))  # type: ignore[arg-type]
        keep[rest[~same]] = True
    keep &= told(old.mask) | told(new.mask)
    return changes if keep.all() else changes.take(places_of(keep))


def concat(layout: Layout, parts: Sequence[Changes]) -> Changes:
    """One after the other; there is at least one."""
    if len(parts) == 1:
        return parts[0]
    fixed = Joined(layout.fixed, [p.fixed for p in parts])
    new = concat_versions(layout, [p.new for p in parts])
    if all(p.old is None for p in parts):
        return Changes(fixed, None, new)
    return Changes(fixed, concat_versions(layout, [p.old or unheard(p.new) for p in parts]), new)


def concat_versions(layout: Layout, parts: Sequence[Version]) -> Version:
    columns = Joined(layout.evolving, [p.columns for p in parts])
    return Version(columns, np.concatenate([p.mask for p in parts]), np.concatenate([p.steps for p in parts]))


def unheard(version: Version) -> Version:
    """The same rows, of none of which anybody has heard."""
    return Version(version.columns, masks.full(masks.ABSENT, len(version)), np.zeros(len(version), np.int64))


class Groups:
    """Rows that agree on some columns. `of` is each row's group; groups are numbered in the order of their hashes."""

    def __init__(self, key: Sequence[Values], count: int, marks: Array | None = None) -> None:
        """`marks` are the hashes of the rows if they are known."""
        if count == 1:
            self.order = self.starts = self.of = self.first = self.last = np.zeros(1, np.int64)
            self.count = 1
            return
        marks = hashes(key, count) if marks is None else marks
        order = marks.argsort(kind="stable")
        ranked = marks[order]
        starts = np.ones(count, bool)
        if count > 1:
            starts[1:] = ranked[1:] != ranked[:-1]
            if key and not is_injective(key):
                order, starts = _told_apart(key, order, starts)
        self.order = order
        """Row numbers, group by group; within a group as the rows stand."""
        self.starts = places_of(starts)
        """Where in `order` each group begins."""
        self.count = len(self.starts)
        self.of = np.empty(count, np.int64)
        self.of[order] = starts.cumsum() - 1
        self.first = order[self.starts]
        """The first row of each group."""
        ends = np.append(self.starts[1:], count) - 1
        self.last = order[ends] if count else order
        """And the last."""

    def sums(self, values: Array) -> Array:
        """Of each group; the caller sees to it that int64 does not overflow."""
        return np.add.reduceat(values[self.order], self.starts) if self.count else values[:0]


def _told_apart(key: Sequence[Values], order: Indices, starts: Bools) -> tuple[Indices, Bools]:
    """Rows of one hash that differ are in different groups."""
    inner = places_of(~starts)
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
