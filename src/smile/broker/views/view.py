"""A view in the broker: its current rows, and the subscriptions to them. A subscription is a cursor in a channel.

Thread-safe. Horizons never decrease. A subscriber whose progress has reached the horizons has received everything that
is known there. Changes that a subscriber has not received are stored with the view's rows, where newer knowledge
replaces older. So a subscriber that does not read costs no more than its cursor.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Final, NamedTuple

import numpy as np

from smile import limits
from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.broker.maintenance.listener import ViewPause, ViewSnapshot
from smile.broker.views.channel import Channel, ChannelIndex, Waiter
from smile.broker.views.condition import ViewCondition, parse_condition
from smile.broker.views.resume_token import encode_horizons, parse_resume_token, token_identity
from smile.broker.views.view_store import ViewStore
from smile.columns import masks
from smile.columns.values import Array, true_indices
from smile.errors import SmileError, did_you_mean, error
from smile.horizons import END, HORIZON_MIN, has_reached, is_of_streams
from smile.kernels.delta import Delta
from smile.kernels.row_encoding import MASK
from smile.kernels.transform import InputRelation
from smile.state.row_lookup import RowLookup

Horizons = Mapping[str, int]


@dataclass(frozen=True, eq=False)
class ViewFrame:
    """What a subscriber receives at once: rows in the order of their last changes, as they are known at `horizons`.
    With `reset`, the subscriber must discard all earlier rows. `progress` is set only if the subscriber then has
    everything up to these horizons; `resume` is the token for it. `epochs` are those with respect to which things are
    final then, by the stream of the log."""

    source: InputRelation
    rows: RowLookup
    change_numbers: Array
    encoded_rows: dict[int, bytes]
    """The rows of all frames of the view that are encoded already, by change number. An encoder adds to it."""
    horizons: Horizons
    reset: bool
    progress: Horizons | None
    resume: str | None
    epochs: Mapping[str, str] = field(default_factory=dict)

    @property
    def row_count(self) -> int:
        return len(self.change_numbers)


class FrameRequest(NamedTuple):
    """The change after which a frame starts, and the maximum number of its rows. Rows that were hidden before
    `reset_change` are left out."""

    after: int
    rows_max: int
    reset_change: int
    reset: bool


_NO_FRAME: Final = (None, None)


@dataclass(eq=False)
class View:
    """`digest` covers its definition, all definitions that it depends on, and the log. `base_streams` are the streams
    that it is computed from: `horizons` has theirs and those of their origins, and no others. `log_horizons` returns
    the horizons of the log. `clock` returns monotonic seconds."""

    name: str
    source: InputRelation
    digest: str
    log_horizons: Callable[[], Horizons]
    base_streams: AbstractSet[str]
    clock: Callable[[], float] = time.monotonic
    horizons: Horizons = field(default_factory=dict)
    changed_row_count: int = 0
    """The number of changed rows since this object was created."""
    pause: ViewPause | None = None
    """Set while the view is paused. Subscribers keep the rows that they have, and are told."""
    portable_digest: str = ""
    """Equal at all brokers where tokens of this view are valid; empty if they are valid here only."""
    imported_streams: AbstractSet[str] = frozenset()
    """The streams of the log that come from other brokers. What a token has of them may still be on its way."""
    find_epochs: Callable[[], Mapping[str, str]] = dict
    """The closed epochs of the global streams that it is computed from, by the stream of the log."""

    def __post_init__(self) -> None:
        self.horizons = self._of_base_streams(self.horizons)
        self._lock = RLock()
        self._store = ViewStore(self.source.layout)
        self._channel_indexes = {ViewCondition().kind: ChannelIndex((), self._store)}
        self._subscriptions: set[ViewSubscription] = set()
        self._blocked: set[ViewSubscription] = set()
        self._changes_by_progress: OrderedDict[tuple[tuple[str, int], ...], int] = OrderedDict(
            {_progress_key(self.horizons): 0}
        )
        self._frames: dict[Channel, tuple[FrameRequest, ViewFrame]] = {}
        """The last frame of each channel that ended with the current horizons, for other subscriptions."""
        self._encoded_horizons = ""
        """The current horizons as tokens have them; empty until one is made."""
        self._ended: SmileError | None = None
        self._has_stale_channels = False
        """Whether the channels may lack changes that are in the store, after an error."""

    @property
    def row_count(self) -> int:
        return self._store.row_count

    @property
    def subscriber_count(self) -> int:
        return len(self._subscriptions)

    def behind_s(self, timed_streams: AbstractSet[str]) -> float | None:
        """How far the slowest subscriber is behind, by the ticks of these streams, which are times; None if nobody has
        received anything."""
        horizons, progress = self.horizons, [s.progress for s in list(self._subscriptions)]
        distances = [
            horizons[stream] - known.get(stream, HORIZON_MIN)
            for known in progress
            if known is not None
            for stream in timed_streams & horizons.keys()
            if HORIZON_MIN < horizons[stream] < END
        ]
        return round(max(distances) / TICKS_PER_MICROSECOND / 1e6, 3) if distances else None

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
        self._reload_stale_channels()
        applied, numbers = self._store.apply(delta)
        self.changed_row_count += len(numbers)
        if not len(numbers):
            return
        self._has_stale_channels = True
        for index in self._channel_indexes.values():
            for channel in index.add_changes(applied, numbers):
                waiting, channel.waiting = channel.waiting, set()
                _wake(waiting)
        self._has_stale_channels = False

    def _of_base_streams(self, horizons: Horizons) -> Horizons:
        return {name: tick for name, tick in horizons.items() if is_of_streams(name, self.base_streams)}

    def _reload_stale_channels(self) -> None:
        if self._has_stale_channels:
            for index in self._channel_indexes.values():
                index.reload()
            self._has_stale_channels = False

    def _advance(self, horizons: Horizons) -> None:
        self.horizons = {**self.horizons, **self._of_base_streams(horizons)}
        self._encoded_horizons = ""
        self._frames.clear()
        key = _progress_key(self.horizons)
        # The first entry stays: a subscriber that received this progress before these rows does not have them.
        self._changes_by_progress.setdefault(key, self._store.last_change)
        if len(self._changes_by_progress) > limits.progress_marks_max:
            self._changes_by_progress.popitem(last=False)
        reached = {subscription for subscription in self._blocked if self.is_reached(subscription.required_horizons)}
        self._blocked -= reached
        _wake(reached)

    def end(self, problem: SmileError) -> None:
        """Ends all subscriptions: the view was changed or dropped."""
        with self._lock:
            self._ended = problem
            for subscription in self._subscriptions:
                subscription.ended = problem
            _wake(self._subscriptions)

    def set_pause(self, pause: ViewPause | None) -> None:
        """The view is paused, or is maintained again if `pause` is None."""
        with self._lock:
            self.pause = pause
            _wake(self._subscriptions)

    def wake_for_progress(self) -> None:
        """Wakes idle subscriptions that may receive a frame with progress only. Call it a few times a second."""
        if not self._subscriptions:
            return
        with self._lock:
            now = self.clock()
            waiting = (s for s in self._subscriptions if s.progress_due <= now and s in s.channel.waiting)
            due = [s for s in waiting if s.progress != self.horizons]
            for subscription in due:
                subscription.channel.waiting.discard(subscription)
            _wake(due)

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────────

    def condition(self, where: Mapping[str, Any], only_final: bool = False) -> ViewCondition:
        """A condition on the values of columns, which are JSON values or text."""
        return parse_condition(self.source, where, only_final)

    def is_reached(self, ticks: Horizons) -> bool:
        """Whether the view includes the events at these ticks, and everything before them of their origins. Streams
        that it is not computed from are ignored: one that was added to the log later may have no horizon here."""
        with self._lock:
            return all(
                has_reached(self.horizons, stream, tick)
                for stream, tick in ticks.items()
                if is_of_streams(stream, self.base_streams)
            )

    def subscribe(
        self,
        condition: ViewCondition,
        waker: Callable[[], None],
        resume: str | None = None,
        after: Horizons | None = None,
    ) -> "ViewSubscription":
        """With a resume token, continues from there, once the view has reached the token's horizons."""
        last_change, required, log_horizons = None, dict(after or {}), self.log_horizons()
        horizons: Horizons
        check_streams(required, log_horizons)
        with self._lock:
            if resume is not None:
                identity, horizons = parse_resume_token(resume)
                horizons = self._of_base_streams(horizons)
                is_own = identity.startswith(token_identity(self.digest, condition))
                if is_own:
                    last_change = self._changes_by_progress.get(_progress_key(horizons))
                # Of another broker, the rows at exactly these horizons are not known here, so all rows are sent.
                if is_own or self._is_portable(identity, condition):
                    for stream, tick in horizons.items():
                        if stream in log_horizons:
                            required[stream] = max(tick, required.get(stream, HORIZON_MIN))
                    self._check_token_horizons(horizons, log_horizons)
            return self._open_subscription(condition, waker, last_change, required)

    def _is_portable(self, identity: str, condition: ViewCondition) -> bool:
        """Whether a token of another broker is valid here."""
        portable = self.portable_digest
        return bool(portable) and identity.endswith(token_identity(portable, condition))

    def subscribe_after(
        self, horizons: Horizons, waker: Callable[[], None]
    ) -> tuple["ViewSubscription", Horizons | None]:
        """A subscription that continues after these horizons, which may lack streams that do not affect the view. It
        begins at the known progress with exactly these horizons, which is also returned; None if there is none: then it
        begins with all rows. An earlier progress would not do: rows that the subscriber has may have come and gone in
        one batch after it. Nothing is delivered before the view has reached the horizons."""
        log_horizons = self.log_horizons()
        with self._lock:
            self._check_token_horizons(horizons, log_horizons)
            begin: tuple[Horizons | None, int | None] = None, None
            wanted = _known_ticks(horizons)
            if wanted:
                for progress, change in self._changes_by_progress.items():
                    known = dict(progress)
                    if _known_ticks({n: t for n, t in known.items() if is_of_streams(n, horizons)}) == wanted:
                        begin = known, change
                        break
            return self._open_subscription(ViewCondition(), waker, begin[1], horizons), begin[0]

    def _open_subscription(
        self, condition: ViewCondition, waker: Callable[[], None], last_change: int | None, required: Horizons
    ) -> "ViewSubscription":
        if condition.kind not in self._channel_indexes:
            self._channel_indexes[condition.kind] = ChannelIndex(condition.columns, self._store, condition.only_final)
            self._set_store_indexes()
        channel = self._channel_indexes[condition.kind].open(condition)
        subscription = ViewSubscription(self, channel, waker, last_change, required, ended=self._ended)
        self._subscriptions.add(subscription)
        return subscription

    def _check_token_horizons(self, horizons: Horizons, log_horizons: Horizons) -> None:
        """Refuses tokens that are ahead of the log: subscribers receive only what is in the log. A view may have read a
        commit of the log before its publisher says so in `log_horizons`."""
        for stream, tick in horizons.items():
            is_imported = is_of_streams(stream, self.imported_streams)
            known = max(log_horizons.get(stream, tick), self.horizons.get(stream, HORIZON_MIN))
            if tick > known and not is_imported:
                message = f"the token has {stream} up to tick {tick}, but the log ends at {log_horizons[stream]}"
                hint = "It comes from another broker, or the log has lost its end. Subscribe without it."
                raise error("E094", message, hint=hint)

    def _resume_token(self, condition: ViewCondition) -> str:
        """The token for the current horizons. It is valid here, and then elsewhere."""
        if not self._encoded_horizons:
            self._encoded_horizons = encode_horizons(self.horizons)
        identity = token_identity(self.digest, condition)
        if self.portable_digest:
            identity = f"{identity}-{token_identity(self.portable_digest, condition)}"
        return f"{identity}.{self._encoded_horizons}"

    def _set_store_indexes(self) -> None:
        self._store.set_indexes(list({columns: None for columns, _ in self._channel_indexes if columns}))

    def _close(self, subscription: "ViewSubscription") -> None:
        with self._lock:
            if subscription not in self._subscriptions:
                return
            self._subscriptions.remove(subscription)
            self._blocked.discard(subscription)
            channel = subscription.channel
            channel.waiting.discard(subscription)
            kind = channel.condition.kind
            index = self._channel_indexes[kind]
            index.close(channel)
            if not channel.subscriber_count:
                self._frames.pop(channel, None)
            if kind != ViewCondition().kind and not index.subscriber_count:
                del self._channel_indexes[kind]
                self._set_store_indexes()

    # ── frames ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self, condition: ViewCondition) -> ViewFrame:
        """All current rows."""
        with self._lock:
            last_change = self._store.last_change
            request = FrameRequest(-1, max(1, last_change), last_change, reset=True)
            return self._build_frame(Channel(condition, self._store), request)[0]

    def pending_rows(self, subscriptions: Sequence["ViewSubscription"], rows_max: int) -> ViewFrame | None:
        """The rows of the next frames of these subscriptions that are not encoded yet, at most `rows_max`. None if the
        subscriptions are in one channel: then a single frame has the rows. Cursors do not move."""
        with self._lock:
            self._reload_stale_channels()
            cursors = {(s.channel, s.last_change) for s in subscriptions if s.last_change is not None}
            if len(cursors) < 2:
                return None
            changes = [channel.changes_after(number, limits.frame_rows_max) for channel, number in cursors]
            numbers = np.unique(np.concatenate(changes))
            numbers = numbers[[n not in self._store.encoded_rows for n in numbers.tolist()]][:rows_max]
            if len(numbers) < 2:
                return None
            is_current, rows = self._store.find_changes(numbers)
            current = true_indices(is_current)
            rows, encoded_rows = rows.take(current), self._store.encoded_rows
            return ViewFrame(self.source, rows, numbers[current], encoded_rows, self.horizons, False, None, None)

    def _has_frame(self, subscription: "ViewSubscription") -> bool:
        """Whether there may be anything to deliver to a subscription that has a cursor."""
        self._reload_stale_channels()
        assert subscription.last_change is not None
        return subscription.is_progress_due or subscription.channel.has_changes_after(subscription.last_change)

    def _read_frame(self, channel: Channel, request: FrameRequest) -> tuple[ViewFrame, int]:
        """The next frame, and the last change that is delivered with it."""
        self._reload_stale_channels()
        last_request, last_frame = self._frames.get(channel, _NO_FRAME)
        if last_frame is not None and last_request == request:
            return last_frame, self._store.last_change
        frame, last_change = self._build_frame(channel, request)
        if frame.progress is not None:
            self._frames[channel] = request, frame
        return frame, last_change

    def _build_frame(self, channel: Channel, request: FrameRequest) -> tuple[ViewFrame, int]:
        store, last_change = self._store, request.after
        while True:
            rows, numbers, next_change = channel.rows_after(last_change, request.rows_max)
            if last_change < request.reset_change and rows.row_count:
                is_shown = masks.is_shown(rows[MASK].data)
                included = true_indices(is_shown | (numbers > request.reset_change))
                rows, numbers = rows.take(included), numbers[included]
            if rows.row_count or next_change is None:
                break
            last_change = next_change
        progress, resume, epochs = None, None, dict[str, str]()
        if next_change is None:
            progress = self.horizons
            resume = self._resume_token(channel.condition)
            # Not older than the horizons: an epoch is in the log before anything is final with respect to it.
            epochs = {**self.find_epochs()}
        frame = ViewFrame(
            self.source, rows, numbers, store.encoded_rows, self.horizons, request.reset, progress, resume, epochs
        )
        return frame, store.last_change if next_change is None else next_change


