"""The store: versions of state, each one file that holds what is new in it and names the older files it builds on.

Writing a version is a soft checkpoint: nothing waits for it, and losing it costs replay, never correctness. The newest
version of which every byte is there and right is where a run resumes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from smile import limits
from smile.errors import SmileError, error
from smile.state.file import StateFile, Writer, damaged, read_all
from smile.state.run import Run, Shape
from smile.state.table import Table

Tables = Mapping[str, Table]
"""All tables of a partition, by the names of their transforms and their own."""


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
    _places: dict[int, tuple[Run, int, int]] = field(default_factory=dict)
    """By the identity of a run: the run, and the file and number it has there."""
    _files: dict[int, set[int]] = field(default_factory=dict)
    """Of each version kept, the files it needs."""
    _names: dict[int, str] = field(default_factory=dict)
    """Of each file a name that no other ever has: a number may come again in another run."""

    @staticmethod
    def at(uri: str, program: str) -> "Store":
        """A directory of this machine, or the address of one on any file system that Arrow reaches."""
        try:
            if "://" in uri:
                filesystem, root = fs.FileSystem.from_uri(uri)
            else:
                filesystem, root = fs.LocalFileSystem(use_mmap=True), uri
            filesystem.create_dir(root, recursive=True)
        except (OSError, pa.ArrowInvalid) as problem:
            raise error("E063", f"no state can be kept in {uri}: {problem}") from None
        return Store(filesystem, root, program)

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def save(self, number: int, horizons: Mapping[str, int], tables: Tables) -> int:
        """Writes what no earlier version has. Gives the number of bytes written."""
        writer, runs = Writer(), list[Any]()
        named: dict[str, list[list[int]]] = {}
        for name, table in tables.items():
            named[name] = []
            for run in table.runs:
                known = self._places.get(id(run))
                if known is None:
                    known = self._places[id(run)] = (run, number, len(runs))
                    runs.append(writer.run(table.shape, run))
                named[name].append([known[1], known[2]])
        needs = {number, *(place[0] for places in named.values() for place in places)}
        self._names[number] = uuid4().hex
        footer = {"program": self.program, "name": self._names[number], "horizons": dict(horizons)}
        footer |= {"tables": named, "runs": runs, "needs": {str(n): self._names[n] for n in needs}}
        try:
            size = writer.finish(self.filesystem, self._path(number), footer)
        except OSError as problem:
            # The file that was not finished is no version, and those before it are as they were.
            self._places = {i: p for i, p in self._places.items() if p[1] != number}
            raise error("E064", f"version {number} of the state cannot be written: {problem}") from None
        self._files[number] = needs
        self._forget(tables)
        return size

    def _forget(self, tables: Tables) -> None:
        """Versions beyond those that are kept, and files that none of those needs."""
        kept = sorted(self._files)[-limits.state_versions_kept :]
        needed = set().union(*(self._files[n] for n in kept))
        for number in set().union(*self._files.values()) - needed:
            self._delete(number)
        self._files = {n: self._files[n] for n in kept}
        self._names = {n: name for n, name in self._names.items() if n in needed}
        live = {id(run) for table in tables.values() for run in table.runs}
        self._places = {i: p for i, p in self._places.items() if i in live}

    def _delete(self, number: int) -> None:
        try:
            self.filesystem.delete_file(self._path(number))
        except OSError:
            return  # it is only space that is not won back

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def newest(self, shapes: Mapping[str, Shape]) -> tuple[Saved | None, list[SmileError]]:
        """The newest version that is whole, and what is wrong with those after it."""
        problems: list[SmileError] = []
        found = None
        for number in sorted(self.versions(), reverse=True):
            try:
                found = self.read(number, shapes)
                break
            except SmileError as problem:
                if problem.diagnostics[0].code != "E061":
                    raise
                problems.append(problem)
        self._clear(-1 if found is None else found.number)
        return found, problems

    def _clear(self, number: int) -> None:
        """What lies above the version that a run goes on from is of no use to anybody; what lies below it goes when its
        turn comes."""
        for other in self.versions():
            if other > number:
                self._delete(other)
            else:
                self._files.setdefault(other, {other})

    def versions(self) -> list[int]:
        found = self.filesystem.get_file_info(fs.FileSelector(self.root))
        names = (re.fullmatch(r"(\d{12})\.state", info.base_name) for info in found)
        return [int(name[1]) for name in names if name]

    def read(self, number: int, shapes: Mapping[str, Shape], whole: bool = True) -> Saved:
        """A version; with `whole` every byte of it is read and checked now, else each when it is first needed."""
        files = {number: StateFile(self.filesystem, self._path(number))}
        footer = files[number].footer
        if footer["program"] != self.program:
            raise error("E065", f"{self._path(number)} is the state of another program")
        if set(footer["tables"]) != set(shapes):
            raise damaged(self._path(number), "its tables are not those of the program")
        tables = {}
        for name, shape in shapes.items():
            runs = []
            for file, place in footer["tables"][name]:
                if file not in files:
                    files[file] = StateFile(self.filesystem, self._path(file))
                if files[file].footer["name"] != footer["needs"].get(str(file)):
                    raise damaged(self._path(number), f"{self._path(file)} is not the file it was built on")
                run = files[file].run(place, shape)
                if whole:
                    read_all(run)
                self._places[id(run)] = (run, file, place)
                runs.append(run)
            tables[name] = Table(shape, tuple(runs))
        self._files[number] = set(files)
        self._names |= {n: file.footer["name"] for n, file in files.items()}
        return Saved(number, footer["horizons"], tables)

    def _path(self, number: int) -> str:
        return f"{self.root}/{number:012}.state"
