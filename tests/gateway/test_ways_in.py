"""Whatever way an event takes into the broker, the same values are accepted, with the same meaning: floats in columns of
whole numbers if they are whole, which pandas makes of ints with gaps, and numbers that are written as text.
"""

import io
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]  # it has no types of its own
import polars as pl
import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq
import pytest

from smile.cli.status import broker_text
from smile.client import SmileError, connect
from smile.client.address import BrokerAddress
from smile.connectors.sources.encoded_events import JsonEvents, LineEvents
from smile.decoding.event_decoder import EventDecoder
from smile.program import compile_program
from smile.source import Source
from smile.spark.options import SourceOptions
from smile.spark.stream_writers import publish_rows
from tests.brokers import InProcessBroker
from tests.connectors.serving import logged, serving
from tests.processes import invoke_smile, wait_until

PROGRAM = "CREATE STREAM S (t: time -> item: string, n: int, x: float, d: decimal(9, 2));"
GAPS = pd.DataFrame({"item": ["a", "b"], "n": [1, None], "x": [1, None], "d": [2, None]})
ROWS: list[dict[str, Any]] = [
    {"item": "a", "n": 1, "x": 1.0, "d": Decimal("2.00")},
    {"item": "b", "n": None, "x": None, "d": None},
]
TEXTS = pa.table({"item": ["a", "b"], "n": ["1", None], "x": ["1.0", None], "d": ["2.0", None]})
TABLE = pa.table(GAPS)


def ipc(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


def parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def ndjson(table: pa.Table) -> bytes:
    return "\n".join(map(json.dumps, table.to_pylist())).encode()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("ways"), PROGRAM, flight="127.0.0.1:0") as running:
        yield running


def client(events: Any) -> Callable[[InProcessBroker, Path], None]:
    def publish(broker: InProcessBroker, _: Path) -> None:
        with connect(broker.url) as connected:
            connected.publish("S", events)

    return publish


def http(content_type: str, body: bytes) -> Callable[[InProcessBroker, Path], None]:
    def publish(broker: InProcessBroker, _: Path) -> None:
        with broker.http() as connected:
            answer = connected.post("/streams/S/events", content=body, headers={"content-type": content_type})
        assert answer.status_code == 200, answer.text

    return publish


def command(name: str, body: bytes) -> Callable[[InProcessBroker, Path], None]:
    def publish(broker: InProcessBroker, folder: Path) -> None:
        (folder / name).write_bytes(body)
        done = invoke_smile("publish", "S", name, "--url", broker.url, cwd=folder)
        assert done.exit_code == 0, done.stderr

    return publish


def spark(broker: InProcessBroker, _: Path) -> None:
    publish_rows(SourceOptions(BrokerAddress.resolve(broker.url), stream="S"), TABLE, "batch", 0)


def over_flight(broker: InProcessBroker, _: Path) -> None:
    assert broker.server.flight is not None
    with flight.FlightClient(broker.server.flight.location) as connected:
        writer, reader = connected.do_put(flight.FlightDescriptor.for_path("streams", "S"), TABLE.schema)
        with writer:
            writer.write_table(TABLE)
            reader.read()


