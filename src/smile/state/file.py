"""State files: the packed columns of runs. A file is written under a temporary name and renamed when it is complete;
after that it never changes.

The footer describes a run by its number of rows and by the locations of its parts. The table's schema determines their
order: hashes, tombstones, each column, then each hash index and each tick index (sorted keys, row numbers). Only large
runs have stored indexes.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from pyarrow import fs

from smile.columns.packed import ColumnPacker, DamagedColumnsError, Json, LazyMapping, PackedColumns, PartLocation
from smile.errors import SmileError, error
from smile.state.run import Run, RunIndex, TableSchema, make_run

FORMAT = 3
INDEXED_ROWS_MIN = 50_000
"""For a run with fewer rows, building the indexes again is faster than storing them."""


class StateFileWriter(ColumnPacker):
    """Collects runs, then writes all of them to one file."""

    def add_run(self, schema: TableSchema, run: Run) -> list[Any]:
        """Adds a run. Returns its description for the footer."""
        parts: list[PartLocation] = [self.add_numbers(run.hashes), self.add_bits(run.tombstones)]
        packed = self.add_columns(run.rows)
        for name in schema.columns:
            parts += packed.get(name, [None, None, None])
        for index in [
            *(run.indexes[on] for on in schema.indexes),
            *(run.tick_indexes[name] for name in schema.tick_indexes),
        ]:
            is_large = len(run) >= INDEXED_ROWS_MIN
            parts += (
                [self.add_numbers(index.sorted_keys), self.add_numbers(index.row_numbers)] if is_large else [None, None]
            )
        return [len(run), parts]

    def write(self, filesystem: fs.FileSystem, path: str, footer: Json) -> int:
        """Writes the file. Returns its size in bytes."""
        content = self.finish({"format": FORMAT, **footer})
        temp_path = path + ".new"
        with filesystem.open_output_stream(temp_path) as sink:
            sink.write(content)
        filesystem.move(temp_path, path)
        return len(content)


def flush_to_disk(filesystem: fs.FileSystem, path: str) -> None:
    """Returns when a file or directory is on the disk. Remote file systems are responsible for their own durability."""
    if isinstance(filesystem, fs.LocalFileSystem):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_json(filesystem: fs.FileSystem, path: str, value: Any, is_durable: bool) -> None:
    """Writes a JSON file atomically. If `is_durable`, the file is on the disk when this function returns."""
    temp_path = path + ".new"
    try:
        with filesystem.open_output_stream(temp_path) as sink:
            sink.write(json.dumps(value).encode())
        if is_durable:
            flush_to_disk(filesystem, temp_path)
        filesystem.move(temp_path, path)
        if is_durable:
            flush_to_disk(filesystem, path.rpartition("/")[0])
    except OSError as problem:
        raise error("E064", f"{path} cannot be written: {problem}") from None


def damage_error(path: str, reason: str) -> SmileError:
    return error("E061", f"{path} is damaged: {reason}")


class StateFile(PackedColumns):
    """An open state file."""

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self.path = path
        try:
            super().__init__(filesystem.open_input_file(path))
        except FileNotFoundError as problem:
            raise damage_error(path, f"it cannot be read ({problem})") from None
        except OSError as problem:
            # The file may be intact: it must not count as damaged, because damaged versions are deleted.
            raise error("E063", f"{path} cannot be read: {problem}") from None
        except DamagedColumnsError as problem:
            raise damage_error(path, str(problem)) from None
        if self.footer["format"] != FORMAT:
            other = "a newer" if self.footer["format"] > FORMAT else "an older"
            raise error("E062", f"{path} was written by {other} SMILE (format {self.footer['format']}, not {FORMAT})")

    def read_buffer(self, part: list[Any]) -> Any:
        try:
            return super().read_buffer(part)
        except DamagedColumnsError as problem:
            raise damage_error(self.path, str(problem)) from None

    def read_run(self, number: int, schema: TableSchema) -> Run:
        count, parts = self.footer["runs"][number]
        column_parts = {name: parts[2 + 3 * n : 5 + 3 * n] for n, name in enumerate(schema.columns)}
        rest = parts[2 + 3 * len(schema.columns) :]
        pairs = [rest[n : n + 2] for n in range(0, len(rest), 2)]
        if len(pairs) != len(schema.indexes) + len(schema.tick_indexes):
            raise damage_error(self.path, "its columns are not those of the program")
        rows = self.lazy_columns({name: part for name, part in column_parts.items() if part[1] is not None}, count)
        hashes = self.read_numbers(parts[0], count)
        tombstones = None if parts[1] is None else self.read_numbers(parts[1], count)
        if count < INDEXED_ROWS_MIN:
            return make_run(schema, rows, tombstones, hashes)
        indexes = dict(zip(schema.indexes, pairs, strict=False))
        tick_indexes = dict(zip(schema.tick_indexes, pairs[len(indexes) :], strict=True))
        return Run(
            rows,
            hashes,
            tombstones,
            LazyMapping(indexes, self._read_index),
            LazyMapping(tick_indexes, self._read_index),
        )

    def _read_index(self, parts: list[Any]) -> RunIndex:
        return RunIndex(self.read_numbers(parts[0], 0), self.read_numbers(parts[1], 0))


def read_whole_run(run: Run) -> None:
    """Reads every byte of a run, so that damage is detected now."""
    parts: tuple[Mapping[Any, Any], ...] = (run.rows, run.indexes, run.tick_indexes)
    for part in parts:
        for name in part:
            part[name]
