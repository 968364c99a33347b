"""Reads complete lines of a file. In CSV a record may have several lines, as a field in quotes may have line feeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyarrow import NativeFile

from smile import limits
from smile.errors import error

CHUNK_BYTES: Final = 2**20


@dataclass(frozen=True)
class CompleteLines:
    """Lines without blank ones and without their ends, and the byte after each. `has_rest`: the file ends with a line
    that has no line feed."""

    lines: Sequence[bytes]
    ends: Sequence[int]
    has_rest: bool


def read_lines(file: NativeFile, byte: int, lines_max: int, is_csv: bool) -> CompleteLines:
    """The next lines from a byte on that have their line feeds. Reads one chunk, or more if a single line is longer."""
    file.seek(byte)
    text = b""
    while True:
        chunk = file.read(CHUNK_BYTES)
        text += chunk
        lines, ends, rest = _split_lines(text, byte, lines_max, is_csv)
        if lines or not chunk:
            return CompleteLines(lines, ends, has_rest=not chunk and bool(text[rest:].strip()))
        if len(text) > limits.event_line_bytes_max and text.strip():
            message = f"the line at byte {byte:,} has more than {limits.event_line_bytes_max:,} bytes"
            raise error("E202", message, hint="In CSV, a quotation mark may be missing.")


def _split_lines(text: bytes, byte: int, lines_max: int, is_csv: bool) -> tuple[list[bytes], list[int], int]:
    """The last number is where the first line without a line feed begins."""
    lines, ends, begin, end = list[bytes](), list[int](), 0, 0
    while len(lines) < lines_max and (feed := text.find(b"\n", end)) >= 0:
        end = feed + 1
        if is_csv and text.count(b'"', begin, end) % 2:
            continue  # the line feed is within a field
        line = text[begin:feed].removesuffix(b"\r")
        if line if is_csv else line.strip():
            lines.append(line)
            ends.append(byte + end)
        elif ends:
            ends[-1] = byte + end
        begin = end
    return lines, ends, begin
