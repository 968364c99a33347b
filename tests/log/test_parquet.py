"""Parquet files are read exactly, as their streams are defined, or refused with the file and the reason."""

import os
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smile.algebra.arrow_types import stream_schema
from smile.errors import SmileError
from smile.horizons import HORIZON_MIN
from smile.log.storage.parquet import ParquetLog
from smile.log.storage.reading import BatchLimit, Position, open_log, read_batches
from smile.program import compile_program
from smile.source import Source

PROGRAM = """
CREATE DOMAIN shares AS int CHECK (VALUE BETWEEN 0 AND 1000);
CREATE DOMAIN money AS decimal(5, 2) CHECK (VALUE >= 0);
CREATE DOMAIN side AS string CHECK (VALUE IN ('buy', 'sell'));
CREATE STREAM Bids (t: time -> n: shares, price: money, side: side, m: int, CHECK (n <= m));
CREATE STREAM Named (t: time -> name: string NOT NULL);
CREATE STREAM Kinds (t: time -> o: bool, i: int, x: float, d: decimal(5, 2), s: string, y: bytes, p: time, m: interval,
  ts: timestamp, day: date);
CREATE VIEW V AS SELECT n FROM Bids;
SUBSCRIBE V;
"""
STREAMS = compile_program(Source("parquet.smile", PROGRAM)).original.streams
SCHEMAS = {stream.name: stream_schema(stream) for stream in STREAMS}


def write(path: Path, columns: dict[str, Any], rows: int = 1000, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=rows, **options)
    return path


def read(log: ParquetLog, stream: str) -> list[dict[str, Any]]:
    events = log.read(stream, log.start(), log.newest())
    assert events.schema.equals(SCHEMAS[stream])
    events.validate(full=True)
    return list(events.to_pylist())


def check_refused(directory: Path, code: str, reason: str, stream: str = "Bids") -> None:
    with pytest.raises(SmileError, match=reason) as failure:
        read(ParquetLog.open(str(directory), STREAMS), stream)
    assert failure.value.diagnostics[0].code == code


# ── columns ─────────────────────────────────────────────────────────────────────────────────────────────────────────

NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)
MICROSECONDS = int(NOON.timestamp()) * 10**6


@pytest.mark.parametrize(
    ("name", "column", "expected"),
    [
        ("o", pa.array([True, None]), [True, None]),
        ("i", pa.array([-1, None], pa.int8()), [-1, None]),
        ("i", pa.array([7, 2**63 - 1], pa.uint64()), [7, 2**63 - 1]),
        ("i", pa.array([None, None], pa.null()), [None, None]),
        ("x", pa.array([0.5, None], pa.float32()), [0.5, None]),
        ("x", pa.array([3, 4], pa.int32()), [3.0, 4.0]),
        ("d", pa.array([Decimal("1.5"), None], pa.decimal128(3, 1)), [Decimal("1.50"), None]),
        ("d", pa.array([Decimal("1.500"), None], pa.decimal256(40, 3)), [Decimal("1.50"), None]),
        ("d", pa.array([12, -999]), [Decimal(12), Decimal(-999)]),
        ("s", pa.array(["ä", None], pa.large_string()), ["ä", None]),
        ("s", pa.array(["a", "a"]).dictionary_encode(), ["a", "a"]),
        ("y", pa.array([b"ab", b"cd"], pa.binary(2)), [b"ab", b"cd"]),
        ("y", pa.array([b"ab", None], pa.large_binary()), [b"ab", None]),
        ("p", pa.array([1, 2], pa.int32()), [1, 2]),
        ("m", pa.array([1024, 2]), [1024, 2]),
        ("ts", pa.array([NOON, None], pa.timestamp("ns")), [MICROSECONDS, None]),
        ("ts", pa.array([NOON, None], pa.timestamp("ms", "Europe/Vienna")), [MICROSECONDS, None]),
        ("ts", pa.array([17, None]), [17, None]),
        ("day", pa.array([date(1970, 1, 3), None]), [2, None]),
        ("day", pa.array([date(1970, 1, 3), None], pa.date64()), [2, None]),
    ],
)
def test_columns_of_many_types_are_read_exactly(
    tmp_path: Path, name: str, column: pa.Array, expected: list[Any]
) -> None:
    write(tmp_path / "Kinds.parquet", {name: column, "t": pa.array([3, 5], pa.int32())})
    rows = read(ParquetLog.open(str(tmp_path), STREAMS), "Kinds")
    assert [row["t"] for row in rows] == [3, 5]
    assert [row[name] for row in rows] == expected
    assert {row[other] for row in rows for other in row if other not in ("t", name)} == {None}


