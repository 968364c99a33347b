"""Checks the messages of Arrow's IPC format before they are decoded: how large a message becomes is written in it.

A compressed buffer begins with its decompressed length, and decompression fails if this length is wrong. See Arrow's
Message.fbs.
"""

import struct
from typing import Final

import numpy as np

_DICTIONARY_BATCH: Final = 2
_RECORD_BATCH: Final = 3
_VERSION: Final = 4
"""Version 5 of the format, which Arrow writes since 1.0."""
_CONTINUATION: Final = 0xFFFFFFFF
_PREFIX_BYTES: Final = 8
_LENGTH_BYTES: Final = 8
_NOT_COMPRESSED: Final = -1
"""Instead of the decompressed length, where compression would not make a buffer smaller."""

MALFORMED: Final = (ValueError, struct.error)


def decoded_bytes(metadata: bytes, body: memoryview) -> int:
    """The size of a message's buffers after decompression. Raises one of `MALFORMED` if the message is malformed."""
    if _message(metadata).long(3) != len(body):
        raise ValueError("the body of a message has another length than it says")
    records = _records(metadata)
    if records is None or not records.has_field(3):  # without compression
        return len(body)
    buffers = records.buffers(2)
    offsets = [int(offset) for offset, length in buffers.tolist() if length]
    lengths = [_decoded_length(body, offset) for offset in offsets]
    return sum(len(body) if length == _NOT_COMPRESSED else length for length in lengths)


def check_decoded_size(message: bytes, bytes_max: int) -> None:
    """Checks a message with its prefix, as `RecordBatch.serialize` writes it. Raises one of `MALFORMED` if it is
    malformed, or becomes larger than allowed."""
    mark, length = struct.unpack_from("<Ii", message)
    if mark != _CONTINUATION or not 0 <= length <= len(message) - _PREFIX_BYTES:
        raise ValueError("the message does not begin with its length")
    end = _PREFIX_BYTES + length
    size = decoded_bytes(message[_PREFIX_BYTES:end], memoryview(message)[end:])
    if size > bytes_max:
        raise ValueError(f"it has {size:,} bytes; at most {bytes_max:,} are allowed")


def is_compressed(metadata: bytes) -> bool:
    records = _records(metadata)
    return records is not None and records.has_field(3)


def _decoded_length(body: memoryview, offset: int) -> int:
    if not 0 <= offset <= len(body) - _LENGTH_BYTES:
        raise ValueError("a buffer is outside of its message")
    length = int.from_bytes(body[offset : offset + _LENGTH_BYTES], "little", signed=True)
    if length < _NOT_COMPRESSED:
        raise ValueError("a compressed buffer has a wrong length")
    return length


def _message(metadata: bytes) -> "_FlatbufferTable":
    return _FlatbufferTable(metadata, struct.unpack_from("<I", metadata)[0])


def _records(metadata: bytes) -> "_FlatbufferTable | None":
    """The record batch of a message, or that of a dictionary; None if it is another message, such as a schema."""
    message = _message(metadata)
    version, kind, header = message.byte(0), message.byte(1), message.table(2)
    if header is None or kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return None
    if version != _VERSION and message.has_field(4):
        # Arrow 0.17 declared its compression in the metadata of the message.
        raise ValueError("the format is older than Arrow 1.0")
    return header.table(1) if kind == _DICTIONARY_BATCH else header


class _FlatbufferTable:
    """A table in a flatbuffer."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self._offset = offset
        self._vtable = offset - struct.unpack_from("<i", data, offset)[0]

    def has_field(self, field: int) -> bool:
        return self._position(field) is not None

    def byte(self, field: int) -> int:
        position = self._position(field)
        return 0 if position is None else int(struct.unpack_from("<B", self._data, position)[0])

    def long(self, field: int) -> int:
        position = self._position(field)
        return 0 if position is None else int(struct.unpack_from("<q", self._data, position)[0])

    def table(self, field: int) -> "_FlatbufferTable | None":
        position = self._position(field)
        return None if position is None else _FlatbufferTable(self._data, self._target(position))

    def buffers(self, field: int) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
        """A vector of buffers: the offset and the length of each."""
        position = self._position(field)
        if position is None:
            return np.empty((0, 2), np.int64)
        vector = self._target(position)
        (count,) = struct.unpack_from("<I", self._data, vector)
        return np.frombuffer(self._data, "<i8", 2 * count, vector + 4).reshape(-1, 2)

    def _position(self, field: int) -> int | None:
        """The position of a field; None if it is absent."""
        (size,) = struct.unpack_from("<H", self._data, self._vtable)
        if 4 + 2 * field >= size:
            return None
        (offset,) = struct.unpack_from("<H", self._data, self._vtable + 4 + 2 * field)
        return self._offset + offset if offset else None

    def _target(self, position: int) -> int:
        return position + int(struct.unpack_from("<I", self._data, position)[0])