@dataclass(eq=False)
class ViewSubscription:
    """Nothing is delivered before the view reaches `required_horizons`. When there is something to deliver after
    `next_frame` has returned None, `waker` is called, from any thread."""

    view: View
    channel: Channel
    waker: Callable[[], None]
    last_change: int | None
    """The cursor: the last change that was delivered, None before the first."""
    required_horizons: Horizons
    reset_change: int = 0
    """The last change before the latest reset. Rows that were hidden then are left out."""
    progress: Horizons | None = None
    """The horizons that were delivered last."""
    progress_due: float = 0.0
    """When a frame with progress only may be delivered."""
    ended: SmileError | None = None
    _told_pause: ViewPause | None = None
    _previous_progress: tuple[Horizons | None, float] = (None, 0.0)
    """`progress` and `progress_due` before the last frame."""

    @property
    def position(self) -> tuple[int, int]:
        """Equal for subscriptions that receive the same next frame."""
        return id(self.channel), -1 if self.last_change is None else self.last_change

    def next_frame(self, rows_max: int) -> ViewFrame | None:
        """The next rows, oldest change first, and moves the cursor past them. None if there is nothing to deliver."""
        with self.view._lock:
            if self.required_horizons:
                if not self.view.is_reached(self.required_horizons):
                    self.view._blocked.add(self)
                    return None
                self.required_horizons = {}  # horizons never decrease
            frame = self._take_frame(rows_max)
            if frame is None and self.ended is None:
                self.channel.waiting.add(self)
            return frame

    def take_pause_change(self) -> bool:
        """Whether the view was paused or resumed since the last call."""
        has_changed = self.view.pause is not self._told_pause
        self._told_pause = self.view.pause
        return has_changed

    def return_rows(self, frame: ViewFrame, row_count: int) -> None:
        """Moves the cursor back, after the first `row_count` rows of its last frame: the others were not delivered, and
        neither was the progress."""
        self.last_change = int(frame.change_numbers[row_count - 1])
        self.progress, self.progress_due = self._previous_progress

    def seek(self, change: int | None) -> None:
        """Moves the cursor: continues after this change, or begins anew with all rows if it is None. The progress is
        then delivered again."""
        with self.view._lock:
            self.last_change, self.progress, self.progress_due = change, None, 0.0

    def close(self) -> None:
        self.view._close(self)

    def _take_frame(self, rows_max: int) -> ViewFrame | None:
        store = self.view._store
        # Rows that expired since were hidden before the latest reset, so they were not delivered after it. Final rows
        # are never hidden.
        has_expired = not self.channel.condition.only_final and (
            max(self.last_change or 0, self.reset_change) < store.expired_up_to
        )
        reset = self.last_change is None or has_expired
        if reset:
            self.reset_change = store.last_change
        elif not self.view._has_frame(self):
            self.last_change = store.last_change
            return None
        after = -1 if self.last_change is None or reset else self.last_change
        reset_change = self.reset_change if after < self.reset_change else 0
        frame, self.last_change = self.view._read_frame(
            self.channel, FrameRequest(after, rows_max, reset_change, reset)
        )
        if not frame.row_count and not reset and not (frame.progress is not None and self.is_progress_due):
            return None
        self._previous_progress = self.progress, self.progress_due
        if frame.progress is not None:
            pause_s = max(limits.progress_pause_s, self.view.subscriber_count * limits.progress_pause_each_s)
            self.progress, self.progress_due = frame.progress, self.view.clock() + pause_s
        return frame

    @property
    def is_progress_due(self) -> bool:
        """Whether a frame without rows is to be delivered for its progress."""
        if self.progress == self.view.horizons:
            return False
        return self.progress is None or self.view.clock() >= self.progress_due


def _known_ticks(horizons: Horizons) -> Horizons:
    return {name: tick for name, tick in horizons.items() if tick > HORIZON_MIN}


def _progress_key(horizons: Horizons) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(horizons.items()))


def check_streams(ticks: Iterable[str], log_horizons: Horizons) -> None:
    """Raises E076 for a stream that is not in the log."""
    for stream in ticks:
        if stream not in log_horizons:
            hint = did_you_mean(stream[:100], log_horizons) or f"There are {', '.join(log_horizons)}."
            raise error("E076", f"there is no stream {stream[:100]}", hint=hint)


def _wake(waiters: Iterable[Waiter]) -> None:
    for waiter in waiters:
        waiter.waker()