@pytest.mark.parametrize("has_statistics", [True, False])
@pytest.mark.parametrize("type_", [pa.timestamp("s"), pa.timestamp("ns", "Europe/Vienna")])
def test_timestamps_are_ticks(tmp_path: Path, type_: pa.DataType, has_statistics: bool) -> None:
    table = pa.table({"t": pa.array([NOON, NOON + timedelta(seconds=1)], type_)})
    pq.write_table(table, tmp_path / "Kinds.parquet", write_statistics=has_statistics)
    rows = read(ParquetLog.open(str(tmp_path), STREAMS), "Kinds")
    assert [row["t"] for row in rows] == [MICROSECONDS * 1024, (MICROSECONDS + 10**6) * 1024]


@pytest.mark.parametrize(
    ("columns", "code", "reason"),
    [
        ({"i": [1.5]}, "E078", "Kinds.i is int: 1.5 is not an int"),
        ({"i": pa.array([2**63], pa.uint64())}, "E078", "Kinds.i is int: .*9223372036854775808"),
        ({"x": [float("nan")]}, "E078", "Kinds.x is float: NaN and infinities"),
        ({"x": [2**53 + 1]}, "E078", "Kinds.x is float: .*9007199254740993"),
        ({"d": [Decimal("1.234")]}, "E078", r"Kinds.d is decimal\(5, 2\): "),
        ({"d": [1000]}, "E078", r"Kinds.d is decimal\(5, 2\): .*precision"),
        ({"ts": pa.array([1], pa.timestamp("ns"))}, "E078", "Kinds.ts is timestamp: a time has nanoseconds"),
        ({"s": [{"a": 1}]}, "E078", "Kinds.s is string, but is given as struct"),
        ({"s": [1]}, "E078", "Kinds.s is string, but is given as int64"),
        ({"z": [1]}, "E077", "Kinds has no column z"),
        ({"t": pa.array([True])}, "E078", "Kinds.t is time, but is given as bool"),
        ({"t": [-1]}, "E079", "wrong tick of Kinds: -1 is out of range"),
        ({"t": [2**63 - 1]}, "E079", "wrong tick of Kinds: 9223372036854775807 is out of range"),
        ({"t": pa.array([None], pa.int64())}, "E079", "wrong tick of Kinds: an event has none"),
    ],
)
def test_columns_that_are_not_the_streams_are_refused(
    tmp_path: Path, columns: dict[str, Any], code: str, reason: str
) -> None:
    path = write(tmp_path / "Kinds.parquet", {"t": [1], **columns})
    check_refused(tmp_path, code, f"{path}: {reason}", "Kinds")


def test_an_event_without_a_tick_among_others_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "Kinds.parquet", {"t": [1, None, 3]})
    check_refused(tmp_path, "E079", "an event has none", "Kinds")


def test_a_file_without_the_tick_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "Kinds.parquet", {"i": [1]})
    check_refused(tmp_path, "E077", "the column t is missing, which is the tick of Kinds", "Kinds")


def test_a_column_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["t", "i", "i"])
    pq.write_table(table, tmp_path / "Kinds.parquet")
    check_refused(tmp_path, "E075", "the column i is given twice", "Kinds")


