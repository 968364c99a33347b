"""The parts of AMQP 0-9-1 that the benchmark of databases needs, for RabbitMQ. A client that does more would take
processor time from the server."""

import asyncio
import struct
from collections.abc import Callable

PERSISTENT = 2
_FRAME_END = b"\xce"
_START, _TUNE, _OPEN_OK, _CHANNEL_OK = (10, 10), (10, 30), (10, 41), (20, 11)
_DELIVER, _ACK = (60, 60), (60, 80)
_ANSWERS = {(40, 11), (50, 11), (50, 21), (60, 11), (60, 21), (85, 11), (90, 11), (90, 21)}
"""Answers of declarations, bindings, and of the modes that are switched on."""


def _short(text: str) -> bytes:
    encoded = text.encode()
    return bytes([len(encoded)]) + encoded


def _method(class_id: int, method_id: int, arguments: bytes, channel: int = 1) -> bytes:
    payload = struct.pack(">HH", class_id, method_id) + arguments
    return struct.pack(">BHL", 1, channel, len(payload)) + payload + _FRAME_END


def _table(fields: dict[str, list[str]]) -> bytes:
    """A table whose values are arrays of texts."""
    table = b""
    for name, texts in fields.items():
        items = b"".join(b"S" + struct.pack(">L", len(t.encode())) + t.encode() for t in texts)
        table += _short(name) + b"A" + struct.pack(">L", len(items)) + items
    return struct.pack(">L", len(table)) + table


class AmqpConnection(asyncio.Protocol):
    """One channel. `on_delivery` gets the tag and the body of each message, `on_confirm` the greatest confirmed number
    of a publication."""

    def __init__(
        self,
        on_delivery: Callable[[int, bytes], None] = lambda _tag, _body: None,
        on_confirm: Callable[[int], None] = lambda _number: None,
    ) -> None:
        self._on_delivery, self._on_confirm = on_delivery, on_confirm
        self._buffer = bytearray()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answer: asyncio.Future[None] | None = None
        self._tag, self._size, self._body = 0, 0, b""

    @staticmethod
    async def connect(
        port: int,
        on_delivery: Callable[[int, bytes], None] = lambda _tag, _body: None,
        on_confirm: Callable[[int], None] = lambda _number: None,
    ) -> "AmqpConnection":
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: AmqpConnection(on_delivery, on_confirm), "127.0.0.1", port)
        await connection._opened
        return connection

    # ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def declare_exchange(self, name: str, kind: str) -> None:
        await self._call(40, 10, struct.pack(">H", 0) + _short(name) + _short(kind) + bytes([2]) + _table({}))

    async def declare_queue(self, name: str, is_durable: bool) -> None:
        await self._call(50, 10, struct.pack(">H", 0) + _short(name) + bytes([2 if is_durable else 8]) + _table({}))

    async def bind_queue(self, queue: str, exchange: str, routing_key: str) -> None:
        names = _short(queue) + _short(exchange) + _short(routing_key)
        await self._call(50, 20, struct.pack(">H", 0) + names + b"\x00" + _table({}))

    async def consume(self, queue: str, has_acknowledgements: bool, prefetch: int = 0) -> None:
        await self._call(60, 10, struct.pack(">LHB", 0, prefetch, 0))
        bits = bytes([0 if has_acknowledgements else 2])
        await self._call(60, 20, struct.pack(">H", 0) + _short(queue) + _short("") + bits + _table({}))

    async def select_confirms(self) -> None:
        await self._call(85, 10, b"\x00")

    async def select_transactions(self) -> None:
        await self._call(90, 10, b"")

    async def commit(self) -> None:
        await self._call(90, 20, b"")

    def acknowledge(self, tag: int, is_multiple: bool = True) -> None:
        self.transport.write(_method(60, 80, struct.pack(">QB", tag, is_multiple)))

    def publish(
        self, exchange: str, routing_key: str, body: bytes, is_persistent: bool, further_keys: list[str] | None = None
    ) -> None:
        """With `further_keys`, the message is also routed by these keys."""
        method = _method(60, 40, struct.pack(">H", 0) + _short(exchange) + _short(routing_key) + b"\x00")
        flags, properties = 0, b""
        if further_keys:
            flags, properties = flags | 0x2000, _table({"CC": further_keys})
        if is_persistent:
            flags, properties = flags | 0x1000, properties + bytes([PERSISTENT])
        header = struct.pack(">HHQH", 60, 0, len(body), flags) + properties
        frames = struct.pack(">BHL", 2, 1, len(header)) + header + _FRAME_END
        frames += struct.pack(">BHL", 3, 1, len(body)) + body + _FRAME_END
        self.transport.write(method + frames)

    async def _call(self, class_id: int, method_id: int, arguments: bytes) -> None:
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(_method(class_id, method_id, arguments))
        await self._answer

    # ── the connection ──────────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(b"AMQP\x00\x00\x09\x01")

    def connection_lost(self, problem: Exception | None) -> None:
        for future in (self._opened, self._answer):
            if future is not None and not future.done():
                future.set_exception(ConnectionError("RabbitMQ has closed the connection"))

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        position = 0
        while len(buffer) - position >= 8:
            kind, size = buffer[position], int.from_bytes(buffer[position + 3 : position + 7], "big")
            end = position + 8 + size
            if len(buffer) < end:
                break
            self._receive_frame(kind, bytes(buffer[position + 7 : end - 1]))
            position = end
        del buffer[:position]

    def _receive_frame(self, kind: int, payload: bytes) -> None:
        if kind == 1:
            self._receive_method((int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")), payload)
        elif kind == 2:
            self._size, self._body = int.from_bytes(payload[4:12], "big"), b""
        elif kind == 3:
            self._body += payload
            if len(self._body) == self._size:
                self._on_delivery(self._tag, self._body)

    def _receive_method(self, method: tuple[int, int], payload: bytes) -> None:
        if method == _DELIVER:
            consumer_end = 5 + payload[4]
            self._tag = int.from_bytes(payload[consumer_end : consumer_end + 8], "big")
        elif method == _ACK:
            self._on_confirm(int.from_bytes(payload[4:12], "big"))
        elif method in _ANSWERS:
            assert self._answer is not None
            self._answer.set_result(None)
        elif method == _START:
            arguments = struct.pack(">L", 0) + _short("PLAIN") + struct.pack(">L", 12) + b"\0guest\0guest"
            self.transport.write(_method(10, 11, arguments + _short("en_US"), channel=0))
        elif method == _TUNE:
            limits = payload[4:10] + struct.pack(">H", 0)
            open_connection = _method(10, 40, _short("/") + _short("") + b"\x00", channel=0)
            self.transport.write(_method(10, 31, limits, channel=0) + open_connection)
        elif method == _OPEN_OK:
            self.transport.write(_method(20, 10, _short("")))
        elif method == _CHANNEL_OK:
            self._opened.set_result(None)
        else:
            raise ConnectionError(f"RabbitMQ sent {method}: {payload!r}")
