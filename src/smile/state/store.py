"""The state store: versions of the state of one partition. A version is one file, which contains the runs that are new
in it and names the older files that have its other runs.

A written version is a soft checkpoint: nothing waits for it, and its loss costs replay, never correctness. No file is
changed or written twice. A task that repeats a batch writes the same version again under a unique file name, so several
tasks can write it at the same time.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from smile import limits
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN
from smile.state.file import StateFile, StateFileWriter, damage_error, flush_to_disk, read_whole_run
from smile.state.run import Run, TableSchema
from smile.state.table import StateTable

Tables = Mapping[str, StateTable]
"""All tables of a partition, by name: the name of the transform and that of its table."""

CLEANUP_INTERVAL = 4
"""Old versions are deleted each time this many versions have been saved. A search for unneeded files takes about as
long for one file as for a few."""
HARD_SUFFIX = ".hard"
"""An empty file, named by a version id and this suffix, marks the version as a hard checkpoint: it is not deleted."""


@dataclass(frozen=True, order=True)
class VersionId:
    """Identifies a version: the number of batches before it, and a digest of the horizons of its streams. The digest
    distinguishes executions that split the same events into other batches."""

    number: int
    digest: str

    @staticmethod
    def from_horizons(number: int, horizons: Mapping[str, int]) -> "VersionId":
        # A stream that was added later had no events then. Without it, the digest stays the same.
        known_horizons = {stream: horizon for stream, horizon in horizons.items() if horizon > HORIZON_MIN}
        text = json.dumps(known_horizons, sort_keys=True).encode()
        return VersionId(number, hashlib.blake2b(text, digest_size=6).hexdigest())

    def __str__(self) -> str:
        return f"{self.number:012}-{self.digest}"


@dataclass(frozen=True)
class StoredVersion:
    """A version that was read from the store. `horizons`: how far each stream had been processed."""

    number: int
    horizons: Mapping[str, int]
    tables: Tables


@dataclass
class StateStore:
    """`program` is the digest of the program that the state belongs to."""

    filesystem: fs.FileSystem
    root: str
    program: str
    _run_locations: dict[int, tuple[Run, str, int]] = field(default_factory=dict)
    """By the `id` of a run: the run, its file, and its number in that file."""
    _runs_by_location: dict[tuple[str, int], Run] = field(default_factory=dict)
    """The inverse of `_run_locations`, so that each run is read only once."""
    _required_files: dict[str, set[str]] = field(default_factory=dict)
    """For each version file that was written or read: all files that the version needs."""
    _saved_count: int = 0

    @staticmethod
    def open(uri: str, program: str) -> "StateStore":
        """Opens a local directory, or the URI of a directory on any file system that Arrow supports."""
        filesystem, root = open_directory(uri)
        return StateStore(filesystem, root, program)

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def save(
        self,
        number: int,
        horizons: Mapping[str, int],
        tables: Tables,
        observe: Callable[[str], None] = lambda _: None,
    ) -> int:
        """Writes a version: the runs that no earlier version contains. Returns the number of bytes written. `observe`
        is told the name of each table before it is encoded."""
        name = f"{VersionId.from_horizons(number, horizons)}-{uuid4().hex[:12]}.state"
        try:
            size = self._write_version(name, number, horizons, tables, observe)
        except BaseException as problem:
            # The incomplete file is not a version, and earlier versions are unchanged: only remove its traces.
            self._run_locations = {i: p for i, p in self._run_locations.items() if p[1] != name}
            self._delete(f"{name}.new")
            if isinstance(problem, OSError):
                raise error("E064", f"version {number} of the state cannot be written: {problem}") from None
            raise
        self._retain_runs(tables)
        if self._saved_count % CLEANUP_INTERVAL == 0:
            self._delete_old_versions(number)
        self._saved_count += 1
        return size

    def _write_version(
        self, name: str, number: int, horizons: Mapping[str, int], tables: Tables, observe: Callable[[str], None]
    ) -> int:
        writer, runs = StateFileWriter(), list[Any]()
        table_locations: dict[str, list[list[str | int]]] = {}
        for table_name, table in tables.items():
            observe(table_name)
            table_locations[table_name] = []
            for run in table.runs:
                location = self._run_locations.get(id(run))
                if location is None:
                    location = self._run_locations[id(run)] = (run, name, len(runs))
                    runs.append(writer.add_run(table.schema, run))
                table_locations[table_name].append([location[1], location[2]])
        required_files = {
            name,
            *(str(run_location[0]) for run_locations in table_locations.values() for run_location in run_locations),
        }
        footer = {"program": self.program, "number": number, "horizons": dict(horizons)}
        footer |= {"tables": table_locations, "runs": runs, "needs": sorted(required_files)}
        observe("")
        size = writer.write(self.filesystem, self._path(name), footer)
        self._required_files[name] = required_files
        return size

    def _retain_runs(self, tables: Tables) -> None:
        live_ids = {id(run) for table in tables.values() for run in table.runs}
        self._run_locations = {i: p for i, p in self._run_locations.items() if i in live_ids}
        self._runs_by_location = {(file, number): run for run, file, number in self._run_locations.values()}

    def _delete_old_versions(self, number: int) -> None:
        """Deletes old versions, except hard checkpoints and files that a retained version needs."""
        files, hard = self._files(), self.hard_checkpoints()
        newest = sorted({version_id.number for version_id, _ in files if version_id.number <= number})[
            -limits.state_versions_kept :
        ]
        retained = [name for version_id, name in files if version_id.number >= newest[0] or version_id in hard]
        try:
            required_files = set().union(*(self._files_required_by(name) for name in retained))
        except SmileError:
            return  # A file is unreadable, so its needs are unknown. The next cleanup tries again.
        for _, name in files:
            if name not in required_files and name not in retained:
                self._delete(name)
        self._required_files = {name: self._required_files[name] for name in retained}

    def _files_required_by(self, name: str) -> set[str]:
        if name not in self._required_files:
            self._required_files[name] = set(StateFile(self.filesystem, self._path(name)).footer["needs"])
        return self._required_files[name]

    def _delete(self, name: str) -> None:
        try:
            self.filesystem.delete_file(self._path(name))
        except OSError:
            return  # A file that is not deleted only wastes space.

    # ── hard checkpoints ────────────────────────────────────────────────────────────────────────────────────────────

    def pin(self, version_id: VersionId) -> None:
        """Protects a version from deletion, from now on."""
        path = self._path(f"{version_id}{HARD_SUFFIX}")
        with _reporting_write_errors(path):
            self.filesystem.open_output_stream(path).close()

    def harden(self, version_id: VersionId, schemas: Mapping[str, TableSchema]) -> None:
        """Flushes all files of a pinned version to the disk, then reads the version back to check it."""
        with _reporting_write_errors(self._path(str(version_id))):
            names = [name for other_id, name in self._files() if other_id == version_id]
            for file_name in sorted(set().union(*map(self._files_required_by, names))):
                flush_to_disk(self.filesystem, self._path(file_name))
            flush_to_disk(self.filesystem, self._path(f"{version_id}{HARD_SUFFIX}"))
            flush_to_disk(self.filesystem, self.root)
        self.read(version_id, schemas)

    def unpin_before(self, version_id: VersionId) -> None:
        """Allows deletion of all hard checkpoints that are older than this version."""
        for checkpoint in self.hard_checkpoints():
            if checkpoint < version_id:
                self._delete(f"{checkpoint}{HARD_SUFFIX}")

    def hard_checkpoints(self) -> set[VersionId]:
        return {
            VersionId(int(match[1]), match[2])
            for match in self._matching_names(rf"(\d{{12}})-([0-9a-f]+){re.escape(HARD_SUFFIX)}")
        }

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def read_newest(self, schemas: Mapping[str, TableSchema]) -> tuple[StoredVersion | None, list[SmileError]]:
        """The newest undamaged version, and the errors of the damaged ones after it, which are deleted."""
        problems: list[SmileError] = []
        version = None
        for version_id in sorted(self.versions(), reverse=True):
            try:
                version = self.read(version_id, schemas)
                break
            except SmileError as problem:
                if problem.diagnostics[0].code != "E061":
                    raise
                problems.append(problem)
        self.delete_after(-1 if version is None else version.number)
        return version, problems

    def delete_after(self, number: int) -> None:
        """Deletes the versions after the one that execution continues from."""
        for version_id, name in self._files():
            if version_id.number > number:
                self._delete(name)

    def versions(self) -> set[VersionId]:
        return {version_id for version_id, _ in self._files()}

    def horizons(self, version_id: VersionId) -> Mapping[str, int]:
        """How far each stream had been processed at a version."""
        name = next((name for other_id, name in self._files() if other_id == version_id), f"{version_id}.state")
        horizons: Mapping[str, int] = StateFile(self.filesystem, self._path(name)).footer["horizons"]
        return horizons

    def _files(self) -> list[tuple[VersionId, str]]:
        matches = self._matching_names(r"(\d{12})-([0-9a-f]+)-[0-9a-f]+\.state")
        return sorted((VersionId(int(match[1]), match[2]), match[0]) for match in matches)

    def _matching_names(self, pattern: str) -> list[re.Match[str]]:
        try:
            infos = self.filesystem.get_file_info(fs.FileSelector(self.root))
        except OSError as problem:
            raise error("E063", f"{self.root} cannot be listed: {problem}") from None
        return [match for info in infos if (match := re.fullmatch(pattern, info.base_name))]

    def read(
        self,
        version_id: VersionId,
        schemas: Mapping[str, TableSchema],
        whole: bool = True,
        known_tables: Tables | None = None,
    ) -> StoredVersion:
        """Reads a version. If `whole`, every byte is read and checked now, otherwise when it is first needed.
        `known_tables` are the tables of a version that was read before; as much of them as possible is reused."""
        problem = damage_error(self._path(str(version_id)), "there is no such version")
        for other_id, name in self._files():
            if other_id == version_id:
                try:
                    return self._read_version(name, schemas, whole, known_tables or {})
                except SmileError as failure:
                    problem = failure
        raise problem

    def _read_version(
        self, name: str, schemas: Mapping[str, TableSchema], whole: bool, known_tables: Tables
    ) -> StoredVersion:
        files = {name: StateFile(self.filesystem, self._path(name))}
        footer = files[name].footer
        if footer["program"] != self.program:
            raise error("E065", f"{self._path(name)} is the state of another program")
        if set(footer["tables"]) != set(schemas):
            raise damage_error(self._path(name), "its tables are not those of the program")
        tables = {}
        for table, schema in schemas.items():
            runs = tuple(self._read_run(files, file, number, schema) for file, number in footer["tables"][table])
            if whole:
                for run in runs:
                    read_whole_run(run)
            tables[table] = known_tables[table].with_runs(runs) if table in known_tables else StateTable(schema, runs)
        self._required_files[name] = set(footer["needs"])
        self._retain_runs(tables)
        return StoredVersion(footer["number"], footer["horizons"], tables)

    def _read_run(self, files: dict[str, StateFile], file: str, number: int, schema: TableSchema) -> Run:
        run = self._runs_by_location.get((file, number))
        if run is None:
            if file not in files:
                files[file] = StateFile(self.filesystem, self._path(file))
            run = self._runs_by_location[file, number] = files[file].read_run(number, schema)
            self._run_locations[id(run)] = (run, file, number)
        return run

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"


@contextmanager
def _reporting_write_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise error("E064", f"{path} cannot be written: {problem}") from None


def open_directory(uri: str) -> tuple[fs.FileSystem, str]:
    """A directory for state; it is created if it does not exist."""
    try:
        if "://" in uri:
            filesystem, root = fs.FileSystem.from_uri(uri)
        else:
            filesystem, root = fs.LocalFileSystem(use_mmap=True), uri
        filesystem.create_dir(root, recursive=True)
    except (OSError, pa.ArrowInvalid) as problem:
        raise error("E063", f"state cannot be stored in {uri}: {problem}") from None
    return filesystem, root
