"""An inbox orders the messages of one stream. It returns a prefix of the stream: each event once, in tick order.

Messages may arrive in any order, repeated and overlapping. A message has all events in (from, to], so two messages
about the same tick must agree. The inbox compares a message with what it still stores: everything that is not taken
out yet, and some of what was taken out last. Repeated older messages are dropped without comparison.

A broker on its own needs none: its log is in order. Brokers of a network send each other such messages.
"""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from smile import limits
from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN
from smile.log.gaps import GapList, TickRange

_PIECE_BYTES = 1_000
"""The approximate memory of a piece besides its events, so that silences count against the limits too."""


@dataclass(frozen=True, slots=True)
class InboxPiece:
    """All events in (lo, hi], in tick order."""

    lo: int
    hi: int
    events: pa.RecordBatch

    @property
    def bytes(self) -> int:
        return int(self.events.nbytes) + _PIECE_BYTES


class Inbox:
    """The inbox of one stream and origin. `known` covers everything received, `taken_horizon` what was taken out."""

    def __init__(self, stream: mmpl.StreamDef, horizon: int = HORIZON_MIN) -> None:
        self.stream = stream
        self.known = GapList(horizon)
        self.taken_horizon = horizon
        self._schema = stream_schema(stream)
        self._waiting: list[InboxPiece] = []
        self._recent: deque[InboxPiece] = deque()
        self._waiting_bytes = 0
        self._recent_bytes = 0

    @property
    def gaps(self) -> tuple[TickRange, ...]:
        """The tick ranges to request from upstream."""
        return self.known.gaps

    def receive(self, from_tick: int, to_tick: int, events: pa.RecordBatch) -> None:
        """Accepts all events in (from_tick, to_tick]. If they contradict an earlier message, it raises an error and
        leaves the inbox unchanged."""
        if not self._schema.equals(events.schema):
            raise self._contradiction("a message does not have the columns of its stream")
        piece = self._make_piece(from_tick, to_tick, events)
        if from_tick >= to_tick:
            return
        new = self.known.unknown_in(from_tick, to_tick)
        if new != ((from_tick, to_tick),):
            self._check_agreement(piece)
        for lo, hi in new:
            self._add(self._slice(piece, lo, hi))

    def take(self) -> tuple[pa.RecordBatch, int] | None:
        """The events up to the new horizon, and that horizon; None if it has not advanced since the last call."""
        horizon = self.known.horizon
        if horizon == self.taken_horizon:
            return None
        count = bisect_right(self._waiting, horizon, key=lambda waiting: waiting.hi)
        ready, self._waiting = self._waiting[:count], self._waiting[count:]
        self._waiting_bytes -= sum(piece.bytes for piece in ready)
        self._keep_recent(ready)
        self.taken_horizon = horizon
        return pa.concat_batches([piece.events for piece in ready]), horizon

    def _add(self, piece: InboxPiece) -> None:
        # A piece behind a gap may be dropped: it is requested again once the gap has closed. A piece at the horizon is
        # always accepted, so that the gap does close.
        if piece.lo > self.known.horizon and self._waiting_bytes + piece.bytes > limits.inbox_waiting_bytes_max:
            return
        insort(self._waiting, piece, key=lambda waiting: waiting.lo)
        self._waiting_bytes += piece.bytes
        self.known = self.known.with_known(piece.lo, piece.hi)

    def _keep_recent(self, pieces: Iterable[InboxPiece]) -> None:
        for piece in pieces:
            self._recent.append(piece)
            self._recent_bytes += piece.bytes
        while self._recent_bytes > limits.inbox_recent_bytes_max:
            self._recent_bytes -= self._recent.popleft().bytes

    def _check_agreement(self, received: InboxPiece) -> None:
        for piece in self._overlapping(received):
            lo, hi = max(piece.lo, received.lo), min(piece.hi, received.hi)
            before, now = self._slice(piece, lo, hi).events, self._slice(received, lo, hi).events
            if not before.equals(now):
                tick = self._first_difference(before, now)
                raise self._contradiction(f"two messages disagree on what happened at tick {tick}")

    def _overlapping(self, received: InboxPiece) -> Iterator[InboxPiece]:
        for piece in reversed(self._recent):
            if piece.hi <= received.lo:
                break
            if piece.lo < received.hi:
                yield piece
        yield from (piece for piece in self._waiting if piece.lo < received.hi and received.lo < piece.hi)

    def _first_difference(self, before: pa.RecordBatch, now: pa.RecordBatch) -> int:
        a, b = self._ticks(before), self._ticks(now)
        for i in range(min(len(a), len(b))):
            if not before.slice(i, 1).equals(now.slice(i, 1)):
                return int(min(a[i], b[i]))
        longer = a if len(a) > len(b) else b
        return int(longer[min(len(a), len(b))])

    def _make_piece(self, lo: int, hi: int, events: pa.RecordBatch) -> InboxPiece:
        """A piece with the message's events in tick order, each once."""
        if events.column(self.stream.tick).null_count:
            raise self._contradiction("a message has an event without a tick")
        ticks = self._ticks(events)
        if len(ticks) and (int(ticks.min()) <= lo or int(ticks.max()) > hi):
            raise self._contradiction(f"a message about ticks above {lo} up to {hi} has an event outside them")
        if bool((ticks[1:] > ticks[:-1]).all()):
            return InboxPiece(lo, hi, events)
        order = np.argsort(ticks, kind="stable")
        events, ticks = events.take(pa.array(order.tolist())), ticks[order]
        for i in np.flatnonzero(ticks[1:] == ticks[:-1]).tolist():
            if not events.slice(i, 1).equals(events.slice(i + 1, 1)):
                raise self._contradiction(f"a message has two different events at tick {int(ticks[i])}")
        is_first = [True, *(ticks[1:] > ticks[:-1]).tolist()]
        return InboxPiece(lo, hi, events.filter(pa.array(is_first)))

    def _slice(self, piece: InboxPiece, lo: int, hi: int) -> InboxPiece:
        if (lo, hi) == (piece.lo, piece.hi):
            return piece
        first, end = np.searchsorted(self._ticks(piece.events), [lo, hi], side="right").tolist()
        return InboxPiece(lo, hi, piece.events.slice(first, end - first))

    def _ticks(self, events: pa.RecordBatch) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        ticks: np.ndarray[tuple[int], np.dtype[np.int64]] = events.column(self.stream.tick).to_numpy()
        return ticks

    def _contradiction(self, problem: str) -> SmileError:
        return error(
            "E083",
            f"{self.stream.name}: {problem}",
            hint="An origin sends one event per tick. Check whether two publishers use the same origin.",
        )
