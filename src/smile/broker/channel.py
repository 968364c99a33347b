"""Channels: the changes of a view that meet one condition, in their order. All who subscribe to the same share one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from smile.broker.rows import Grown, Key, Rows, tuples
from smile.columns.hashing import hashes
from smile.columns.values import Array, Indices
from smile.kernels.changes import Changes

if TYPE_CHECKING:
    from smile.broker.subscription import Subscription
    from smile.broker.told import Told


Asked = tuple[int, int, int, bool]
"""After which change, how many, up to which one rows that are gone are left out, and whether all is told anew."""


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
    """By the values of some columns, a channel for each that somebody asks for. Of every row it knows the hash of these
    columns, so that those with some values are found without looking at the others."""

    def __init__(self, columns: Sequence[str], rows: Rows) -> None:
        self.columns = tuple(columns)
        self.subscribers = 0
        self._rows = rows
        self._channels: dict[Key, Channel] = {}
        self._by_mark: dict[int, list[tuple[Key, Channel]]] = {}
        self._marks = np.zeros(0, np.uint64)
        """By place."""
        self._note(*rows.marks(self.columns))

    def _note(self, places: Indices, marks: Array) -> None:
        if len(self._rows.numbers) > len(self._marks):
            room = np.zeros(2 * len(self._rows.numbers), np.uint64)
            room[: len(self._marks)] = self._marks
            self._marks = room
        self._marks[places] = marks

    def extend(self, changes: Changes, numbers: Array, places: Indices) -> Sequence[Channel]:
        """The channels that have something new."""
        if not self.columns:
            channels = list(self._channels.values())
            for channel in channels:
                channel.extend(numbers, places, self._rows)
            return channels
        columns = [changes.fixed[name] for name in self.columns]
        marks = hashes(columns, len(changes))
        self._note(places, marks)
        routed: dict[int, list[int]] = {}
        for i, mark in enumerate(marks.tolist()):
            if mark in self._by_mark:
                routed.setdefault(mark, []).append(i)
        found = []
        for mark, which in routed.items():
            rows = tuples([column.take(np.array(which)) for column in columns], len(which))
            for values, channel in self._by_mark[mark]:
                met = [i for i, row in zip(which, rows, strict=True) if row == values]
                if met:
                    channel.extend(numbers[met], places[met], self._rows)
                    found.append(channel)
        return found

    def open(self, values: Key, mark: int) -> Channel:
        """For one subscriber more; `mark` is the hash of the values."""
        self.subscribers += 1
        channel = self._channels.get(values)
        if channel is None:
            channel = self._channels[values] = self.once(values, mark)
            self._by_mark.setdefault(mark, []).append((values, channel))
        channel.subscribers += 1
        return channel

    def once(self, values: Key, mark: int) -> Channel:
        """As it is now, for somebody who does not stay."""
        rows = self._rows
        live = rows.numbers.all >= 0
        if self.columns:
            places = rows.meeting(np.flatnonzero(live & (self._marks[: len(live)] == mark)), self.columns, values)
        else:
            places = np.flatnonzero(live)
            places = places[np.argsort(rows.numbers.all[places])]
        channel = Channel()
        channel.extend(rows.numbers.all[places], places, rows)
        return channel

    def close(self, values: Key, mark: int) -> None:
        """For one subscriber less."""
        self.subscribers -= 1
        channel = self._channels[values]
        channel.subscribers -= 1
        if not channel.subscribers and self.columns:
            del self._channels[values]
            self._by_mark[mark] = [one for one in self._by_mark[mark] if one[1] is not channel]
            if not self._by_mark[mark]:
                del self._by_mark[mark]
