"""Events of a stream in a Spark session: what the log has, and each event once in a query that is stopped and started."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from smile.spark import log_readers
from smile.spark.data_source import SmileDataSource
from smile.spark.log_readers import LogStreamReader, StreamLog
from smile.spark.options import SourceOptions
from tests.brokers import InProcessBroker
from tests.processes import WAIT_S, wait_until

PROGRAM = """
CREATE STREAM Trades (t: time -> issue: string, price: decimal(8, 2), seen: timestamp, day: date);
CREATE VIEW Volume AS SELECT issue, COUNT(*) AS n FROM Trades GROUP BY issue;
SUBSCRIBE Volume;
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path, PROGRAM, flight="127.0.0.1:0") as running:
        yield running


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(SmileDataSource)
    return spark


def options(broker: InProcessBroker, **others: str) -> dict[str, str]:
    assert broker.server.flight is not None
    return {"url": broker.url, "flight": broker.server.flight.location, "stream": "Trades", **others}


def publish(broker: InProcessBroker, *issues: str) -> list[int]:
    event = {"price": "1.50", "seen": "2026-11-18 10:00:00.000001", "day": "2026-11-18"}
    return [int(tick) for tick in broker.publish("Trades", *({**event, "issue": issue} for issue in issues))]


def test_the_history_with_its_types(session: SparkSession, broker: InProcessBroker) -> None:
    ticks = publish(broker, "IBM", "HP")
    broker.publish("Trades", {"issue": None})
    frame = session.read.format("smile").options(**options(broker)).load()
    names = {"t": "bigint", "issue": "string", "price": "decimal(8,2)", "seen": "timestamp_ntz", "day": "date"}
    assert dict(frame.dtypes) == names
    rows = frame.where("issue IS NOT NULL").orderBy("t").collect()
    assert [(row["t"], row["issue"]) for row in rows] == list(zip(ticks, ["IBM", "HP"], strict=True))
    assert [str(rows[0][name]) for name in ("price", "seen", "day")] == [
        "1.50", "2026-11-18 10:00:00.000001", "2026-11-18",
    ]  # fmt: skip
    timed = session.read.format("smile").options(**options(broker, times="true")).load()
    micros = timed.selectExpr("unix_micros(t) AS at").where("issue IS NOT NULL").orderBy("at").collect()
    assert [row["at"] for row in micros] == [tick // 1024 for tick in ticks]


def test_each_event_is_in_one_batch(session: SparkSession, broker: InProcessBroker, tmp_path: Path) -> None:
    """Also with a query that goes on while it is published to, and one that is started again. Spark repeats a batch under
    its number if the query was stopped before it was committed."""
    batches: dict[int, list[str]] = {}

    def receive(batch: DataFrame, number: int) -> None:
        batches[number] = [row["issue"] for row in batch.collect()]

    def received() -> list[str]:
        return sorted(issue for batch in list(batches.values()) for issue in batch)

    def start(**trigger: bool) -> StreamingQuery:
        events = session.readStream.format("smile").options(**options(broker)).load()
        writer = events.writeStream.foreachBatch(receive)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return (writer.trigger(**trigger) if trigger else writer).start()

    publish(broker, "a", "b", "c")
    assert start(availableNow=True).awaitTermination(int(WAIT_S))
    assert received() == ["a", "b", "c"]
    publish(broker, "d")
    query = start()
    try:
        wait_until(lambda: len(received()) == 4, "the event after the first run")
        publish(broker, "e", "f")
        wait_until(lambda: len(received()) == 6, "the events of the second run")
    finally:
        query.stop()
    publish(broker, "g")
    assert start(availableNow=True).awaitTermination(int(WAIT_S))
    assert received() == list("abcdefg")


def test_batches_are_the_same_when_they_are_read_again(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_readers, "BATCH_ROWS", 2)
    for issue in "abcde":
        publish(broker, issue)

    def open_reader() -> LogStreamReader:
        return LogStreamReader(StreamLog.open(SourceOptions.parse(options(broker))))

    reader = open_reader()
    offsets = [reader.initialOffset()]
    batches: list[list[str]] = []
    while sum(map(len, batches)) < 5:
        offsets.append(reader.latestOffset(offsets[-1], None))  # type: ignore[arg-type]  # the limit is not read
        (partition,) = reader.partitions(offsets[-2], offsets[-1])
        batches.append([issue for b in reader.read(partition) for issue in b.column("issue").to_pylist()])
    assert [issue for batch in batches for issue in batch] == list("abcde")
    assert max(map(len, batches)) <= 2
    publish(broker, "f")
    again = open_reader()
    for begin, end, expected in zip(offsets, offsets[1:], batches, strict=False):
        (partition,) = again.partitions(begin, end)
        assert [issue for b in again.read(partition) for issue in b.column("issue").to_pylist()] == expected


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ({"stream": "Trade"}, "E076: there is no stream Trade. Did you mean Trades?"),
        ({"view": "Volume"}, "E171: there are both a view and a stream"),
        ({"where": '{"issue": "IBM"}'}, "E171: the events of a stream are read without a condition"),
    ],
)
def test_what_is_wrong(session: SparkSession, broker: InProcessBroker, others: dict[str, str], text: str) -> None:
    with pytest.raises(PySparkException) as refused:
        session.read.format("smile").options(**options(broker, **others)).load()
    assert text in str(refused.value)
