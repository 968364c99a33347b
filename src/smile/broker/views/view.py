"""A view in the broker: its current rows, and the subscriptions to them.

Thread-safe. Horizons never decrease. A subscriber whose progress has reached the horizons has received everything that
is known there.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from threading import RLock
from typing import Any

from smile import limits
from smile.broker.maintenance.listener import ViewSnapshot
from smile.broker.views.channel import ChannelIndex
from smile.broker.views.subscription import Horizons, ViewSubscription, parse_resume_token, resume_token, token_identity
from smile.broker.views.view_frame import ViewFrame
from smile.broker.views.view_store import Key, ViewStore, row_tuples
from smile.columns.hashing import hashes
from smile.columns.values import ValueColumn, from_python
from smile.decoding.values import JsonNumber, format_hint, parse_value
from smile.errors import SmileError, did_you_mean, error
from smile.horizons import HORIZON_MIN
from smile.kernels.delta import Delta
from smile.kernels.transform import InputRelation


@dataclass(frozen=True)
class ViewCondition:
    """Columns that must have these values; `key_hash` is the hash of the values. Without columns, every row matches."""

    columns: tuple[str, ...] = ()
    values: Key = ()
    key_hash: int = 0


@dataclass(eq=False)
class View:
    """`digest` covers its definition and all definitions that it depends on. `log_horizons` returns the horizons of the
    log. `clock` returns monotonic seconds."""

    name: str
    source: InputRelation
    digest: str
    log_horizons: Callable[[], Horizons]
    clock: Callable[[], float] = time.monotonic
    horizons: Horizons = field(default_factory=dict)
    changed_row_count: int = 0
    """The number of changed rows since this object was created."""

    def __post_init__(self) -> None:
        self._lock = RLock()
        self._store = ViewStore(self.source.layout)
        self._channel_indexes: dict[tuple[str, ...], ChannelIndex] = {(): ChannelIndex((), self._store)}
        self._subscriptions: set[ViewSubscription] = set()
        self._blocked: set[ViewSubscription] = set()
        self._changes_by_progress: OrderedDict[tuple[tuple[str, int], ...], int] = OrderedDict(
            {_progress_key(self.horizons): 0}
        )
        self._ended: SmileError | None = None

    @property
    def row_count(self) -> int:
        return self._store.row_count

    @property
    def subscriber_count(self) -> int:
        return len(self._subscriptions)

    # ── updates by the maintainer ───────────────────────────────────────────────────────────────────────────────────

    def deliver(self, delta: Delta | None, horizons: Horizons) -> None:
        with self._lock:
            if delta is not None and len(delta):
                self._apply(delta)
            self._advance(horizons)

    def restore(self, snapshot: ViewSnapshot) -> None:
        with self._lock:
            delta = self._store.replacement_delta(snapshot.rows)
            if len(delta):
                self._apply(delta)
            self._advance(snapshot.horizons)

    def _apply(self, delta: Delta) -> None:
        applied, slots, numbers = self._store.apply(delta)
        self.changed_row_count += len(numbers)
        if not len(numbers):
            return
        for index in self._channel_indexes.values():
            for channel in index.extend(applied, numbers, slots):
                channel.last_frame = None
                waiting, channel.waiting = channel.waiting, set()
                _wake(waiting)

    def _advance(self, horizons: Horizons) -> None:
        self.horizons = {**self.horizons, **horizons}
        key = _progress_key(self.horizons)
        # The first entry stays: a subscriber that received this progress before these rows does not have them.
        self._changes_by_progress.setdefault(key, self._store.last_change)
        if len(self._changes_by_progress) > limits.progress_marks_max:
            self._changes_by_progress.popitem(last=False)
        reached = {subscription for subscription in self._blocked if self._is_reached(subscription.required_horizons)}
        self._blocked -= reached
        _wake(reached)

    def end(self, problem: SmileError) -> None:
        """Ends all subscriptions: the view was changed or dropped."""
        with self._lock:
            self._ended = problem
            for subscription in self._subscriptions:
                subscription.ended = problem
            _wake(self._subscriptions)

    def wake_for_progress(self) -> None:
        """Wakes idle subscriptions that may receive a frame with progress only. Call it a few times a second."""
        with self._lock:
            now = self.clock()
            waiting = (s for s in self._subscriptions if s.progress_due <= now and s in s.channel.waiting)
            due = [s for s in waiting if s.progress != self.horizons]
            for subscription in due:
                subscription.channel.waiting.discard(subscription)
            _wake(due)

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────────

    def condition(self, where: Mapping[str, Any]) -> ViewCondition:
        """A condition on the values of columns, which are JSON values or text."""
        fixed, columns_by_name = self.source.layout.fixed, dict[str, ValueColumn]()
        types = self.source.type.heading.columns
        for name in sorted(where):
            if name not in types:
                hint = did_you_mean(name, types) or f"It has {', '.join(types)}."
                raise error("E099", f"{self.name} has no column {name[:100]}", hint=hint)
            if name not in fixed or types[name].name == "relation":
                fixed_names = ", ".join(n for n in types if n in fixed)
                hint = f"{f'These never change: {fixed_names}. Or write' if fixed_names else 'Write'} a view with it."
                raise error("E099", f"{self.name}.{name} may change, so it cannot be used in a condition", hint=hint)
            try:
                value = parse_value(_json_number(where[name]), types[name])
                if isinstance(value, Decimal) and value != Decimal(str(where[name])):
                    raise ValueError(f"{where[name]} is not a {types[name]}")
            except ValueError as problem:
                raise error("E099", f"{self.name}.{name}: {problem}", hint=format_hint(types[name])) from None
            columns_by_name[name] = from_python([value], types[name])
        if not columns_by_name:
            return ViewCondition()
        columns = list(columns_by_name.values())
        return ViewCondition(tuple(columns_by_name), row_tuples(columns, 1)[0], int(hashes(columns, 1)[0]))

    def is_reached(self, ticks: Horizons) -> bool:
        """Whether the view includes everything up to these ticks."""
        with self._lock:
            return self._is_reached(ticks)

    def _is_reached(self, ticks: Horizons) -> bool:
        return all(self.horizons.get(stream, HORIZON_MIN) >= tick for stream, tick in ticks.items())

    def subscribe(
        self,
        condition: ViewCondition,
        waker: Callable[[], None],
        resume: str | None = None,
        after: Horizons | None = None,
    ) -> ViewSubscription:
        """With a resume token, continues from there, once the view has reached the token's horizons."""
        last_change, required, log_horizons = None, dict(after or {}), self.log_horizons()
        _check_streams(required, log_horizons)
        with self._lock:
            if resume is not None:
                identity, horizons = parse_resume_token(resume)
                if identity == self._token_identity(condition):
                    last_change = self._changes_by_progress.get(_progress_key(horizons))
                    for stream, tick in horizons.items():
                        if stream in log_horizons:
                            required[stream] = max(tick, required.get(stream, HORIZON_MIN))
                    self._check_token_horizons(horizons, log_horizons)
            if condition.columns not in self._channel_indexes:
                self._channel_indexes[condition.columns] = ChannelIndex(condition.columns, self._store)
            channel = self._channel_indexes[condition.columns].open(condition.values, condition.key_hash)
            subscription = ViewSubscription(self, condition, channel, waker, last_change, required, ended=self._ended)
            self._subscriptions.add(subscription)
            return subscription

    def snapshot(self, condition: ViewCondition) -> ViewFrame:
        """All current rows."""
        with self._lock:
            # An index that no subscription uses is built for this call only.
            index = self._channel_indexes.get(condition.columns) or ChannelIndex(condition.columns, self._store)
            subscription = ViewSubscription(
                self, condition, index.build_channel(condition.values, condition.key_hash), _unexpected_wake, None, {}
            )
            frame = self._next_frame(subscription, max(1, self._store.last_change))
            assert frame is not None
            return frame

    def take(self, subscription: ViewSubscription, rows_max: int) -> ViewFrame | None:
        with self._lock:
            if not self._is_reached(subscription.required_horizons):
                self._blocked.add(subscription)
                return None
            frame = self._next_frame(subscription, rows_max)
            if frame is None and subscription.ended is None:
                subscription.channel.waiting.add(subscription)
            return frame

    def close(self, subscription: ViewSubscription) -> None:
        with self._lock:
            if subscription not in self._subscriptions:
                return
            self._subscriptions.remove(subscription)
            self._blocked.discard(subscription)
            subscription.channel.waiting.discard(subscription)
            condition = subscription.condition
            index = self._channel_indexes[condition.columns]
            index.close(condition.values, condition.key_hash)
            if index.columns and not index.subscriber_count:
                del self._channel_indexes[index.columns]

    # ── frames ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _next_frame(self, subscription: ViewSubscription, rows_max: int) -> ViewFrame | None:
        last_change = subscription.last_change
        if last_change is not None and last_change < self._store.expired_up_to:
            last_change = None
        reset = last_change is None
        if reset:
            subscription.reset_change = self._store.last_change
        begin = -1 if last_change is None else last_change
        request = begin, rows_max, subscription.reset_change if begin < subscription.reset_change else 0, reset
        channel = subscription.channel
        if (
            channel.last_frame is not None
            and channel.last_frame[0] == request
            and channel.last_frame[1].horizons is self.horizons
        ):
            frame, end = channel.last_frame[1], self._store.last_change
        else:
            frame, end = self._build_frame(subscription, begin, rows_max, reset)
            if frame.progress is not None:
                channel.last_frame = request, frame
        subscription.last_change = end
        if not frame.row_count and not reset and not self._may_send_progress(subscription, frame):
            return None
        if frame.progress is not None:
            subscription.progress = frame.progress
            pause_s = max(limits.progress_pause_s, len(self._subscriptions) * limits.progress_pause_each_s)
            subscription.progress_due = self.clock() + pause_s
        return frame

    def _may_send_progress(self, subscription: ViewSubscription, frame: ViewFrame) -> bool:
        """Whether a frame without rows is to be delivered for its progress."""
        has_progress = frame.progress is not None and subscription.progress != frame.progress
        return has_progress and (subscription.progress is None or self.clock() >= subscription.progress_due)

    def _build_frame(
        self, subscription: ViewSubscription, last_change: int, rows_max: int, reset: bool
    ) -> tuple[ViewFrame, int]:
        """The next frame, and the number of the last change that is delivered with it."""
        store = self._store
        while True:
            numbers, slots, is_all = subscription.channel.changes_after(last_change, rows_max, store)
            end = store.last_change if is_all else int(numbers[-1])
            if last_change < subscription.reset_change and len(numbers):
                numbers = numbers[store.is_shown(slots) | (numbers > subscription.reset_change)]
            if len(numbers) or is_all:
                break
            last_change = end
        parts = store.locate_changes(numbers) if len(numbers) else []
        progress = self.horizons if is_all else None
        resume = resume_token(self._token_identity(subscription.condition), self.horizons) if is_all else None
        return ViewFrame(self.source, parts, self.horizons, reset, progress, resume), end

    def _token_identity(self, condition: ViewCondition) -> str:
        return token_identity(self.digest, condition.columns, condition.values)

    def _check_token_horizons(self, horizons: Horizons, log_horizons: Horizons) -> None:
        """Refuses tokens that are ahead of the log: subscribers receive only what is in the log."""
        for stream, tick in horizons.items():
            if tick > log_horizons.get(stream, tick):
                message = f"the token has {stream} up to tick {tick}, but the log ends at {log_horizons[stream]}"
                hint = "It comes from another broker, or the log has lost its end. Subscribe without it."
                raise error("E094", message, hint=hint)


def _progress_key(horizons: Horizons) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(horizons.items()))


def _check_streams(ticks: Iterable[str], log_horizons: Horizons) -> None:
    for stream in ticks:
        if stream not in log_horizons:
            hint = did_you_mean(stream[:100], log_horizons) or f"There are {', '.join(log_horizons)}."
            raise error("E076", f"there is no stream {stream[:100]}", hint=hint)


def _json_number(value: Any) -> Any:
    """Numbers as `parse_value` expects them, in the notation of JSON; other values unchanged."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return JsonNumber(repr(value))


def _unexpected_wake() -> None:
    raise AssertionError("a snapshot does not wait")


def _wake(subscriptions: Iterable[ViewSubscription]) -> None:
    for subscription in subscriptions:
        subscription.waker()
