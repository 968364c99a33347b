"""One temporary folder for each process, which contains all its other temporary folders and files.

The process holds a lock in it. So the folders of processes that were killed are recognized, and removed later.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from smile.errors import error

_PREFIX: Final = "smile-"
_LOCK: Final = "in-use"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Creates the folder, makes it the default of `tempfile`, and removes folders that killed processes have left."""
    _remove_abandoned()
    old_tempdir = tempfile.tempdir
    try:
        temporary = tempfile.TemporaryDirectory(prefix=_PREFIX)
    except OSError as problem:
        hint = "Set TMPDIR to a writable folder."
        raise error("E063", f"cannot create a temporary folder: {problem}", hint=hint) from None
    with temporary as name:
        folder = Path(name)
        with (folder / f"{_LOCK}.new").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / f"{_LOCK}.new").rename(folder / _LOCK)  # so it is locked as soon as others see it
            tempfile.tempdir = name
            try:
                yield folder
            finally:
                tempfile.tempdir = old_tempdir


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
