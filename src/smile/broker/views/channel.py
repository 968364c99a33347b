"""Channels: the changes of a view that match one condition, in order. Subscriptions with equal conditions share a
channel.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from smile.broker.views.condition import RowValues, ViewCondition, row_values
from smile.broker.views.view_store import ViewStore
from smile.columns.values import Array, true_indices
from smile.kernels.delta import Delta, is_row_final
from smile.state.row_lookup import RowLookup


class Waiter(Protocol):
    """Whoever waits for the next change of a channel."""

    @property
    def waker(self) -> Callable[[], None]: ...


class Channel:
    """When a row changes again, its earlier change is outdated: readers skip it, and compaction removes it."""

    def __init__(self, condition: ViewCondition, store: ViewStore) -> None:
        """Has the current rows. It receives later changes only through `add_changes`."""
        self.condition = condition
        self.waiting: set[Waiter] = set()
        """Subscriptions that are up to date; the next change wakes them."""
        self.subscriber_count = 0
        self._store = store
        self.reload()

    def reload(self) -> None:
        """Reads the changes of the current rows again, after `extend` has failed."""
        self._set_changes(self._store.matching_changes(self.condition))

    def _set_changes(self, numbers: Array) -> None:
        self._buffer, self._count = numbers, len(numbers)
        self._compact_at = 2 * len(numbers) + 256

    @property
    def _changes(self) -> Array:
        return self._buffer[: self._count]

    def add_changes(self, numbers: Array) -> None:
        """Adds the numbers of new changes, which are greater than all earlier ones."""
        end = self._count + len(numbers)
        if end > len(self._buffer):
            self._buffer = np.concatenate([self._changes, np.zeros(end, np.int64)])
        self._buffer[self._count : end] = numbers
        self._count = end
        if end > self._compact_at:
            self._set_changes(self._changes[self._store.find_changes(self._changes)[0]])

    def has_changes_after(self, number: int) -> bool:
        return self._count > 0 and bool(self._buffer[self._count - 1] > number)

    def changes_after(self, number: int, changes_max: int) -> Array:
        """The next changes after this one. Some of them may be outdated."""
        begin = int(self._changes.searchsorted(number, side="right"))
        return self._changes[begin : begin + changes_max]

    def rows_after(self, number: int, changes_max: int) -> tuple[RowLookup, Array, int | None]:
        """The rows of the next changes after this one, without the outdated ones of at most `changes_max`; the numbers
        of their changes; and the last of these changes, or None if no more follow."""
        numbers = self.changes_after(number, changes_max)
        has_more = len(numbers) > 0 and self.has_changes_after(int(numbers[-1]))
        last_number = int(numbers[-1]) if has_more else None
        is_current, rows = self._store.find_changes(numbers)
        if not is_current.all():
            current = true_indices(is_current)
            rows, numbers = rows.take(current), numbers[current]
        return rows, numbers, last_number


class ChannelIndex:
    """The channels for conditions on the same columns, by the values of these columns; those of rows in any state, or
    `only_final`."""

    def __init__(self, columns: Sequence[str], store: ViewStore, only_final: bool = False) -> None:
        self.columns, self.only_final = tuple(columns), only_final
        self.subscriber_count = 0
        self._store = store
        self._channels: dict[RowValues, Channel] = {}

    def add_changes(self, delta: Delta, numbers: Array) -> Sequence[Channel]:
        """Adds changes to the channels that they match. Returns these channels."""
        if self.only_final:
            final = true_indices(is_row_final(self._store.layout, delta))
            delta, numbers = delta.take(final), numbers[final]
            if not len(numbers):
                return []
        if not self.columns:
            channels = list(self._channels.values())
            for channel in channels:
                channel.add_changes(numbers)
            return channels
        indices_by_channel: dict[Channel, list[int]] = {}
        for i, values in enumerate(row_values([delta.fixed[name] for name in self.columns])):
            if values in self._channels:
                indices_by_channel.setdefault(self._channels[values], []).append(i)
        for channel, indices in indices_by_channel.items():
            channel.add_changes(numbers[indices])
        return list(indices_by_channel)

    def reload(self) -> None:
        for channel in self._channels.values():
            channel.reload()

    def open(self, condition: ViewCondition) -> Channel:
        """Returns the channel for one more subscriber."""
        self.subscriber_count += 1
        if condition.values not in self._channels:
            self._channels[condition.values] = Channel(condition, self._store)
        channel = self._channels[condition.values]
        channel.subscriber_count += 1
        return channel

    def close(self, channel: Channel) -> None:
        """Releases the channel for one subscriber."""
        self.subscriber_count -= 1
        channel.subscriber_count -= 1
        if not channel.subscriber_count and self.columns:
            del self._channels[channel.condition.values]
