"""State files: the columns of runs, packed. A file is written aside and renamed when it is whole; after that it never
changes.

A run is told of by the number of its rows, and its parts in an order that follows from the table's shape: hashes, what
is gone, each column, and of a large run each index and each order (marks, places).
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from pyarrow import fs

from smile.columns.packed import Damaged, Json, Lazily, Packed, Packer, Part
from smile.errors import SmileError, error
from smile.state.run import Index, Run, Shape, make

FORMAT = 2
INDEXED_ROWS_MIN = 50_000
"""Of a run with fewer rows, indexes are sooner made again than written."""


class Writer(Packer):
    """Gathers runs, then writes them at once."""

    def run(self, shape: Shape, run: Run) -> list[Any]:
        """Where the parts of the run will be."""
        parts: list[Part] = [self.numbers(run.hashes), self.bits(run.gone)]
        packed = self.columns(run.rows)
        for name in shape.columns:
            parts += packed.get(name, [None, None, None])
        for index in [*(run.indexes[on] for on in shape.indexes), *(run.orders[name] for name in shape.orders)]:
            large = len(run) >= INDEXED_ROWS_MIN
            parts += [self.numbers(index.marks), self.numbers(index.places)] if large else [None, None]
        return [len(run), parts]

    def write(self, filesystem: fs.FileSystem, path: str, footer: Json) -> int:
        """Writes the file, and says how many bytes it has."""
        whole = self.finish({"format": FORMAT, **footer})
        aside = path + ".new"
        with filesystem.open_output_stream(aside) as sink:
            sink.write(whole)
        filesystem.move(aside, path)
        return len(whole)


def flushed(filesystem: fs.FileSystem, path: str) -> None:
    """Returns once a file or a directory is on the disk; file systems of other machines see to that themselves."""
    if isinstance(filesystem, fs.LocalFileSystem):
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def write_json(filesystem: fs.FileSystem, path: str, what: Any, hard: bool) -> None:
    """Wholly or not at all. If it is `hard`, it is on the disk when this returns."""
    aside = path + ".new"
    try:
        with filesystem.open_output_stream(aside) as sink:
            sink.write(json.dumps(what).encode())
        if hard:
            flushed(filesystem, aside)
        filesystem.move(aside, path)
        if hard:
            flushed(filesystem, path.rpartition("/")[0])
    except OSError as problem:
        raise error("E064", f"{path} cannot be written: {problem}") from None


def damaged(path: str, what: str) -> SmileError:
    return error("E061", f"{path} is damaged: {what}")


class StateFile(Packed):
    """One file, opened."""

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self.path = path
        try:
            super().__init__(filesystem.open_input_file(path))
        except FileNotFoundError as problem:
            raise damaged(path, f"it cannot be read ({problem})") from None
        except OSError as problem:
            # It may be whole: nobody is to take it for lost.
            raise error("E063", f"{path} cannot be read: {problem}") from None
        except Damaged as problem:
            raise damaged(path, str(problem)) from None
        if self.footer["format"] != FORMAT:
            other = "a newer" if self.footer["format"] > FORMAT else "an older"
            raise error("E062", f"{path} was written by {other} SMILE (format {self.footer['format']}, not {FORMAT})")

    def buffer(self, part: list[Any]) -> Any:
        try:
            return super().buffer(part)
        except Damaged as problem:
            raise damaged(self.path, str(problem)) from None

    def run(self, number: int, shape: Shape) -> Run:
        count, parts = self.footer["runs"][number]
        told = {name: parts[2 + 3 * n : 5 + 3 * n] for n, name in enumerate(shape.columns)}
        rest = parts[2 + 3 * len(shape.columns) :]
        pairs = [rest[n : n + 2] for n in range(0, len(rest), 2)]
        if len(pairs) != len(shape.indexes) + len(shape.orders):
            raise damaged(self.path, "its columns are not those of the program")
        rows = self.columns({name: part for name, part in told.items() if part[1] is not None}, count)
        hashes = self.numbers(parts[0], count)
        gone = None if parts[1] is None else self.numbers(parts[1], count)
        if count < INDEXED_ROWS_MIN:
            return make(shape, rows, gone, hashes)
        indexes = dict(zip(shape.indexes, pairs, strict=False))
        orders = dict(zip(shape.orders, pairs[len(indexes) :], strict=True))
        return Run(rows, hashes, gone, Lazily(indexes, self._index), Lazily(orders, self._index))

    def _index(self, parts: list[Any]) -> Index:
        return Index(self.numbers(parts[0], 0), self.numbers(parts[1], 0))


def read_all(run: Run) -> None:
    """Every byte of a run, so that damage is found now."""
    parts: tuple[Mapping[Any, Any], ...] = (run.rows, run.indexes, run.orders)
    for part in parts:
        for name in part:
            part[name]
