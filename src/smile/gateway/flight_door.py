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

PREFACE: Final = 24
"""Bytes that a connection begins with, which say that it is HTTP/2."""
FRAME: Final = 9
"""A frame's length (3 bytes), kind, flags, and the number of its stream (4 bytes)."""
MESSAGE: Final = 5
"""Before a message of gRPC: whether it is compressed, and its length (4 bytes)."""
DATA, RESET, GOAWAY = 0, 3, 7
END, PADDED = 1, 8
STREAM_MAX: Final = 2**31 - 1
CALM: Final = 11
"""HTTP/2's code for a client that asks for too much."""


T = TypeVar("T")

logger = logging.getLogger("smile.gateway.flight")


class Refused(Exception):
    """Why a connection ends."""


class Held:
    """Bytes of messages that are not whole yet, of all connections: gRPC keeps them until they are."""

    def __init__(self) -> None:
        self.bytes = 0

    def add(self, count: int) -> None:
        if self.bytes + count > limits.flight_waiting_bytes_max:
            raise Refused("E092: too much is on its way to the broker; try again later")
        self.bytes += count


class _Begun:
    """A stream's message that is not whole: what there is of the bytes before it, and how many bytes of its own are
    missing and have come."""

    __slots__ = ("come", "head", "missing")

    def __init__(self) -> None:
        self.head, self.missing, self.come = b"", 0, 0


class Messages:
    """What comes in on one connection, in pieces of any size: HTTP/2 frames, and in those of data gRPC's messages."""

    def __init__(self, bytes_max: int, held: Held) -> None:
        self._most = bytes_max
        self._held = held
        self._skip = PREFACE
        """Bytes of the present frame that are of no interest."""
        self._head = b""
        """Of the next frame, as far as it has come."""
        self._data = 0
        """Bytes of the present frame that are messages."""
        self._padded = False
        self._padding = 0
        self._ends = False
        self._stream = 0
        self._begun: dict[int, _Begun] = {}

    def feed(self, data: bytes) -> None:
        at, end = 0, len(data)
        while at < end:
            if self._skip:
                step = min(self._skip, end - at)
                self._skip -= step
                at += step
            elif self._padded:
                self._padding = data[at]
                at += 1
                self._padded = False
                self._data -= 1 + self._padding
                if self._data < 0:
                    raise Refused("E093: a frame has more padding than it has bytes")
                self._after()
            elif self._data:
                step = min(self._data, end - at)
                self._take(data, at, at + step)
                self._data -= step
                at += step
                self._after()
            else:
                step = min(FRAME - len(self._head), end - at)
                self._head += data[at : at + step]
                at += step
                if len(self._head) == FRAME:
                    self._frame()

    def close(self) -> None:
        for stream in list(self._begun):
            self._forget(stream)

    def _frame(self) -> None:
        head, self._head = self._head, b""
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        self._stream = int.from_bytes(head[5:], "big") & 0x7FFFFFFF
        if kind != DATA:
            self._skip = length
            if kind == RESET:
                self._forget(self._stream)
            return
        self._data, self._ends, self._padding = length, bool(flags & END), 0
        self._padded = bool(flags & PADDED) and length > 0
        if not self._padded:
            self._after()

    def _after(self) -> None:
        """What follows a frame's last byte of messages."""
        if not self._data:
            self._skip = self._padding
            if self._ends:
                self._forget(self._stream)

    def _take(self, data: bytes, at: int, end: int) -> None:
        begun = self._begun.setdefault(self._stream, _Begun())
        while at < end:
            if begun.missing:
                step = min(begun.missing, end - at)
                self._held.add(step)
                begun.missing -= step
                begun.come += step
                if not begun.missing:
                    self._held.bytes -= begun.come
                    begun.come = 0
            else:
                step = min(MESSAGE - len(begun.head), end - at)
                begun.head += data[at : at + step]
                if len(begun.head) == MESSAGE:
                    begun.missing, begun.head = self._length(begun.head), b""
            at += step
        if not begun.missing and not begun.head:
            del self._begun[self._stream]

    def _length(self, head: bytes) -> int:
        if head[0]:
            raise Refused("E093: messages of gRPC must not be compressed")
        length = int.from_bytes(head[1:], "big")
        if length > self._most:
            raise Refused(f"E092: a message has {length:,} bytes, and at most {self._most:,} are taken")
        return length

    def _forget(self, stream: int) -> None:
        found = self._begun.pop(stream, None)
        if found is not None:
            self._held.bytes -= found.come


