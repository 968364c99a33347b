"""All uses of uvicorn's private parts: HTTP and WebSocket connections, and the lifecycle of the server.

Connections have limits on their number and on the time in which a request must arrive, answer errors in the usual form,
and WebSockets write prepared bytes directly. A new version of uvicorn may change the parts that are used here without
notice; `tests/test_library_internals.py` says which.
"""

import asyncio
import http
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from signal import SIGINT, SIGTERM
from typing import Any, Final, Protocol

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

from smile import limits
from smile.errors import SmileError, error
from smile.gateway.connection_counts import ConnectionCounts, peer_address
from smile.gateway.http.response import HttpError, error_response


class HttpConnection(HttpToolsProtocol):
    EXTENSION: Final = "smile.connection"
    counts: ConnectionCounts
    """Set in a subclass for each server."""

    _address = ""
    _request_started_at: float | None
    """Since when the connection waits for a request, or for the rest of one; None if it does not."""
    _head_bytes = 0
    _in_body = False
    _has_client_finished = False
    _unread_since: float | None = None
    """Since when the client has not read enough for more to be written."""
    _response_due: float | None = None
    """When the client must have read the response; None if it may take any time."""
    _refusal: SmileError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._request_started_at = self.loop.time()
        self._address = peer_address(transport)
        excess = self.counts.add(self._address)
        if excess is not None:
            self._refusal = HttpError(503, "E092", *excess)
            if not self.counts.may_answer(self._address):
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.counts.remove(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._refusal:
            # Not earlier: a client that is still sending would not read the answer.
            self.refuse(self._refusal)
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if not self._in_body and self._head_bytes > limits.head_bytes_max and not self.transport.is_closing():
            self.refuse(HttpError(431, "E092", f"the headers have more than {limits.head_bytes_max:,} bytes"))

    def eof_received(self) -> bool:  # type: ignore[override]  # true: the connection stays open the other way
        """A client that has closed its side after a whole request still receives the answer. A client that closes it
        during a response has gone."""
        cycle: RequestResponseCycle | None = self.cycle
        self._has_client_finished = cycle is not None and not cycle.response_started and not cycle.more_body
        return self._has_client_finished and self.scheme == "http"

    def set_response_seconds(self, seconds: float) -> None:
        """Disconnects the client if it has not read the present response after this time."""
        self._response_due = self.loop.time() + seconds

    def on_response_complete(self) -> None:
        self._response_due = None
        super().on_response_complete()
        if self._has_client_finished and self.cycle.response_complete:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {self.EXTENSION: self}  # type: ignore[dict-item]  # an extension of SMILE
        self._request_started_at = self.loop.time()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._in_body = True

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_body = False
        self._head_bytes = 0
        self._request_started_at = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_since = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread_since = None

    def end_overdue(self) -> None:
        """Refuses a request that takes too long to arrive, and disconnects a client that does not read, or reads too
        slowly. Call it every second."""
        is_unread = self._unread_since is not None and self.loop.time() - self._unread_since > limits.unread_s_max
        if is_unread or (self._response_due is not None and self.loop.time() > self._response_due):
            self.transport.abort()
            return
        if self._request_started_at is not None and self.loop.time() - self._request_started_at > limits.request_s_max:
            self._request_started_at = None
            self.refuse(HttpError(408, "E108", f"the request took more than {limits.request_s_max} seconds to arrive"))

    def send_400_response(self, msg: str) -> None:
        hint = "The broker speaks HTTP/1.1."
        self.refuse(error("E093", "this is not a valid HTTP request", hint=hint))

    def refuse(self, problem: SmileError) -> None:
        """Answers with an error and closes the connection. A response that has already started is not followed by
        another."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
            response = error_response(problem)
            response.headers["connection"] = "close"
            lines = [f"HTTP/1.1 {response.status_code} {http.HTTPStatus(response.status_code).phrase}".encode()]
            lines += [name + b": " + value for name, value in response.raw_headers]
            self.transport.write(b"\r\n".join([*lines, b"", response.body]))
        self.transport.close()


class WebSocketHandler(Protocol):
    """Handles the messages of a WebSocket."""

    def receive_message(self, text: bytes) -> None: ...

    def receive_binary(self, data: bytes) -> None: ...

    def on_writable(self) -> None:
        """Called when written data was sent, or the connection is lost."""


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket that is read and written without queues: each message goes to its handler when it arrives."""

    EXTENSION: Final = "smile.wire"
    counts: ConnectionCounts
    """Set in a subclass for each server. A WebSocket was counted when it was an HTTP connection."""
    handler: WebSocketHandler | None = None
    _address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._address = peer_address(transport)

    @property
    def is_writable(self) -> bool:
        return self.writable.is_set()

    @property
    def is_closed(self) -> bool:
        return self.disconnected or self.close_sent or self.conn.state is not State.OPEN

    def send_text(self, data: bytes) -> None:
        """Sends a text message; does nothing if the connection is closed."""
        if not self.is_closed:
            self.transport.write(encode_text_frame(data))

    def send_binary(self, messages: Iterable[bytes]) -> None:
        """Sends binary messages; does nothing if the connection is closed."""
        if not self.is_closed:
            self.transport.writelines([part for data in messages for part in (encode_frame_head(_BINARY, data), data)])

    async def send(self, message: Any) -> None:
        """A refusal completes the handshake as well. Without this, uvicorn logs each one as an error of the
        application."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def set_message_bytes_max(self, bytes_max: int) -> None:
        """Changes the largest message that may arrive."""
        self.conn.max_message_size = bytes_max

    def close(self, code: int, reason: str = "") -> None:
        """Closes the connection. Afterwards nothing is sent or received."""
        if not self.is_closed:
            self.queue.put_nowait({"type": "websocket.disconnect", "code": code})
            self.conn.send_close(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.set_reading_paused(False)
            self.close_sent = True
            self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)

    def set_reading_paused(self, is_paused: bool) -> None:
        """Pauses or resumes reading from the connection."""
        if is_paused != self.read_paused and not self.transport.is_closing():
            self.read_paused = is_paused
            (self.transport.pause_reading if is_paused else self.transport.resume_reading)()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._notify_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        self.counts.remove(self._address)
        super().connection_lost(exc)
        self._notify_writable()

    def _notify_writable(self) -> None:
        if self.handler is not None:
            self.handler.on_writable()

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):
            self.scope["extensions"][self.EXTENSION] = self  # type: ignore[assignment]  # an extension of SMILE

    def send_receive_event_to_app(self) -> None:
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if self.handler is not None and not self.close_sent:
            (self.handler.receive_message if self.curr_msg_data_type == "text" else self.handler.receive_binary)(data)


_TEXT: Final = 0x81
_BINARY: Final = 0x82


def encode_text_frame(data: bytes) -> bytes:
    """A text message in one frame of RFC 6455, unmasked as a server sends it."""
    return encode_frame_head(_TEXT, data) + data


def encode_frame_head(opcode: int, data: bytes) -> bytes:
    size = len(data)
    if size < 126:
        return b"%c%c" % (opcode, size)
    if size < 2**16:
        return b"%c\x7e%b" % (opcode, size.to_bytes(2, "big"))
    return b"%c\x7f%b" % (opcode, size.to_bytes(8, "big"))


class UvicornServer(uvicorn.Server):
    """A server with hooks. `stop` may be called from any thread."""

    async def before_start(self) -> None:
        """Called when the event loop runs, before connections are accepted."""

    async def after_start(self) -> None:
        """Called when connections are accepted."""

    def every_second(self) -> None:
        """Called about every second."""

    async def before_stop(self) -> None:
        """Called when no more connections are accepted, before the open ones are closed."""

    def stop(self) -> None:
        self.should_exit = True

    @property
    def connection_count(self) -> int:
        return len(self.server_state.connections)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.before_start()
        await super().startup(sockets)
        await self.after_start()

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            self.every_second()
            for connection in list(self.server_state.connections):
                if isinstance(connection, HttpConnection):
                    connection.end_overdue()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await self.before_stop()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A signal shuts the server down in order, and is not raised again."""
        loop = asyncio.get_running_loop()
        signals = [SIGINT, SIGTERM] if threading.current_thread() is threading.main_thread() else []
        for signal in signals:
            loop.add_signal_handler(signal, self.stop)
        try:
            yield
        finally:
            for signal in signals:
                loop.remove_signal_handler(signal)