CSV = GAPS.to_csv(index=False).encode()
WAYS: dict[str, Callable[[InProcessBroker, Path], None]] = {
    "pandas": client(GAPS),
    "polars": client(pl.from_pandas(GAPS)),
    "arrow": client(TABLE),
    "texts": client(TEXTS),
    "dicts": client([{"item": "a", "n": Decimal(1), "x": Decimal("1.0"), "d": Decimal(2)}, {"item": "b"}]),
    "HTTP JSON": http("application/json", json.dumps(TABLE.to_pylist()).encode()),
    "HTTP NDJSON": http("application/x-ndjson", ndjson(TABLE)),
    "HTTP CSV": http("text/csv", CSV),
    "HTTP Arrow": http("application/vnd.apache.arrow.stream", ipc(TABLE)),
    "HTTP Arrow texts": http("application/vnd.apache.arrow.stream", ipc(TEXTS)),
    "HTTP Parquet": http("application/vnd.apache.parquet", parquet(TABLE)),
    "HTTP Parquet texts": http("application/vnd.apache.parquet", parquet(TEXTS)),
    "smile publish CSV": command("a.csv", CSV),
    "smile publish NDJSON": command("a.ndjson", ndjson(TABLE)),
    "smile publish Parquet": command("a.parquet", parquet(TABLE)),
    "smile publish Parquet texts": command("a.parquet", parquet(TEXTS)),
    "Spark": spark,
    "Flight": over_flight,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_takes_the_same_values(broker: InProcessBroker, tmp_path: Path, way: str) -> None:
    before = broker.broker.status()["publisher"]["events"]
    WAYS[way](broker, tmp_path)
    assert broker.broker.status()["publisher"]["events"] == before + 2
    assert log_rows(broker)[-2:] == ROWS


def log_rows(broker: InProcessBroker) -> list[dict[str, Any]]:
    rows = logged(broker.broker, "S")
    return [dict(zip(("item", "n", "x", "d"), row, strict=True)) for row in rows]


def test_a_directory_takes_the_same_values(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_bytes(CSV)
    (folder / "b.ndjson").write_bytes(ndjson(TABLE) + b"\n")
    (folder / "c.parquet").write_bytes(parquet(TABLE))
    (folder / "d.PARQUET").write_bytes(parquet(TEXTS))
    sources = {"files": {"kind": "directory", "url": str(folder), "stream": "S"}}
    with serving(tmp_path, sources=sources, program=PROGRAM) as (broker, service):
        wait_until(lambda: len(logged(broker, "S")) == 8, "the rows of four files")
        assert logged(broker, "S") == [tuple(row.values()) for row in ROWS] * 4
        assert not service.letters.list()
        (folder / "e.txt").write_text("no events")
        service.sources["files"].worker.wake()
        wait_until(lambda: service.sources["files"].status()["reads"]["ignored_files"], "the file of another kind")
        assert "files of other kinds: 1" in broker_text({**broker.status(), "connectors": service.status()})


TIMED = "CREATE STREAM S (t: time -> at: time, seen: timestamp) WITH (TICKS = PUBLISHER);"
SECONDS = ["2026-11-17 18:56:01", "2026-11-17 18:56:02"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Rome"])
def test_timestamps_of_any_unit_are_ticks_and_times(unit: str, zone: str | None) -> None:
    """As in a data frame and in CSV: without a zone they are in UTC."""
    decoder = EventDecoder(compile_program(Source("p.smile", TIMED)).original.input_streams)
    times = pa.array(pd.to_datetime(pd.Series(SECONDS)).astype(f"datetime64[{unit}]")).cast(pa.timestamp(unit, zone))
    gap = pa.array([times[0], None], times.type)
    table = pa.table({"t": times, "at": gap, "seen": gap})
    texts = [{"t": t, "at": at, "seen": at} for t, at in zip(SECONDS, [SECONDS[0], None], strict=True)]
    expected = decoder.decode_json("S", json.dumps(texts).encode())
    for decoded in (decoder.decode_arrow("S", ipc(table)), decoder.decode_parquet("S", parquet(table))):
        assert [tuple(row.values()) for row in decoded.to_pylist()] == expected


def test_nanoseconds_are_refused() -> None:
    decoder = EventDecoder(compile_program(Source("p.smile", TIMED)).original.input_streams)
    table = pa.table({"t": pa.array([0, 1], pa.timestamp("ns"))})
    with pytest.raises(SmileError, match=r"event 2: S\.t is time: a time has nanoseconds") as problem:
        decoder.decode_arrow("S", ipc(table))
    assert "round the column" in str(problem.value.diagnostics[0].hint)


def test_a_directory_takes_timestamps_as_ticks(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    times = pa.array(pd.to_datetime(pd.Series(SECONDS), utc=True))
    (folder / "a.parquet").write_bytes(parquet(pa.table({"t": times, "at": times})))
    sources = {"files": {"kind": "directory", "url": str(folder), "stream": "S"}}
    with serving(tmp_path, sources=sources, program=TIMED) as (broker, service):
        wait_until(lambda: len(logged(broker, "S")) == 2, "the rows")
        assert not service.letters.list()


def test_texts_of_other_sources_are_the_same_events() -> None:
    """Those of MQTT, and dead letters that are tried again."""
    decoder = EventDecoder(compile_program(Source("p.smile", PROGRAM)).original.input_streams)
    expected = [tuple(row.values()) for row in ROWS]
    texts = [json.dumps(row).encode() for row in TABLE.to_pylist()]
    assert JsonEvents(texts, ["1", "2"]).decode(decoder, "S", 0, 2) == expected
    header, *lines = CSV.splitlines()
    assert LineEvents(lines, "a.csv", 0, header).decode(decoder, "S", 0, 2) == expected


def test_no_way_in_takes_a_fraction_for_a_whole_number(broker: InProcessBroker) -> None:
    with pytest.raises(SmileError, match=r"event 2: S\.n: 1\.5 is not an int"):
        client(pd.DataFrame({"n": [1, 1.5]}))(broker, Path())
