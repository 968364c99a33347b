"""A durable subscription that receives events: every selected event after its position, those of each origin in the
order of their ticks.

Events are read from the log, so nothing is conflated. Events that are not acknowledged are limited by a window. The
subscription remembers only their last ticks: whoever returns receives them again from the log.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np

from smile.broker.subscriptions.event_filter import EVERY_EVENT, EventFilter
from smile.broker.subscriptions.event_matching import EventMatching, MatchedSubscription, StreamRanges
from smile.broker.subscriptions.selection import StreamSelection
from smile.broker.views.condition import ViewCondition
from smile.broker.views.resume_token import resume_token
from smile.columns.values import Array
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN
from smile.kernels.delta import Delta, concat_deltas
from smile.kernels.transform import InputRelation

Ticks = Mapping[str, int]
"""A tick for each origin of a stream: everything up to it."""

SCAN_STEPS = 25
"""After so many steps without a selected event, other subscriptions go first."""


@dataclass(frozen=True, eq=False)
class EventFrame:
    """Events in the order in which they are delivered. `start` and `end` are the positions before and after it: the end
    includes silence."""

    number: int
    source: InputRelation
    rows: Delta
    ticks: tuple[int, ...]
    origins: tuple[str, ...]
    start: Ticks
    end: Ticks
    identity: str

    def positions(self) -> Iterator[dict[str, int]]:
        """The position after each event."""
        position = dict(self.start)
        for origin, tick in zip(self.origins, self.ticks, strict=True):
            position[origin] = tick
            yield dict(position)

    def tokens(self) -> Iterator[str]:
        """The token of the position after each event."""
        return (resume_token(self.identity, position) for position in self.positions())

    @property
    def resume(self) -> str:
        return resume_token(self.identity, self.end)


@dataclass(frozen=True)
class _SentFrame:
    number: int
    last_ticks: Ticks
    count: int


class EventSubscription:
    """Thread-safe; `next_frame` must not be called by two threads at once. `position` is acknowledged. After
    `next_frame` has returned None, `waker` is called when it is to be called again, from any thread."""

    def __init__(
        self,
        matching: EventMatching,
        matched: MatchedSubscription,
        identity: str,
        ranges: StreamRanges,
        position: Ticks,
        window: int,
        waker: Callable[[], None],
    ) -> None:
        self.selection, self.matched, self.identity = matched.selection, matched, identity
        self._matching = matching
        self._ranges, self._window, self._waker = ranges, window, waker
        self._lock = Lock()
        self._acknowledged, self._read = dict(position), dict(position)
        self._sent: deque[_SentFrame] = deque()
        self._last_number = 0
        self._is_waiting = False

    @property
    def horizons(self) -> dict[str, int]:
        """Up to where the log has the events of each origin."""
        return dict(self._ranges.horizons(self.selection.stream))

    # ── delivery ────────────────────────────────────────────────────────────────────────────────────────────────────

    def next_frame(self, rows_max: int) -> EventFrame | None:
        """The next events; None if nothing is new, or too much is not acknowledged. Raises E097 if events were removed
        from the log."""
        for _ in range(SCAN_STEPS):
            with self._lock:
                room = self._window - sum(sent.count for sent in self._sent)
                if room <= 0:
                    return None  # an acknowledgement calls the waker
                start, version = dict(self._read), self._ranges.version
            step = self._scan(start, min(rows_max, room))
            if step is None:
                with self._lock:
                    if self._ranges.version == version:
                        self._is_waiting = True
                        return None
                continue
            frame = self._finish(start, *step)
            if frame is not None:
                return frame
        self._waker()
        return None

    def _scan(self, start: Ticks, rows_max: int) -> tuple[Delta | None, list[int], list[str], dict[str, int]] | None:
        """The next selected events of all origins in order of their ticks, at most `rows_max`, and the position after
        them; None if nothing is new."""
        selection, end = self.selection, dict(start)
        parts, ticks, origins = list[Delta](), list[Array](), list[str]()
        for origin, horizon in sorted(self._ranges.horizons(selection.stream).items()):
            after = start.get(origin, HORIZON_MIN)
            found = None if horizon <= after else self._matching.read(self.matched, origin, after)
            if found is None:
                continue
            end[origin], rows = found
            if rows is not None:
                parts.append(rows)
                ticks.append(np.asarray(selection.ticks(rows).data))
                origins += [origin] * len(rows)
        if not parts:
            return None if end == start else (None, [], [], end)
        if len(parts) == 1 and len(parts[0]) <= rows_max:
            return parts[0], ticks[0].tolist(), origins, end  # those of one origin are in order
        merged_ticks = np.concatenate(ticks)
        order = np.argsort(merged_ticks, kind="stable")
        for i in order[rows_max:].tolist():
            # What is left out is read again: the position of its origin is before it.
            end[origins[i]] = min(end[origins[i]], max(start.get(origins[i], HORIZON_MIN), int(merged_ticks[i]) - 1))
        chosen = order[:rows_max]
        merged = parts[0] if len(parts) == 1 else concat_deltas(selection.source.layout, parts)
        return merged.take(chosen), merged_ticks[chosen].tolist(), [origins[i] for i in chosen.tolist()], end

    def _finish(
        self, start: Ticks, rows: Delta | None, ticks: list[int], origins: list[str], end: dict[str, int]
    ) -> EventFrame | None:
        """Moves the cursor. Returns the frame, if there are any events."""
        with self._lock:
            self._read = _greatest(self._read, end)
            if rows is None:
                if not self._sent:
                    self._acknowledged = dict(self._read)
                return None
            self._last_number += 1
            frame = EventFrame(
                self._last_number, self.selection.source, rows, tuple(ticks), tuple(origins), start, end, self.identity
            )
            self._sent.append(_SentFrame(frame.number, dict(zip(origins, ticks, strict=True)), len(ticks)))
            return frame

    def return_events(self, frame: EventFrame, count: int) -> EventFrame:
        """The first events of the last frame, without the others, which were not delivered."""
        end = dict(frame.end)
        for origin, tick in zip(frame.origins[count:], frame.ticks[count:], strict=True):
            end[origin] = min(end[origin], max(frame.start.get(origin, HORIZON_MIN), tick - 1))
        kept = replace(
            frame,
            rows=frame.rows.take(np.arange(count)),
            ticks=frame.ticks[:count],
            origins=frame.origins[:count],
            end=end,
        )
        with self._lock:
            self._read = _greatest(end, self._acknowledged)
            if self._sent and self._sent[-1].number == frame.number:
                self._sent[-1] = _SentFrame(frame.number, dict(zip(kept.origins, kept.ticks, strict=True)), count)
        return kept

    def log_advanced(self) -> None:
        with self._lock:
            is_waiting, self._is_waiting = self._is_waiting, False
        if is_waiting:
            self._waker()

    # ── acknowledgements ────────────────────────────────────────────────────────────────────────────────────────────

    def acknowledge_frame(self, number: int) -> Ticks:
        """Acknowledges this frame and all before it. Returns the new position."""
        with self._lock:
            ticks: Ticks = {}
            for sent in self._sent:
                if sent.number <= number:
                    ticks = _greatest(ticks, sent.last_ticks)
        return self.acknowledge(ticks)

    def acknowledge(self, ticks: Ticks) -> Ticks:
        """Acknowledges all events up to these ticks. Returns the new position: silence needs no acknowledgement."""
        with self._lock:
            position = _greatest(self._acknowledged, ticks)
            self._read = _greatest(self._read, ticks)
            while self._sent and all(position.get(o, HORIZON_MIN) >= t for o, t in self._sent[0].last_ticks.items()):
                self._sent.popleft()
            self._acknowledged = position if self._sent else dict(self._read)
            position = dict(self._acknowledged)
        self._waker()
        return position

    @property
    def position(self) -> Ticks:
        with self._lock:
            return dict(self._acknowledged)


def _greatest(a: Ticks, b: Ticks) -> dict[str, int]:
    return {origin: max(a.get(origin, HORIZON_MIN), b.get(origin, HORIZON_MIN)) for origin in {**a, **b}}


def event_identity(
    history: str,
    selection: StreamSelection,
    condition: ViewCondition,
    event_filter: EventFilter = EVERY_EVENT,
    table_histories: Sequence[str] = (),
) -> str:
    """Identifies what a position of events is valid for: at every broker that has the stream, whatever it calls it.
    `table_histories` identify the histories of the tables that the filter consults."""
    identity: tuple[object, ...] = "events", history, selection.text, condition.columns, condition.values
    if event_filter is not EVERY_EVENT:
        identity = *identity, event_filter.text, tuple(table_histories)
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:16]


def gone_error(relation: str, tick: int, truncated_to: int) -> SmileError:
    message = f"events of {relation} after tick {tick} were removed from the log, up to tick {truncated_to}"
    hint = (
        "Return to a broker that has them. To continue with what is left, subscribe with start `kept` (the oldest "
        "events in the log) or `new`."
    )
    return error("E097", message, hint=hint)
