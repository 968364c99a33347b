"""The rows of a view as they are known now, each once, under the number of its last change. A row that is shown no more
stays as long as somebody may have to be told that it is gone.

Rows lie in chunks, immutable and in the order of their last changes; a chunk that is added is merged with the one
before it where that is not much larger, so that there are few, and rows that have changed since are left behind then.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from smile import limits
from smile.columns import knowledge as k, masks
from smile.columns.hashing import hashes
from smile.columns.values import Array, Indices, Values
from smile.kernels.changes import Changes, Version, differing
from smile.kernels.layout import Layout

Key = tuple[Any, ...]

_SLACK = 8192
"""So many rows that have changed since may lie about, whatever the number of the others."""


class Grown:
    """An array at whose end values are added."""

    def __init__(self, kind: str) -> None:
        self._room = np.zeros(0, kind)
        self.size = 0

    def __len__(self) -> int:
        return self.size

    @property
    def all(self) -> Array:
        return self._room[: self.size]

    def extend(self, values: Array) -> None:
        end = self.size + len(values)
        if end > len(self._room):
            room = np.zeros(max(end, 2 * len(self._room), 4), self._room.dtype)
            room[: self.size] = self.all
            self._room = room
        self._room[self.size : end] = values
        self.size = end

    def keep(self, which: Indices) -> None:
        """Those at these places, and no others."""
        self._room = self.all[which]
        self.size = len(self._room)


@dataclass
class Chunk:
    """`places` are the rows' places in the table; `numbers` those of the changes that brought them. `messages` are what
    subscribers are told of them, once somebody has asked."""

    changes: Changes
    places: Indices
    numbers: Array
    messages: Array


Part = tuple[Chunk, Indices]
"""Some rows of a chunk."""


class Rows:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.number = 0
        """Of the last change."""
        self.floor = 0
        """Up to here, rows that are gone may have been forgotten."""
        self._places: dict[Key, int] = {}
        self._free: list[int] = []
        self.numbers = Grown("i8")
        """Of each place: the last change of its row, or -1."""
        self._shown = Grown("?")
        self._chunks: list[Chunk] = []
        self._held = 0
        self._gone: OrderedDict[int, Key] = OrderedDict()

    @property
    def count(self) -> int:
        """How many are shown."""
        return len(self._places) - len(self._gone)

    # ── taking in ───────────────────────────────────────────────────────────────────────────────────────────────────

    def take_in(self, changes: Changes) -> tuple[Changes, Indices, Array]:
        """The changes that matter here, and their rows' places and numbers. Rows that were never shown do not."""
        keys = keys_of(self.layout, changes)
        shown = masks.shown(changes.new.mask)
        places = np.fromiter((self._places.get(key, -1) for key in keys), np.int64, len(keys))
        kept = np.flatnonzero(shown | (places >= 0))
        places, shown = places[kept], shown[kept]
        new = np.flatnonzero(places < 0)
        if len(new):
            found = self._allotted(len(new))
            self._places.update(zip((keys[i] for i in kept[new].tolist()), found.tolist(), strict=True))
            places[new] = found
        numbers = np.arange(self.number + 1, self.number + 1 + len(kept))
        self.number += len(kept)
        before = self._shown.all[places]
        self.numbers.all[places] = numbers
        self._shown.all[places] = shown
        for i in np.flatnonzero(shown & ~before).tolist():
            self._gone.pop(int(places[i]), None)
        for i in np.flatnonzero(~shown).tolist():
            # Told of again, it is to be kept longer.
            self._gone.pop(int(places[i]), None)
            self._gone[int(places[i])] = keys[int(kept[i])]
        taken = gathered(self.layout, [(changes, kept)])
        if len(kept):
            self._add(Chunk(taken, places, numbers, np.full(len(kept), None, object)))
            self._forget()
        return taken, places, numbers

    def replaced(self, rows: Changes) -> Changes:
        """What changes if these are to be all rows that are shown: to be taken in."""
        keys = keys_of(self.layout, rows)
        places = np.fromiter((self._places.get(key, -1) for key in keys), np.int64, len(keys))
        new, known = np.flatnonzero(places < 0), np.flatnonzero(places >= 0)
        parts = [gathered(self.layout, [(rows, new)])]
        if len(known):
            old, order = self.known(places[known])
            now = gathered(self.layout, [(rows, known[order])])
            changed = differing(Changes(now.fixed, old.new, now.new), heeded=True)
            parts.append(Changes(changed.fixed, None, changed.new))
        stay = np.zeros(len(self.numbers), bool)
        stay[places[known]] = True
        gone = np.flatnonzero(self._shown.all & (self.numbers.all >= 0) & ~stay)
        if len(gone):
            old, _ = self.known(gone)
            hidden = Version(old.new.columns, masks.full(masks.HIDDEN, len(gone)), old.new.steps)
            parts.append(Changes(old.fixed, None, hidden))
        return gathered(self.layout, [(part, np.arange(len(part))) for part in parts])

    def _allotted(self, count: int) -> Indices:
        again = [self._free.pop() for _ in range(min(count, len(self._free)))]
        fresh = np.arange(len(self.numbers), len(self.numbers) + count - len(again))
        self.numbers.extend(np.full(len(fresh), -1))
        self._shown.extend(np.zeros(len(fresh), bool))
        return np.concatenate([np.array(again, np.int64), fresh])

    def _forget(self) -> None:
        """Of rows that are gone the oldest, if there are too many."""
        while len(self._gone) > limits.gone_rows_max + self.count:
            place, key = self._gone.popitem(last=False)
            self.floor = max(self.floor, int(self.numbers.all[place]))
            self.numbers.all[place] = -1
            del self._places[key]
            self._free.append(place)

    # ── chunks ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _add(self, chunk: Chunk) -> None:
        self._chunks.append(chunk)
        self._held += len(chunk.places)
        begin = len(self._chunks) - 1
        size = len(chunk.places)
        while begin and len(self._chunks[begin - 1].places) <= 2 * size:
            begin -= 1
            size += len(self._chunks[begin].places)
        if self._held > 2 * len(self._places) + _SLACK:
            begin = 0
        if begin < len(self._chunks) - 1 or (not begin and self._held > 2 * len(self._places) + _SLACK):
            self._merge(begin)

    def _merge(self, begin: int) -> None:
        """The chunks from there on become one."""
        parts = list[Part]()
        for chunk in self._chunks[begin:]:
            live = np.flatnonzero(self.numbers.all[chunk.places] == chunk.numbers)
            self._held -= len(chunk.places) - len(live)
            parts.append((chunk, live))
        merged = Chunk(
            changes_of(self.layout, parts),
            np.concatenate([chunk.places[live] for chunk, live in parts]),
            np.concatenate([chunk.numbers[live] for chunk, live in parts]),
            np.concatenate([chunk.messages[live] for chunk, live in parts]),
        )
        self._chunks[begin:] = [merged] if len(merged.places) else []

    def known(self, places: Indices) -> tuple[Changes, Indices]:
        """What is known of the rows at these places, in the order of their last changes; and that order."""
        numbers = self.numbers.all[places]
        order = np.argsort(numbers, kind="stable")
        return changes_of(self.layout, self.at(numbers[order])), order

    def at(self, numbers: Array) -> list[Part]:
        """Where the changes with these numbers are, which are in order, and the last of their rows."""
        ends = np.searchsorted(numbers, [chunk.numbers[-1] for chunk in self._chunks], side="right").tolist()
        parts = []
        for chunk, (begin, end) in zip(self._chunks, pairwise([0, *ends]), strict=True):
            if begin < end:
                parts.append((chunk, np.searchsorted(chunk.numbers, numbers[begin:end])))
        return parts

    def marks(self, columns: Sequence[str]) -> tuple[Indices, Array]:
        """The places of all rows, and the hashes of these columns there."""
        places, found = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
        for chunk in self._chunks:
            live = np.flatnonzero(self.numbers.all[chunk.places] == chunk.numbers)
            places.append(chunk.places[live])
            found.append(hashes([chunk.changes.fixed[c] for c in columns], len(chunk.places))[live])
        return np.concatenate(places), np.concatenate(found)

    def meeting(self, places: Indices, columns: Sequence[str], values: Key) -> Indices:
        """Those of the places whose rows have these values, in the order of their last changes."""
        if not len(places):
            return places
        known, order = self.known(places)
        found = tuples([known.fixed[c] for c in columns], len(places))
        return places[order][[row == values for row in found]]

    def shown(self, places: Indices) -> Array:
        return self._shown.all[places]


