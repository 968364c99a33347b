"""State files: the columns of runs end to end, as Arrow has them in memory, then a footer that says where each begins.

Every column has a checksum, and so has the footer: what is damaged is never served. A file is written aside and renamed
when it is whole; after that it never changes. A column is read when it is first asked for.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from smile.columns.values import Array, Values
from smile.errors import SmileError, error
from smile.state.run import Index, Run, Shape

MAGIC = b"SMILE\x00\x00\x01"
FORMAT = 1
ALIGNMENT = 64

Json = dict[str, Any]
Place = list[int]
"""Where bytes begin, how many there are, and their checksum."""


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Writer:
    """Gathers runs, then writes them at once."""

    pieces: list[Any] = field(default_factory=list)
    size: int = len(MAGIC)

    def run(self, run: Run) -> Json:
        """Where the parts of the run will be."""
        found: Json = {"rows": len(run), "hashes": self._numbers(run.hashes)}
        found["gone"] = None if run.gone is None else self._bits(run.gone)
        found["columns"] = {name: self._values(column) for name, column in run.rows.items()}
        found["indexes"] = [[list(on), *self._index(index)] for on, index in run.indexes.items()]
        found["orders"] = {name: self._index(index) for name, index in run.orders.items()}
        return found

    def _index(self, index: Index) -> list[Json]:
        return [self._numbers(index.marks), self._numbers(index.places)]

    def _values(self, column: Values) -> Json:
        found: Json = {"valid": None if column.valid is None else self._bits(column.valid)}
        data = column.data
        if not isinstance(data, pa.Array):
            return {**found, **self._numbers(data)}
        _, ends, body = data.buffers()
        offsets = (
            np.frombuffer(ends, np.int32)[data.offset : data.offset + len(data) + 1] if len(data) else np.zeros(1, "i4")
        )
        first, last = int(offsets[0]), int(offsets[-1])
        text = b"" if body is None or first == last else body.slice(first, last - first)
        return {**found, "type": str(data.type), "offsets": self._bytes(offsets - offsets[0]), "at": self._bytes(text)}

    def _numbers(self, data: Array) -> Json:
        if data.dtype == object:
            halves = [
                (v & (2**64 - 1)).to_bytes(8, "little") + (v >> 64).to_bytes(8, "little", signed=True) for v in data
            ]
            return {"type": "wide", "at": self._bytes(b"".join(halves))}
        return {"type": data.dtype.str, "at": self._bytes(np.ascontiguousarray(data))}

    def _bits(self, data: Array) -> Json:
        return {"type": "bits", "at": self._bytes(np.packbits(data, bitorder="little"))}

    def _bytes(self, piece: Any) -> Place:
        view = memoryview(piece).cast("B") if len(piece) else b""
        gap = -self.size % ALIGNMENT
        self.pieces += [bytes(gap), view]
        place = [self.size + gap, len(view), zlib.crc32(view)]
        self.size += gap + len(view)
        return place

    def finish(self, filesystem: fs.FileSystem, path: str, footer: Json) -> int:
        """Writes the file, and says how many bytes it has."""
        text = json.dumps({"format": FORMAT, **footer}, separators=(",", ":")).encode()
        end = len(text).to_bytes(8, "little") + zlib.crc32(text).to_bytes(8, "little") + MAGIC
        aside = path + ".new"
        with filesystem.open_output_stream(aside) as sink:
            sink.write(b"".join([MAGIC, *self.pieces, text, end]))
        filesystem.move(aside, path)
        return self.size + len(text) + len(end)


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
        tail = self._read(max(0, size - 24), min(24, size))
        if len(tail) < 24 or tail[16:] != MAGIC:
            raise damaged(path, "it does not end as a state file does")
        length, checksum = int.from_bytes(tail[:8], "little"), int.from_bytes(tail[8:16], "little")
        text = self._read(size - 24 - length, length) if length <= size - 24 else b""
        if zlib.crc32(text) != checksum:
            raise damaged(path, "its footer does not have the checksum it says")
        self.footer: Json = json.loads(text)
        if self.footer["format"] > FORMAT:
            raise error("E062", f"{path} was written by a newer SMILE (format {self.footer['format']}, not {FORMAT})")

    def _read(self, start: int, length: int) -> bytes:
        self.file.seek(start)
        return self.file.read(length)  # type: ignore[no-any-return]

    def _buffer(self, place: Place) -> pa.Buffer:
        start, length, checksum = place
        if not length:
            return pa.py_buffer(b"")
        self.file.seek(start)
        found = self.file.read_buffer(length)
        if found.size != length or zlib.crc32(found) != checksum:
            raise damaged(self.path, f"bytes {start} to {start + length} do not have their checksum")
        return found

    def run(self, number: int, shape: Shape) -> Run:
        told = self.footer["runs"][number]
        gone = None if told["gone"] is None else self.numbers(told["gone"], told["rows"])
        rows = _Columns(self, told["columns"], told["rows"])
        indexes = _Indexes(self, {tuple(on): index for on, *index in told["indexes"]})
        orders = _Indexes(self, told["orders"])
        if set(rows) != set(shape.columns):
            raise damaged(self.path, "its columns are not those of the program")
        return Run(rows, self.numbers(told["hashes"], told["rows"]), gone, indexes, orders)

    def numbers(self, told: Json, count: int) -> Array:
        found = self._buffer(told["at"])
        if told["type"] == "bits":
            return np.unpackbits(np.frombuffer(found, np.uint8), count=count, bitorder="little").astype(bool)
        if told["type"] == "wide":
            whole = found.to_pybytes()
            return np.array(
                [int.from_bytes(whole[i : i + 16], "little", signed=True) for i in range(0, len(whole), 16)], object
            )
        return np.frombuffer(found, np.dtype(told["type"]))

    def values(self, told: Json, count: int) -> Values:
        valid = None if told["valid"] is None else self.numbers(told["valid"], count)
        if "offsets" not in told:
            return Values(self.numbers(told, count), valid)
        kind = pa.string() if told["type"] == "string" else pa.binary()
        buffers = [None, self._buffer(told["offsets"]), self._buffer(told["at"])]
        return Values(pa.Array.from_buffers(kind, count, buffers), valid)


@dataclass(frozen=True)
class _Columns(Mapping[str, Values]):
    file: StateFile
    told: Mapping[str, Json]
    count: int

    def __iter__(self) -> Iterator[str]:
        return iter(self.told)

    def __len__(self) -> int:
        return len(self.told)

    @cached_property
    def _read(self) -> dict[str, Values]:
        return {}

    def __getitem__(self, name: str) -> Values:
        if name not in self._read:
            self._read[name] = self.file.values(self.told[name], self.count)
        return self._read[name]


@dataclass(frozen=True)
class _Indexes(Mapping[Any, Index]):
    file: StateFile
    told: Mapping[Any, list[Json]]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.told)

    def __len__(self) -> int:
        return len(self.told)

    @cached_property
    def _read(self) -> dict[Any, Index]:
        return {}

    def __getitem__(self, name: Any) -> Index:
        if name not in self._read:
            marks, places = self.told[name]
            self._read[name] = Index(self.file.numbers(marks, 0), self.file.numbers(places, 0))
        return self._read[name]


def read_all(run: Run) -> None:
    """Every byte of a run, so that damage is found now."""
    parts: tuple[Mapping[Any, Any], ...] = (run.rows, run.indexes, run.orders)
    for part in parts:
        for name in part:
            part[name]