class _End(asyncio.Protocol):
    """One of a connection's two ends. What comes from it goes to the other, and no faster than that takes it."""

    def __init__(self, other: "_End | None" = None) -> None:
        self.transport: asyncio.Transport | None = None
        self.other = other

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=limits.flight_door_bytes)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, problem: Exception | None) -> None:
        self.transport = None
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _Client(_End):
    """The end that is not ours."""

    def __init__(self, door: "Door") -> None:
        super().__init__()
        self._door = door
        self._messages = Messages(door.bytes_max, door.held)
        self._refused = False
        self._early = b""
        """What has come before there was anybody to hand it on to."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        if len(self._door.clients) >= self._door.connections_max:
            # Who is told why in the way of HTTP/2 takes that for a connection, and comes again at once.
            self._door.warn_of_connections()
            self.transport.abort()
            return
        self._door.clients.add(self)
        self._door.tasks.add(task := asyncio.ensure_future(self._join()))
        task.add_done_callback(self._door.tasks.discard)

    async def _join(self) -> None:
        # gRPC speaks first, so that its end knows ours from the beginning.
        inner = _End(self)
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: inner, self._door.inner)
        except OSError:  # gRPC has ended
            self.abort()
            return
        self.other = inner
        if inner.transport is not None:
            inner.transport.write(self._early)
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
            self._messages.feed(data)
        except Refused as why:
            self.refuse(str(why))
            return
        if self.other is None and self.transport is not None:
            self._early += data
            self.transport.pause_reading()
        super().data_received(data)

    def refuse(self, why: str) -> None:
        """Says so in the way of HTTP/2, which gRPC's clients show to their users."""
        assert self.transport is not None
        # All streams may have been heard, or gRPC would send all of it once more.
        told = STREAM_MAX.to_bytes(4, "big") + CALM.to_bytes(4, "big") + why.encode()
        # Settings come first, or it is no answer in HTTP/2.
        settings = b"" if self.other is not None else bytes(3) + b"\4" + bytes(5)
        head = len(told).to_bytes(3, "big") + bytes([GOAWAY, 0]) + bytes(4)
        self.transport.write(settings + head + told)
        self._refused = True
        if self.other is not None and self.other.transport is not None:
            self.other.other = None
            self.other.transport.abort()
        # A connection that is closed while more comes in is reset, and then nothing is told.
        asyncio.get_running_loop().call_later(limits.flight_refusal_s, self.abort)

    def connection_lost(self, problem: Exception | None) -> None:
        super().connection_lost(problem)
        self._messages.close()
        self._door.clients.discard(self)


class Door:
    """Listens from when it is made, in a thread of its own, and hands on to the socket at `inner`."""

    def __init__(
        self, place: tuple[str, int], inner: str, tls: ssl.SSLContext | None, bytes_max: int, connections_max: int
    ) -> None:
        self.inner, self.bytes_max, self.connections_max = inner, bytes_max, connections_max
        self.held = Held()
        self._warned = -limits.flight_warn_s
        self.clients: set[_Client] = set()
        self.tasks: set[asyncio.Future[None]] = set()
        family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        listening = socket.create_server(place, family=family, backlog=limits.backlog)
        # A peer that has vanished is noticed by the system; one that only stalls is not disturbed.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, limits.peer_idle_s)
        self.port = int(listening.getsockname()[1])
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="flight-door", daemon=True)
        self._thread.start()
        opening = self._loop.create_server(lambda: _Client(self), sock=listening, ssl=tls)
        self._server = asyncio.run_coroutine_threadsafe(opening, self._loop).result()

    def warn_of_connections(self) -> None:
        if time.monotonic() - self._warned > limits.flight_warn_s:
            self._warned = time.monotonic()
            logger.warning("E092: no more than %d connections of Arrow Flight are let in", self.connections_max)

    def close(self) -> None:
        """Nobody new comes in."""
        self._call(self._server.close)

    def cut(self) -> None:
        """Ends all connections."""
        self._call(lambda: _each(_Client.abort, self.clients))

    def end(self) -> None:
        """Afterwards it is as if it had never been."""
        self.close()
        self.cut()
        self._call(lambda: _each(asyncio.Future.cancel, self.tasks))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, what: Callable[[], object]) -> None:
        done = threading.Event()

        def call() -> None:
            what()
            # What that leads to comes in the next turns of the loop.
            self._loop.call_later(0.01, done.set)

        self._loop.call_soon_threadsafe(call)
        done.wait(limits.flight_stop_s_max)


def _each(do: Callable[[T], object], what: Iterable[T]) -> None:
    for one in list(what):
        do(one)
