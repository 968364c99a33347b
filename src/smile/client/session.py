"""The protocol, without input or output: what comes in by `receive` and what users ask for become `outgoing` messages.

A publication is kept until it is acknowledged, and sent again, in order and with the same numbers, on every new
connection: the broker logs it once. Subscriptions go on from their tokens. It may be used from any thread; callbacks
are called by the thread that has the connection.
"""

import json
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any

from smile import limits
from smile.client.changes import Published
from smile.client.feed import Feed, Queue, Signal, Sink
from smile.client.values import checked_json, tick_json, to_json
from smile.errors import Diagnostic, SmileError, error

Json = dict[str, Any]
Event = Mapping[str, Any] | str
"""Values by column; or JSON as text."""
Settle = Callable[[Published | SmileError], None]

_log = logging.getLogger("smile.client")

STOPPING = "E098"
TOKEN_WRONG = "E094"


@dataclass(eq=False)
class Pending:
    """A publication, or a silence, that is not acknowledged."""

    stream: str
    text: str
    events: int
    settle: Settle


class Session:
    def __init__(self, wake: Callable[[], None], drop: Callable[[], None]) -> None:
        """`wake` is called once there is something to send, `drop` when a new connection is needed."""
        self._wake, self._drop = wake, drop
        self._lock = RLock()
        self._producer = secrets.token_hex(8)
        self._ids = 0
        self._sequences: dict[str, int] = {}
        self._pending: dict[int, Pending] = {}
        self._feeds: dict[int, Feed] = {}
        self._waiting: deque[Callable[[], None]] = deque()
        self._outgoing: list[str] = []
        self.connected = False
        self.problem: SmileError | None = None
        """Why there is no connection; for good if `failed`."""
        self.failed = False
        self.moved = Signal()
        """The connection came or went, or everything is acknowledged."""

    # ── what users ask for ──────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, stream: str, events: Sequence[Event], settle: Settle) -> None:
        """Ends in `settle`. SmileError if the events can be no message."""
        texts = [checked_json(e) if isinstance(e, str) else to_json(e) for e in events]
        with self._lock:
            seq = self._sequences.get(stream, 1)
            id = self._next_id()
            # A name for each stream: its numbers have no gaps then, whatever else is published.
            head = to_json({"publish": stream, "id": id, "producer": f"{self._producer}-{stream}", "seq": seq})
            text = f'{head[:-1]},"events":[{",".join(texts)}]}}'
            if (size := len(text.encode())) > limits.client_message_bytes_max:
                message = f"the events take {size:,} bytes, of {limits.client_message_bytes_max:,} allowed"
                raise error("E092", message, hint="Publish fewer of them at a time.")
            self._sequences[stream] = seq + len(texts)
            self._ask(id, Pending(stream, text, len(texts), settle))

    def silence(self, stream: str, to: int, settle: Settle) -> None:
        with self._lock:
            id = self._next_id()
            self._ask(id, Pending(stream, to_json({"silence": stream, "to": tick_json(to), "id": id}), 0, settle))

    def _ask(self, id: int, pending: Pending) -> None:
        self._refuse_failed()
        self._pending[id] = pending
        if self.connected:
            self._send(pending.text)

    def subscribe(self, view: str, where: Mapping[str, Any], after: Mapping[str, int], sink: Sink) -> Feed:
        given = json.loads(to_json(dict(where)))
        ticks = {stream: tick_json(tick) for stream, tick in after.items()}
        with self._lock:
            self._refuse_failed()
            feed = Feed(self._next_id(), view, given, ticks, sink, not isinstance(sink, Queue))
            self._feeds[feed.id] = feed
            if self.connected:
                self._send(to_json(feed.subscribe()))
            return feed

    def unsubscribe(self, feed: Feed) -> None:
        with self._lock:
            if self._feeds.pop(feed.id, None) is not None and self.connected:
                self._send(to_json({"unsubscribe": feed.id}))

    def taken(self, feed: Feed) -> None:
        """The user has taken a frame."""
        with self._lock:
            message = feed.taken()
            if message is not None and self.connected and feed.id in self._feeds:
                self._send(to_json(message))

    def admit(self, wake: Callable[[], None]) -> bool:
        """Whether more may be published before something is acknowledged. If not, `wake` is called when its turn has
        come: whoever came first goes first."""
        with self._lock:
            if self.failed or (len(self._pending) < limits.client_pending_max and not self._waiting):
                return True
            self._waiting.append(wake)
            return False

    def leave(self, wake: Callable[[], None]) -> None:
        """Who was to be woken does not wait any longer; if his turn has come already, it is the next one's."""
        following = None
        with self._lock:
            if wake in self._waiting:
                self._waiting.remove(wake)
            elif self._waiting:
                following = self._waiting.popleft()
        if following is not None:
            following()

    @property
    def unacknowledged(self) -> int:
        return len(self._pending)

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids

    def _refuse_failed(self) -> None:
        if self.failed and self.problem is not None:
            raise self.problem

    def _send(self, text: str) -> None:
        self._outgoing.append(text)
        if len(self._outgoing) == 1:
            self._wake()

    # ── the connection ──────────────────────────────────────────────────────────────────────────────────────────────

    def opened(self) -> None:
        with self._lock:
            self.connected, self.problem = True, None
            self._outgoing = [to_json(feed.subscribe()) for feed in self._feeds.values()]
            self._outgoing += [pending.text for pending in self._pending.values()]
            self._wake()
        self.moved.fire()

    def closed(self, problem: SmileError, for_good: bool = False) -> None:
        """There is no connection. If there never will be, nobody waits any longer."""
        settled: list[Pending] = []
        ended: list[Feed] = []
        woken: list[Callable[[], None]] = []
        with self._lock:
            if self.failed:
                return
            self.connected, self.problem, self.failed = False, problem, for_good
            self._outgoing = []
            if for_good:
                settled, ended = list(self._pending.values()), list(self._feeds.values())
                woken = list(self._waiting)
                for kept in (self._pending, self._feeds, self._waiting):
                    kept.clear()
        for pending in settled:
            pending.settle(problem)
        for feed in ended:
            feed.error = problem
            feed.signal.fire()
        for wake in woken:
            wake()
        self.moved.fire()

    def refused_as_too_large(self) -> None:
        """The broker takes smaller messages only than we thought: the largest was meant."""
        with self._lock:
            largest = max(self._pending, key=lambda id: len(self._pending[id].text), default=None)
            pending = None if largest is None else self._pending.pop(largest)
        if pending is not None:
            message = f"the broker takes no message of {len(pending.text.encode()):,} bytes"
            self._settled(pending, error("E092", message, hint="Publish fewer events at a time."))

    def refuse_too_large(self) -> None:
        """The broker sent more than we take, which can only be a row: it would be sent again on every connection."""
        most = limits.client_received_bytes_max
        hint = "A row is as large as that: leave out what makes it so, or ask for other rows."
        problem = error("E092", f"the broker sent a message of more than {most:,} bytes", hint=hint)
        with self._lock:
            ended = list(self._feeds.values())
            self._feeds.clear()
        for feed in ended:
            feed.error = problem
            feed.signal.fire()

    def outgoing(self) -> list[str]:
        with self._lock:
            found, self._outgoing = self._outgoing, []
            return found

    def receive(self, text: str | bytes) -> None:
        told = json.loads(text)
        with self._lock:
            left = self._received(told)
        if left is not None:
            left()

    def _received(self, told: Json) -> Callable[[], None] | None:
        id = told.get("id")
        feed = self._feeds.get(id) if isinstance(id, int) else None
        if "error" in told or "ended" in told:
            return self._refused(id, feed, error_of(told.get("error") or told["ended"]))
        if feed is not None:
            return self._fed(feed, told)
        if "published" in told or "silent" in told:
            pending = self._pending.pop(told["id"], None)
            if pending is not None:
                published = Published.of(pending.stream, told.get("published", ()), told.get("repeated", 0))
                return lambda: self._settled(pending, published)
        return None

    def _settled(self, pending: Pending, outcome: Published | SmileError) -> None:
        pending.settle(outcome)
        with self._lock:
            wake = self._waiting.popleft() if self._waiting else None
        if wake is not None:
            wake()
        elif not self._pending:
            self.moved.fire()

    def _fed(self, feed: Feed, told: Json) -> Callable[[], None]:
        left = None
        if "subscribed" in told:
            feed.subscribed(told)
        elif "n" in told and feed.schema is not None:
            left = feed.receive(told)
            if feed.at_once:
                self.taken(feed)

        def after() -> None:
            if left is not None:
                left()
            feed.signal.fire()

        return after

    def _refused(self, id: Any, feed: Feed | None, problem: SmileError) -> Callable[[], None] | None:
        code = problem.diagnostics[0].code
        if code == STOPPING:
            # Whoever comes after it will take what this one did not: all is kept for the next connection.
            return self._drop
        if feed is not None:
            if code == TOKEN_WRONG and feed.resume is not None:
                feed.refuse_token()
                self._send(to_json(feed.subscribe()))
                return None
            del self._feeds[feed.id]
            feed.error = problem
            return feed.signal.fire
        pending = self._pending.pop(id, None) if isinstance(id, int) else None
        if pending is not None:
            return lambda: self._settled(pending, problem)
        _log.warning("the broker refused a message: %s", problem)
        return None


def error_of(told: Any) -> SmileError:
    """An error as the broker tells it."""
    if not isinstance(told, dict) or not isinstance(told.get("code"), str):
        return error("E103", "the broker answered something that is no answer of a broker's")
    every = told.get("errors")
    if isinstance(every, list) and every:
        return SmileError([_diagnostic(one) for one in every if isinstance(one, dict)])
    return SmileError(_diagnostic(told))


def _diagnostic(told: Json) -> Diagnostic:
    return Diagnostic(str(told.get("code")), str(told.get("message")), hint=told.get("hint"))
