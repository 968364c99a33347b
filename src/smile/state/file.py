"""State files: the columns of runs end to end, as Arrow has them in memory, then a footer that says where each begins.

Every column has a checksum, and so has the footer: what is damaged is never served. A file is written aside and renamed
when it is whole; after that it never changes. A column is read when it is first asked for.

A run is told of by the number of its rows, and its parts in an order that follows from the table's shape: hashes, what
is gone, each column (whether valid, values, and of text where each ends), and of a large run each index and each order
(marks, places).
"""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
from pyarrow import fs

from smile.columns.values import Array, Values
from smile.errors import SmileError, error
from smile.state.run import Index, Run, Shape, make

MAGIC = b"SMILE\x00\x00\x01"
FORMAT = 1
ALIGNMENT = 64
INDEXED_ROWS_MIN = 50_000
"""Of a run with fewer rows, indexes are sooner made again than written."""
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


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Writer:
    """Gathers runs, then writes them at once."""

    pieces: list[Any] = field(default_factory=lambda: [MAGIC])
    size: int = len(MAGIC)

    def run(self, shape: Shape, run: Run) -> list[Any]:
        """Where the parts of the run will be."""
        parts: list[Part] = [self._numbers(run.hashes), self._bits(run.gone)]
        written: dict[int, list[Part]] = {}
        for name in shape.columns:
            column = run.rows.get(name)
            if id(column) not in written:
                written[id(column)] = self._column(column)
            parts += written[id(column)]
        for index in [*(run.indexes[on] for on in shape.indexes), *(run.orders[name] for name in shape.orders)]:
            large = len(run) >= INDEXED_ROWS_MIN
            parts += [self._numbers(index.marks), self._numbers(index.places)] if large else [None, None]
        return [len(run), parts]

    def _column(self, column: Values | None) -> list[Part]:
        if column is None:
            return [None, None, None]
        if isinstance(column.data, pa.Array):
            return [self._bits(column.valid), *self._text(column.data)]
        return [self._bits(column.valid), self._numbers(column.data), None]

    def _text(self, data: pa.Array) -> list[Part]:
        _, ends, body = data.buffers()
        offsets = np.zeros(1, np.int32)
        if len(data):
            offsets = np.frombuffer(ends, np.int32)[data.offset : data.offset + len(data) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        text = np.zeros(0, np.uint8) if first == last else np.frombuffer(body, np.uint8)[first:last]
        return [self._part(str(data.type), text), self._part("<i4", offsets - offsets[0])]

    def _numbers(self, data: Array) -> Part:
        if data.dtype == object:
            wide = b"".join(int(v).to_bytes(WIDE_BYTES, "little", signed=True) for v in data)
            return self._part(WIDE, np.frombuffer(wide, np.uint8))
        return self._part(data.dtype.str, np.ascontiguousarray(data))

    def _bits(self, data: Array | None) -> Part:
        return None if data is None else self._part(BITS, np.packbits(data, bitorder="little"))

    def _part(self, kind: str, data: Array) -> Part:
        gap = -self.size % ALIGNMENT
        start, length = self.size + gap, data.nbytes
        if length:
            self.pieces += (_GAPS[gap], data)
            self.size = start + length
        return [kind, start, length, zlib.crc32(data)]

    def finish(self, filesystem: fs.FileSystem, path: str, footer: Json) -> int:
        """Writes the file, and says how many bytes it has."""
        text = json.dumps({"format": FORMAT, **footer}, separators=(",", ":")).encode()
        end = len(text).to_bytes(8, "little") + zlib.crc32(text).to_bytes(8, "little") + MAGIC
        whole = b"".join([*self.pieces, text, end])
        aside = path + ".new"
        with filesystem.open_output_stream(aside) as sink:
            sink.write(whole)
        filesystem.move(aside, path)
        return len(whole)


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def damaged(path: str, what: str) -> SmileError:
    return error("E061", f"{path} is damaged: {what}")


class StateFile:
    """One file, opened; its footer is read, and nothing else yet."""

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self.path = path
        try:
            self.file = filesystem.open_input_file(path)
            size = self.file.size()
        except OSError as problem:
            raise damaged(path, f"it cannot be read ({problem})") from None
        tail = self._read(max(0, size - END_BYTES), min(END_BYTES, size))
        if len(tail) < END_BYTES or tail[16:] != MAGIC:
            raise damaged(path, "it does not end as a state file does")
        length, checksum = int.from_bytes(tail[:8], "little"), int.from_bytes(tail[8:16], "little")
        text = self._read(size - END_BYTES - length, length) if length <= size - END_BYTES else b""
        if zlib.crc32(text) != checksum:
            raise damaged(path, "its footer does not have the checksum it says")
        self.footer: Json = json.loads(text)
        if self.footer["format"] > FORMAT:
            raise error("E062", f"{path} was written by a newer SMILE (format {self.footer['format']}, not {FORMAT})")

    def _read(self, start: int, length: int) -> bytes:
        self.file.seek(start)
        return self.file.read(length)  # type: ignore[no-any-return]

    def _buffer(self, part: list[Any]) -> pa.Buffer:
        _, start, length, checksum = part
        if not length:
            return pa.py_buffer(b"")
        self.file.seek(start)
        found = self.file.read_buffer(length)
        if found.size != length or zlib.crc32(found) != checksum:
            raise damaged(self.path, f"bytes {start} to {start + length} do not have their checksum")
        return found

    def run(self, number: int, shape: Shape) -> Run:
        count, parts = self.footer["runs"][number]
        columns = {name: parts[2 + 3 * n : 5 + 3 * n] for n, name in enumerate(shape.columns)}
        columns = {name: part for name, part in columns.items() if part[1] is not None}
        rest = parts[2 + 3 * len(shape.columns) :]
        pairs = [rest[n : n + 2] for n in range(0, len(rest), 2)]
        if len(pairs) != len(shape.indexes) + len(shape.orders):
            raise damaged(self.path, "its columns are not those of the program")
        rows = Lazily(columns, lambda part: self._values(part, count))
        hashes = self._numbers(parts[0], count)
        gone = None if parts[1] is None else self._numbers(parts[1], count)
        if count < INDEXED_ROWS_MIN:
            return make(shape, rows, gone, hashes)
        indexes = dict(zip(shape.indexes, pairs, strict=False))
        orders = dict(zip(shape.orders, pairs[len(indexes) :], strict=True))
        return Run(rows, hashes, gone, Lazily(indexes, self._index), Lazily(orders, self._index))

    def _numbers(self, part: list[Any], count: int) -> Array:
        found = self._buffer(part)
        if part[0] == BITS:
            return np.unpackbits(np.frombuffer(found, np.uint8), count=count, bitorder="little").astype(bool)
        if part[0] == WIDE:
            whole = found.to_pybytes()
            starts = range(0, len(whole), WIDE_BYTES)
            integers = [int.from_bytes(whole[n : n + WIDE_BYTES], "little", signed=True) for n in starts]
            return np.array(integers, object)
        return np.frombuffer(found, np.dtype(part[0]))

    def _values(self, parts: list[Any], count: int) -> Values:
        valid, data, ends = parts
        known = None if valid is None else self._numbers(valid, count)
        if ends is None:
            return Values(self._numbers(data, count), known)
        kind = pa.string() if data[0] == "string" else pa.binary()
        return Values(pa.Array.from_buffers(kind, count, [None, self._buffer(ends), self._buffer(data)]), known)

    def _index(self, parts: list[Any]) -> Index:
        return Index(self._numbers(parts[0], 0), self._numbers(parts[1], 0))


K = TypeVar("K")
V = TypeVar("V")


class Lazily(Mapping[K, V], Generic[K, V]):
    """Parts of a run, each read when it is first asked for, and then kept."""

    def __init__(self, told: Mapping[K, list[Any]], read: Callable[[list[Any]], V]) -> None:
        self.told, self.read = told, read
        self.kept: dict[K, V] = {}

    def __iter__(self) -> Iterator[K]:
        return iter(self.told)

    def __len__(self) -> int:
        return len(self.told)

    def __getitem__(self, name: K) -> V:
        if name not in self.kept:
            # One that has two names is told of twice in the same words.
            alike = (kept for other, kept in self.kept.items() if self.told[other] == self.told[name])
            found = next(alike, None)
            self.kept[name] = self.read(self.told[name]) if found is None else found
        return self.kept[name]


def read_all(run: Run) -> None:
    """Every byte of a run, so that damage is found now."""
    parts: tuple[Mapping[Any, Any], ...] = (run.rows, run.indexes, run.orders)
    for part in parts:
        for name in part:
            part[name]
