"""The disk of a simulated broker: a directory, and what of it would survive a loss of power.

A broker that is killed keeps everything that it has written. A loss of power takes what was not flushed: files of state
vanish or are torn, and the ends of the log and of the positions of subscriptions that no commit has confirmed yet are cut
at any byte.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

_flushed_bytes: dict[int, int] = {}
"""For each inode, the size that the file had when it was flushed last."""


@contextmanager
def recorded_flushes() -> Iterator[None]:
    """Notes which files are flushed to the disk, instead of flushing them."""
    real_fsync = os.fsync

    def note(descriptor: int) -> None:
        status = os.fstat(descriptor)
        _flushed_bytes[status.st_ino] = status.st_size

    os.fsync = note  # type: ignore[assignment]  # it takes objects with a file number too
    try:
        yield
    finally:
        os.fsync = real_fsync
        _flushed_bytes.clear()


_DATABASES = ("log", "subscriptions.db")


class SimulatedDisk:
    def __init__(self, folder: Path) -> None:
        self._folder, self._number = folder, 0
        self.path.mkdir(parents=True)
        self._safe_bytes = dict.fromkeys(_DATABASES, 0)

    @property
    def path(self) -> Path:
        """The broker's directory. It is another one after every crash, so that nothing of the old broker is in the way."""
        return self._folder / str(self._number)

    def note_commit(self) -> None:
        """A commit of a database is complete, and so it is on the disk; and so are all before it."""
        self._safe_bytes = {name: _size(self._wal(name)) for name in _DATABASES}

    def _wal(self, database: str) -> Path:
        return self.path / f"{database}-wal"

    def crash(self, random: Random, loses_power: bool) -> None:
        """The broker is killed; with `loses_power`, the whole machine."""
        old_path = self.path
        self._number += 1
        shutil.copytree(old_path, self.path, ignore=shutil.ignore_patterns("lock", "*-shm"))
        if loses_power:
            self._lose_unflushed(old_path, random)
            self.note_commit()
        for path in self.path.rglob("*"):
            old_inode, status = (old_path / path.relative_to(self.path)).stat().st_ino, path.stat()
            if loses_power or old_inode in _flushed_bytes:
                _flushed_bytes[status.st_ino] = status.st_size if loses_power else _flushed_bytes[old_inode]

    def wipe(self, keeps_metadata: bool) -> None:
        """A new, empty disk; or the log and the state are lost only."""
        old_path = self.path
        self._number += 1
        self.path.mkdir()
        self._safe_bytes = dict.fromkeys(_DATABASES, 0)
        if keeps_metadata:
            for path in old_path.glob("*.json"):
                shutil.copy(path, self.path)

    def _lose_unflushed(self, old_path: Path, random: Random) -> None:
        for path in sorted(self.path.glob("state/**/*")):
            old = old_path / path.relative_to(self.path)
            if not path.is_file() or old.stat().st_ino in _flushed_bytes:
                continue
            fate = random.random()
            if fate < 0.4:
                path.unlink()
            elif fate < 0.8 and (size := path.stat().st_size):
                os.truncate(path, random.randrange(size))
        for database in _DATABASES:
            wal, old_wal = self._wal(database), old_path / f"{database}-wal"
            if (size := _size(wal)) > 0:
                safe_bytes = max(self._safe_bytes[database], _flushed_bytes.get(old_wal.stat().st_ino, 0))
                os.truncate(wal, random.randint(min(safe_bytes, size), size))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
