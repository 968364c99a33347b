"""A broker's data directory. Only one broker uses it at a time, and its metadata is replaced atomically.

It contains the `log`, the views' `state`, and `broker.json`: the current program, the digest of the file that was
served last, and the generations of views.
"""

import fcntl
import hashlib
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from smile.broker.program_difference import GenerationRecord
from smile.engine.generation import Generation
from smile.errors import SmileError, error
from smile.source import Source

FORMAT: Final = 1
_METADATA_FILE: Final = "broker.json"


@dataclass(frozen=True)
class BrokerMetadata:
    """`served` is the digest of the file that was served last. As long as this file is unchanged, a program that was
    applied later takes precedence over it."""

    program: Source
    served: str
    generations: tuple[GenerationRecord, ...] = ()


def source_digest(source: Source) -> str:
    return hashlib.sha256(source.text.encode()).hexdigest()


def _checksum(fields: dict[str, Any]) -> int:
    """Detects damage: a damaged program may still compile, and would then show wrong rows."""
    return zlib.crc32(json.dumps({name: fields[name] for name in sorted(fields) if name != "crc"}).encode())


class BrokerDirectory:
    def __init__(self, path: Path) -> None:
        """Creates the directory if it is missing, and locks it until `close`."""
        self.path = path
        self._lock: IO[bytes] | None = None
        try:
            path.mkdir(parents=True, exist_ok=True)
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

    @property
    def log_path(self) -> str:
        return str(self.path / "log")

    @property
    def state_path(self) -> Path:
        return self.path / "state"

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
            generations = tuple(
                GenerationRecord(Generation.from_json(record["generation"]), record["digests"])
                for record in fields["kept"]
            )
            return BrokerMetadata(Source(fields["name"], fields["text"]), fields["served"], generations)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise error("E105", f"{path} cannot be read: {problem.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, SmileError) as problem:
            if isinstance(problem, SmileError) and problem.diagnostics[0].code == "E062":
                raise
            hint = "Delete it, and serve the program again: its views are then computed again from the log."
            raise error("E105", f"{path} is damaged: {problem}", hint=hint) from None

    def write_metadata(self, metadata: BrokerMetadata) -> None:
        """Replaces the file atomically and flushes it to the disk."""
        fields = {
            "format": FORMAT,
            "name": metadata.program.name,
            "text": metadata.program.text,
            "served": metadata.served,
            "kept": [
                {"generation": record.generation.to_json(), "digests": dict(record.digests)}
                for record in metadata.generations
            ],
        }
        path, new_path = self.path / _METADATA_FILE, self.path / f"{_METADATA_FILE}.new"
        try:
            with new_path.open("w") as file:
                file.write(json.dumps({**fields, "crc": _checksum(fields)}, indent=1))
                file.flush()
                os.fsync(file.fileno())
            new_path.replace(path)
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as problem:
            raise error("E105", f"{path} cannot be written: {problem.strerror}") from None
