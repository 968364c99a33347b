"""Messages of PostgreSQL's wire protocol, version 3: their frames, and the few whose content the proxy reads or writes.

After the startup, a message is a byte that says its type, a length of four bytes that counts itself, and a body.
"""

import struct
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from smile.errors import SmileError

HEADER_BYTES: Final = 5
NAMES_BYTES_MAX: Final = 2**16
"""Names at the beginning of a long message are read up to here. PostgreSQL cuts names after 63 bytes."""

Fields = list[tuple[bytes, bytes]]


class Handling(Enum):
    """What happens to a message, decided by its type and length."""

    PASS = auto()
    DROP = auto()
    READ = auto()
    """It is collected, and replaced by what `replace` returns."""
    READ_NAMES = auto()
    """It is passed on after `read_names` has got the first names in it."""


class MessageFilter:
    """One direction of a connection: takes bytes in chunks of any size, and returns the bytes to send on.

    Only what is read is collected: anything else passes through in the chunks in which it arrives. Bytes that are no
    messages pass through as well, so that their receiver reports them.
    """

    def __init__(
        self,
        decide: Callable[[bytes, int], Handling],
        replace: Callable[[bytes, bytes], bytes],
        read_names: Callable[[bytes, list[bytes]], None],
    ) -> None:
        self._decide, self._replace, self._read_names = decide, replace, read_names
        self._pending = b""
        self._handling: Handling | None = None
        """Of the message at the beginning of `_pending`, if its header has arrived and it is not complete."""
        self._rest, self._is_dropped = 0, False
        """How much of a message that is passed or dropped is still to come."""
        self._is_garbage = False

    def feed(self, data: bytes) -> bytes:
        if self._is_garbage:
            return data
        data, self._pending = self._pending + data if self._pending else data, b""
        parts: list[bytes] = []
        position = passed_from = 0  # the bytes between them are passed on

        def flush() -> None:
            if passed_from < position:
                parts.append(data[passed_from:position])

        while position < len(data):
            if self._rest:
                count = min(self._rest, len(data) - position)
                if self._is_dropped:
                    flush()
                    passed_from = position + count
                position += count
                self._rest -= count
                continue
            if len(data) - position < HEADER_BYTES:
                break
            kind = data[position : position + 1]
            length = int.from_bytes(data[position + 1 : position + HEADER_BYTES], "big", signed=True)
            if length < 4:
                self._is_garbage = True
                position = len(data)
                break
            if self._handling is None:
                self._handling = self._decide(kind, length)
            end = position + 1 + length
            if self._handling is Handling.READ:
                if end > len(data):
                    break
                flush()
                parts.append(self._replace(kind, data[position + HEADER_BYTES : end]))
                position = passed_from = end
            elif self._handling is Handling.READ_NAMES:
                body = data[position + HEADER_BYTES : min(end, position + HEADER_BYTES + NAMES_BYTES_MAX)]
                names = body.split(b"\0", 2)[:2]
                is_complete = len(names) == 2 and body.count(b"\0") >= 2
                if not is_complete and end > len(data) and len(body) < NAMES_BYTES_MAX:
                    break
                self._read_names(kind, names)
                self._rest, self._is_dropped = 1 + length, False
            else:
                self._rest, self._is_dropped = 1 + length, self._handling is Handling.DROP
            self._handling = None
        flush()
        self._pending = data[position:]
        return b"".join(parts)


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def command_complete(tag: str) -> bytes:
    return message(b"C", tag.encode() + b"\0")


NO_DATA: Final = message(b"n")


def decode_fields(body: bytes) -> Fields | None:
    """The fields of an error or a notice, in their order; None if the body is not made of fields."""
    fields = [(part[:1], part[1:]) for part in body.split(b"\0")]
    is_regular = len(fields) >= 2 and fields[-2:] == [(b"", b"")] * 2 and all(kind for kind, _ in fields[:-2])
    return fields[:-2] if is_regular else None


def encode_fields(fields: Fields) -> bytes:
    return b"".join(kind + value + b"\0" for kind, value in fields) + b"\0"


def replace_field(fields: Fields, kind: bytes, value: bytes, after: bytes = b"M") -> Fields:
    """The fields with another value of one of them. If it is not among them, it comes after the field `after`."""
    if any(k == kind for k, _ in fields):
        return [(k, value if k == kind else v) for k, v in fields]
    index = next((i for i, (k, _) in enumerate(fields) if k == after), len(fields) - 1) + 1
    return [*fields[:index], (kind, value), *fields[index:]]


def fatal_message(sqlstate: str, problem: SmileError) -> bytes:
    """An error that ends a connection."""
    diagnostic = problem.diagnostics[0]
    fields = [(b"S", b"FATAL"), (b"V", b"FATAL"), (b"C", sqlstate.encode())]
    fields.append((b"M", f"{diagnostic.message} ({diagnostic.code})".encode()))
    if diagnostic.hint:
        fields.append((b"H", diagnostic.hint.encode()))
    return message(b"E", encode_fields(fields))
