"""A broker's directory: one broker uses it at a time, and what it says of the program is whole at any moment.

It has the `log`, the views' `state`, and `broker.json`: the program that runs, what was served last, and which
generations of views are kept.
"""

import fcntl
import hashlib
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from smile.broker.programs import Kept
from smile.engine.generation import Generation
from smile.errors import SmileError, error
from smile.source import Source

FORMAT: Final = 1
_NOTED: Final = "broker.json"


@dataclass(frozen=True)
class Noted:
    """`served` is the digest of the file that was served last. A program that was applied since goes before it."""

    program: Source
    served: str
    kept: tuple[Kept, ...] = ()


def digest_of(source: Source) -> str:
    return hashlib.sha256(source.text.encode()).hexdigest()


def _checksum(found: dict[str, Any]) -> int:
    """A program that is damaged may still be one, and show what is not so."""
    return zlib.crc32(json.dumps({name: found[name] for name in sorted(found) if name != "crc"}).encode())


class Directory:
    def __init__(self, path: Path) -> None:
        """Makes it if there is none; nobody else may use it until it is closed."""
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
    def log(self) -> str:
        return str(self.path / "log")

    @property
    def state(self) -> Path:
        return self.path / "state"

    @property
    def spark_log(self) -> Path:
        return self.path / "spark.log"

    def noted(self) -> Noted | None:
        """None if nothing was served from here yet."""
        path = self.path / _NOTED
        try:
            found: Any = json.loads(path.read_text())
            if found["format"] > FORMAT:
                raise error("E062", f"{path} was written by a newer SMILE (format {found['format']}, not {FORMAT})")
            if found["crc"] != _checksum(found):
                raise ValueError("it does not have the checksum it was written with")
            kept = tuple(Kept(Generation.from_json(one["generation"]), one["digests"]) for one in found["kept"])
            return Noted(Source(found["name"], found["text"]), found["served"], kept)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise error("E105", f"{path} cannot be read: {problem.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, SmileError) as problem:
            if isinstance(problem, SmileError) and problem.diagnostics[0].code == "E062":
                raise
            hint = "Delete it, and name the program again: its views are then begun anew from the log."
            raise error("E105", f"{path} is damaged: {problem}", hint=hint) from None

    def note(self, noted: Noted) -> None:
        """On the disk, wholly or not at all."""
        found = {
            "format": FORMAT,
            "name": noted.program.name,
            "text": noted.program.text,
            "served": noted.served,
            "kept": [{"generation": one.generation.to_json(), "digests": dict(one.digests)} for one in noted.kept],
        }
        path, new = self.path / _NOTED, self.path / f"{_NOTED}.new"
        try:
            with new.open("w") as file:
                file.write(json.dumps({**found, "crc": _checksum(found)}, indent=1))
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
            directory = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as problem:
            raise error("E105", f"{path} cannot be written: {problem.strerror}") from None
