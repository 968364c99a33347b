"""A proxy between Arrow Flight clients and gRPC. gRPC itself limits neither the connections of an address nor the total
size of incomplete messages, and does not end connections to clients that do not read.

The proxy looks only at the lengths of the clients' messages: it checks each length before it forwards the first byte of
the message. The data for the clients is forwarded unchanged.
"""

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar, cast

import uvloop

from smile import limits
from smile.gateway.connection_counts import ConnectionCounts, peer_address

PREFACE_BYTES: Final = 24
"""The connection preface, which identifies HTTP/2."""
FRAME_HEADER_BYTES: Final = 9
"""A frame's length (3 bytes), type, flags, and stream number (4 bytes)."""
MESSAGE_HEADER_BYTES: Final = 5
"""Before each gRPC message: whether it is compressed, and its length (4 bytes)."""
DATA, RST_STREAM, GOAWAY = 0, 3, 7
END_STREAM, PADDED = 1, 8
STREAM_MAX: Final = 2**31 - 1
ENHANCE_YOUR_CALM: Final = 11
"""The error code of HTTP/2 for a client that asks for too much."""


T = TypeVar("T")

logger = logging.getLogger("smile.gateway.flight")


class ConnectionRefused(Exception):
    """The reason why a connection is ended."""


class BufferedBytes:
    """Bytes of incomplete messages, over all connections: gRPC buffers them until they are complete."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, count: int) -> None:
        if self.total + count > limits.flight_waiting_bytes_max:
            raise ConnectionRefused("E092: the broker is receiving too much data; try again later")
        self.total += count


class _PartialMessage:
    """An incomplete message of a stream: the received part of its header, and how many bytes of its body are missing
    and received."""

    __slots__ = ("header", "missing", "received")

    def __init__(self) -> None:
        self.header, self.missing, self.received = b"", 0, 0


class GrpcMessageParser:
    """Parses the data of one connection, in pieces of any size: HTTP/2 frames, and the gRPC messages in DATA frames."""

    def __init__(self, bytes_max: int, buffered: BufferedBytes) -> None:
        self._bytes_max = bytes_max
        self._buffered = buffered
        self._skip_bytes = PREFACE_BYTES
        """Bytes of the current frame that can be skipped."""
        self._header = b""
        """The received part of the next frame's header."""
        self._data_bytes = 0
        """Bytes of the current frame that belong to messages."""
        self._padded = False
        self._padding_bytes = 0
        self._ends_stream = False
        self._stream = 0
        self._partial: dict[int, _PartialMessage] = {}

    def feed(self, data: bytes) -> None:
        position, end = 0, len(data)
        while position < end:
            if self._skip_bytes:
                step = min(self._skip_bytes, end - position)
                self._skip_bytes -= step
                position += step
            elif self._padded:
                self._padding_bytes = data[position]
                position += 1
                self._padded = False
                self._data_bytes -= 1 + self._padding_bytes
                if self._data_bytes < 0:
                    raise ConnectionRefused("E093: a frame has more padding than it has bytes")
                self._end_data()
            elif self._data_bytes:
                step = min(self._data_bytes, end - position)
                self._read_data(data, position, position + step)
                self._data_bytes -= step
                position += step
                self._end_data()
            else:
                step = min(FRAME_HEADER_BYTES - len(self._header), end - position)
                self._header += data[position : position + step]
                position += step
                if len(self._header) == FRAME_HEADER_BYTES:
                    self._start_frame()

    def close(self) -> None:
        for stream in list(self._partial):
            self._drop_stream(stream)

    def _start_frame(self) -> None:
        header, self._header = self._header, b""
        length, kind, flags = int.from_bytes(header[:3], "big"), header[3], header[4]
        self._stream = int.from_bytes(header[5:], "big") & 0x7FFFFFFF
        if kind != DATA:
            self._skip_bytes = length
            if kind == RST_STREAM:
                self._drop_stream(self._stream)
            return
        self._data_bytes, self._ends_stream, self._padding_bytes = length, bool(flags & END_STREAM), 0
        self._padded = bool(flags & PADDED) and length > 0
        if not self._padded:
            self._end_data()

    def _end_data(self) -> None:
        """Completes a frame after its last byte of messages."""
        if not self._data_bytes:
            self._skip_bytes = self._padding_bytes
            if self._ends_stream:
                self._drop_stream(self._stream)

    def _read_data(self, data: bytes, begin: int, end: int) -> None:
        partial = self._partial.setdefault(self._stream, _PartialMessage())
        if len(self._partial) > limits.flight_streams_max:
            raise ConnectionRefused(f"E092: more than {limits.flight_streams_max} messages are incomplete")
        while begin < end:
            if partial.missing:
                step = min(partial.missing, end - begin)
                self._buffered.add(step)
                partial.missing -= step
                partial.received += step
                if not partial.missing:
                    self._buffered.total -= partial.received
                    partial.received = 0
            else:
                step = min(MESSAGE_HEADER_BYTES - len(partial.header), end - begin)
                partial.header += data[begin : begin + step]
                if len(partial.header) == MESSAGE_HEADER_BYTES:
                    partial.missing, partial.header = self._message_length(partial.header), b""
            begin += step
        if not partial.missing and not partial.header:
            del self._partial[self._stream]

    def _message_length(self, header: bytes) -> int:
        if header[0]:
            raise ConnectionRefused("E093: gRPC messages must not be compressed")
        length = int.from_bytes(header[1:], "big")
        if length > self._bytes_max:
            raise ConnectionRefused(f"E092: a message has {length:,} bytes; at most {self._bytes_max:,} are allowed")
        return length

    def _drop_stream(self, stream: int) -> None:
        partial = self._partial.pop(stream, None)
        if partial is not None:
            self._buffered.total -= partial.received


