"""Channels: the changes of a view that match one condition, in order. Subscriptions with equal conditions share a
channel.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from smile.broker.views.view_store import GrowableArray, Key, ViewStore, row_tuples
from smile.columns.hashing import hashes
from smile.columns.values import Array, Indices
from smile.kernels.delta import Delta

if TYPE_CHECKING:
    from smile.broker.views.subscription import ViewSubscription
    from smile.broker.views.view_frame import ViewFrame


FrameRequest = tuple[int, int, int, bool]
"""The change to start after, the maximum number of rows, the change up to which hidden rows are left out, and whether
the frame is a reset."""


class Channel:
    """When a row changes again, its earlier entry is outdated: readers skip it, and compaction removes it."""

    __slots__ = ("_compact_at", "change_numbers", "last_frame", "slots", "subscriber_count", "waiting")

    def __init__(self) -> None:
        self.change_numbers = GrowableArray("i8")
        self.slots = GrowableArray("i8")
        self.waiting: set[ViewSubscription] = set()
        """Subscriptions that are up to date; the next change wakes them."""
        self.subscriber_count = 0
        self.last_frame: tuple[FrameRequest, ViewFrame] | None = None
        """The last frame that ended with progress, for other subscriptions at the same position."""
        self._compact_at = 256

    def extend(self, numbers: Array, slots: Indices, store: ViewStore) -> None:
        self.change_numbers.extend(numbers)
        self.slots.extend(slots)
        if len(self.change_numbers) > self._compact_at:
            self.retain(np.flatnonzero(store.change_numbers.values[self.slots.values] == self.change_numbers.values))
            self._compact_at = 2 * len(self.change_numbers) + 256

    def retain(self, indices: Indices) -> None:
        self.change_numbers.retain(indices)
        self.slots.retain(indices)

    def changes_after(self, number: int, changes_max: int, store: ViewStore) -> tuple[Array, Indices, bool]:
        """The numbers and slots of the next changes, at most `changes_max`, and whether these are all."""
        begin = int(np.searchsorted(self.change_numbers.values, number, side="right"))
        live_numbers, live_slots, count = [], [], 0
        while begin < len(self.change_numbers) and count < changes_max:
            end = begin + changes_max
            numbers, slots = self.change_numbers.values[begin:end], self.slots.values[begin:end]
            live = np.flatnonzero(store.change_numbers.values[slots] == numbers)[: changes_max - count]
            if count + len(live) == changes_max:
                begin += int(live[-1]) + 1
            else:
                begin = end
            live_numbers.append(numbers[live])
            live_slots.append(slots[live])
            count += len(live)
        if not live_numbers:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), True
        return np.concatenate(live_numbers), np.concatenate(live_slots), begin >= len(self.change_numbers)


class ChannelIndex:
    """The channels for equality conditions on the same columns, by the values of these columns. It stores the hash of
    these columns for every slot of the view store, so that a new channel finds its rows without reading all others."""

    def __init__(self, columns: Sequence[str], store: ViewStore) -> None:
        self.columns = tuple(columns)
        self.subscriber_count = 0
        self._store = store
        self._channels: dict[Key, Channel] = {}
        self._channels_by_hash: dict[int, list[tuple[Key, Channel]]] = {}
        self._hashes = np.zeros(0, np.uint64)
        """By slot."""
        self._set_hashes(*store.column_hashes(self.columns))

    def _set_hashes(self, slots: Indices, slot_hashes: Array) -> None:
        if len(self._store.change_numbers) > len(self._hashes):
            grown = np.zeros(2 * len(self._store.change_numbers), np.uint64)
            grown[: len(self._hashes)] = self._hashes
            self._hashes = grown
        self._hashes[slots] = slot_hashes

    def extend(self, delta: Delta, numbers: Array, slots: Indices) -> Sequence[Channel]:
        """Adds changes to the channels that they match. Returns these channels."""
        if not self.columns:
            channels = list(self._channels.values())
            for channel in channels:
                channel.extend(numbers, slots, self._store)
            return channels
        columns = [delta.fixed[name] for name in self.columns]
        row_hashes = hashes(columns, len(delta))
        self._set_hashes(slots, row_hashes)
        indices_by_hash: dict[int, list[int]] = {}
        for i, row_hash in enumerate(row_hashes.tolist()):
            if row_hash in self._channels_by_hash:
                indices_by_hash.setdefault(row_hash, []).append(i)
        extended = []
        for row_hash, indices in indices_by_hash.items():
            rows = row_tuples([column.take(np.array(indices)) for column in columns], len(indices))
            for values, channel in self._channels_by_hash[row_hash]:
                matching = [i for i, row in zip(indices, rows, strict=True) if row == values]
                if matching:
                    channel.extend(numbers[matching], slots[matching], self._store)
                    extended.append(channel)
        return extended

    def open(self, values: Key, key_hash: int) -> Channel:
        """Returns the channel for one more subscriber. `key_hash` is the hash of the values."""
        self.subscriber_count += 1
        channel = self._channels.get(values)
        if channel is None:
            channel = self._channels[values] = self.build_channel(values, key_hash)
            self._channels_by_hash.setdefault(key_hash, []).append((values, channel))
        channel.subscriber_count += 1
        return channel

    def build_channel(self, values: Key, key_hash: int) -> Channel:
        """A channel with the current rows, which receives no later changes by itself."""
        store = self._store
        live = store.change_numbers.values >= 0
        if self.columns:
            slots = store.matching_slots(
                np.flatnonzero(live & (self._hashes[: len(live)] == key_hash)), self.columns, values
            )
        else:
            slots = np.flatnonzero(live)
            slots = slots[np.argsort(store.change_numbers.values[slots])]
        channel = Channel()
        channel.extend(store.change_numbers.values[slots], slots, store)
        return channel

    def close(self, values: Key, key_hash: int) -> None:
        """Releases the channel for one subscriber."""
        self.subscriber_count -= 1
        channel = self._channels[values]
        channel.subscriber_count -= 1
        if not channel.subscriber_count and self.columns:
            del self._channels[values]
            self._channels_by_hash[key_hash] = [
                entry for entry in self._channels_by_hash[key_hash] if entry[1] is not channel
            ]
            if not self._channels_by_hash[key_hash]:
                del self._channels_by_hash[key_hash]
