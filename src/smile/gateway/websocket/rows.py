"""Subscriptions to a view on a WebSocket. Rows are taken from the view when the connection can be written to."""

from collections import deque
from typing import Any

from smile.broker.subscriptions.durable_request import refuse_filter
from smile.broker.views.view import ViewSubscription
from smile.errors import SmileError, error
from smile.gateway.client_messages import ClientMessage
from smile.gateway.http.request import parse_ticks
from smile.gateway.http.response import pause_body
from smile.gateway.websocket.subscription import SubscriberSession, WebSocketSubscription, durable_request
from smile.horizons import shown_horizons


class WebSocketRows(WebSocketSubscription):
    """`n` is the number of the last frame, `acked` that of the last one the client has acknowledged. If the
    subscription has a name, the broker stores the progress that was acknowledged."""

    __slots__ = ("_tokens", "_window", "acked", "n", "subscription", "view")

    def __init__(self, session: SubscriberSession, message: ClientMessage) -> None:
        super().__init__(session, message)
        assert message.subscribe is not None
        gateway = session.gateway
        self._window = message.window
        self.n = self.acked = 0
        self.view = gateway.broker.view(message.subscribe)
        refuse_filter(message.filter or "")
        condition = self.view.condition(message.where or {}, bool(message.final))
        after = parse_ticks(message.after or {})
        self._tokens: deque[tuple[int, str]] = deque()
        """The tokens of the frames of a named subscription that are not acknowledged."""
        gateway.add_subscriber(self)
        try:
            resume = message.resume
            if message.name is not None:
                request = durable_request(session.caller, message)
                self._claim, resume = gateway.broker.subscriptions.open_rows(request, self._end_from_thread)
            self.subscription = self.view.subscribe(condition, self.wake, resume, after)
        except SmileError:
            gateway.remove_subscriber(self)
            if self._claim is not None:
                self._claim.release()
            raise

    @property
    def relation(self) -> str:
        return self.view.name

    @property
    def cursor(self) -> ViewSubscription:
        return self.subscription

    @property
    def delivery_key(self) -> tuple[int, int]:
        return self.subscription.position

    @property
    def subscribed_fields(self) -> dict[str, Any]:
        heading = self.view.source.type.heading
        columns = {c: str(heading.columns[c]) for c in (*heading.key, *heading.value_columns)}
        fields = {"subscribed": self.view.name, "key": list(heading.key), "columns": columns}
        named = {} if self._claim is None else {"name": self._claim.key.name, "delivers": "rows"}
        return {**fields, "streams": list(shown_horizons(self.view.horizons)), **named}

    def acknowledge(self, message: ClientMessage) -> None:
        if message.n is None:
            raise error("E093", "ack needs n", hint="Ticks acknowledge events; rows are acknowledged by frames.")
        self.acked = max(self.acked, min(message.n, self.n))
        self.wake()
        if self._claim is None:
            return
        token: str | None = None
        while self._tokens and self._tokens[0][0] <= self.acked:
            _, token = self._tokens.popleft()
        if token is None:  # none of these frames ends with progress
            self._session.send({"id": self._id, "acked": self.acked})
            return
        self._session.answer_stored(self._id, self._claim.acknowledge_rows(token), {"acked": self.acked})

    def _deliver_next(self) -> bool:
        session = self._session
        if self.subscription.take_pause_change():
            session.send({"id": self._id, "paused": pause_body(self.view.pause)})
        if self._window is not None and self.n - self.acked >= self._window:
            return False
        frame = session.gateway.websocket_frames.encode_next(self.subscription)
        if frame is None:
            if self.subscription.ended:
                self.end(self.subscription.ended)
            return False
        self.n += 1
        if self._claim is not None and frame.resume is not None:
            self._tokens.append((self.n, frame.resume))
        session.connection.send_text(b'{"id":%d,"n":%d,%b' % (self._id, self.n, frame.body))
        self._count_frame(frame.row_count)
        return True

    def close(self) -> None:
        self.subscription.close()
        super().close()
