"""Reads the lines of a file of recorded events in blocks. At most one block and one line are in memory."""

import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from smile import limits
from smile.errors import SmileError, error

_READ_PROBLEMS = (OSError, EOFError, zlib.error)
"""What reading a file raises, whether it is compressed or not."""


@contextmanager
def open_events(path: str) -> Iterator[BinaryIO]:
    """The file at `path`, decompressed if its name ends in .gz; or standard input for `-`, which stays open."""
    if path == "-":
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        try:
            file: BinaryIO = stack.enter_context(Path(path).open("rb"))
            if path.endswith(".gz"):
                file = cast(BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=file)))
        except OSError as problem:
            raise unreadable_error(path, problem) from None
        yield file


def unreadable_error(name: str, problem: Exception) -> SmileError:
    reason = (isinstance(problem, OSError) and problem.strerror) or str(problem)
    return error("E070", f"{name} cannot be read: {reason}")


class LineReader:
    """Reads `file` once. `bytes_read` and `bytes_total` count bytes on disk, compressed if the file is. The total is
    None if it cannot be known, for example for a pipe."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.name = name
        self._file = file
        self._decompressed_bytes = 0
        self._compressed_file: BinaryIO | None = getattr(file, "fileobj", None)
        self.bytes_total = _file_size(file)

    @property
    def bytes_read(self) -> int:
        if self._compressed_file is None:
            return self._decompressed_bytes
        return self.bytes_total or 0 if self._compressed_file.closed else self._compressed_file.tell()

    def blocks(self) -> Iterator[tuple[list[bytes], bool]]:
        """Lists of lines without their line ends, and whether the last line had one. A line that is too long is
        shortened, but still exceeds the limit."""
        remainder = b""
        line_bytes_max = limits.event_line_bytes_max
        while block := self._read():
            if not self._decompressed_bytes:
                block = block.removeprefix(b"\xef\xbb\xbf")
            self._decompressed_bytes += len(block)
            lines = block.split(b"\n")
            lines[0] = remainder + lines[0]
            remainder = lines.pop()[: line_bytes_max + 1]
            yield lines, True
        if remainder:
            yield [remainder], False

    def _read(self) -> bytes:
        try:
            return self._file.read(limits.events_block_bytes_max)
        except _READ_PROBLEMS as problem:
            raise unreadable_error(self.name, problem) from None


def _file_size(file: BinaryIO) -> int | None:
    try:
        status = os.fstat(file.fileno())
    except (OSError, io.UnsupportedOperation, AttributeError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
