"""Durable subscriptions to events, independent of connections. After a lost connection, the broker delivers again what
was not acknowledged; events that have arrived already are dropped here.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from smile import limits
from smile.client.feed import FrameQueue, SubscriptionFeed
from smile.client.values import ViewColumn, decode_row, encode_row, tick_json
from smile.errors import SmileError

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """An event of a stream, or of a selection of one. No two events of a stream have the same tick, and those of one
    origin arrive in the order of their ticks: an event that is delivered again is recognized by them."""

    stream: str
    tick: int
    origin: str
    values: Mapping[str, Any]
    columns: Mapping[str, ViewColumn] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, column: str) -> Any:
        return self.values[column]

    def to_json(self) -> Json:
        """The event as the broker sends it."""
        values = encode_row(self.columns, self.values)
        return {"stream": self.stream, "at": tick_json(self.tick), "origin": self.origin, "event": values}


AcknowledgedCallback = Callable[[str | SmileError], None]
"""Called with the token of the position when it is stored at the broker."""


@dataclass(eq=False)
class PendingAcknowledgement:
    ticks: Mapping[str, int]
    settle: AcknowledgedCallback


class DurableFeed(SubscriptionFeed):
    """`token` is that of the position that was stored last. `resume` is the token to begin with, at another broker.
    `filter` is the text of the filter, empty if there is none."""

    def __init__(
        self,
        id: int,
        relation: str,
        where: Json,
        name: str,
        start: str,
        resume: str | None,
        scope: str = "local",
        filter: str = "",
    ) -> None:
        super().__init__(id, relation, where, {}, FrameQueue(), False, name)
        self.filter = filter
        self._start, self._first_resume, self._scope = start, resume, scope
        self.token: str | None = resume
        self.columns: Mapping[str, ViewColumn] | None = None
        self.is_open = False
        """Whether the broker has answered the subscription on the present connection."""
        self.events: deque[StreamEvent] = deque()
        self._received: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._pending: deque[PendingAcknowledgement] = deque()

    def subscribe_message(self) -> Json:
        self.is_open = False
        message: Json = {
            "subscribe": self.view,
            "id": self.id,
            "name": self._name,
            "deliver": "events",
            "start": self._start,
            **({} if self._scope == "local" else {"scope": self._scope}),
            "window": limits.durable_window_events,
        }
        message |= {"where": self.where} if self.where else {}
        message |= {"filter": self.filter} if self.filter else {}
        return message | ({"resume": self._first_resume} if self._first_resume is not None else {})

    def receive_schema(self, message: Json) -> None:
        """Also called on every new connection, on which the position continues from what is stored."""
        self.columns = {name: ViewColumn.from_type(name, type_) for name, type_ in message["columns"].items()}
        self._first_resume, self._start, self.is_open = None, "all", True

    def receive_events(self, message: Json) -> None:
        assert self.columns is not None
        for encoded in message["events"]:
            tick, origin = int(encoded["at"]), encoded["origin"]
            if tick > self._received.get(origin, -1):
                self._received[origin] = tick
                values = decode_row(self.columns, encoded["event"])
                self.events.append(StreamEvent(encoded["stream"], tick, origin, values, self.columns))

    def take_event(self) -> StreamEvent:
        event = self.events.popleft()
        self._taken[event.origin] = event.tick
        return event

    def acknowledge_taken(self, settle: AcknowledgedCallback) -> Json | None:
        """Acknowledges all events that were taken. Returns the message to send."""
        if not self._taken:
            settle(self.token or "")
            return None
        pending = PendingAcknowledgement(dict(self._taken), settle)
        self._pending.append(pending)
        return self._acknowledgement(pending)

    def repeated_acknowledgements(self) -> list[Json]:
        """What is to be sent again on a new connection."""
        return [self._acknowledgement(self._pending[-1])] if self._pending else []

    def _acknowledgement(self, pending: PendingAcknowledgement) -> Json:
        return {"ack": self.id, "at": {origin: tick_json(tick) for origin, tick in pending.ticks.items()}}

    def receive_acknowledged(self, message: Json) -> Callable[[], None]:
        """What an answer settles, to be called after the session's lock is released."""
        self.token = token = message["resume"]
        acked = {origin: int(tick) for origin, tick in message["acked"].items()}
        settled = list[PendingAcknowledgement]()
        while self._pending and all(acked.get(o, -1) >= t for o, t in self._pending[0].ticks.items()):
            settled.append(self._pending.popleft())

        def settle_all() -> None:
            for pending in settled:
                pending.settle(token)

        return settle_all

    def fail_acknowledgements(self, problem: SmileError) -> None:
        pending, self._pending = self._pending, deque()
        for one in pending:
            one.settle(problem)