class _Endpoint(asyncio.Protocol):
    """One of the two ends of a connection. Its data goes to the other end, no faster than that end accepts it."""

    def __init__(self, peer: "_Endpoint | None" = None) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer = peer
        self.stalled_since: float | None = None
        """Since when the other side of the connection has not read; None while it does."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=limits.flight_proxy_bytes)

    def data_received(self, data: bytes) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.write(data)

    def pause_writing(self) -> None:
        self.stalled_since = time.monotonic()
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        self.stalled_since = None
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.resume_reading()

    def connection_lost(self, problem: Exception | None) -> None:
        self.transport = None
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()


class _ClientEndpoint(_Endpoint):
    """The client's end."""

    def __init__(self, proxy: "FlightProxy") -> None:
        super().__init__()
        self._proxy = proxy
        self._parser = GrpcMessageParser(proxy.bytes_max, proxy.buffered)
        self._refused = False
        self._unsent = b""
        """Data that arrived before the connection to gRPC was open."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self._proxy.clients.add(self)
        self._address = peer_address(transport)
        excess = self._proxy.counts.add(self._address)
        if excess is not None:
            # A client that receives the reason in HTTP/2 considers itself connected, and reconnects at once.
            self._proxy.warn(f"{excess[0]}; one of Arrow Flight was refused")
            self.transport.abort()
            return
        self._proxy.tasks.add(task := asyncio.ensure_future(self._connect_inner()))
        task.add_done_callback(self._proxy.tasks.discard)

    async def _connect_inner(self) -> None:
        # gRPC sends first, so its end must know the client's end from the beginning.
        inner = _Endpoint(self)
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: inner, self._proxy.inner_path)
        except OSError:  # gRPC has ended
            self.abort()
            return
        self.peer = inner
        if inner.transport is not None:
            inner.transport.write(self._unsent)
            if self.transport is None:
                inner.transport.close()
            else:
                self.transport.resume_reading()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        try:
            self._parser.feed(data)
        except ConnectionRefused as refusal:
            self.refuse(str(refusal))
            return
        if self.peer is None and self.transport is not None:
            self._unsent += data
            self.transport.pause_reading()
        super().data_received(data)

    def refuse(self, reason: str) -> None:
        """Sends the reason as an HTTP/2 GOAWAY frame, which gRPC clients show to their users."""
        assert self.transport is not None
        # This says that all streams may have been processed; otherwise gRPC would repeat all calls.
        payload = STREAM_MAX.to_bytes(4, "big") + ENHANCE_YOUR_CALM.to_bytes(4, "big") + reason.encode()
        # HTTP/2 requires that SETTINGS come first.
        settings = b"" if self.peer is not None else bytes(3) + b"\4" + bytes(5)
        header = len(payload).to_bytes(3, "big") + bytes([GOAWAY, 0]) + bytes(4)
        self.transport.write(settings + header + payload)
        self._refused = True
        if self.peer is not None and self.peer.transport is not None:
            self.peer.peer = None
            self.peer.transport.abort()
        # If it were closed while data arrives, it would be reset, and the client would not receive the reason.
        asyncio.get_running_loop().call_later(limits.flight_refusal_s, self.abort)

    def connection_lost(self, problem: Exception | None) -> None:
        super().connection_lost(problem)
        self._parser.close()
        self._proxy.counts.remove(self._address)
        self._proxy.clients.discard(self)


class FlightProxy:
    """Listens from its creation, in its own thread, and forwards to the Unix socket at `inner_path`."""

    def __init__(
        self,
        address: tuple[str, int],
        inner_path: str,
        tls: ssl.SSLContext | None,
        bytes_max: int,
        counts: ConnectionCounts,
    ) -> None:
        self.inner_path, self.bytes_max, self.counts = inner_path, bytes_max, counts
        self.buffered = BufferedBytes()
        self._warned_at = -limits.flight_warn_s
        self.clients: set[_ClientEndpoint] = set()
        self.tasks: set[asyncio.Future[None]] = set()
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        listener = socket.create_server(address, family=family, backlog=limits.backlog)
        # The system notices peers that have vanished, and does not disturb peers that only stall.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, limits.peer_idle_s)
        self.port = int(listener.getsockname()[1])
        self._loop = uvloop.new_event_loop()
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._loop.run_forever, name="flight-proxy", daemon=True)
        self._thread.start()
        handshake_s_max = None if tls is None else limits.request_s_max
        server = self._loop.create_server(
            lambda: _ClientEndpoint(self), sock=listener, ssl=tls, ssl_handshake_timeout=handshake_s_max
        )
        self._server = asyncio.run_coroutine_threadsafe(server, self._loop).result()

    def warn(self, message: str) -> None:
        if time.monotonic() - self._warned_at > limits.flight_warn_s:
            self._warned_at = time.monotonic()
            logger.warning("E092: %s", message)

    def stop_listening(self) -> None:
        """Accepts no more connections."""
        self._run_on_loop(self._server.close)

    def abort_stalled(self) -> None:
        """Ends the connections of clients that have not read for too long. Call it every second."""
        deadline = time.monotonic() - limits.unread_s_max

        def abort() -> None:
            for client in list(self.clients):
                if client.stalled_since is not None and client.stalled_since < deadline:
                    client.abort()

        with self._closing:  # another thread may stop the proxy
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(abort)

    def abort_connections(self) -> None:
        """Ends all connections."""
        self._run_on_loop(lambda: _for_each(_ClientEndpoint.abort, self.clients))

    def stop(self) -> None:
        """Ends the connections and the thread."""
        self.stop_listening()
        self.abort_connections()
        self._run_on_loop(lambda: _for_each(asyncio.Future.cancel, self.tasks))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        with self._closing:
            self._loop.close()

    def _run_on_loop(self, action: Callable[[], object]) -> None:
        done = threading.Event()

        def call() -> None:
            action()
            # The consequences are handled in the next iterations of the loop.
            self._loop.call_later(0.01, done.set)

        self._loop.call_soon_threadsafe(call)
        done.wait(limits.flight_stop_s_max)


def _for_each(action: Callable[[T], object], items: Iterable[T]) -> None:
    for item in list(items):
        action(item)
