"""Packed columns: their buffers one after the other as they are in memory, then a footer with the position of each.

Every column and the footer have a checksum, so that damaged data is never returned. A column is read when it is first
used, without a copy if the file is mapped or in memory.
"""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from smile.columns.values import Array, ValueColumn

MAGIC = b"SMILE\x00\x00\x01"
ALIGNMENT = 64
TAIL_BYTES = 24

Json = dict[str, Any]
PartLocation = list[Any] | None
"""The kind of a part, its offset, its length in bytes and its checksum; None if there is no such part."""

WIDE = "wide"
"""Integers of more than 64 bits."""
WIDE_BYTES = 32
"""Enough for a sum of decimals of 38 digits, one for each possible event."""
BITS = "bits"
_PADDING = [bytes(n) for n in range(ALIGNMENT)]


class DamagedColumnsError(Exception):
    """Says why bytes are not valid packed columns."""


class ColumnPacker:
    """Collects columns and packs them into one sequence of bytes."""

    def __init__(self) -> None:
        self._pieces: list[Any] = [MAGIC]
        self._size = len(MAGIC)

    def add_column(self, column: ValueColumn | None) -> list[PartLocation]:
        """The locations of its parts: validity, values, and for text the offsets."""
        if column is None:
            return [None, None, None]
        if isinstance(column.data, pa.Array):
            return [self.add_bits(column.valid), *self._add_text(column.data)]
        return [self.add_bits(column.valid), self.add_numbers(column.data), None]

    def add_columns(self, columns: Mapping[str, ValueColumn]) -> Json:
        """Adds columns by name. A column that has two names is packed once."""
        packed: dict[int, list[PartLocation]] = {}
        for column in columns.values():
            if id(column) not in packed:
                packed[id(column)] = self.add_column(column)
        return {name: packed[id(column)] for name, column in columns.items()}

    def add_numbers(self, data: Array) -> PartLocation:
        if data.dtype == object:
            wide_bytes = b"".join(int(v).to_bytes(WIDE_BYTES, "little", signed=True) for v in data)
            return self._add_part(WIDE, np.frombuffer(wide_bytes, np.uint8))
        return self._add_part(data.dtype.str, np.ascontiguousarray(data))

    def add_bits(self, data: Array | None) -> PartLocation:
        return None if data is None else self._add_part(BITS, np.packbits(data, bitorder="little"))

    def finish(self, footer: Json) -> bytes:
        text = json.dumps(footer, separators=(",", ":")).encode()
        end = len(text).to_bytes(8, "little") + zlib.crc32(text).to_bytes(8, "little") + MAGIC
        return b"".join([*self._pieces, text, end])

    def _add_text(self, data: pa.Array) -> list[PartLocation]:
        _, offset_buffer, byte_buffer = data.buffers()
        offsets = np.zeros(1, np.int32)
        if len(data):
            offsets = np.frombuffer(offset_buffer, np.int32)[data.offset : data.offset + len(data) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        text = np.zeros(0, np.uint8) if first == last else np.frombuffer(byte_buffer, np.uint8)[first:last]
        return [self._add_part(str(data.type), text), self._add_part("<i4", offsets - offsets[0])]

    def _add_part(self, kind: str, data: Array) -> PartLocation:
        padding = -self._size % ALIGNMENT
        start, length = self._size + padding, data.nbytes
        if length:
            self._pieces += (_PADDING[padding], data)
            self._size = start + length
        return [kind, start, length, zlib.crc32(data)]


class PackedColumns:
    """Reads packed columns from a file or from memory. At first only the footer is read."""

    def __init__(self, file: pa.NativeFile) -> None:
        self.file = file
        self._lock = Lock()
        size = file.size()
        tail = self._read_bytes(max(0, size - TAIL_BYTES), min(TAIL_BYTES, size))
        if len(tail) < TAIL_BYTES or tail[16:] != MAGIC:
            raise DamagedColumnsError("it does not end with the expected bytes")
        length, checksum = int.from_bytes(tail[:8], "little"), int.from_bytes(tail[8:16], "little")
        text = self._read_bytes(size - TAIL_BYTES - length, length) if length <= size - TAIL_BYTES else b""
        if zlib.crc32(text) != checksum:
            raise DamagedColumnsError("its footer does not match its checksum")
        self.footer: Json = json.loads(text)

    def _read_bytes(self, start: int, length: int) -> bytes:
        self.file.seek(start)
        return self.file.read(length)  # type: ignore[no-any-return]

    def read_buffer(self, part: list[Any]) -> pa.Buffer:
        _, start, length, checksum = part
        if not length:
            return pa.py_buffer(b"")
        with self._lock:  # background merges read concurrently
            self.file.seek(start)
            buffer = self.file.read_buffer(length)
        if buffer.size != length or zlib.crc32(buffer) != checksum:
            raise DamagedColumnsError(f"bytes {start} to {start + length} do not match their checksum")
        return buffer

    def read_numbers(self, part: list[Any], count: int) -> Array:
        buffer = self.read_buffer(part)
        if part[0] == BITS:
            return np.unpackbits(np.frombuffer(buffer, np.uint8), count=count, bitorder="little").astype(bool)
        if part[0] == WIDE:
            wide_bytes = buffer.to_pybytes()
            starts = range(0, len(wide_bytes), WIDE_BYTES)
            integers = [int.from_bytes(wide_bytes[n : n + WIDE_BYTES], "little", signed=True) for n in starts]
            return np.array(integers, object)
        return np.frombuffer(buffer, np.dtype(part[0]))

    def read_values(self, parts: list[Any], count: int) -> ValueColumn:
        valid, data, text_offsets = parts
        valid_bits = None if valid is None else self.read_numbers(valid, count)
        if text_offsets is None:
            return ValueColumn(self.read_numbers(data, count), valid_bits)
        kind = pa.string() if data[0] == "string" else pa.binary()
        return ValueColumn(
            pa.Array.from_buffers(kind, count, [None, self.read_buffer(text_offsets), self.read_buffer(data)]),
            valid_bits,
        )

    def lazy_columns(self, locations: Json, count: int) -> "LazyMapping[str, ValueColumn]":
        return LazyMapping(locations, lambda parts: self.read_values(parts, count))


K = TypeVar("K")
V = TypeVar("V")


class LazyMapping(Mapping[K, V], Generic[K, V]):
    """Packed columns by name. Each is read when it is first used, and then cached."""

    def __init__(self, locations: Mapping[K, list[Any]], read: Callable[[list[Any]], V]) -> None:
        self.locations, self.read = locations, read
        self.cache: dict[K, V] = {}

    def __iter__(self) -> Iterator[K]:
        return iter(self.locations)

    def __len__(self) -> int:
        return len(self.locations)

    @property
    def nbytes(self) -> int:
        """The size of all columns, whether read or not."""
        return sum(part[2] for parts in self.locations.values() for part in parts if part is not None)

    def __getitem__(self, name: K) -> V:
        if name not in self.cache:
            # A column with two names has equal locations under both. The cache is copied, since other threads may read.
            same_locations = (
                column for other, column in list(self.cache.items()) if self.locations[other] == self.locations[name]
            )
            cached = next(same_locations, None)
            self.cache[name] = self.read(self.locations[name]) if cached is None else cached
        return self.cache[name]
