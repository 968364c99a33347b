"""One temporary folder for each process, which contains all its other temporary folders and files.

The process holds a lock in it. So the folders of processes that were killed are recognized, and removed later.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from smile.errors import error

_PREFIX: Final = "smile-"
_LOCK: Final = "in-use"
_REMOVAL_S_MAX: Final = 2.0


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Creates the folder, makes it the default of `tempfile`, and removes folders that killed processes have left."""
    _remove_abandoned()
    old_tempdir = tempfile.tempdir
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    except OSError as problem:
        hint = "Set TMPDIR to a writable folder."
        raise error("E063", f"cannot create a temporary folder: {problem}", hint=hint) from None
    try:
        with (folder / f"{_LOCK}.new").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / f"{_LOCK}.new").rename(folder / _LOCK)  # so it is locked as soon as others see it
            tempfile.tempdir = str(folder)
            try:
                yield folder
            finally:
                tempfile.tempdir = old_tempdir
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Other processes that are ending, such as Spark's workers, may still write there: what they prevent is tried again
    for a short time, and is no error of this process."""
    deadline = time.monotonic() + _REMOVAL_S_MAX
    shutil.rmtree(folder, ignore_errors=True)
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        folder = path.parent
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with path.open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # it is in use, or was just removed
            continue
