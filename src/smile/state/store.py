"""The store: versions of the state of one partition, each one file that holds what is new in it and names the older
files it builds on.

Writing a version is a soft checkpoint: nothing waits for it, and losing it costs replay, never correctness. No file is
ever changed or written twice: whoever repeats a batch writes the same version once more under a name of its own, so any
number of tasks may do so at the same time.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from smile import limits
from smile.errors import SmileError, error
from smile.log.frame import NOTHING
from smile.state.file import StateFile, Writer, damaged, flushed, read_all
from smile.state.run import Run, Shape
from smile.state.table import Table

Tables = Mapping[str, Table]
"""All tables of a partition, by the names of their transforms and their own."""

CLEARED_EVERY = 4
"""Versions: to look for files that nobody needs takes about as long for one as for a few."""
HARD = ".hard"
"""A version beside which lies an empty file of its mark with this ending is a hard checkpoint, and is not deleted."""


@dataclass(frozen=True, order=True)
class Mark:
    """Names a version: the number of frames before it, and a digest of how far each stream had been taken in, so that
    runs that cut their frames otherwise are told apart."""

    number: int
    digest: str

    @staticmethod
    def of(number: int, horizons: Mapping[str, int]) -> "Mark":
        # A stream that was added since is one of which nothing had been taken in.
        known = {stream: horizon for stream, horizon in horizons.items() if horizon > NOTHING}
        text = json.dumps(known, sort_keys=True).encode()
        return Mark(number, hashlib.blake2b(text, digest_size=6).hexdigest())

    def __str__(self) -> str:
        return f"{self.number:012}-{self.digest}"


@dataclass(frozen=True)
class Saved:
    """A version as it was written. `horizons` say how far each stream had been taken in."""

    number: int
    horizons: Mapping[str, int]
    tables: Tables


@dataclass
class Store:
    """`program` tells the state of one program from another's."""

    filesystem: fs.FileSystem
    root: str
    program: str
    _places: dict[int, tuple[Run, str, int]] = field(default_factory=dict)
    """By the identity of a run: the run, and the file and number it has there."""
    _runs: dict[tuple[str, int], Run] = field(default_factory=dict)
    """The same the other way round, so that a run is read once."""
    _needs: dict[str, set[str]] = field(default_factory=dict)
    """Of files that were written or read, those that their version needs."""
    _saved: int = 0

    @staticmethod
    def at(uri: str, program: str) -> "Store":
        """A directory of this machine, or the address of one on any file system that Arrow reaches."""
        filesystem, root = directory(uri)
        return Store(filesystem, root, program)

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def save(self, number: int, horizons: Mapping[str, int], tables: Tables) -> int:
        """Writes what no earlier version has. Gives the number of bytes written."""
        name = f"{Mark.of(number, horizons)}-{uuid4().hex[:12]}.state"
        writer, runs = Writer(), list[Any]()
        named: dict[str, list[list[str | int]]] = {}
        for table_name, table in tables.items():
            named[table_name] = []
            for run in table.runs:
                known = self._places.get(id(run))
                if known is None:
                    known = self._places[id(run)] = (run, name, len(runs))
                    runs.append(writer.run(table.shape, run))
                named[table_name].append([known[1], known[2]])
        needs = {name, *(str(place[0]) for places in named.values() for place in places)}
        footer = {"program": self.program, "number": number, "horizons": dict(horizons)}
        footer |= {"tables": named, "runs": runs, "needs": sorted(needs)}
        try:
            size = writer.write(self.filesystem, self._path(name), footer)
        except OSError as problem:
            # The file that was not finished is no version, and those before it are as they were.
            self._places = {i: p for i, p in self._places.items() if p[1] != name}
            self._delete(f"{name}.new")
            raise error("E064", f"version {number} of the state cannot be written: {problem}") from None
        self._needs[name] = needs
        self._remember_only(tables)
        if self._saved % CLEARED_EVERY == 0:
            self._clear_below(number)
        self._saved += 1
        return size

    def _remember_only(self, tables: Tables) -> None:
        live = {id(run) for table in tables.values() for run in table.runs}
        self._places = {i: p for i, p in self._places.items() if i in live}
        self._runs = {(file, place): run for run, file, place in self._places.values()}

    def _clear_below(self, number: int) -> None:
        """Deletes versions older than those that are kept, but for files that one of those needs."""
        files, hard = self._files(), self.hard()
        newest = sorted({mark.number for mark, _ in files if mark.number <= number})[-limits.state_versions_kept :]
        kept = [name for mark, name in files if mark.number >= newest[0] or mark in hard]
        try:
            needed = set().union(*(self._needed(name) for name in kept))
        except SmileError:
            return  # another time
        for _, name in files:
            if name not in needed and name not in kept:
                self._delete(name)
        self._needs = {name: self._needs[name] for name in kept}

    def _needed(self, name: str) -> set[str]:
        if name not in self._needs:
            self._needs[name] = set(StateFile(self.filesystem, self._path(name)).footer["needs"])
        return self._needs[name]

    def _delete(self, name: str) -> None:
        try:
            self.filesystem.delete_file(self._path(name))
        except OSError:
            return  # it is only space that is not won back

    # ── hard checkpoints ────────────────────────────────────────────────────────────────────────────────────────────

    def hold(self, mark: Mark) -> None:
        """From now on the version is not deleted."""
        path = self._path(f"{mark}{HARD}")
        with _writing(path):
            self.filesystem.open_output_stream(path).close()

    def harden(self, mark: Mark, shapes: Mapping[str, Shape]) -> None:
        """All of a version that is held is on the disk when this returns, and was read back."""
        with _writing(self._path(str(mark))):
            for needed in sorted(set().union(*(self._needed(name) for of, name in self._files() if of == mark))):
                flushed(self.filesystem, self._path(needed))
            flushed(self.filesystem, self._path(f"{mark}{HARD}"))
            flushed(self.filesystem, self.root)
        self.read(mark, shapes)

    def let_go(self, below: Mark) -> None:
        """Hard checkpoints before this one need not be held any more."""
        for mark in self.hard():
            if mark < below:
                self._delete(f"{mark}{HARD}")

    def hard(self) -> set[Mark]:
        return {Mark(int(name[1]), name[2]) for name in self._named(rf"(\d{{12}})-([0-9a-f]+){re.escape(HARD)}")}

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def newest(self, shapes: Mapping[str, Shape]) -> tuple[Saved | None, list[SmileError]]:
        """The newest version that is whole, and what is wrong with those after it, which are deleted."""
        problems: list[SmileError] = []
        found = None
        for mark in sorted(self.versions(), reverse=True):
            try:
                found = self.read(mark, shapes)
                break
            except SmileError as problem:
                if problem.diagnostics[0].code != "E061":
                    raise
                problems.append(problem)
        self.clear_above(-1 if found is None else found.number)
        return found, problems

    def clear_above(self, number: int) -> None:
        """What lies above the version that a run goes on from is of no use to anybody."""
        for mark, name in self._files():
            if mark.number > number:
                self._delete(name)

    def versions(self) -> set[Mark]:
        return {mark for mark, _ in self._files()}

    def horizons(self, mark: Mark) -> Mapping[str, int]:
        """How far a version had come."""
        name = next((name for of, name in self._files() if of == mark), f"{mark}.state")
        found: Mapping[str, int] = StateFile(self.filesystem, self._path(name)).footer["horizons"]
        return found

    def _files(self) -> list[tuple[Mark, str]]:
        found = self._named(r"(\d{12})-([0-9a-f]+)-[0-9a-f]+\.state")
        return sorted((Mark(int(name[1]), name[2]), name[0]) for name in found)

    def _named(self, pattern: str) -> list[re.Match[str]]:
        try:
            found = self.filesystem.get_file_info(fs.FileSelector(self.root))
        except OSError as problem:
            raise error("E063", f"{self.root} cannot be listed: {problem}") from None
        return [name for info in found if (name := re.fullmatch(pattern, info.base_name))]

    def read(self, mark: Mark, shapes: Mapping[str, Shape], whole: bool = True, known: Tables | None = None) -> Saved:
        """A version; with `whole` every byte of it is read and checked now, else each when it is first needed. `known`
        are tables of a version read before, of which as much as possible is used again."""
        problem = damaged(self._path(str(mark)), "there is no such version")
        for other, name in self._files():
            if other == mark:
                try:
                    return self._read(name, shapes, whole, known or {})
                except SmileError as found:
                    problem = found
        raise problem

    def _read(self, name: str, shapes: Mapping[str, Shape], whole: bool, known: Tables) -> Saved:
        files = {name: StateFile(self.filesystem, self._path(name))}
        footer = files[name].footer
        if footer["program"] != self.program:
            raise error("E065", f"{self._path(name)} is the state of another program")
        if set(footer["tables"]) != set(shapes):
            raise damaged(self._path(name), "its tables are not those of the program")
        tables = {}
        for table, shape in shapes.items():
            runs = tuple(self._run(files, file, place, shape) for file, place in footer["tables"][table])
            if whole:
                for run in runs:
                    read_all(run)
            tables[table] = known[table].caught_up(runs) if table in known else Table(shape, runs)
        self._needs[name] = set(footer["needs"])
        self._remember_only(tables)
        return Saved(footer["number"], footer["horizons"], tables)

    def _run(self, files: dict[str, StateFile], file: str, place: int, shape: Shape) -> Run:
        known = self._runs.get((file, place))
        if known is None:
            if file not in files:
                files[file] = StateFile(self.filesystem, self._path(file))
            known = self._runs[file, place] = files[file].run(place, shape)
            self._places[id(known)] = (known, file, place)
        return known

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise error("E064", f"{path} cannot be written: {problem}") from None


def directory(uri: str) -> tuple[fs.FileSystem, str]:
    """A directory where state can be kept; it is made if there is none."""
    try:
        if "://" in uri:
            filesystem, root = fs.FileSystem.from_uri(uri)
        else:
            filesystem, root = fs.LocalFileSystem(use_mmap=True), uri
        filesystem.create_dir(root, recursive=True)
    except (OSError, pa.ArrowInvalid) as problem:
        raise error("E063", f"no state can be kept in {uri}: {problem}") from None
    return filesystem, root
