"""A log whose stream got a column: it is read with the columns of whoever reads it."""

from pathlib import Path

import pyarrow as pa
import pytest

from smile.algebra import mmpl
from smile.algebra.types import INT, STRING
from smile.decoding.stream_schema import StreamSchema
from smile.errors import SmileError
from smile.log.position import DEFAULT_ORIGIN, BatchLimit
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece

NARROW = mmpl.StreamDef("S", "t", (("a", INT),))
WIDE = mmpl.StreamDef("S", "t", (("a", INT), ("b", STRING)))
LATER = [{"t": 2, "a": 7, "b": "x"}]


def piece(stream: mmpl.StreamDef, tick: int, *values: object) -> StreamPiece:
    return StreamPiece("S", DEFAULT_ORIGIN, tick - 1, tick, StreamSchema(stream).record_batch([tick, *values]))  # type: ignore[list-item]


def all_events(path: str, stream: mmpl.StreamDef) -> list[object]:
    log = DurableLog(path, [stream])
    end = log.after(log.start(), BatchLimit(100, 2**20))
    events: pa.RecordBatch = log.read("S", log.start(), end)
    assert events.schema.equals(StreamSchema(stream).arrow_schema)
    log.close()
    return list(events.to_pylist())


def test_each_reader_has_its_columns(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    log = DurableLog.open_or_create(path, [NARROW])
    log.append([piece(NARROW, 0, 5)])
    log.add_streams([WIDE])
    log.append([piece(NARROW, 1, 6)])  # decoded before the column was added
    log.append([piece(WIDE, 2, 7, "x")])
    log.close()
    assert all_events(path, NARROW) == [{"t": t, "a": 5 + t} for t in range(3)]
    assert all_events(path, WIDE) == [{"t": 0, "a": 5, "b": None}, {"t": 1, "a": 6, "b": None}, *LATER]
    assert DurableLog.read_definitions(path) == [WIDE]


def test_a_log_does_not_lose_a_column(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    log = DurableLog.open_or_create(path, [WIDE])
    log.add_streams([NARROW])
    log.close()
    assert DurableLog.read_definitions(path) == [WIDE]
    with pytest.raises(SmileError, match="defined otherwise"):
        DurableLog.open_or_create(path, [mmpl.StreamDef("S", "t", (("b", STRING),))])
