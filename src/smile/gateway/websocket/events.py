"""Durable subscriptions to the events of a stream on a WebSocket. Events are read from the log in another thread, one
frame at a time."""

import asyncio
from typing import Any

from smile.broker.subscriptions.durable_subscriptions import SubscriptionClaim
from smile.errors import SmileError, error
from smile.gateway.client_messages import ClientMessage
from smile.gateway.event_frames import EncodedEvents, open_events, read_events
from smile.gateway.http.request import parse_tick
from smile.gateway.websocket.subscription import SubscriberSession, WebSocketSubscription, durable_request
from smile.knowledge.values.json import tick_json


class WebSocketEvents(WebSocketSubscription):
    """It has no claim until the broker has found its position."""

    __slots__ = ("_frame", "_is_reading", "_is_woken", "_request")

    def __init__(self, session: SubscriberSession, message: ClientMessage) -> None:
        super().__init__(session, message)
        self._request = durable_request(session.caller, message)
        self._frame: EncodedEvents | None = None
        self._is_reading = self._is_woken = False
        session.gateway.add_subscriber(self)

    @property
    def relation(self) -> str:
        return self._request.relation

    @property
    def cursor(self) -> None:
        return None

    @property
    def delivery_key(self) -> tuple[int, int]:
        return 0, 0

    def open(self) -> None:
        """Continues when the position is known. Then the subscription is answered."""
        gateway, request = self._session.gateway, self._request
        opening = gateway.loop.create_task(
            gateway.read_log(lambda: open_events(gateway, self.caller, request, self.wake, self._end_from_thread))
        )
        opening.add_done_callback(self._opened)

    def _opened(self, opening: "asyncio.Task[SubscriptionClaim]") -> None:
        problem = None if opening.cancelled() else opening.exception()
        is_open = self._is_open
        if isinstance(problem, SmileError):
            self.close()
            if is_open:
                self._session.refuse(self._id, problem)
        elif not is_open or problem is not None or opening.cancelled():
            self.close()
            if problem is None and not opening.cancelled():
                opening.result().release()
            elif problem is not None:
                raise problem
        else:
            self._claim = opening.result()
            assert self._claim.events is not None
            source, position = self._claim.events.selection.source, self._claim.events.position
            columns = {c: str(source.type.heading.columns[c]) for c in source.type.heading.value_columns}
            ticks = {origin: tick_json(tick) for origin, tick in position.items()}
            fields = {"subscribed": self.relation, "name": self._claim.key.name, "delivers": "events"}
            self._session.send({"id": self._id, **fields, "columns": columns, "position": ticks})
            self.wake()

    def acknowledge(self, message: ClientMessage) -> None:
        if self._claim is None:
            raise error("E093", f"the subscription {self._id} is not answered yet")
        if (message.n is None) == (message.at is None):
            raise error("E093", "ack needs n or at", hint="n is the number of a frame, at has ticks by origin.")
        if message.at is not None:
            ticks = {origin: parse_tick(tick, "at") for origin, tick in message.at.items()}
            stored = self._claim.acknowledge_events(ticks)
            acked: Any = message.at
        else:
            assert message.n is not None
            stored, acked = self._claim.acknowledge_frame(message.n), message.n
        self._session.answer_stored(self._id, stored, {"acked": acked})

    def _deliver_next(self) -> bool:
        """Sends the frame that was read, and begins to read the next one."""
        if self._claim is None:
            return False
        gateway = self._session.gateway
        if self._frame is not None:
            self._session.connection.send_text(self._frame.websocket_body(self._id))
            self._count_frame(len(self._frame.messages))
            self._frame = None
        if self._is_reading:
            self._is_woken = True
        elif not gateway.stopping:
            self._is_reading, self._is_woken = True, False
            events = self._claim.events
            assert events is not None
            reading = gateway.loop.create_task(gateway.read_log(lambda: read_events(gateway, events)))
            reading.add_done_callback(self._received)
        return False

    def _received(self, reading: "asyncio.Task[EncodedEvents | None]") -> None:
        self._is_reading = False
        if reading.cancelled():
            return
        problem = reading.exception()
        if isinstance(problem, SmileError):
            self.end(problem)
        elif problem is not None:
            self.end(error("E105", f"the events cannot be read: {problem!r}"))
            raise problem
        else:
            self._frame = reading.result()
            if self._frame is not None or self._is_woken:
                self.wake()
