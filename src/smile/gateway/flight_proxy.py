"""The door of Arrow Flight. Connections come in here and are handed on to gRPC, which by itself would take in messages
of any length from anybody before it asks whose they are, and knows no way to end a call to a client that does not
listen.

Of what clients send, only the lengths of messages are looked at: every one of them is known before its first byte is
handed on. What comes back is passed on as it is.
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

PREFACE_BYTES: Final = 24
"""Bytes that a connection begins with, which say that it is HTTP/2."""
FRAME_HEADER_BYTES: Final = 9
"""A frame's length (3 bytes), kind, flags, and the number of its stream (4 bytes)."""
MESSAGE_HEADER_BYTES: Final = 5
"""Before a message of gRPC: whether it is compressed, and its length (4 bytes)."""
DATA, RST_STREAM, GOAWAY = 0, 3, 7
END_STREAM, PADDED = 1, 8
STREAM_MAX: Final = 2**31 - 1
ENHANCE_YOUR_CALM: Final = 11
"""HTTP/2's code for a client that asks for too much."""


T = TypeVar("T")

logger = logging.getLogger("smile.gateway.flight")


class ConnectionRefused(Exception):
    """Why a connection ends."""


class BufferedBytes:
    """Bytes of messages that are not whole yet, of all connections: gRPC keeps them until they are."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, count: int) -> None:
        if self.total + count > limits.flight_waiting_bytes_max:
            raise ConnectionRefused("E092: too much is on its way to the broker; try again later")
        self.total += count


class _PartialMessage:
    """A stream's message that is not whole: what there is of the bytes before it, and how many bytes of its own are
    missing and have come."""

    __slots__ = ("header", "missing", "received")

    def __init__(self) -> None:
        self.header, self.missing, self.received = b"", 0, 0


class GrpcMessageParser:
    """What comes in on one connection, in pieces of any size: HTTP/2 frames, and in those of data gRPC's messages."""

    def __init__(self, bytes_max: int, buffered: BufferedBytes) -> None:
        self._bytes_max = bytes_max
        self._buffered = buffered
        self._skip_bytes = PREFACE_BYTES
        """Bytes of the present frame that are of no interest."""
        self._header = b""
        """Of the next frame, as far as it has come."""
        self._data_bytes = 0
        """Bytes of the present frame that are messages."""
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
        """What follows a frame's last byte of messages."""
        if not self._data_bytes:
            self._skip_bytes = self._padding_bytes
            if self._ends_stream:
                self._drop_stream(self._stream)

    def _read_data(self, data: bytes, begin: int, end: int) -> None:
        partial = self._partial.setdefault(self._stream, _PartialMessage())
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
            raise ConnectionRefused("E093: messages of gRPC must not be compressed")
        length = int.from_bytes(header[1:], "big")
        if length > self._bytes_max:
            raise ConnectionRefused(f"E092: a message has {length:,} bytes, and at most {self._bytes_max:,} are taken")
        return length

    def _drop_stream(self, stream: int) -> None:
        partial = self._partial.pop(stream, None)
        if partial is not None:
            self._buffered.total -= partial.received


class _Endpoint(asyncio.Protocol):
    """One of a connection's two ends. What comes from it goes to the other, and no faster than that takes it."""

    def __init__(self, peer: "_Endpoint | None" = None) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer = peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=limits.flight_proxy_bytes)

    def data_received(self, data: bytes) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.write(data)

    def pause_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.resume_reading()

    def connection_lost(self, problem: Exception | None) -> None:
        self.transport = None
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()


