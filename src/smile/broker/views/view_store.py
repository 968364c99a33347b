"""The current rows of a view. Each row is stored once, under the number of its last change. Hidden rows are retained as
long as subscribers may have to be told that they are hidden.

Rows are stored in chunks, in the order of their last changes. A new chunk is merged with earlier ones that are not much
larger, so that there are few; merging removes outdated rows. Of a chunk only `messages` is modified after its creation.
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
from smile.columns.values import Array, Indices, ValueColumn
from smile.kernels.delta import Delta, RowKnowledge, drop_unchanged_rows
from smile.kernels.layout import Layout

Key = tuple[Any, ...]

_OUTDATED_ROWS_MAX = 8192
"""The number of outdated rows that chunks may contain in any case."""


class GrowableArray:
    """An array to which values can be appended."""

    def __init__(self, dtype: str) -> None:
        self._buffer = np.zeros(0, dtype)
        self.size = 0

    def __len__(self) -> int:
        return self.size

    @property
    def values(self) -> Array:
        return self._buffer[: self.size]

    def extend(self, values: Array) -> None:
        end = self.size + len(values)
        if end > len(self._buffer):
            grown = np.zeros(max(end, 2 * len(self._buffer), 4), self._buffer.dtype)
            grown[: self.size] = self.values
            self._buffer = grown
        self._buffer[self.size : end] = values
        self.size = end

    def retain(self, indices: Indices) -> None:
        """Retains only the values at these indices."""
        self._buffer = self.values[indices]
        self.size = len(self._buffer)


@dataclass
class RowChunk:
    """`slots` are the rows' slots in the store, `change_numbers` the numbers of the changes that they come from.
    `messages` are the encoded rows, None where they are not needed yet."""

    delta: Delta
    slots: Indices
    change_numbers: Array
    messages: Array


ChunkRows = tuple[RowChunk, Indices]
"""A chunk, and the indices of some of its rows."""


class ViewStore:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.last_change = 0
        """The number of the last change."""
        self.expired_up_to = 0
        """Hidden rows may have been removed if their last change is not after this one."""
        self._slots: dict[Key, int] = {}
        self._free_slots: list[int] = []
        self.change_numbers = GrowableArray("i8")
        """By slot, the last change of its row, or -1."""
        self._shown = GrowableArray("?")
        self._chunks: list[RowChunk] = []
        self._chunk_row_count = 0
        self._hidden: OrderedDict[int, Key] = OrderedDict()

    @property
    def row_count(self) -> int:
        """The number of shown rows."""
        return len(self._slots) - len(self._hidden)

    # ── changes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, delta: Delta) -> tuple[Delta, Indices, Array]:
        """Stores a delta. Returns its relevant rows, their slots and their change numbers. Hidden rows that were never
        shown are not relevant."""
        keys = row_keys(self.layout, delta)
        shown = masks.is_shown(delta.new.mask)
        slots = np.fromiter((self._slots.get(key, -1) for key in keys), np.int64, len(keys))
        relevant = np.flatnonzero(shown | (slots >= 0))
        slots, shown = slots[relevant], shown[relevant]
        new = np.flatnonzero(slots < 0)
        if len(new):
            new_slots = self._allocate_slots(len(new))
            self._slots.update(zip((keys[i] for i in relevant[new].tolist()), new_slots.tolist(), strict=True))
            slots[new] = new_slots
        numbers = np.arange(self.last_change + 1, self.last_change + 1 + len(relevant))
        self.last_change += len(relevant)
        was_shown = self._shown.values[slots]
        self.change_numbers.values[slots] = numbers
        self._shown.values[slots] = shown
        for i in np.flatnonzero(shown & ~was_shown).tolist():
            self._hidden.pop(int(slots[i]), None)
        for i in np.flatnonzero(~shown).tolist():
            # A row that changes while it is hidden is retained longer.
            self._hidden.pop(int(slots[i]), None)
            self._hidden[int(slots[i])] = keys[int(relevant[i])]
        applied = gather_rows(self.layout, [(delta, relevant)])
        if len(relevant):
            self._add_chunk(RowChunk(applied, slots, numbers, np.full(len(relevant), None, object)))
            self._expire_hidden()
        return applied, slots, numbers

    def replacement_delta(self, rows: Delta) -> Delta:
        """The delta to apply so that exactly these rows are shown."""
        keys = row_keys(self.layout, rows)
        slots = np.fromiter((self._slots.get(key, -1) for key in keys), np.int64, len(keys))
        new, existing = np.flatnonzero(slots < 0), np.flatnonzero(slots >= 0)
        parts = [gather_rows(self.layout, [(rows, new)])]
        if len(existing):
            old, order = self.latest_rows(slots[existing])
            new_rows = gather_rows(self.layout, [(rows, existing[order])])
            changed = drop_unchanged_rows(
                Delta(new_rows.fixed, old.new, new_rows.new), includes_permanently_hidden=True
            )
            parts.append(Delta(changed.fixed, None, changed.new))
        stays = np.zeros(len(self.change_numbers), bool)
        stays[slots[existing]] = True
        removed = np.flatnonzero(self._shown.values & (self.change_numbers.values >= 0) & ~stays)
        if len(removed):
            old, _ = self.latest_rows(removed)
            hidden = RowKnowledge(old.new.columns, masks.full(masks.HIDDEN, len(removed)), old.new.steps)
            parts.append(Delta(old.fixed, None, hidden))
        return gather_rows(self.layout, [(part, np.arange(len(part))) for part in parts])

    def _allocate_slots(self, count: int) -> Indices:
        reused = [self._free_slots.pop() for _ in range(min(count, len(self._free_slots)))]
        added = np.arange(len(self.change_numbers), len(self.change_numbers) + count - len(reused))
        self.change_numbers.extend(np.full(len(added), -1))
        self._shown.extend(np.zeros(len(added), bool))
        return np.concatenate([np.array(reused, np.int64), added])

    def _expire_hidden(self) -> None:
        """Removes the oldest hidden rows if there are too many."""
        while len(self._hidden) > limits.deleted_rows_max + self.row_count:
            slot, key = self._hidden.popitem(last=False)
            self.expired_up_to = max(self.expired_up_to, int(self.change_numbers.values[slot]))
            self.change_numbers.values[slot] = -1
            del self._slots[key]
            self._free_slots.append(slot)

    # ── chunks ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _add_chunk(self, chunk: RowChunk) -> None:
        self._chunks.append(chunk)
        self._chunk_row_count += len(chunk.slots)
        begin = len(self._chunks) - 1
        size = len(chunk.slots)
        while begin and len(self._chunks[begin - 1].slots) <= 2 * size:
            begin -= 1
            size += len(self._chunks[begin].slots)
        if self._chunk_row_count > 2 * len(self._slots) + _OUTDATED_ROWS_MAX:
            begin = 0
        if begin < len(self._chunks) - 1 or (
            not begin and self._chunk_row_count > 2 * len(self._slots) + _OUTDATED_ROWS_MAX
        ):
            self._merge_chunks(begin)

    def _merge_chunks(self, begin: int) -> None:
        """Merges the chunks from `begin` on into one."""
        parts = list[ChunkRows]()
        for chunk in self._chunks[begin:]:
            live = np.flatnonzero(self.change_numbers.values[chunk.slots] == chunk.change_numbers)
            self._chunk_row_count -= len(chunk.slots) - len(live)
            parts.append((chunk, live))
        merged = RowChunk(
            chunk_delta(self.layout, parts),
            np.concatenate([chunk.slots[live] for chunk, live in parts]),
            np.concatenate([chunk.change_numbers[live] for chunk, live in parts]),
            np.concatenate([chunk.messages[live] for chunk, live in parts]),
        )
        self._chunks[begin:] = [merged] if len(merged.slots) else []

    def latest_rows(self, slots: Indices) -> tuple[Delta, Indices]:
        """The current knowledge of the rows in these slots, in the order of their last changes; and that order."""
        numbers = self.change_numbers.values[slots]
        order = np.argsort(numbers, kind="stable")
        return chunk_delta(self.layout, self.locate_changes(numbers[order])), order

    def locate_changes(self, numbers: Array) -> list[ChunkRows]:
        """The chunks and rows of the changes with these numbers, which are sorted, and each the last of its row."""
        ends = np.searchsorted(numbers, [chunk.change_numbers[-1] for chunk in self._chunks], side="right").tolist()
        parts = []
        for chunk, (begin, end) in zip(self._chunks, pairwise([0, *ends]), strict=True):
            if begin < end:
                parts.append((chunk, np.searchsorted(chunk.change_numbers, numbers[begin:end])))
        return parts

    def column_hashes(self, columns: Sequence[str]) -> tuple[Indices, Array]:
        """The slots of all rows, and the hashes of these columns in them."""
        slots, row_hashes = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
        for chunk in self._chunks:
            live = np.flatnonzero(self.change_numbers.values[chunk.slots] == chunk.change_numbers)
            slots.append(chunk.slots[live])
            row_hashes.append(hashes([chunk.delta.fixed[c] for c in columns], len(chunk.slots))[live])
        return np.concatenate(slots), np.concatenate(row_hashes)

    def matching_slots(self, slots: Indices, columns: Sequence[str], values: Key) -> Indices:
        """Those of the slots whose rows have these values, in the order of their last changes."""
        if not len(slots):
            return slots
        latest, order = self.latest_rows(slots)
        rows = row_tuples([latest.fixed[c] for c in columns], len(slots))
        return slots[order][[row == values for row in rows]]

    def is_shown(self, slots: Indices) -> Array:
        return self._shown.values[slots]


def row_keys(layout: Layout, delta: Delta) -> list[Key]:
    """The rows' keys as Python values; equal keys give equal tuples."""
    return row_tuples([delta.fixed[name] for name in layout.key], len(delta))


