"""The parts of the protocol of NATS and JetStream that the benchmark of databases needs."""

import asyncio
import json
from collections.abc import Callable
from typing import Any


class NatsConnection(asyncio.Protocol):
    """`on_message` gets the subject to which an answer is sent, and the body of each message."""

    def __init__(self, on_message: Callable[[bytes, bytes], None]) -> None:
        self._on_message = on_message
        self._buffer = bytearray()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests: dict[bytes, asyncio.Future[dict[str, Any]]] = {}
        self._request_count = 0
        self._inbox = f"_INBOX.{id(self)}"

    @staticmethod
    async def connect(
        port: int, on_message: Callable[[bytes, bytes], None] = lambda _reply, _body: None
    ) -> "NatsConnection":
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: NatsConnection(on_message), "127.0.0.1", port)
        connection.transport.write(b'CONNECT {"verbose":false,"headers":false}\r\n')
        connection.subscribe(f"{connection._inbox}.*", 1)
        connection.transport.write(b"PING\r\n")
        await connection._ready
        return connection

    def subscribe(self, subject: str, number: int = 2) -> None:
        self.transport.write(f"SUB {subject} {number}\r\n".encode())

    def publish(self, subject: bytes, body: bytes, reply: bytes = b"") -> None:
        head = b"PUB %b %b %d\r\n" % (subject, reply, len(body)) if reply else b"PUB %b %d\r\n" % (subject, len(body))
        self.transport.write(head + body + b"\r\n")

    def request(self, subject: str, body: bytes) -> "asyncio.Future[dict[str, Any]]":
        """The answer is a JSON object."""
        self._request_count += 1
        reply = f"{self._inbox}.{self._request_count}".encode()
        future = self._requests[reply] = asyncio.get_running_loop().create_future()
        self.publish(subject.encode(), body, reply)
        return future

    async def call_api(self, operation: str, arguments: dict[str, Any]) -> None:
        answer = await self.request(f"$JS.API.{operation}", json.dumps(arguments).encode())
        if "error" in answer:
            raise ConnectionError(f"{operation}: {answer['error']}")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        position = 0
        while (line_end := buffer.find(b"\r\n", position)) >= 0:
            line = bytes(buffer[position:line_end])
            if line.startswith(b"MSG"):
                _, subject, _, *reply, size = line.split(b" ")
                end = line_end + 4 + int(size)
                if len(buffer) < end:
                    break
                self._receive(subject, reply[0] if reply else b"", bytes(buffer[line_end + 2 : end - 2]))
                position = end
                continue
            position = line_end + 2
            if line == b"PING":
                self.transport.write(b"PONG\r\n")
            elif line == b"PONG" and not self._ready.done():
                self._ready.set_result(None)
            elif line.startswith(b"-ERR"):
                raise ConnectionError(line.decode())
        del buffer[:position]

    def _receive(self, subject: bytes, reply: bytes, body: bytes) -> None:
        request = self._requests.pop(subject, None)
        if request is None:
            self._on_message(reply, body)
        elif not request.done():
            request.set_result(json.loads(body))
