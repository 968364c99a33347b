"""Connections: as many as are allowed, none of which takes for ever to say what it wants.

Both classes are uvicorn's, with what it leaves open: bounds, errors as everywhere else, and for a WebSocket a way to
write at once what lies ready as bytes.
"""

import asyncio
import http
from typing import Any, Final, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

from smile import limits
from smile.errors import SmileError, error
from smile.gateway.answers import Refused, error_answer


class Connection(HttpToolsProtocol):
    connections_max: int
    """Of the server that the class is made for."""

    _asked: float | None
    """Since when a request is awaited, or the rest of it."""
    _head_bytes = 0
    _in_body = False
    _said_all = False
    _too_many: SmileError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._asked = self.loop.time()
        if len(self.connections) > self.connections_max:
            hint = "The setting connections_max has the limit."
            self._too_many = Refused(503, "E092", f"there are {self.connections_max:,} connections already", hint)
            if len(self.connections) > self.connections_max + limits.connections_refused_max:
                self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._too_many:
            # Not before: who hangs up on somebody who is speaking is not heard.
            self.refuse(self._too_many)
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if not self._in_body and self._head_bytes > limits.head_bytes_max and not self.transport.is_closing():
            self.refuse(Refused(431, "E092", f"the headers have more than {limits.head_bytes_max:,} bytes"))

    def eof_received(self) -> bool:  # type: ignore[override]  # true: the connection stays open the other way
        """Who has said all that he wants to say may still hear the answer; who leaves a stream of events has gone."""
        cycle: RequestResponseCycle | None = self.cycle
        self._said_all = cycle is not None and not cycle.response_started and not cycle.more_body
        return self._said_all and self.scheme == "http"

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._said_all and self.cycle.response_complete:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._asked = self.loop.time()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._in_body = True

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_body = False
        self._head_bytes = 0
        self._asked = None

    def end_overdue(self) -> None:
        """To be called every second."""
        if self._asked is not None and self.loop.time() - self._asked > limits.request_s_max:
            self._asked = None
            self.refuse(Refused(408, "E108", f"the request took more than {limits.request_s_max} seconds to come"))

    def send_400_response(self, msg: str) -> None:
        hint = "The broker speaks HTTP/1.1."
        self.refuse(error("E093", "this is not a request of HTTP that can be read", hint=hint))

    def refuse(self, problem: SmileError) -> None:
        """At once; what was asked before and is being answered is not answered twice."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
            answer = error_answer(problem)
            lines = [f"HTTP/1.1 {answer.status} {http.HTTPStatus(answer.status).phrase}".encode()]
            headers = [
                (b"content-type", answer.kind),
                (b"content-length", str(len(answer.body)).encode()),
                (b"connection", b"close"),
                *answer.headers,
            ]
            lines += [name + b": " + value for name, value in headers]
            self.transport.write(b"\r\n".join([*lines, b"", answer.body]))
        self.transport.close()


class Talker(Protocol):
    """Who speaks on a WebSocket."""

    def read(self, text: bytes | None) -> None:
        """A message; None if it is binary."""

    def writable(self) -> None:
        """What was written has gone out, or nobody is there any more."""


class Wire(WebSocketsSansIOProtocol):
    """A WebSocket that is read and written without queues: messages go to its talker as they come."""

    EXTENSION: Final = "smile.wire"
    talker: Talker | None = None

    @property
    def is_writable(self) -> bool:
        return self.writable.is_set()

    @property
    def is_closed(self) -> bool:
        return self.disconnected or self.close_sent or self.conn.state is not State.OPEN

    def tell(self, data: bytes) -> None:
        """A text message; nothing if nobody is there."""
        if not self.is_closed:
            self.transport.write(text_frame(data))

    def end(self, code: int) -> None:
        """Nothing is said after it, and nothing heard."""
        if not self.is_closed:
            self.queue.put_nowait({"type": "websocket.disconnect", "code": code})
            self.conn.send_close(code)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.hold(False)
            self.close_sent = True
            self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)

    def hold(self, on: bool) -> None:
        """Whether the connection is not to be read from."""
        if on != self.read_paused and not self.transport.is_closing():
            self.read_paused = on
            (self.transport.pause_reading if on else self.transport.resume_reading)()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._tell_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._tell_writable()

    def _tell_writable(self) -> None:
        if self.talker is not None:
            self.talker.writable()

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):
            self.scope["extensions"][self.EXTENSION] = self  # type: ignore[assignment]  # one of our own

    def send_receive_event_to_app(self) -> None:
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if self.talker is not None and not self.close_sent:
            self.talker.read(data if self.curr_msg_data_type == "text" else None)


def text_frame(data: bytes) -> bytes:
    """A message of text as RFC 6455 has it: in one frame, which a server does not mask."""
    size = len(data)
    if size < 126:
        return b"\x81%c%b" % (size, data)
    if size < 2**16:
        return b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), data)
    return b"\x81\x7f%b%b" % (size.to_bytes(8, "big"), data)
