"""A view as the broker holds it: the rows it shows now, and who is to be told of their changes.

It may be used from any thread. Horizons never fall; whoever is at them has been told all that is known there.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from threading import RLock
from typing import Any

from smile import limits
from smile.broker.channel import Route
from smile.broker.keeper import Restored
from smile.broker.rows import Key, Rows, tuples
from smile.broker.subscription import Horizons, Subscription, horizons_of, identity, token
from smile.broker.told import Told
from smile.columns.hashing import hashes
from smile.columns.values import Values, of_python
from smile.errors import SmileError, error, nearest
from smile.kernels.changes import Changes
from smile.kernels.transform import Input
from smile.log.frame import NOTHING
from smile.log.values import Number, how_to_write, value_of


@dataclass(frozen=True)
class Condition:
    """Columns that have these values; `mark` is their hash. Without any, every row meets it."""

    columns: tuple[str, ...] = ()
    values: Key = ()
    mark: int = 0


@dataclass(eq=False)
class View:
    """`digest` is of its definition and of all it is made from; `known` gives the horizons of the log. `clock` gives
    seconds that never go back."""

    name: str
    source: Input
    digest: str
    known: Callable[[], Horizons]
    clock: Callable[[], float] = time.monotonic
    horizons: Horizons = field(default_factory=dict)
    changed: int = 0
    """So many rows were changed since it is here."""

    def __post_init__(self) -> None:
        self._lock = RLock()
        self._rows = Rows(self.source.layout)
        self._routes: dict[tuple[str, ...], Route] = {(): Route((), self._rows)}
        self._subscriptions: set[Subscription] = set()
        self._gated: set[Subscription] = set()
        self._marks: OrderedDict[tuple[tuple[str, int], ...], int] = OrderedDict({_mark(self.horizons): 0})
        self._ended: SmileError | None = None

    @property
    def rows(self) -> int:
        return self._rows.count

    @property
    def subscribers(self) -> int:
        return len(self._subscriptions)

    # ── what the keeper tells ───────────────────────────────────────────────────────────────────────────────────────

    def deliver(self, changes: Changes | None, horizons: Horizons) -> None:
        with self._lock:
            if changes is not None and len(changes):
                self._take_in(changes)
            self._move(horizons)

    def restore(self, restored: Restored) -> None:
        with self._lock:
            changed = self._rows.replaced(restored.rows)
            if len(changed):
                self._take_in(changed)
            self._move(restored.horizons)

    def _take_in(self, changes: Changes) -> None:
        taken, places, numbers = self._rows.take_in(changes)
        self.changed += len(numbers)
        if not len(numbers):
            return
        for route in self._routes.values():
            for channel in route.extend(taken, numbers, places):
                channel.last = None
                woken, channel.waiting = channel.waiting, set()
                _wake(woken)

    def _move(self, horizons: Horizons) -> None:
        self.horizons = {**self.horizons, **horizons}
        mark = _mark(self.horizons)
        # Whoever was told of it before these rows came has not heard of them.
        self._marks.setdefault(mark, self._rows.number)
        if len(self._marks) > limits.marks_kept:
            self._marks.popitem(last=False)
        reached = {one for one in self._gated if self._is_reached(one.gate)}
        self._gated -= reached
        _wake(reached)

    def end(self, problem: SmileError) -> None:
        """The view is no more."""
        with self._lock:
            self._ended = problem
            for subscription in self._subscriptions:
                subscription.ended = problem
            _wake(self._subscriptions)

    def pulse(self) -> None:
        """Wakes those who may be told of progress alone; to be called a few times a second."""
        with self._lock:
            now = self.clock()
            waiting = (s for s in self._subscriptions if s.due <= now and s in s.channel.waiting)
            woken = [s for s in waiting if s.progress != self.horizons]
            for subscription in woken:
                subscription.channel.waiting.discard(subscription)
            _wake(woken)

    # ── what subscribers ask ────────────────────────────────────────────────────────────────────────────────────────

    def condition(self, where: Mapping[str, Any]) -> Condition:
        """From values by column, as JSON has them or as text."""
        fixed, found = self.source.layout.fixed, dict[str, Values]()
        known = self.source.type.heading.columns
        for name in sorted(where):
            if name not in known:
                hint = nearest(name, known) or f"It has {', '.join(known)}."
                raise error("E099", f"{self.name} has no column {name[:100]}", hint=hint)
            if name not in fixed or known[name].name == "relation":
                never = ", ".join(n for n in known if n in fixed)
                hint = f"{f'These never change: {never}. Or put' if never else 'Put'} it into a view."
                raise error("E099", f"{self.name}.{name} may change, so that no condition can be put on it", hint=hint)
            try:
                value = value_of(_given(where[name]), known[name])
                if isinstance(value, Decimal) and value != Decimal(str(where[name])):
                    raise ValueError(f"{where[name]} is not a {known[name]}")
            except ValueError as problem:
                raise error("E099", f"{self.name}.{name}: {problem}", hint=how_to_write(known[name])) from None
            found[name] = of_python([value], known[name])
        if not found:
            return Condition()
        columns = list(found.values())
        return Condition(tuple(found), tuples(columns, 1)[0], int(hashes(columns, 1)[0]))

    def is_reached(self, ticks: Horizons) -> bool:
        """Whether everything up to these ticks is known here."""
        with self._lock:
            return self._is_reached(ticks)

    def _is_reached(self, ticks: Horizons) -> bool:
        return all(self.horizons.get(stream, NOTHING) >= tick for stream, tick in ticks.items())

    def subscribe(
        self,
        condition: Condition,
        waker: Callable[[], None],
        resume: str | None = None,
        after: Horizons | None = None,
    ) -> Subscription:
        """With a token, from where it was; it waits until the broker knows as much again."""
        number, gate, known = None, dict(after or {}), self.known()
        _check_streams(gate, known)
        with self._lock:
            if resume is not None:
                name, horizons = horizons_of(resume)
                if name == self._identity(condition):
                    number = self._marks.get(_mark(horizons))
                    for stream, tick in horizons.items():
                        if stream in known:
                            gate[stream] = max(tick, gate.get(stream, NOTHING))
                    self._check_history(horizons, known)
            if condition.columns not in self._routes:
                self._routes[condition.columns] = Route(condition.columns, self._rows)
            channel = self._routes[condition.columns].open(condition.values, condition.mark)
            found = Subscription(self, condition, channel, waker, number, gate, ended=self._ended)
            self._subscriptions.add(found)
            return found

    def snapshot(self, condition: Condition) -> Told:
        """All rows now."""
        with self._lock:
            # What nobody subscribes to is looked up, and let go.
            route = self._routes.get(condition.columns) or Route(condition.columns, self._rows)
            whole = Subscription(self, condition, route.once(condition.values, condition.mark), _nobody, None, {})
            told = self._told(whole, max(1, self._rows.number))
            assert told is not None
            return told

    def take(self, subscription: Subscription, rows_max: int) -> Told | None:
        with self._lock:
            if not self._is_reached(subscription.gate):
                self._gated.add(subscription)
                return None
            told = self._told(subscription, rows_max)
            if told is None and subscription.ended is None:
                subscription.channel.waiting.add(subscription)
            return told

    def close(self, subscription: Subscription) -> None:
        with self._lock:
            if subscription not in self._subscriptions:
                return
            self._subscriptions.remove(subscription)
            self._gated.discard(subscription)
            subscription.channel.waiting.discard(subscription)
            condition = subscription.condition
            route = self._routes[condition.columns]
            route.close(condition.values, condition.mark)
            if route.columns and not route.subscribers:
                del self._routes[route.columns]

    # ── telling ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _told(self, subscription: Subscription, rows_max: int) -> Told | None:
        number = subscription.number
        if number is not None and number < self._rows.floor:
            number = None
        reset = number is None
        if reset:
            subscription.reset_to = self._rows.number
        begin = -1 if number is None else number
        asked = begin, rows_max, subscription.reset_to if begin < subscription.reset_to else 0, reset
        channel = subscription.channel
        if channel.last is not None and channel.last[0] == asked and channel.last[1].horizons is self.horizons:
            told, end = channel.last[1], self._rows.number
        else:
            told, end = self._made(subscription, begin, rows_max, reset)
            if told.progress is not None:
                channel.last = asked, told
        subscription.number = end
        if not told.rows and not reset and not self._may_progress(subscription, told):
            return None
        if told.progress is not None:
            subscription.progress = told.progress
            pause = max(limits.progress_pause_s, len(self._subscriptions) * limits.progress_pause_each_s)
            subscription.due = self.clock() + pause
        return told

    def _may_progress(self, subscription: Subscription, told: Told) -> bool:
        """Whether it may be told of progress alone."""
        moved = told.progress is not None and subscription.progress != told.progress
        return moved and (subscription.progress is None or self.clock() >= subscription.due)

    def _made(self, subscription: Subscription, number: int, rows_max: int, reset: bool) -> tuple[Told, int]:
        """What comes next, and the number of the last change that is told then."""
        rows = self._rows
        while True:
            numbers, places, is_all = subscription.channel.after(number, rows_max, rows)
            end = rows.number if is_all else int(numbers[-1])
            if number < subscription.reset_to and len(numbers):
                numbers = numbers[rows.shown(places) | (numbers > subscription.reset_to)]
            if len(numbers) or is_all:
                break
            number = end
        parts = rows.at(numbers) if len(numbers) else []
        progress = self.horizons if is_all else None
        resume = token(self._identity(subscription.condition), self.horizons) if is_all else None
        return Told(self.source, parts, self.horizons, reset, progress, resume), end

    def _identity(self, condition: Condition) -> str:
        return identity(self.digest, condition.columns, condition.values)

    def _check_history(self, horizons: Horizons, known: Horizons) -> None:
        """Nobody is told of what is not in the log, so that no token can be ahead of it."""
        for stream, tick in horizons.items():
            if tick > known.get(stream, tick):
                message = f"the token knows {stream} up to {tick}, and the log ends at {known[stream]}"
                hint = "It is of another broker, or the log was lost. Begin anew without it."
                raise error("E094", message, hint=hint)


def _mark(horizons: Horizons) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(horizons.items()))


def _check_streams(ticks: Iterable[str], known: Horizons) -> None:
    for stream in ticks:
        if stream not in known:
            hint = nearest(stream[:100], known) or f"There are {', '.join(known)}."
            raise error("E076", f"there is no stream {stream[:100]}", hint=hint)


def _given(value: Any) -> Any:
    """Of what JSON holds, numbers as they are written."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return Number(repr(value))


def _nobody() -> None:
    raise AssertionError("nobody waits for a snapshot")


def _wake(subscriptions: Iterable[Subscription]) -> None:
    for subscription in subscriptions:
        subscription.waker()