def row_tuples(columns: Sequence[ValueColumn], count: int) -> list[Key]:
    return list(zip(*map(python_values, columns), strict=True)) if columns else [()] * count


def python_values(values: ValueColumn) -> list[Any]:
    """A column as Python values: decimals as integers without the point, None for NULL."""
    values_list: list[Any] = values.data.to_pylist() if values.is_text else values.data.tolist()
    if values.valid is None:
        return values_list
    return [value if is_valid else None for value, is_valid in zip(values_list, values.valid.tolist(), strict=True)]


def chunk_delta(layout: Layout, parts: Sequence[ChunkRows]) -> Delta:
    """The rows of these parts, at least one, as a delta."""
    return gather_rows(layout, [(chunk.delta, rows) for chunk, rows in parts])


def gather_rows(layout: Layout, parts: Sequence[tuple[Delta, Indices]]) -> Delta:
    """The given rows of these deltas, in sequence, without previous knowledge. The columns are copies, so that they do
    not keep other memory alive."""
    fixed = {name: k.concat([part.fixed[name].take(rows) for part, rows in parts]) for name in layout.fixed}
    columns = {
        name: k.concat([part.new.columns[name].take(rows) for part, rows in parts])  # type: ignore[type-var]  # all of one kind
        for name in layout.evolving
    }
    mask = np.concatenate([part.new.mask[rows] for part, rows in parts])
    steps = np.concatenate([part.new.steps[rows] for part, rows in parts])
    return Delta(fixed, None, RowKnowledge(columns, mask, steps))
