"""The client's side of the protocol, without I/O: received messages and requests of users become outgoing messages.

A publication is stored until it is acknowledged. A guaranteed one is sent again on every new connection, in order and
with the same sequence numbers, so the broker logs it once. Another one is sent once. Subscriptions resume from their
tokens. All methods may be called from any thread. Callbacks run in the connection's thread, or in the thread of the
user who made the call.
"""

import json
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import index
from threading import RLock
from typing import Any, Literal, get_args

from smile import limits
from smile.client.changes import Published
from smile.client.durable_feed import AcknowledgedCallback, DurableFeed
from smile.client.feed import CallbackRegistry, FrameQueue, FrameSink, SubscriptionFeed
from smile.client.ticks import tick_of
from smile.client.values import event_json, json_text, read_json, tick_json, validate_event_json
from smile.errors import Diagnostic, SmileError, error
from smile.source import Source

Json = dict[str, Any]
Event = Mapping[str, Any] | str
"""Values by column name, or a JSON object as text."""
Reliability = Literal["guaranteed", "non-guaranteed"]
SettleCallback = Callable[[Published | SmileError], None]

_log = logging.getLogger("smile.client")

BROKER_STOPPING = "E098"
RESUME_TOKEN_WRONG = "E094"
VIEW_ENDED = "E095"


@dataclass(eq=False)
class PendingRequest:
    """A publication or a silence that is not acknowledged yet."""

    stream: str
    text: str
    settle: SettleCallback
    is_repeated: bool = True
    """Whether it is sent again on a new connection."""


