"""The file systems that connectors reach: those of Arrow."""

import pyarrow as pa
from pyarrow import fs

from smile.errors import error


def open_file_system(url: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URL or of a path, and the path in it."""
    try:
        if "://" in url:
            system, path = fs.FileSystem.from_uri(url)
        else:
            system, path = fs.LocalFileSystem(), url
    except (OSError, pa.ArrowException, ValueError) as problem:
        raise error("E201", f"{url} cannot be opened: {problem}") from None
    return system, path.rstrip("/") or "/"