def keys_of(layout: Layout, changes: Changes) -> list[Key]:
    """The rows' keys as Python has them; equal keys are equal here."""
    return tuples([changes.fixed[name] for name in layout.key], len(changes))


def tuples(columns: Sequence[Values], count: int) -> list[Key]:
    return list(zip(*map(plain, columns), strict=True)) if columns else [()] * count


def plain(values: Values) -> list[Any]:
    """A column as Python has it: a decimal without its point, None where there is no value."""
    found: list[Any] = values.data.to_pylist() if values.is_text else values.data.tolist()
    if values.valid is None:
        return found
    return [value if there else None for value, there in zip(found, values.valid.tolist(), strict=True)]


def changes_of(layout: Layout, parts: Sequence[Part]) -> Changes:
    """There is at least one."""
    return gathered(layout, [(chunk.changes, at) for chunk, at in parts])


def gathered(layout: Layout, parts: Sequence[tuple[Changes, Indices]]) -> Changes:
    """These rows of these changes, one after the other, with nothing of what was known before. The columns are there,
    and hold on to nothing else."""
    fixed = {name: k.concat([part.fixed[name].take(at) for part, at in parts]) for name in layout.fixed}
    columns = {
        name: k.concat([part.new.columns[name].take(at) for part, at in parts])  # type: ignore[type-var]  # all of one kind
        for name in layout.evolving
    }
    mask = np.concatenate([part.new.mask[at] for part, at in parts])
    steps = np.concatenate([part.new.steps[at] for part, at in parts])
    return Changes(fixed, None, Version(columns, mask, steps))
