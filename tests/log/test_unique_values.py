"""UNIQUE columns: a value that was used once is refused, after restarts and after the log was truncated too."""

import io
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smile.algebra import mmpl
from smile.algebra.types import FLOAT, INT, STRING, Value, decimal_type
from smile.decoding.event_decoder import EventDecoder
from smile.decoding.stream_schema import StreamSchema
from smile.decoding.unique_keys import unique_keys
from smile.errors import SmileError
from smile.log.recorded_events import EventError, EventReader
from smile.log.storage.durable import DurableLog
from smile.log.storage.parquet import ParquetLog
from smile.log.storage.pieces import StreamPiece

COLUMNS = (("id", STRING), ("a", INT), ("x", FLOAT), ("d", decimal_type(5, 2)))
ORDERS = mmpl.StreamDef("Orders", "t", COLUMNS, unique=(("id",), ("a", "x")))
SCHEMA = StreamSchema(ORDERS)


def piece(
    lo: int, *rows: tuple[int, str | None, int | None, float | None], origin: str = "o", hi: int | None = None
) -> StreamPiece:
    events = SCHEMA.record_batch([value for row in rows for value in (*row, None)])
    return StreamPiece("Orders", origin, lo, hi or max(row[0] for row in rows), events)


def refusal(log: DurableLog, new: StreamPiece) -> str:
    with pytest.raises(SmileError) as caught:
        log.append([new])
    return caught.value.diagnostics[0].code


def test_keys_are_those_of_the_values() -> None:
    stream = mmpl.StreamDef("S", "t", COLUMNS, unique=(("x",), ("d",), ("id", "a")))
    rows: list[tuple[Value, ...]] = [
        (1, "a", 1, 0.0, Decimal(1)),
        (2, "a", 1, -0.0, Decimal("1.00")),
        (3, "a1", None, None, None),
        (4, "b", 1, 1.0, None),
    ]
    cells = [value for row in rows for value in row]
    keys = unique_keys(stream, StreamSchema(stream).record_batch(cells))
    x, d, pair = keys["x",], keys["d",], keys["id", "a"]
    assert x[0] == x[1] != x[3] and x[2] is None
    assert d[0] == d[1] and d[2] is None
    assert pair[0] == pair[1] != pair[3] and pair[2] is None


def test_a_used_value_is_refused_after_a_restart_and_a_truncation(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    log = DurableLog.open_or_create(path, [ORDERS], flush=False)
    log.append([piece(-1, (1, "a", 1, 1.0), (2, "b", 1, 2.0))])
    log.append([piece(2, (3, None, None, 1.0), (4, None, 1, None))])  # NULL is not a value
    assert refusal(log, piece(4, (5, "a", 9, 9.0))) == "E110"
    assert refusal(log, piece(4, (5, "c", 1, 2.0))) == "E110"
    assert refusal(log, piece(4, (5, "c", 5, 5.0), (6, "c", 6, 6.0))) == "E110"
    log.append([piece(-1, (1, "a", 1, 1.0), (2, "b", 1, 2.0))])  # known already
    log.append([piece(4, (5, "c", 1, 3.0))])
    log.close()
    log = DurableLog.open_or_create(path, [ORDERS], flush=False)
    assert log.truncate({"Orders": 4}) > 0
    assert refusal(log, piece(5, (6, "a", 9, 9.0))) == "E110"
    log.append([piece(5, (6, "d", 9, 9.0))])
    log.close()


def test_a_stream_with_unique_columns_has_one_origin(tmp_path: Path) -> None:
    log = DurableLog.open_or_create(str(tmp_path / "log"), [ORDERS], flush=False)
    log.append([piece(-1, (1, "a", 1, 1.0))])
    assert refusal(log, piece(-1, (3, "b", 2, 2.0), origin="p")) == "E088"
    log.close()


def test_recorded_lines_are_refused_with_their_number() -> None:
    lines = [
        b'{"stream":"Orders","at":1,"event":{"id":"a"}}',
        b'{"stream":"Orders","at":1,"event":{"id":"a"}}',
        b'{"stream":"Orders","at":2,"event":{}}',
        b'{"stream":"Orders","at":3,"event":{"id":"a"}}',
        b'{"stream":"Orders","at":3,"event":{"id":"b"}}',
    ]
    reader = EventReader(EventDecoder([ORDERS]), io.BytesIO(b"\n".join(lines[:4])), "events.ndjson")
    with pytest.raises(EventError, match=r"events.ndjson:4: Orders has this id already: the event at tick 1 has it"):
        list(reader.batches(100))
    bad: list[int] = []
    reader = EventReader(
        EventDecoder([ORDERS]), io.BytesIO(b"\n".join(lines)), "events.ndjson", lambda b: bad.append(b.number)
    )
    (batch,) = reader.batches(100)
    assert (bad, reader.events, reader.duplicates) == ([4], 3, 1)
    assert batch.events["Orders"].column(1).to_pylist() == ["a", None, "b"]


def test_parquet_files_with_a_value_twice_are_refused(tmp_path: Path) -> None:
    def write(name: str, *rows: tuple[int, str]) -> None:
        batch = SCHEMA.record_batch([value for t, key in rows for value in (t, key, None, None, None)])
        (tmp_path / "Orders").mkdir(exist_ok=True)
        pq.write_table(pa.table(batch), tmp_path / "Orders" / f"{name}.parquet")

    write("1", (1, "a"), (2, "b"))
    ParquetLog.open(str(tmp_path), [ORDERS])
    write("2", (3, "c"), (4, "a"))
    with pytest.raises(SmileError, match="Orders has this id already: the event at tick 1 has it"):
        ParquetLog.open(str(tmp_path), [ORDERS])
