"""Channels: the changes of a view that meet one condition, in their order. All who subscribe to the same share one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from smile.broker.rows import Grown, Key, Rows, tuples
from smile.columns.values import Array, Indices
from smile.kernels.changes import Changes

if TYPE_CHECKING:
    from smile.broker.subscription import Subscription
    from smile.broker.told import Told


Asked = tuple[int, int, int, bool]
"""After which change, how many, up to which one rows that are gone are left out, and whether all is told anew."""

_CHANNELS_CHECKED = 1024


class Channel:
    """Of a row that changed again, the earlier change is passed over, and forgotten now and then."""

    __slots__ = ("_check", "last", "numbers", "places", "subscribers", "waiting")

    def __init__(self) -> None:
        self.numbers = Grown("i8")
        self.places = Grown("i8")
        self.waiting: set[Subscription] = set()
        """Those who have been told everything, and are to be woken."""
        self.subscribers = 0
        self.last: tuple[Asked, Told] | None = None
        """What was told last, for others who are as far."""
        self._check = 256

    def extend(self, numbers: Array, places: Indices, rows: Rows) -> None:
        self.numbers.extend(numbers)
        self.places.extend(places)
        if len(self.numbers) > self._check:
            self.keep(np.flatnonzero(rows.numbers.all[self.places.all] == self.numbers.all))
            self._check = 2 * len(self.numbers) + 256

    def keep(self, which: Indices) -> None:
        self.numbers.keep(which)
        self.places.keep(which)

    def after(self, number: int, most: int, rows: Rows) -> tuple[Array, Indices, bool]:
        """The numbers and places of the next changes, not more than that; and whether they are all there are."""
        begin = int(np.searchsorted(self.numbers.all, number, side="right"))
        found_numbers, found_places, count = [], [], 0
        while begin < len(self.numbers) and count < most:
            end = begin + most
            numbers, places = self.numbers.all[begin:end], self.places.all[begin:end]
            live = np.flatnonzero(rows.numbers.all[places] == numbers)[: most - count]
            if count + len(live) == most:
                begin += int(live[-1]) + 1
            else:
                begin = end
            found_numbers.append(numbers[live])
            found_places.append(places[live])
            count += len(live)
        if not found_numbers:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), True
        return np.concatenate(found_numbers), np.concatenate(found_places), begin >= len(self.numbers)


class Route:
    """By the values of some columns, a channel for each that there is a row of, or somebody who asks for it."""

    def __init__(self, columns: Sequence[str], rows: Rows) -> None:
        self.columns = tuple(columns)
        self.channels: dict[Key, Channel] = {}
        self.subscribers = 0
        self._check = _CHANNELS_CHECKED
        places = np.flatnonzero(rows.numbers.all >= 0)
        if len(places):
            known, order = rows.known(places)
            self.extend(known, rows.numbers.all[places[order]], places[order], rows)

    def extend(self, changes: Changes, numbers: Array, places: Indices, rows: Rows) -> Sequence[Channel]:
        """The channels that have something new."""
        if not self.columns:
            channel = self.channel(())
            channel.extend(numbers, places, rows)
            return [channel]
        if len(self.channels) > self._check:
            self._forget(rows)
        routed: dict[Key, list[int]] = {}
        for i, values in enumerate(tuples([changes.fixed[name] for name in self.columns], len(changes))):
            routed.setdefault(values, []).append(i)
        found = []
        for values, which in routed.items():
            channel = self.channel(values)
            channel.extend(numbers[which], places[which], rows)
            found.append(channel)
        return found

    def channel(self, values: Key) -> Channel:
        found = self.channels.get(values)
        if found is None:
            found = self.channels[values] = Channel()
        return found

    def _forget(self, rows: Rows) -> None:
        """Channels of which nothing is left, and that nobody listens to."""
        for values, channel in list(self.channels.items()):
            if not channel.subscribers and not (rows.numbers.all[channel.places.all] == channel.numbers.all).any():
                del self.channels[values]
        self._check = 2 * len(self.channels) + _CHANNELS_CHECKED
