"""A client of the wire protocol that sends and shows bare messages."""

import socket
import struct
from collections.abc import Sequence
from typing import Self

from smile.postgres.proxy.messages import message
from tests.postgres.private_server import SUPERUSER

Message = tuple[bytes, bytes]


def startup(user: str = SUPERUSER, **parameters: str) -> bytes:
    pairs = {"user": user, "database": "postgres", **parameters}
    body = b"".join(f"{name}\0{value}\0".encode() for name, value in pairs.items()) + b"\0"
    return struct.pack("!ii", len(body) + 8, 3 << 16) + body


def query(text: str) -> bytes:
    return message(b"Q", text.encode() + b"\0")


def parse(text: str, name: str = "", types: Sequence[int] = ()) -> bytes:
    body = name.encode() + b"\0" + text.encode() + b"\0" + struct.pack(f"!h{len(types)}i", len(types), *types)
    return message(b"P", body)


def bind(values: Sequence[bytes | None] = (), statement: str = "", portal: str = "", result_format: int = 0) -> bytes:
    parts = [portal.encode() + b"\0" + statement.encode() + b"\0", struct.pack("!hh", 0, len(values))]
    for value in values:
        parts.append(struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value)
    return message(b"B", b"".join([*parts, struct.pack("!hh", 1, result_format)]))


def describe(kind: bytes, name: str = "") -> bytes:
    return message(b"D", kind + name.encode() + b"\0")


def execute(portal: str = "", rows_max: int = 0) -> bytes:
    return message(b"E", portal.encode() + b"\0" + struct.pack("!i", rows_max))


def close(kind: bytes, name: str = "") -> bytes:
    return message(b"C", kind + name.encode() + b"\0")


SYNC, FLUSH, TERMINATE, COPY_DONE = message(b"S"), message(b"H"), message(b"X"), message(b"c")


def copy_data(data: bytes) -> bytes:
    return message(b"d", data)


def copy_fail(reason: str) -> bytes:
    return message(b"f", reason.encode() + b"\0")


class RawClient:
    def __init__(self, port: int, first: bytes | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._buffer = b""
        self.send(startup() if first is None else first)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> Message | None:
        """The next message, or None at the end of the connection."""
        header = self._read(5)
        if len(header) < 5:
            return None
        body = self._read(int.from_bytes(header[1:], "big") - 4)
        return header[:1], body

    def _read(self, count: int) -> bytes:
        while len(self._buffer) < count:
            chunk = self.socket.recv(2**16)
            if not chunk:
                break
            self._buffer += chunk
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data

    def receive_until(self, kind: bytes, count: int = 1) -> list[Message]:
        """All messages up to the last of `count` of this kind, or to the end of the connection."""
        messages: list[Message] = []
        while count > 0 and (received := self.receive()) is not None:
            messages.append(received)
            count -= received[0] == kind
        return messages

    def start(self) -> list[Message]:
        return self.receive_until(b"Z")

    def receive_all(self) -> list[Message]:
        return self.receive_until(b"", 1)


def fields(body: bytes) -> dict[str, str]:
    """The fields of an error or a notice."""
    return {part[:1].decode(): part[1:].decode() for part in body.split(b"\0") if part}
