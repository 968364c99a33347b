"""The events of a file as lines of JSON, whatever its format. Each has the number by which its errors are reported: of
the line in a text, of the row in Parquet and Arrow. Tables are read in parts, so they may be larger than the memory.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

from smile import limits
from smile.client.event_batches import batch_rows
from smile.client.values import event_json
from smile.errors import SmileError, error
from smile.extras import libraries_of

BLOCK_BYTES = 2**17
"""Bytes of a file to publish at once. From a pipe or a terminal it is what is available."""

TABLE_ROWS: Final = 1_000
"""Rows of a table that are converted at once."""

_ARROW_SUFFIXES: Final = (".arrow", ".feather", ".ipc")


@dataclass(frozen=True)
class InputLine:
    """`problem` says why the row cannot be an event."""

    number: int
    text: bytes
    problem: SmileError | None = None


Blocks = Iterator[tuple[list[InputLine], int]]
"""Lines to publish at once, and how much of the file has been read so far: bytes, or rows of Parquet."""


def is_table(file: str) -> bool:
    """Whether its columns have to be matched with those of the stream."""
    return Path(file).suffix.lower() in (".csv", ".parquet", *_ARROW_SUFFIXES)


def read_table(file: BufferedReader, path: str, kinds: Mapping[str, str]) -> tuple[Blocks, int | None]:
    """The rows of a table, and its size if that is known. `kinds` has the types of the stream's columns."""
    match Path(path).suffix.lower():
        case ".csv":
            return _read_csv(file, path, kinds), Path(path).stat().st_size
        case ".parquet":
            return _read_parquet(file, path)
    return _read_arrow(file, path), None


def read_lines(file: BufferedReader) -> Blocks:
    """Lines as they become available. Blank lines are skipped."""
    remainder, number, size = b"", 0, 0
    while block := file.read1(BLOCK_BYTES):
        size += len(block)
        *complete, remainder = (remainder + block).split(b"\n")
        yield [InputLine(number + i, text) for i, text in enumerate(complete, 1) if text.strip()], size
        number += len(complete)
        if len(remainder) > limits.event_line_bytes_max:
            # It cannot be an event, and reading it to its end could exhaust the memory.
            raise error("E071", f"line {number + 1} is longer than {limits.event_line_bytes_max:,} bytes")
    if remainder.strip():
        yield [InputLine(number + 1, remainder)], size


def _read_csv(file: BufferedReader, path: str, kinds: Mapping[str, str]) -> Blocks:
    from smile.decoding.csv_events import read_csv_events  # noqa: PLC0415

    decoded = (line.decode("utf-8-sig" if i == 0 else "utf-8") for i, line in enumerate(file))

    def lines() -> Iterator[InputLine]:
        try:
            for number, event in read_csv_events(decoded, kinds):
                if isinstance(event, SmileError):
                    yield InputLine(number, b"", event)
                else:
                    yield InputLine(number, event.encode())
        except UnicodeDecodeError:
            raise error("E072", f"{path} is not valid UTF-8") from None

    for block in _blocks(lines()):
        yield block, file.tell()


def _read_parquet(file: BufferedReader, path: str) -> tuple[Blocks, int]:
    with libraries_of("frames"):
        import pyarrow as pa  # noqa: PLC0415  # slow to import, as the following
        import pyarrow.parquet as pq  # noqa: PLC0415
    try:
        table = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as problem:
        raise _unreadable_error(path, problem) from None
    return _read_batches(table.iter_batches(batch_size=TABLE_ROWS), path), table.metadata.num_rows


def _read_arrow(file: BufferedReader, path: str) -> Blocks:
    with libraries_of("frames"):
        import pyarrow as pa  # noqa: PLC0415

    try:
        if file.peek(6)[:6] == b"ARROW1":
            table = pa.ipc.open_file(file)
            batches = (table.get_batch(i) for i in range(table.num_record_batches))
        else:
            batches = iter(pa.ipc.open_stream(file))
    except (pa.ArrowException, OSError) as problem:
        raise _unreadable_error(path, problem) from None
    return _read_batches(batches, path)


def _read_batches(batches: Iterable[Any], path: str) -> Blocks:  # Any: Arrow has no types
    import pyarrow as pa  # noqa: PLC0415

    number = 0
    batches = iter(batches)
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError) as problem:
            raise _unreadable_error(path, problem) from None
        if batch is None:
            return
        for start in range(0, batch.num_rows, TABLE_ROWS):
            try:
                rows = batch_rows(batch.slice(start, TABLE_ROWS))
            except SmileError as problem:
                message = f"{path}, rows {number + 1} to {number + TABLE_ROWS}: {problem.message}"
                raise error(problem.code, message, hint=problem.hint) from None
            for block in _blocks(_row_line(number + i, row) for i, row in enumerate(rows, 1)):
                yield block, block[-1].number
            number += len(rows)


def _row_line(number: int, row: Mapping[str, Any]) -> InputLine:
    try:
        return InputLine(number, event_json(row, 1).encode())
    except SmileError as problem:
        return InputLine(number, repr(dict(row))[: limits.excerpt_chars_max].encode(), problem)


def _blocks(lines: Iterable[InputLine]) -> Iterator[list[InputLine]]:
    """The lines in parts of a bounded size."""
    block, size = list[InputLine](), 0
    for line in lines:
        block.append(line)
        size += len(line.text)
        if size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _unreadable_error(path: str, problem: Exception) -> SmileError:
    reason = next(iter(str(problem).splitlines()), type(problem).__name__)
    return error("E070", f"{path} cannot be read: {reason[:1].lower()}{reason[1:]}")


def column_kinds(described: Mapping[str, Any]) -> dict[str, str]:
    """The columns that publishers send, each with the name of its type without arguments, from the broker's description
    of a stream."""
    return {
        column["name"]: re.split(r"[({]", column["type"], maxsplit=1)[0]
        for column in described["columns"]
        if column["role"] != "tick" or described["publisher_timed"]
    }
