"""A client of the broker's WebSocket that does no more than it must: it sends messages and counts what it receives."""

import asyncio
import base64
import json
import os
from collections.abc import Callable
from typing import Any


class BrokerConnection(asyncio.Protocol):
    """`on_message` gets each message, as bytes of JSON."""

    def __init__(self, port: int, on_message: Callable[[bytes], None]) -> None:
        self._port, self._on_message = port, on_message
        self._buffer, self._parts = bytearray(), b""
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @staticmethod
    async def connect(port: int, on_message: Callable[[bytes], None]) -> "BrokerConnection":
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: BrokerConnection(port, on_message), "127.0.0.1", port)
        await connection._opened
        return connection

    def send(self, message: dict[str, Any]) -> None:
        text = json.dumps(message, separators=(",", ":")).encode()
        size = bytes([0x80 | len(text)]) if len(text) < 126 else bytes([0x80 | 126]) + len(text).to_bytes(2, "big")
        self.transport.write(b"\x81" + size + bytes(4) + text)  # a client's frame is masked; the mask here is zero

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        transport.write(f"{upgrade}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())

    def connection_lost(self, problem: Exception | None) -> None:
        if not self._opened.done():
            self._opened.set_exception(ConnectionError("the broker has closed the connection"))

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        if not self._opened.done():
            head_end = buffer.find(b"\r\n\r\n")
            if head_end < 0:
                return
            del buffer[: head_end + 4]
            self._opened.set_result(None)
        position = 0
        while len(buffer) - position >= 2:
            size, start = buffer[position + 1], position + 2
            if size >= 126:
                start += 2 if size == 126 else 8
                size = int.from_bytes(buffer[position + 2 : start], "big")
            if len(buffer) < start + size:
                break
            if buffer[position] & 0x0F == 9:
                self.transport.write(b"\x8a\x80" + bytes(4))  # a pong
            elif buffer[position] & 0x0F in (0, 1):
                self._parts += buffer[start : start + size]
                if buffer[position] & 0x80:
                    message, self._parts = self._parts, b""
                    self._on_message(message)
            position = start + size
        del buffer[:position]
