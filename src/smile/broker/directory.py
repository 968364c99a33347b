"""A broker's data directory. Only one broker uses it at a time, and its metadata is replaced atomically.

It contains the `log`, the views' `state`, the positions of durable subscriptions, the contents of `tables` that filters
read, and `broker.json`: the current program, the digest of the file that was served last, the generations of views, and
the types of imports.
"""

import fcntl
import hashlib
import json
import os
import shutil
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from smile.broker.maintenance.listener import ViewPause
from smile.broker.network.descriptions import ImportRecords
from smile.broker.network.routed_stream import RoutedImport
from smile.broker.program_difference import GenerationRecord
from smile.engine.generation import Generation
from smile.errors import SmileError, error, message_of
from smile.source import Source

FORMAT: Final = 1
_METADATA_FILE: Final = "broker.json"
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700


@dataclass(frozen=True)
class BrokerMetadata:
    """`served` is the digest of the file that was served last. As long as this file is unchanged, a program that was
    applied later takes precedence over it. `log_id` identifies the log."""

    program: Source
    served: str
    generations: tuple[GenerationRecord, ...] = ()
    imports: ImportRecords = field(default_factory=ImportRecords)
    log_id: str = ""


def write_file(path: Path, text: str) -> None:
    """Replaces a file atomically and flushes it to the disk."""
    new_path = path.with_name(f"{path.name}.new")
    try:
        with new_path.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new_path.replace(path)
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise error("E105", f"{path} cannot be written: {problem.strerror}") from None


def source_digest(source: Source) -> str:
    return hashlib.sha256(source.text.encode()).hexdigest()


def _checksum(fields: dict[str, Any]) -> int:
    """Detects damage: a damaged program may still compile, and would then show wrong rows."""
    return zlib.crc32(json.dumps({name: fields[name] for name in sorted(fields) if name != "crc"}).encode())


def _encode_record(record: GenerationRecord) -> dict[str, Any]:
    fields = {"generation": record.generation.to_json(), "digests": dict(record.digests)}
    return fields if record.pause is None else {**fields, "pause": asdict(record.pause)}


def _decode_record(fields: dict[str, Any]) -> GenerationRecord:
    pause = ViewPause(**fields["pause"]) if "pause" in fields else None
    return GenerationRecord(Generation.from_json(fields["generation"]), fields["digests"], pause)


def _restrict_modes(path: Path) -> None:
    """Makes all files private that are there already. `smile serve` creates the new ones so."""
    for folder, folders, files in os.walk(path):
        for name, mode in (*((name, _FOLDER_MODE) for name in folders), *((name, _FILE_MODE) for name in files)):
            entry = Path(folder, name)
            if not entry.is_symlink() and entry.stat().st_mode & 0o077:
                entry.chmod(mode)


class BrokerDirectory:
    def __init__(self, path: Path) -> None:
        """Creates the directory if it is missing, and locks it until `close`."""
        self.path = path
        self._lock: IO[bytes] | None = None
        if path.exists() and not path.is_dir():
            hint = "Choose another one with --data; a directory that is missing is created."
            raise error("E105", f"{path} is a file, not a directory", hint=hint)
        try:
            path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            _restrict_modes(path)
            lock = (path / "lock").open("ab")
        except OSError as problem:
            raise error("E105", f"{path} cannot be used: {problem.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise error("E101", f"another broker uses {path}", hint="Stop it, or choose another directory.") from None
        self._lock = lock

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def log_bytes(self) -> int:
        """The size of the log and of what SQLite has beside it."""
        log = Path(self.log_path)
        return sum(path.stat().st_size for path in log.parent.glob(f"{log.name}*") if path.is_file())

    def free_bytes(self) -> int:
        """The free space of its file system."""
        return shutil.disk_usage(self.path).free

    @property
    def log_path(self) -> str:
        return str(self.path / "log")

    @property
    def state_path(self) -> Path:
        return self.path / "state"

    @property
    def neighbours_path(self) -> Path:
        return self.path / "neighbours.json"

    @property
    def routing_path(self) -> Path:
        return self.path / "routing.json"

    @property
    def plans_path(self) -> Path:
        return self.path / "plans.json"

    @property
    def links_path(self) -> Path:
        return self.path / "links.json"

    @property
    def subscriptions_path(self) -> Path:
        return self.path / "subscriptions.db"

    @property
    def tables_path(self) -> Path:
        return self.path / "tables"

    @property
    def spark_log_path(self) -> Path:
        return self.path / "spark.log"

    def read_metadata(self) -> BrokerMetadata | None:
        """Returns None if no program was served from this directory yet."""
        path = self.path / _METADATA_FILE
        try:
            fields: Any = json.loads(path.read_text())
            if fields["format"] > FORMAT:
                raise error("E062", f"{path} was written by a newer SMILE (format {fields['format']}, not {FORMAT})")
            if fields["crc"] != _checksum(fields):
                raise ValueError("its checksum is wrong")
            generations = tuple(map(_decode_record, fields["kept"]))
            imports = ImportRecords(
                fields.get("types", {}),
                {name: tuple(ids) for name, ids in fields.get("editions", {}).items()},
                {routed.stream.relation: routed for routed in map(RoutedImport.from_json, fields.get("routed", ()))},
            )
            program = Source(fields["name"], fields["text"])
            return BrokerMetadata(program, fields["served"], generations, imports, fields.get("log_id", ""))
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise error("E105", f"{path} cannot be read: {problem.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, SmileError) as problem:
            if isinstance(problem, SmileError) and problem.diagnostics[0].code == "E062":
                raise
            hint = "Delete it, and serve the program again: its views are then computed again from the log."
            raise error("E105", f"{path} is damaged: {message_of(problem)}", hint=hint) from None

    def write_metadata(self, metadata: BrokerMetadata) -> None:
        """Replaces the file atomically and flushes it to the disk."""
        fields = {
            "format": FORMAT,
            "name": metadata.program.name,
            "text": metadata.program.text,
            "served": metadata.served,
            "kept": list(map(_encode_record, metadata.generations)),
            "types": metadata.imports.types,
            "editions": metadata.imports.editions,
            "routed": [routed.to_json() for routed in metadata.imports.routed.values()],
            "log_id": metadata.log_id,
        }
        write_file(self.path / _METADATA_FILE, json.dumps({**fields, "crc": _checksum(fields)}, indent=1))
