"""Packed columns: end to end as they lie in memory, then a footer that says where each begins.

Every column has a checksum, and so has the footer: what is damaged is never served. A column is read when it is first
asked for, and without a copy where the file is mapped or in memory.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from smile.columns.values import Array, Values

MAGIC = b"SMILE\x00\x00\x01"
ALIGNMENT = 64
END_BYTES = 24

Json = dict[str, Any]
Part = list[Any] | None
"""What it is, where it begins, how many bytes it has, and their checksum; None if there is none."""

WIDE = "wide"
"""Integers that are not of 8 bytes."""
WIDE_BYTES = 32
"""Enough for a sum of as many decimals of 38 digits as there can be events."""
BITS = "bits"
_GAPS = [bytes(n) for n in range(ALIGNMENT)]


class Damaged(Exception):
    """What is wrong with bytes that should be packed columns."""


class Packer:
    """Gathers columns, then gives all of them at once."""

    def __init__(self) -> None:
        self._pieces: list[Any] = [MAGIC]
        self._size = len(MAGIC)

    def column(self, column: Values | None) -> list[Part]:
        """Where its parts will be: whether valid, values, and of text where each ends."""
        if column is None:
            return [None, None, None]
        if isinstance(column.data, pa.Array):
            return [self.bits(column.valid), *self._text(column.data)]
        return [self.bits(column.valid), self.numbers(column.data), None]

    def columns(self, columns: Mapping[str, Values]) -> Json:
        """Several by their names; one that has two is packed once."""
        packed: dict[int, list[Part]] = {}
        for column in columns.values():
            if id(column) not in packed:
                packed[id(column)] = self.column(column)
        return {name: packed[id(column)] for name, column in columns.items()}

    def numbers(self, data: Array) -> Part:
        if data.dtype == object:
            wide = b"".join(int(v).to_bytes(WIDE_BYTES, "little", signed=True) for v in data)
            return self._part(WIDE, np.frombuffer(wide, np.uint8))
        return self._part(data.dtype.str, np.ascontiguousarray(data))

    def bits(self, data: Array | None) -> Part:
        return None if data is None else self._part(BITS, np.packbits(data, bitorder="little"))

    def finish(self, footer: Json) -> bytes:
        text = json.dumps(footer, separators=(",", ":")).encode()
        end = len(text).to_bytes(8, "little") + zlib.crc32(text).to_bytes(8, "little") + MAGIC
        return b"".join([*self._pieces, text, end])

    def _text(self, data: pa.Array) -> list[Part]:
        _, ends, body = data.buffers()
        offsets = np.zeros(1, np.int32)
        if len(data):
            offsets = np.frombuffer(ends, np.int32)[data.offset : data.offset + len(data) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        text = np.zeros(0, np.uint8) if first == last else np.frombuffer(body, np.uint8)[first:last]
        return [self._part(str(data.type), text), self._part("<i4", offsets - offsets[0])]

    def _part(self, kind: str, data: Array) -> Part:
        gap = -self._size % ALIGNMENT
        start, length = self._size + gap, data.nbytes
        if length:
            self._pieces += (_GAPS[gap], data)
            self._size = start + length
        return [kind, start, length, zlib.crc32(data)]


class Packed:
    """Columns that were packed, in a file or in memory; its footer is read, and nothing else yet."""

    def __init__(self, file: pa.NativeFile) -> None:
        self.file = file
        self._lock = Lock()
        size = file.size()
        tail = self._bytes(max(0, size - END_BYTES), min(END_BYTES, size))
        if len(tail) < END_BYTES or tail[16:] != MAGIC:
            raise Damaged("it does not end as it should")
        length, checksum = int.from_bytes(tail[:8], "little"), int.from_bytes(tail[8:16], "little")
        text = self._bytes(size - END_BYTES - length, length) if length <= size - END_BYTES else b""
        if zlib.crc32(text) != checksum:
            raise Damaged("its footer does not have the checksum it says")
        self.footer: Json = json.loads(text)

    def _bytes(self, start: int, length: int) -> bytes:
        self.file.seek(start)
        return self.file.read(length)  # type: ignore[no-any-return]

    def buffer(self, part: list[Any]) -> pa.Buffer:
        _, start, length, checksum = part
        if not length:
            return pa.py_buffer(b"")
        with self._lock:  # merges read beside everything else
            self.file.seek(start)
            found = self.file.read_buffer(length)
        if found.size != length or zlib.crc32(found) != checksum:
            raise Damaged(f"bytes {start} to {start + length} do not have their checksum")
        return found

    def numbers(self, part: list[Any], count: int) -> Array:
        found = self.buffer(part)
        if part[0] == BITS:
            return np.unpackbits(np.frombuffer(found, np.uint8), count=count, bitorder="little").astype(bool)
        if part[0] == WIDE:
            whole = found.to_pybytes()
            starts = range(0, len(whole), WIDE_BYTES)
            integers = [int.from_bytes(whole[n : n + WIDE_BYTES], "little", signed=True) for n in starts]
            return np.array(integers, object)
        return np.frombuffer(found, np.dtype(part[0]))

    def values(self, parts: list[Any], count: int) -> Values:
        valid, data, ends = parts
        known = None if valid is None else self.numbers(valid, count)
        if ends is None:
            return Values(self.numbers(data, count), known)
        kind = pa.string() if data[0] == "string" else pa.binary()
        return Values(pa.Array.from_buffers(kind, count, [None, self.buffer(ends), self.buffer(data)]), known)

    def columns(self, told: Json, count: int) -> "Lazily[str, Values]":
        return Lazily(told, lambda parts: self.values(parts, count))


K = TypeVar("K")
V = TypeVar("V")


class Lazily(Mapping[K, V], Generic[K, V]):
    """Parts of what is packed, each read when it is first asked for, and then kept."""

    def __init__(self, told: Mapping[K, list[Any]], read: Callable[[list[Any]], V]) -> None:
        self.told, self.read = told, read
        self.kept: dict[K, V] = {}

    def __iter__(self) -> Iterator[K]:
        return iter(self.told)

    def __len__(self) -> int:
        return len(self.told)

    @property
    def bytes(self) -> int:
        """What all of them take, read or not."""
        return sum(part[2] for parts in self.told.values() for part in parts if part is not None)

    def __getitem__(self, name: K) -> V:
        if name not in self.kept:
            # One that has two names is told of twice in the same words.
            # Others may read meanwhile.
            alike = (kept for other, kept in list(self.kept.items()) if self.told[other] == self.told[name])
            found = next(alike, None)
            self.kept[name] = self.read(self.told[name]) if found is None else found
        return self.kept[name]
