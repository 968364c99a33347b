"""`smile publish STREAM FILE`: the rows of a table are published once, or refused with their number, in every format."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tests.brokers import InProcessBroker
from tests.processes import invoke_smile
from tests.repeatable import scaled

PROGRAM = """
CREATE STREAM S (t: time -> name: string, n: int CHECK (n >= 0), x: float, big: bool, price: decimal(9, 2), day: date,
  at: timestamp, raw: bytes);
CREATE VIEW V AS SELECT t, name, n, x, big, price, day, at, raw FROM S;
CREATE STREAM Clock (t: time -> n: int) WITH (TICKS = PUBLISHER);
CREATE VIEW Ticks AS SELECT t, n FROM Clock;
SUBSCRIBE V, Ticks;
"""

SCHEMA = pa.schema(
    {
        "name": pa.string(), "n": pa.int64(), "x": pa.float64(), "big": pa.bool_(), "price": pa.decimal128(9, 2),
        "day": pa.date32(), "at": pa.timestamp("us"), "raw": pa.binary(),
    }
)  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "name": ["IBM", "a,b", 'say "x"', "two\nlines", "ümlaut", "1.5", None],
    "n": [0, 2**53 + 1, None],
    "x": [1.5, -2e300, 0.0, 17.0, None],
    "big": [True, False, None],
    "price": [Decimal("12.50"), Decimal("0.01"), None],
    "day": [datetime.date(2024, 5, 31), None],
    "at": [datetime.datetime(2024, 5, 31, 12, 0, 0, 250_000), None],  # the broker's are naive
    "raw": [b"\x00\xff", None],
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("tables"), program=PROGRAM) as running:
        yield running


def write(table: pa.Table, path: Path) -> None:
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path, row_group_size=7)
        case ".arrow":
            with pa.ipc.new_stream(path, table.schema) as writer:
                writer.write_table(table, 7)
        case ".feather":
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, 7)
        case ".csv":
            rows = [
                {k: v.hex() if isinstance(v, bytes) else v for k, v in row.items()} for row in table.to_pylist()
            ]  # Arrow writes no bytes
            fields = {**dict(zip(table.schema.names, table.schema.types, strict=True)), "raw": pa.string()}
            for row in rows:
                row["raw"] = None if row["raw"] is None else f"\\x{row['raw']}"
            pa.csv.write_csv(pa.Table.from_pylist(rows, pa.schema(fields)), path)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow", ".feather"])
@pytest.mark.parametrize("seed", range(scaled(3)))
def test_every_format_publishes_the_same(broker: InProcessBroker, suffix: str, seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    rows = [{name: random.choice(VALUES[name]) for name in VALUES} for _ in range(random.randint(1, 40))]
    table = pa.Table.from_pylist(rows, SCHEMA)
    path = tmp_path / f"rows{suffix}"
    write(table, path)
    done = invoke_smile("publish", "S", str(path), "--ticks", "--url", broker.url)
    assert done.exit_code == 0, done.stderr
    ticks = [int(line) for line in done.stdout.splitlines()]
    from smile.client import connect  # noqa: PLC0415

    with connect(broker.url) as client:
        shown = client.snapshot("V", after={"S": ticks[-1]})
    published = [{name: shown[tick].row[name] for name in VALUES} for tick in ticks]
    if suffix == ".csv":  # an empty text is NULL there
        rows = [{**row, "name": row["name"] or None} for row in rows]
    assert published == rows


def test_ticks_of_publishers(broker: InProcessBroker, tmp_path: Path) -> None:
    (tmp_path / "clock.csv").write_text("t,n\n5,1\n9,2\n")
    done = invoke_smile("publish", "Clock", "clock.csv", "--ticks", "--url", broker.url, cwd=tmp_path)
    assert (done.exit_code, done.stdout) == (0, "5\n9\n"), done.stderr


def count(broker: InProcessBroker) -> int:
    events: int = broker.broker.status()["publisher"]["events"]
    return events


def test_a_refused_row_has_its_number(broker: InProcessBroker, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("name,n\na,1\n\nb,two\nc,-1\nd\ne,5\n")
    before = count(broker)
    done = invoke_smile("publish", "S", "rows.csv", "--url", broker.url, cwd=tmp_path)
    assert (done.exit_code, done.stderr.splitlines()[0]) == (
        1,
        'rows.csv:4: error E078: event 1: S.n: "two" is not an int',
    )
    assert count(broker) - before == 1
    done = invoke_smile("publish", "S", "rows.csv", "--skip-bad", "--url", broker.url, cwd=tmp_path)
    refused = [line.split(" error ")[0] for line in done.stderr.splitlines() if " error " in line]
    assert (done.exit_code, refused) == (0, ["rows.csv:4:", "rows.csv:5:", "rows.csv:6:"])
    assert "2 events published" in done.stderr
    assert "3 lines refused" in done.stderr


def test_refused_rows_of_parquet(broker: InProcessBroker, tmp_path: Path) -> None:
    """Whole floats are what pandas makes of whole numbers with gaps."""
    table = pa.table({"n": pa.array([1.0, None, 2.5, 3.0, float("nan")])})
    pq.write_table(table, tmp_path / "rows.parquet")
    done = invoke_smile("publish", "S", "rows.parquet", "--skip-bad", "--url", broker.url, cwd=tmp_path)
    refused = [line.split(" error ")[0] for line in done.stderr.splitlines() if " error " in line]
    assert (done.exit_code, refused) == (0, ["rows.parquet:3:", "rows.parquet:5:"])
    assert "3 events published" in done.stderr


def test_times_with_nanoseconds(broker: InProcessBroker, tmp_path: Path) -> None:
    table = pa.table({"at": pa.array([1_000, 1_001], pa.timestamp("ns"))})
    pq.write_table(table.slice(0, 1), tmp_path / "whole.parquet")
    pq.write_table(table, tmp_path / "rows.parquet")
    assert invoke_smile("publish", "S", "whole.parquet", "--url", broker.url, cwd=tmp_path).exit_code == 0
    done = invoke_smile("publish", "S", "rows.parquet", "--url", broker.url, cwd=tmp_path)
    assert (done.exit_code, "error E078" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.csv", b"nam,n\na,1\n", "E077"),
        ("a.csv", b"", "E074"),
        ("a.csv", b'name\n"open\n', "E073"),
        ("a.csv", b"name\n\xff\n", "E072"),
        ("a.parquet", b"PAR1 no", "E070"),
        ("a.arrow", b"no", "E070"),
        ("a.arrow", b"ARROW1\x00\x00no", "E070"),
        ("a.feather", b"", "E070"),
    ],
)
def test_what_is_no_table(broker: InProcessBroker, name: str, content: bytes, code: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    before = count(broker)
    done = invoke_smile("publish", "S", name, "--url", broker.url, cwd=tmp_path)
    assert (done.exit_code, f"smile: error {code}: " in done.stderr) == (1, True), done.stderr
    assert count(broker) == before


def test_a_large_table_in_parts(broker: InProcessBroker, tmp_path: Path) -> None:
    size = 30_000
    pq.write_table(pa.table({"n": range(size), "name": ["x" * 20] * size}), tmp_path / "large.parquet")
    before = count(broker)
    done = invoke_smile("publish", "S", "large.parquet", "--url", broker.url, cwd=tmp_path)
    assert done.stderr.startswith("30,000 events published"), done.stderr
    assert count(broker) - before == size


def test_no_such_stream_or_file(broker: InProcessBroker, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    done = invoke_smile("publish", "Nope", "a.csv", "--url", broker.url, cwd=tmp_path)
    assert (done.exit_code, "E076" in done.stderr) == (1, True), done.stderr
    done = invoke_smile("publish", "S", "none.csv", "--url", broker.url, cwd=tmp_path)
    assert (done.exit_code, done.stderr) == (1, "smile: none.csv cannot be read: No such file or directory\n")
