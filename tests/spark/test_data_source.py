"""The data source `smile` in a Spark session: rows and changes of views, and publications that count once, through kills,
restarts of queries and of the broker."""

import json
import re
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.spark.data_source import SmileDataSource
from tests.brokers import InProcessBroker, bid
from tests.processes import WAIT_S, wait_until

Json = dict[str, Any]

PROGRAM = """
CREATE STREAM Bids (bidid: time -> issue: string, price: int CHECK (price >= 0), big: bool, weight: float,
  day: date, seen: timestamp, cost: decimal(8, 2), code: bytes);
CREATE STREAM Readings (t: time -> sensor: string, value: float) WITH (TICKS = PUBLISHER);

CREATE VIEW Totals AS SELECT issue, SUM(price) AS total, COUNT(*) AS bids FROM Bids GROUP BY issue;
CREATE VIEW Cheap AS SELECT issue, total FROM Totals WHERE total < 100;
CREATE VIEW All_ AS SELECT * FROM Bids;
CREATE VIEW Newest AS SELECT sensor, LATEST(value) AS newest FROM Readings GROUP BY sensor;
CREATE VIEW Books AS SELECT issue, GROUP(bidid, price) AS offers FROM Bids GROUP BY issue;
SUBSCRIBE Totals, Cheap, All_, Newest, Books;
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path, PROGRAM) as running:
        yield running


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(SmileDataSource)
    return spark


def rows_of(session: SparkSession, broker: InProcessBroker, view: str, **options: str) -> list[Json]:
    frame = session.read.format("smile").options(url=broker.url, view=view, **options).load()
    return [row.asDict(recursive=True) for row in frame.collect()]


def settled(session: SparkSession, broker: InProcessBroker, tick: str, view: str, **options: str) -> list[Json]:
    """The rows of a view that include an event of Bids."""
    broker.rows(view, Bids=tick)
    return rows_of(session, broker, view, **options)


class TestRows:
    def test_values_knowledge_and_horizons(self, session: SparkSession, broker: InProcessBroker) -> None:
        (*_, tick) = broker.publish("Bids", bid("IBM", 120), bid("IBM", 30), bid("HP", 9))
        rows = sorted(settled(session, broker, tick, "Totals"), key=lambda row: row["issue"])
        horizons = rows[0]["_horizons"]
        assert horizons["Bids"] >= int(tick)
        assert rows == [
            {
                "issue": issue, "total": Decimal(total), "bids": bids, "_change": "row", "_final": False,
                "_knowledge": {
                    "total": {"at_least": Decimal(total), "at_most": None, "final": False},
                    "bids": {"at_least": bids, "at_most": None, "final": False},
                },
                "_horizons": horizons,
            }
            for issue, total, bids in [("HP", 9, 1), ("IBM", 150, 2)]
        ]  # fmt: skip
        (plain,) = rows_of(session, broker, "Totals", knowledge="false", where='{"issue": "HP"}')
        assert list(plain) == ["issue", "total", "bids", "_change", "_final", "_horizons"]

    def test_every_type_goes_through_spark_and_back(self, session: SparkSession, broker: InProcessBroker) -> None:
        text = """SELECT 'IBM' issue, 7L price, true big, 1.5D weight, DATE'2026-11-18' day,
          TIMESTAMP_NTZ'2026-11-18 10:00:00.000001' seen, 12.34BD cost, X'00ff' code
          UNION ALL SELECT 'HP', NULL, NULL, NULL, NULL, NULL, NULL, NULL"""
        published = session.sql(text)
        published.write.format("smile").options(url=broker.url, stream="Bids").mode("append").save()
        columns = published.columns
        wait_until(lambda: len(broker.rows("All_")) == 2, "the events are not there")
        frame = session.read.format("smile").options(url=broker.url, view="All_").load()
        assert sorted(map(str, frame.select(columns).collect())) == sorted(map(str, published.collect()))
        assert dict(frame.select(columns).dtypes) | {"cost": "decimal(4,2)"} == dict(published.dtypes)

    def test_ticks_as_timestamps_and_latest_values(self, session: SparkSession, broker: InProcessBroker) -> None:
        (tick,) = broker.publish("Bids", bid())
        broker.rows("All_", Bids=tick)
        with_times = session.read.format("smile").options(url=broker.url, view="All_", times="true").load()
        assert dict(with_times.dtypes)["bidid"] == "timestamp"
        (micros,) = with_times.selectExpr("unix_micros(bidid) AS at").collect()
        assert micros["at"] == int(tick) // 1024
        readings = session.createDataFrame([(9, "a", 2.5), (4, "a", 1.5)], "t long, sensor string, value double")
        readings.repartition(2).write.format("smile").options(url=broker.url, stream="Readings").mode("append").save()
        (row,) = wait_until(lambda: broker.rows("Newest", Readings=9), "the readings are not there")
        (row,) = rows_of(session, broker, "Newest")
        assert row["_knowledge"]["newest"]["latest"] == 2.5
        assert row["_knowledge"]["newest"]["at"] == 9

    def test_a_nested_relation_is_an_array(self, session: SparkSession, broker: InProcessBroker) -> None:
        first, tick = broker.publish("Bids", bid("IBM", 1), bid("IBM", 2))
        (row,) = settled(session, broker, tick, "Books")
        assert row["offers"] == [{"bidid": int(first), "price": 1}, {"bidid": int(tick), "price": 2}]
        assert row["_knowledge"]["offers"] == {"rows": ["final", "final"], "open": True, "final": False}

    def test_a_frame_keeps_the_rows_of_its_first_use(self, session: SparkSession, broker: InProcessBroker) -> None:
        (tick,) = broker.publish("Bids", bid("IBM", 1))
        broker.rows("Totals", Bids=tick)
        frame = session.read.format("smile").options(url=broker.url, view="Totals").load()
        assert frame.count() == 1
        (tick,) = broker.publish("Bids", bid("HP", 1))
        broker.rows("Totals", Bids=tick)
        assert (frame.count(), len(rows_of(session, broker, "Totals"))) == (1, 2)

    def test_the_token_is_not_shown(
        self, session: SparkSession, broker: InProcessBroker, capfd: pytest.CaptureFixture[str]
    ) -> None:
        frame = session.read.format("smile").options(url=broker.url, view="Totals", token="very_secret").load()
        frame.explain(True)
        assert "issue" in (shown := capfd.readouterr().out)
        assert "very_secret" not in shown

    def test_an_empty_view(self, session: SparkSession, broker: InProcessBroker) -> None:
        assert rows_of(session, broker, "Totals") == []

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"view": "Totls"}, "E021: there is no view Totls. Did you mean Totals?"),
            ({}, "E171: the option view is missing"),
            ({"view": "Totals", "wher": "{}"}, "E171: there is no option wher. Did you mean where?"),
            ({"view": "Totals", "where": "issue"}, "E171: the option where is not a JSON object"),
            ({"view": "Totals", "times": "no"}, "E171: the option times is neither true nor false"),
            ({"view": "Totals", "url": "http://127.0.0.1:1"}, "E103: http://127.0.0.1:1: Connection refused"),
        ],
    )
    def test_wrong_options(self, session: SparkSession, broker: InProcessBroker, options: Json, text: str) -> None:
        with pytest.raises(PySparkException, match=re.escape(text)):
            session.read.format("smile").options(**{"url": broker.url, **options}).load()


class Copy:
    """What a sink that applies the changes by key has."""

    def __init__(self) -> None:
        self.rows: dict[str, Json] = {}
        self.batches: list[list[Json]] = []

    def __call__(self, frame: DataFrame, _: int) -> None:
        batch = [row.asDict(recursive=True) for row in frame.collect()]
        self.batches.append(batch)
        if any(row["_change"] == "reset" for row in batch):
            self.rows = {}
        for row in batch:
            if row["_change"] == "row":
                self.rows[row["issue"]] = row
            elif row["_change"] == "deleted":
                self.rows.pop(row["issue"], None)

    def totals(self) -> dict[str, int]:
        return {issue: int(row["total"]) for issue, row in self.rows.items()}


Start = Callable[..., StreamingQuery]


@pytest.fixture
def start(session: SparkSession, broker: InProcessBroker, tmp_path: Path) -> Iterator[Start]:
    """Starts a query over the changes of a view."""
    queries: list[StreamingQuery] = []

    def started(view: str, sink: Callable[[DataFrame, int], None], **trigger: Any) -> StreamingQuery:
        frame = session.readStream.format("smile").options(url=broker.url, view=view).load()
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        queries.append((writer.trigger(**trigger) if trigger else writer).start())
        return queries[-1]

    yield started
    for query in queries:
        query.stop()


def truth(broker: InProcessBroker, view: str, tick: str) -> dict[str, int]:
    return {row["key"]["issue"]: int(row["row"]["total"]) for row in broker.rows(view, Bids=tick)}


def finish(query: StreamingQuery) -> None:
    assert query.awaitTermination(int(WAIT_S))


class TestChanges:
    def test_a_copy_follows_through_stops_and_deletions(
        self, broker: InProcessBroker, start: Start, tmp_path: Path
    ) -> None:
        copy = Copy()
        broker.publish("Bids", bid("IBM", 60), bid("HP", 9))
        query = start("Cheap", copy)
        wait_until(lambda: copy.totals() == {"IBM": 60, "HP": 9}, "the first rows are missing")
        (tick,) = broker.publish("Bids", bid("IBM", 60))  # its row leaves
        wait_until(lambda: copy.totals() == {"HP": 9}, "the deletion is missing")
        assert copy.batches[-1][0]["_change"] == "deleted"
        assert copy.batches[-1][0]["_horizons"]["Bids"] >= int(tick)
        batches = len(copy.batches)
        wait_until((tmp_path / "checkpoint" / "commits" / str(batches - 1)).exists, "the batch is not committed")
        query.stop()
        (tick,) = broker.publish("Bids", bid("AMD", 5))
        broker.rows("Cheap", Bids=tick)
        finish(start("Cheap", copy, availableNow=True))
        assert copy.totals() == truth(broker, "Cheap", tick) == {"HP": 9, "AMD": 5}
        # It has resumed: what had not changed did not come again.
        assert [row["issue"] for batch in copy.batches[batches:] for row in batch] == ["AMD"]

    def test_a_batch_that_failed_is_repeated(self, broker: InProcessBroker, start: Start) -> None:
        """Whatever its first attempt has done. The second may have newer rows, and nothing is missing after it."""
        copy = Copy()
        failures = iter([True, False])

        def sink(frame: DataFrame, number: int) -> None:
            if number == 1 and next(failures, False):
                raise ValueError("the sink has failed")
            copy(frame, number)

        tick = broker.publish("Bids", bid("IBM", 1), bid("HP", 2))[-1]
        broker.rows("Totals", Bids=tick)
        finish(start("Totals", sink, availableNow=True))
        (tick,) = broker.publish("Bids", bid("IBM", 10))
        broker.rows("Totals", Bids=tick)
        with pytest.raises(PySparkException, match="the sink has failed"):
            finish(start("Totals", sink, availableNow=True))
        (tick,) = broker.publish("Bids", bid("HP", 20))
        broker.rows("Totals", Bids=tick)
        finish(start("Totals", sink, availableNow=True))
        assert copy.totals() == {"IBM": 11, "HP": 22}
        (tick,) = broker.publish("Bids", bid("IBM", 100))
        broker.rows("Totals", Bids=tick)
        finish(start("Totals", sink, availableNow=True))
        assert copy.totals() == truth(broker, "Totals", tick)

    def test_a_broker_that_has_forgotten_the_token_resets(self, session: SparkSession, tmp_path: Path) -> None:
        copy, port = Copy(), 0
        for prices in ([60, 9], [60]):  # after the restart, a row that the copy has is gone
            with InProcessBroker(tmp_path, PROGRAM, listen=f"127.0.0.1:{port}") as broker:
                port = broker.port
                events = [bid(issue, price) for issue, price in zip(("IBM", "HP"), prices, strict=False)]
                tick = broker.publish("Bids", *events)[-1]
                broker.rows("Cheap", Bids=tick)
                frame = session.readStream.format("smile").options(url=broker.url, view="Cheap").load()
                writer = frame.writeStream.foreachBatch(copy).option("checkpointLocation", str(tmp_path / "checkpoint"))
                finish(writer.trigger(availableNow=True).start())
                assert copy.totals() == truth(broker, "Cheap", tick)
                broker.rows("Cheap", Bids=time.time_ns() // 1000 * TICKS_PER_MICROSECOND)  # later than the token
        assert copy.totals() == {"HP": 9}
        assert [[row["_change"] for row in batch] for batch in copy.batches] == [
            ["reset", "row", "row"],
            ["reset", "row"],
        ]


def published_prices(broker: InProcessBroker) -> list[int]:
    """What the log has, in its order."""
    with broker.http() as client:
        stream = client.get("/streams/Bids", params={"newest": "100"}).json()
    assert len(stream["newest"]) < 100
    return [event["event"]["price"] for event in reversed(stream["newest"])]


class TestPublishing:
    def write(self, broker: InProcessBroker, frame: DataFrame, **options: str) -> None:
        frame.write.format("smile").options(url=broker.url, stream="Bids", **options).mode("append").save()

    def test_a_named_batch_is_published_once(self, session: SparkSession, broker: InProcessBroker) -> None:
        frame = session.range(6).selectExpr("'IBM' AS issue", "id AS price").repartition(3, "price")
        for _ in range(2):
            self.write(broker, frame, batch="monday")
        assert sorted(published_prices(broker)) == [0, 1, 2, 3, 4, 5]
        self.write(broker, frame, batch="tuesday")
        self.write(broker, frame)
        assert len(published_prices(broker)) == 18

    def test_a_batch_is_published_as_a_whole_or_not(self, session: SparkSession, broker: InProcessBroker) -> None:
        frame = session.range(6).selectExpr("'IBM' AS issue", "3 - id AS price").repartition(3, "price")
        with pytest.raises(PySparkException, match=r"E080: event .*price >= 0"):
            self.write(broker, frame)
        failing = session.range(6).selectExpr("'IBM' AS issue", "IF(id = 5, raise_error('no'), id) AS price")
        with pytest.raises(PySparkException, match="no"):
            self.write(broker, failing.repartition(3))
        assert published_prices(broker) == []

    @pytest.mark.parametrize(
        ("columns", "mode", "text"),
        [
            (["'IBM' AS issu"], "append", "E077: the events: Bids has no column issu. Did you mean issue?"),
            (["array(1) AS price"], "append", "E078"),
            (["1 AS price"], "overwrite", "E171: events of a stream are never replaced"),
        ],
    )
    def test_what_cannot_be_published(
        self, session: SparkSession, broker: InProcessBroker, columns: list[str], mode: str, text: str
    ) -> None:
        writer = session.range(1).selectExpr(*columns).write.format("smile")
        with pytest.raises(PySparkException, match=re.escape(text)):
            writer.options(url=broker.url, stream="Bids").mode(mode).save()

    def test_batches_of_a_query_are_published_once(
        self, session: SparkSession, broker: InProcessBroker, tmp_path: Path
    ) -> None:
        """Each batch is published, and then the process that recorded it is gone: its record is deleted, so that Spark
        repeats the batch, with its rows in another order."""
        folder, checkpoint = tmp_path / "files", tmp_path / "checkpoint"
        folder.mkdir()
        for number in range(3):
            lines = [json.dumps({"issue": "IBM", "price": 10 * number + i}) for i in range(4)]
            (folder / f"{number}.json").write_text("\n".join(lines))
            for attempt in range(2):
                frame = session.readStream.schema("issue string, price long").json(str(folder))
                if attempt:
                    frame = frame.repartition(3, "price")
                writer = frame.writeStream.format("smile").options(url=broker.url, stream="Bids")
                finish(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start())
                if not attempt:
                    (checkpoint / "commits" / str(number)).unlink()
        assert sorted(published_prices(broker)) == [10 * number + i for number in range(3) for i in range(4)]