class ClientSession:
    def __init__(self, on_outgoing: Callable[[], None], request_reconnect: Callable[[], None]) -> None:
        """`on_outgoing` is called if there are messages to send, `request_reconnect` if a new connection is needed."""
        self._on_outgoing, self._request_reconnect = on_outgoing, request_reconnect
        self._lock = RLock()
        self._producer = secrets.token_hex(8)
        self._last_id = 0
        self._next_sequences: dict[str, int] = {}
        self._pending: dict[int, PendingRequest] = {}
        self._feeds: dict[int, SubscriptionFeed] = {}
        self._publish_waiters: deque[Callable[[], None]] = deque()
        self._outgoing: list[str] = []
        self.connected = False
        self.problem: SmileError | None = None
        """Why there is no connection. It is permanent if `failed`."""
        self.failed = False
        self.state_changed = CallbackRegistry()
        """Fires when the connection is made or lost, and when everything is acknowledged."""

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────

    def publish(
        self, stream: str, events: Sequence[Event], settle: SettleCallback, reliability: Reliability = "guaranteed"
    ) -> None:
        """Calls `settle` with the outcome. Raises SmileError if the events cannot be encoded or are too large."""
        if reliability not in get_args(Reliability):
            raise error("E093", f"{reliability!r} is not a reliability", hint="It is guaranteed or non-guaranteed.")
        is_guaranteed = reliability == "guaranteed"
        texts = [
            validate_event_json(event) if isinstance(event, str) else event_json(event, number)
            for number, event in enumerate(events, 1)
        ]
        with self._lock:
            seq = self._next_sequences.get(stream, 1)
            id = self._next_id()
            # A producer name for each stream, so that its sequence numbers have no gaps.
            sequence = {"producer": f"{self._producer}-{stream}", "seq": seq} if is_guaranteed else {}
            head = json_text({"publish": stream, "id": id, **sequence})
            text = f'{head[:-1]},"events":[{",".join(texts)}]}}'
            if (size := len(text.encode())) > limits.client_message_bytes_max:
                message = f"the events take {size:,} bytes; {limits.client_message_bytes_max:,} are allowed"
                raise error("E092", message, hint="Publish fewer of them at a time.")
            if is_guaranteed:
                self._next_sequences[stream] = seq + len(texts)
            elif not self.connected:
                raise self.problem or error("E103", "there is no connection to the broker")
            self._submit(id, PendingRequest(stream, text, settle, is_guaranteed))

    def silence(self, stream: str, to: int | datetime, settle: SettleCallback) -> None:
        try:
            to = tick_of(to) if isinstance(to, datetime) else index(to)
        except TypeError:
            hint = "Give a tick, or a datetime, such as pd.Timestamp(text)."
            raise error("E079", f"{to!r} is not a tick", hint=hint) from None
        with self._lock:
            id = self._next_id()
            text = json_text({"silence": stream, "to": tick_json(to), "id": id})
            self._submit(id, PendingRequest(stream, text, settle))

    def _submit(self, id: int, pending: PendingRequest) -> None:
        self._raise_if_failed()
        self._pending[id] = pending
        if self.connected:
            self._send(pending.text)

    def subscribe(
        self,
        view: str,
        where: Mapping[str, Any],
        after: Mapping[str, int],
        sink: FrameSink,
        name: str | None = None,
        resume: str | None = None,
        only_final: bool = False,
    ) -> SubscriptionFeed:
        """With `resume`, a token of the view, it continues there."""
        where_json = json.loads(json_text(dict(where)))
        ticks = {stream: tick_json(tick) for stream, tick in after.items()}
        with self._lock:
            self._raise_if_failed()
            auto_acknowledge = not isinstance(sink, FrameQueue)
            feed = SubscriptionFeed(self._next_id(), view, where_json, ticks, sink, auto_acknowledge, name, only_final)
            feed.resume_token = resume
            self._feeds[feed.id] = feed
            if self.connected:
                self._send(json_text(feed.subscribe_message()))
            return feed

    def subscribe_durably(
        self,
        relation: str,
        where: Mapping[str, Any],
        name: str,
        start: str,
        resume: str | None,
        scope: str = "local",
        filter: str = "",
    ) -> DurableFeed:
        where_json = json.loads(json_text(dict(where)))
        with self._lock:
            self._raise_if_failed()
            feed = DurableFeed(self._next_id(), relation, where_json, name, start, resume, scope, filter)
            self._feeds[feed.id] = feed
            if self.connected:
                self._send(json_text(feed.subscribe_message()))
            return feed

    def unsubscribe(self, feed: SubscriptionFeed) -> None:
        with self._lock:
            if self._feeds.pop(feed.id, None) is not None and self.connected:
                self._send(json_text({"unsubscribe": feed.id}))
        if isinstance(feed, DurableFeed):
            feed.fail_acknowledgements(error("E103", "the subscription was closed"))

    def acknowledge_events(self, feed: DurableFeed, settle: AcknowledgedCallback) -> None:
        """Acknowledges all events that the user has taken. Calls `settle` when the broker has stored it."""
        with self._lock:
            if feed.error is None:
                message = feed.acknowledge_taken(settle)
                if message is not None and self.connected and feed.is_open:
                    self._send(json_text(message))
                return
        settle(feed.error)

    def consume_frame(self, feed: SubscriptionFeed) -> None:
        """The user has taken the oldest frame. It is acknowledged, unless the subscription has a name: then the user
        acknowledges it."""
        with self._lock:
            message = feed.consume_frame()
            if message is not None and self.connected and feed.id in self._feeds:
                self._send(json_text(message))

    def acknowledge_consumed(self, feed: SubscriptionFeed) -> None:
        """Acknowledges all frames that the user has taken."""
        with self._lock:
            message = feed.acknowledge_consumed()
            if message is not None and self.connected and feed.id in self._feeds:
                self._send(json_text(message))

    def admit(self, on_turn: Callable[[], None]) -> bool:
        """Whether a publication may be made now. If too many are unacknowledged, returns False, and calls `on_turn`
        later, when it is the caller's turn: first come, first served."""
        with self._lock:
            if self.failed or (len(self._pending) < limits.client_pending_max and not self._publish_waiters):
                return True
            self._publish_waiters.append(on_turn)
            return False

    def cancel_wait(self, on_turn: Callable[[], None]) -> None:
        """Stops waiting for a turn. If the turn has come already, passes it on to the next waiter."""
        next_waiter = None
        with self._lock:
            if on_turn in self._publish_waiters:
                self._publish_waiters.remove(on_turn)
            elif self._publish_waiters:
                next_waiter = self._publish_waiters.popleft()
        if next_waiter is not None:
            next_waiter()

    @property
    def unacknowledged(self) -> int:
        return len(self._pending)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _raise_if_failed(self) -> None:
        if self.failed and self.problem is not None:
            raise self.problem

    def _send(self, text: str) -> None:
        self._outgoing.append(text)
        if len(self._outgoing) == 1:
            self._on_outgoing()

    # ── the connection ──────────────────────────────────────────────────────────────────────────────────────────────

    def on_connected(self) -> None:
        with self._lock:
            self.connected, self.problem = True, None
            self._outgoing = [json_text(feed.subscribe_message()) for feed in self._feeds.values()]
            self._outgoing += [pending.text for pending in self._pending.values()]
            self._on_outgoing()
        self.state_changed.fire()

    def on_disconnected(self, problem: SmileError, permanent: bool = False) -> None:
        """The connection was lost or refused. If `permanent`, all requests and subscriptions fail."""
        feeds: list[SubscriptionFeed] = []
        waiters: list[Callable[[], None]] = []
        with self._lock:
            if self.failed:
                return
            self.connected, self.problem, self.failed = False, problem, permanent
            self._outgoing = []
            kept = {} if permanent else {id: r for id, r in self._pending.items() if r.is_repeated}
            requests = [r for id, r in self._pending.items() if id not in kept]
            self._pending = kept
            if permanent:
                feeds, waiters = list(self._feeds.values()), list(self._publish_waiters)
                self._feeds.clear()
                self._publish_waiters.clear()
        for pending in requests:
            self._settle_request(pending, problem)
        for feed in feeds:
            self._end_feed(feed, problem)
        for on_turn in waiters:
            on_turn()
        self.state_changed.fire()

    def fail_largest_request(self) -> None:
        """The broker refused a message as too large, without naming it: the largest request is the most likely."""
        with self._lock:
            largest_id = max(self._pending, key=lambda id: len(self._pending[id].text), default=None)
            pending = None if largest_id is None else self._pending.pop(largest_id)
        if pending is not None:
            message = f"the broker does not accept a message of {len(pending.text.encode()):,} bytes"
            self._settle_request(pending, error("E092", message, hint="Publish fewer events at a time."))

    def fail_feeds_as_too_large(self) -> None:
        """The broker sent a message over the limit. Only a single row can be so large, and it would come again."""
        bytes_max = limits.client_received_bytes_max
        hint = "A single row is that large: subscribe to a view without its large columns, or to other rows."
        problem = error("E092", f"the broker sent a message of more than {bytes_max:,} bytes", hint=hint)
        with self._lock:
            feeds = list(self._feeds.values())
            self._feeds.clear()
        for feed in feeds:
            self._end_feed(feed, problem)

    @staticmethod
    def _end_feed(feed: SubscriptionFeed, problem: SmileError) -> None:
        feed.error = problem
        if isinstance(feed, DurableFeed):
            feed.fail_acknowledgements(problem)
        feed.signal.fire()

    def take_outgoing(self) -> list[str]:
        with self._lock:
            messages, self._outgoing = self._outgoing, []
            return messages

    def receive(self, text: str | bytes) -> None:
        message = read_json(text)
        with self._lock:
            callback = self._dispatch(message)
        if callback is not None:
            callback()

    def _dispatch(self, message: Json) -> Callable[[], None] | None:
        id = message.get("id")
        feed = self._feeds.get(id) if isinstance(id, int) else None
        if "error" in message or "ended" in message:
            text = feed.filter if isinstance(feed, DurableFeed) else None
            return self._handle_error(id, feed, decode_error(message.get("error") or message["ended"], text))
        if feed is not None:
            return self._receive_feed_message(feed, message)
        if "published" in message or "silent" in message:
            pending = self._pending.pop(message["id"], None)
            if pending is not None:
                absent = {warning["column"]: warning["events"] for warning in message.get("warnings", ())}
                published = Published.from_ticks(
                    pending.stream, message.get("published", ()), message.get("repeated", 0), absent
                )
                return lambda: self._settle_request(pending, published)
        return None

    def _settle_request(self, pending: PendingRequest, outcome: Published | SmileError) -> None:
        pending.settle(outcome)
        with self._lock:
            on_turn = self._publish_waiters.popleft() if self._publish_waiters else None
        if on_turn is not None:
            on_turn()
        elif not self._pending:
            self.state_changed.fire()

    def _receive_feed_message(self, feed: SubscriptionFeed, message: Json) -> Callable[[], None]:
        callback = None
        if "subscribed" in message:
            problem = feed.receive_schema(message)
            if problem is not None:
                self._send(json_text({"unsubscribe": feed.id}))
                return self._drop_feed(feed, problem)
            if isinstance(feed, DurableFeed):
                for repeated in feed.repeated_acknowledgements():
                    self._send(json_text(repeated))
        elif isinstance(feed, DurableFeed):
            if "acked" in message:
                callback = feed.receive_acknowledged(message)
            elif "events" in message:
                feed.receive_events(message)
        elif "paused" in message:
            feed.receive_pause(message["paused"])
        elif "n" in message and feed.schema is not None:
            callback = feed.receive_frame(message)
            if feed.auto_acknowledge:
                self.consume_frame(feed)

        def after() -> None:
            if callback is not None:
                callback()
            feed.signal.fire()

        return after

    def _handle_error(self, id: Any, feed: SubscriptionFeed | None, problem: SmileError) -> Callable[[], None] | None:
        code = problem.diagnostics[0].code
        if code == BROKER_STOPPING:
            # Requests and subscriptions are continued on the next connection, with the broker's successor.
            return self._request_reconnect
        if feed is not None:
            if code == VIEW_ENDED and feed.schema is not None and feed.view_change is None:
                feed.view_change = problem
            elif code != RESUME_TOKEN_WRONG or feed.resume_token is None:
                return self._drop_feed(feed, feed.view_change or problem)
            feed.begin_anew()
            self._send(json_text(feed.subscribe_message()))
            return None
        pending = self._pending.pop(id, None) if isinstance(id, int) else None
        if pending is not None:
            return lambda: self._settle_request(pending, problem)
        if not isinstance(id, int) or id > self._last_id:  # otherwise it is of a request that has ended here meanwhile
            _log.warning("the broker refused a message: %s", problem.message)
        return None

    def _drop_feed(self, feed: SubscriptionFeed, problem: SmileError) -> Callable[[], None]:
        del self._feeds[feed.id]
        return lambda: self._end_feed(feed, problem)


def decode_error(encoded: Any, text: str | None = None) -> SmileError:
    """An error as the broker sends it. `text` is what its positions refer to."""
    if not isinstance(encoded, dict) or not isinstance(encoded.get("code"), str):
        return error("E103", "the answer is not that of a broker")
    errors = encoded.get("errors")
    if isinstance(errors, list) and errors:
        return SmileError(
            [_decode_diagnostic(encoded_error, text) for encoded_error in errors if isinstance(encoded_error, dict)]
        )
    return SmileError(_decode_diagnostic(encoded, text))


def _decode_diagnostic(encoded: Json, text: str | None) -> Diagnostic:
    span = None
    if text is not None and "line" in encoded:
        span = Source("text", text).span_at(encoded["line"], encoded["col"], encoded["length"])
    return Diagnostic(str(encoded.get("code")), str(encoded.get("message")), span, encoded.get("hint"))