class _ClientEndpoint(_Endpoint):
    """The end that is not ours."""

    def __init__(self, proxy: "FlightProxy") -> None:
        super().__init__()
        self._proxy = proxy
        self._parser = GrpcMessageParser(proxy.bytes_max, proxy.buffered)
        self._refused = False
        self._unsent = b""
        """What has come before there was anybody to hand it on to."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        if len(self._proxy.clients) >= self._proxy.connections_max:
            # Who is told why in the way of HTTP/2 takes that for a connection, and comes again at once.
            self._proxy.warn_of_connections()
            self.transport.abort()
            return
        self._proxy.clients.add(self)
        self._proxy.tasks.add(task := asyncio.ensure_future(self._connect_inner()))
        task.add_done_callback(self._proxy.tasks.discard)

    async def _connect_inner(self) -> None:
        # gRPC speaks first, so that its end knows ours from the beginning.
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
        """Says so in the way of HTTP/2, which gRPC's clients show to their users."""
        assert self.transport is not None
        # All streams may have been heard, or gRPC would send all of it once more.
        payload = STREAM_MAX.to_bytes(4, "big") + ENHANCE_YOUR_CALM.to_bytes(4, "big") + reason.encode()
        # Settings come first, or it is no answer in HTTP/2.
        settings = b"" if self.peer is not None else bytes(3) + b"\4" + bytes(5)
        header = len(payload).to_bytes(3, "big") + bytes([GOAWAY, 0]) + bytes(4)
        self.transport.write(settings + header + payload)
        self._refused = True
        if self.peer is not None and self.peer.transport is not None:
            self.peer.peer = None
            self.peer.transport.abort()
        # A connection that is closed while more comes in is reset, and then nothing is told.
        asyncio.get_running_loop().call_later(limits.flight_refusal_s, self.abort)

    def connection_lost(self, problem: Exception | None) -> None:
        super().connection_lost(problem)
        self._parser.close()
        self._proxy.clients.discard(self)


class FlightProxy:
    """Listens from when it is made, in a thread of its own, and hands on to the socket at `inner`."""

    def __init__(
        self,
        address: tuple[str, int],
        inner_path: str,
        tls: ssl.SSLContext | None,
        bytes_max: int,
        connections_max: int,
    ) -> None:
        self.inner_path, self.bytes_max, self.connections_max = inner_path, bytes_max, connections_max
        self.buffered = BufferedBytes()
        self._warned_at = -limits.flight_warn_s
        self.clients: set[_ClientEndpoint] = set()
        self.tasks: set[asyncio.Future[None]] = set()
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        listener = socket.create_server(address, family=family, backlog=limits.backlog)
        # A peer that has vanished is noticed by the system; one that only stalls is not disturbed.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, limits.peer_idle_s)
        self.port = int(listener.getsockname()[1])
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="flight-door", daemon=True)
        self._thread.start()
        server = self._loop.create_server(lambda: _ClientEndpoint(self), sock=listener, ssl=tls)
        self._server = asyncio.run_coroutine_threadsafe(server, self._loop).result()

    def warn_of_connections(self) -> None:
        if time.monotonic() - self._warned_at > limits.flight_warn_s:
            self._warned_at = time.monotonic()
            logger.warning("E092: no more than %d connections of Arrow Flight are let in", self.connections_max)

    def stop_listening(self) -> None:
        """Nobody new comes in."""
        self._run_on_loop(self._server.close)

    def abort_connections(self) -> None:
        """Ends all connections."""
        self._run_on_loop(lambda: _for_each(_ClientEndpoint.abort, self.clients))

    def stop(self) -> None:
        """Afterwards it is as if it had never been."""
        self.stop_listening()
        self.abort_connections()
        self._run_on_loop(lambda: _for_each(asyncio.Future.cancel, self.tasks))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run_on_loop(self, action: Callable[[], object]) -> None:
        done = threading.Event()

        def call() -> None:
            action()
            # What that leads to comes in the next turns of the loop.
            self._loop.call_later(0.01, done.set)

        self._loop.call_soon_threadsafe(call)
        done.wait(limits.flight_stop_s_max)


def _for_each(action: Callable[[T], object], items: Iterable[T]) -> None:
    for item in list(items):
        action(item)