BID = {"n": 5, "price": Decimal("1.00"), "side": "buy", "m": 9}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"n": 1001, "m": 5000}, "Bids requires n <= 1000, but n is 1001"),
        ({"n": -1}, "Bids requires n >= 0, but n is -1"),
        ({"price": Decimal("-0.01")}, "Bids requires .*, but price is -0.01"),
        ({"side": "neither"}, "Bids requires .*, but side is neither"),
        ({"n": 10}, "Bids requires n <= m, but n is 10, m is 9"),
    ],
)
def test_every_check_holds_for_every_row(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    rows = [{"t": tick, **BID} for tick in range(50)]
    rows[20] |= dict.fromkeys(BID)
    table = pa.Table.from_pylist(rows, SCHEMAS["Bids"])
    pq.write_table(table, tmp_path / "Bids.parquet")
    assert read(ParquetLog.open(str(tmp_path), STREAMS), "Bids") == rows
    rows[33] |= changed
    pq.write_table(pa.Table.from_pylist(rows, SCHEMAS["Bids"]), tmp_path / "Bids.parquet")
    check_refused(tmp_path, "E080", f"tick 33: {reason}")


def test_a_column_that_may_not_be_null_may_not_be_missing(tmp_path: Path) -> None:
    write(tmp_path / "Named.parquet", {"t": [4]})
    check_refused(tmp_path, "E080", "tick 4: Named requires name IS NOT NULL", "Named")


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_streams_advance_together(tmp_path: Path) -> None:
    write(tmp_path / "Kinds.parquet", {"t": list(range(0, 100, 2)), "i": list(range(50))}, rows=10)
    write(tmp_path / "Named.parquet", {"t": list(range(1, 101, 4)), "name": ["n"] * 25}, rows=5)
    log = open_log(str(tmp_path), STREAMS)
    horizons = [batch.horizons for batch in read_batches(log, BatchLimit(commits=1))]
    assert [h["Kinds"] for h in horizons[1::2]] == [18, 38, 58, 78, 98]
    assert all(abs(h["Kinds"] - h["Named"]) <= 20 for h in horizons)
    assert horizons[-1] == {"Bids": HORIZON_MIN, "Kinds": 98, "Named": 97}
    assert [batch.horizons for batch in read_batches(log, BatchLimit(rows=25))] == horizons[2::3] + horizons[-1:]


def test_a_row_group_may_be_one_event_right_after_another(tmp_path: Path) -> None:
    write(tmp_path / "Kinds.parquet", {"t": [0, 1, 2]}, rows=1)
    batches = list(read_batches(open_log(str(tmp_path), STREAMS), BatchLimit(commits=1)))
    assert [batch.events["Kinds"].column("t").to_pylist() for batch in batches] == [[0], [1], [2]]


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"Kinds.parquet": [1, 2, 2, 3]}, "Kinds.parquet: wrong tick of Kinds: 2 comes after 2"),
        ({"Kinds.parquet": [1, 3, 2, 4]}, "Kinds.parquet: wrong tick of Kinds: 2 comes after 3"),
        ({"Kinds.parquet": [5, 6, 1, 2]}, "Kinds.parquet: wrong tick of Kinds: 1 comes after 6 in an earlier row group"),
        ({"Kinds/a.parquet": [1, 5], "Kinds/b.parquet": [5, 7]}, "b.parquet: wrong tick of Kinds: 5 comes after 5 in .*a.parquet"),
        ({"Kinds/a.parquet": [4, 7], "Kinds/c/b.parquet": [1, 5]}, "a.parquet: wrong tick of Kinds: 4 comes after 5 in .*b.parquet"),
    ],
)  # fmt: skip
def test_ticks_must_ascend(tmp_path: Path, files: dict[str, list[int]], reason: str, statistics: bool) -> None:
    for name, ticks in files.items():
        write(tmp_path / name, {"t": ticks}, rows=2, write_statistics=statistics)
    check_refused(tmp_path, "E079", reason, "Kinds")


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("Kimds.parquet", "E076", "Kimds.parquet is not named after a stream"),
        ("Kinds.csv", "E076", "Kinds.csv is not named after a stream"),
        ("Kinds", "E076", "Kinds is not named after a stream"),
        ("Other/a.parquet", "E076", "Other is not named after a stream"),
        ("Kinds/a.csv", "E070", "a.csv is not a Parquet file"),
        ("Kinds/i=3/a.parquet", "E070", "i=3 is not a Parquet file"),
        ("Kinds.parquet", "E085", "Kinds.parquet is damaged: "),
    ],
)
def test_a_file_that_is_not_a_streams_is_refused(tmp_path: Path, name: str, code: str, reason: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(b"no Parquet")
    check_refused(tmp_path, code, reason, "Kinds")


def test_an_unknown_name_has_the_streams_as_a_hint(tmp_path: Path) -> None:
    write(tmp_path / "Quite_other.parquet", {"t": [1]})
    with pytest.raises(SmileError) as failure:
        open_log(str(tmp_path), STREAMS)
    assert "There are Bids, Named, Kinds" in (failure.value.diagnostics[0].hint or "")


def test_an_empty_directory_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(SmileError, match="has no recorded events"):
        open_log(str(tmp_path), STREAMS)


def test_files_without_rows_and_without_data_are_skipped(tmp_path: Path) -> None:
    write(tmp_path / "Kinds.parquet" / "part-0.parquet", {"t": pa.array([], pa.int64())})
    write(tmp_path / "Kinds.parquet" / "part-1.parquet", {"t": [3]})
    (tmp_path / "Kinds.parquet" / "_SUCCESS").touch()
    (tmp_path / ".hidden").touch()
    log = ParquetLog.open(str(tmp_path), STREAMS)
    assert [row["t"] for row in read(log, "Kinds")] == [3]
    assert log.newest().commit == 1


def append_row(path: Path) -> None:
    write(path, {"t": [1, 2, 3]})


def change_mtime(path: Path) -> None:
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize(
    ("change", "code"),
    [(append_row, "E089"), (change_mtime, "E089"), (Path.unlink, "E070")],
    ids=["longer", "touched", "gone"],
)
@pytest.mark.parametrize("opened_before", [True, False])
def test_a_file_that_changes_is_noticed(
    tmp_path: Path, change: Callable[[Path], None], code: str, opened_before: bool
) -> None:
    path = write(tmp_path / "Kinds.parquet", {"t": [1, 2]})
    log = ParquetLog.open(str(tmp_path), STREAMS)
    if opened_before:
        assert len(read(log, "Kinds")) == 2
    else:
        log = pickle.loads(pickle.dumps(log))
    change(path)
    with pytest.raises(SmileError, match=str(path)) as failure:
        read(log, "Kinds")
    assert failure.value.diagnostics[0].code == code


def test_wrong_statistics_are_noticed(tmp_path: Path) -> None:
    """Otherwise a row group could return events that belong to another range."""
    path = write(tmp_path / "Kinds.parquet", {"t": [1000, 2000]}, compression="none", use_dictionary=False)
    page, other = (b"".join(tick.to_bytes(8, "little") for tick in ticks) for ticks in ([1000, 2000], [1000, 1999]))
    data = path.read_bytes()
    assert data.count(page) == 1
    path.write_bytes(data.replace(page, other))
    check_refused(tmp_path, "E085", "its ticks differ from its statistics", "Kinds")


def test_damaged_pages_are_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "Kinds.parquet", {"t": list(range(1000)), "i": list(range(1000))}, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 1
    path.write_bytes(data)
    check_refused(tmp_path, "E085", "Kinds.parquet is damaged", "Kinds")


def test_fewer_files_than_were_read_are_noticed(tmp_path: Path) -> None:
    write(tmp_path / "Kinds.parquet", {"t": [1, 2]})
    log = ParquetLog.open(str(tmp_path), STREAMS)
    with pytest.raises(SmileError, match="no row group 2") as failure:
        log.after(Position(2, {s.name: {"0": 9} for s in STREAMS}), BatchLimit())
    assert failure.value.diagnostics[0].code == "E089"


@pytest.mark.slow
def test_other_processes_read_it(tmp_path: Path) -> None:
    write(tmp_path / "Kinds.parquet", {"t": list(range(100))}, rows=7)
    log = ParquetLog.open(str(tmp_path), STREAMS)
    with ProcessPoolExecutor(2, get_context("spawn")) as readers:
        results = [readers.submit(read, log, "Kinds") for _ in range(2)]
        assert [[row["t"] for row in result.result(300)] for result in results] == [list(range(100))] * 2
