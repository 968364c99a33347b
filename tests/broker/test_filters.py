"""Durable subscriptions with filters: each receives exactly the events that match as of their ticks, over restarts, removals
from the log and changes of the program."""

import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from smile.broker.broker import Broker
from smile.broker.publishing.publication import Publication, SilencePublication
from smile.broker.subscriptions.event_matcher import EventMatcher
from smile.broker.subscriptions.position_store import PositionStore, SubscriptionKey, SubscriptionRecord
from smile.broker.subscriptions.table_readers import TableReader
from smile.broker.views.condition import ViewCondition
from smile.errors import SmileError
from smile.log.storage.pieces import StreamPiece
from smile.source import Source
from tests.broker.test_durable_subscriptions import Receiver
from tests.brokers import open_broker
from tests.processes import WAIT_S, wait_until
from tests.repeatable import scaled

PROGRAM = """
CREATE STREAM Quotes (t TIME KEY, symbol STRING, price INT);
CREATE STREAM Portfolios (t TIME KEY, change STRING NOT NULL, id INT, symbol STRING) WITH (CHANGES = TABLE);
CREATE STREAM TimedQuotes (t TIME KEY, symbol STRING, price INT) WITH (TICKS = PUBLISHER);
CREATE STREAM TimedPortfolios (t TIME KEY, change STRING, id INT, symbol STRING)
  WITH (TICKS = PUBLISHER, CHANGES = TABLE);
CREATE VIEW Dear AS SELECT symbol, price FROM Quotes WHERE price >= 100;
CREATE VIEW Sums AS SELECT symbol, SUM(price) AS total FROM Quotes GROUP BY symbol;
"""
IN_PORTFOLIO = "symbol IN (SELECT symbol FROM Portfolios WHERE id = {n})"
Start = Callable[..., Broker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    opened: list[Any] = []

    def stop() -> None:
        while opened:
            opened.pop().__exit__(None, None, None)

    def open_one(program: str = PROGRAM, **settings: Any) -> Broker:
        stop()
        opened.append(open_broker(tmp_path / "data", Source("p.smile", program), silence_ms=10, idle_ms=20, **settings))
        return opened[-1].__enter__()  # type: ignore[no-any-return]

    yield open_one
    stop()


def publish(broker: Broker, stream: str, *rows: tuple[Any, ...]) -> list[int]:
    return list(broker.publish(Publication(stream, rows)).result(WAIT_S).ticks)


def subscribe(broker: Broker, filter_text: str, name: str = "n", relation: str = "Quotes", **options: Any) -> Receiver:
    return Receiver(broker, relation, SubscriptionKey("local", name), options={"filter": filter_text, **options})


def refusal(broker: Broker, filter_text: str, **options: Any) -> str:
    with pytest.raises(SmileError) as caught:
        subscribe(broker, filter_text, **options)
    return caught.value.diagnostics[0].code


def prices(receiver: Receiver, count: int) -> list[Any]:
    return receiver.wait_for(count, "price")


def test_events_that_match_a_predicate(start: Start) -> None:
    broker = start()
    publish(broker, "Quotes", *((symbol, price) for price in range(10) for symbol in ("A", "B", None)))
    receiver = subscribe(broker, "price % 2 = 0 AND (symbol = 'A' OR symbol IS NULL)")
    assert prices(receiver, 10) == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8]
    conditional = subscribe(broker, "price > 7", "c", where={"symbol": "B"})
    assert prices(conditional, 2) == [8, 9]
    publish(broker, "Quotes", ("A", 100), ("B", 120))
    dear = subscribe(broker, "price < 110 OR Dear.symbol = 'C'", "d", "Dear")
    assert prices(dear, 1) == [100]


def test_a_change_of_the_table_re_routes_what_comes_after(start: Start) -> None:
    broker = start()
    receiver = subscribe(broker, IN_PORTFOLIO.format(n=7))
    publish(broker, "Quotes", ("IBM", 1))
    publish(broker, "Portfolios", ("insert", 7, "IBM"), ("insert", 8, "SUN"))
    publish(broker, "Quotes", ("IBM", 2), ("SUN", 3))
    publish(broker, "Portfolios", ("delete", 7, "IBM"), ("insert", 7, "SUN"))
    publish(broker, "Quotes", ("IBM", 4), ("SUN", 5))
    assert prices(receiver, 2) == [2, 5]
    later = subscribe(broker, f"price > 2 AND NOT {IN_PORTFOLIO.format(n=7)}", "later")
    assert prices(later, 2) == [3, 4]


@pytest.mark.parametrize("seed", range(scaled(3)))
def test_random_changes_restarts_and_removals(start: Start, seed: int) -> None:
    """The ticks of one broker are in the order of publication, so the model is a loop."""
    random = Random(seed)
    broker = start(keep="0 seconds")
    filters = {f"p{n}": IN_PORTFOLIO.format(n=n) for n in range(3)}
    filters |= {f"n{n}": f"symbol NOT IN (SELECT symbol FROM Portfolios WHERE id = {n})" for n in range(2)}
    receivers = {name: subscribe(broker, text, name) for name, text in filters.items()}
    expected: dict[str, list[int]] = {name: [] for name in filters}
    received: dict[str, list[int]] = {name: [] for name in filters}
    contents: Counter[tuple[int, str]] = Counter()
    price = 0

    def receive() -> None:
        for name, receiver in receivers.items():
            received[name] += prices(receiver, len(expected[name]) - len(received[name]))
            receiver.acknowledge_all()

    for step in range(60):
        row = random.randrange(3), random.choice("ABC")
        if random.random() < 0.5:
            is_deletion = contents[row] > 0 and random.random() < 0.6
            contents[row] += -1 if is_deletion else 1
            publish(broker, "Portfolios", ("delete" if is_deletion else "insert", *row))
        else:
            price += 1
            publish(broker, "Quotes", (row[1], price))
            for n in range(3):
                expected[f"p{n}"] += [price] * (contents[n, row[1]] > 0)
                if n < 2:
                    expected[f"n{n}"] += [price] * (contents[n, row[1]] <= 0)
        if random.random() < 0.2:
            receive()
        if random.random() < 0.15:
            broker.truncate_log()
        if step in (20, 40):
            receive()
            broker = start(keep="0 seconds")
            receivers = {name: subscribe(broker, text, name) for name, text in filters.items()}
    receive()
    assert received == expected


def test_matching_waits_for_the_horizon_of_the_table(start: Start) -> None:
    broker = start()
    text = "symbol IN (SELECT symbol FROM TimedPortfolios WHERE id = 7)"
    receiver = subscribe(broker, text, relation="TimedQuotes")
    unfiltered = subscribe(broker, "price > 0", "all", "TimedQuotes")
    publish(broker, "TimedQuotes", (10, "IBM", 1), (20, "IBM", 2), (30, "IBM", 3))
    assert prices(unfiltered, 3) == [1, 2, 3]
    assert receiver.values("price") == []
    publish(broker, "TimedPortfolios", (15, "insert", 7, "IBM"))
    assert receiver.values("price") == []
    broker.publish(SilencePublication("TimedPortfolios", 24)).result(WAIT_S)
    assert prices(receiver, 1) == [2]
    assert receiver.values("price") == []
    receiver.acknowledge_all()
    receiver.claim.release()
    receiver = subscribe(broker, text, relation="TimedQuotes")
    publish(broker, "TimedPortfolios", (25, "delete", 7, "IBM"), (30, "insert", 7, "IBM"))
    assert prices(receiver, 1) == [3]


def test_a_table_with_many_origins_is_known_as_far_as_the_least_of_them(start: Start) -> None:
    broker = start()
    schema = broker.log.schemas["TimedPortfolios"].arrow_schema

    def append(origin: str, lo: int, hi: int, *changes: tuple[int, str, int, str]) -> None:
        rows = [dict(zip(schema.names, change, strict=True)) for change in changes]
        events = pa.RecordBatch.from_pylist(rows, schema) if rows else None
        broker.log.append([StreamPiece("TimedPortfolios", origin, lo, hi, events)])
        broker.subscriptions.log_advanced()

    broker.log.append([StreamPiece("TimedPortfolios", origin, -1, 0) for origin in ("7", "8")])
    receiver = subscribe(broker, "symbol IN (SELECT symbol FROM TimedPortfolios)", relation="TimedQuotes")
    publish(broker, "TimedQuotes", *((t, "IBM", t) for t in range(1, 10)))
    append("7", 0, 9, (2, "insert", 1, "IBM"), (8, "delete", 1, "IBM"))
    assert receiver.values("price") == []
    append("8", 0, 4, (3, "insert", 1, "IBM"))
    assert prices(receiver, 3) == [2, 3, 4]
    append("8", 4, 9, (5, "delete", 1, "IBM"))
    assert prices(receiver, 3) == [5, 6, 7]
    assert receiver.values("price") == []


def test_many_subscriptions_share_the_matching_and_the_reading_of_the_table(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start()
    advanced: list[TableReader] = []
    original = TableReader.__init__

    def count(self: TableReader, *args: Any) -> None:
        advanced.append(self)
        original(self, *args)

    monkeypatch.setattr(TableReader, "__init__", count)
    publish(broker, "Portfolios", *(("insert", n, "IBM") for n in range(40)))
    receivers = [subscribe(broker, IN_PORTFOLIO.format(n=n % 40), f"s{n}") for n in range(50)]
    for receiver in receivers:
        receiver.values("price")
    before = broker.subscriptions.matching.matched_events
    publish(broker, "Quotes", *(("IBM", n) for n in range(100)))
    for receiver in receivers:
        assert prices(receiver, 100) == list(range(100))
    assert broker.subscriptions.matching.matched_events - before <= 200
    assert len(advanced) == 1


def test_a_subscription_that_is_behind_alone_is_matched_alone(start: Start) -> None:
    broker = start()
    publish(broker, "Quotes", *(("A", n) for n in range(50)))
    others = [subscribe(broker, "symbol = 'A'", f"s{n}", start="new") for n in range(3)]
    for other in others:
        other.values("price")
    late = subscribe(broker, "symbol = 'A' AND price > 40", "late")
    assert prices(late, 9) == list(range(41, 50))
    publish(broker, "Quotes", ("A", 100))
    assert [prices(receiver, 1) for receiver in (*others, late)] == [[100]] * 4


def test_a_matcher_of_others_reads_the_same_tables(start: Start) -> None:
    broker = start()
    publish(broker, "Portfolios", ("insert", 7, "IBM"), ("insert", 8, "SUN"))
    ticks = publish(broker, "Quotes", ("IBM", 1), ("SUN", 2))
    receiver = subscribe(broker, IN_PORTFOLIO.format(n=7))
    assert prices(receiver, 1) == [1]
    matching = broker.subscriptions.matching
    matcher: EventMatcher[int] = matching.create_matcher("Quotes")
    for n in (7, 8):
        matching.add_filter(matcher, n, IN_PORTFOLIO.format(n=n), {"Portfolios": "Portfolios"})
    piece = broker.log.read_range("Quotes", "0", ticks[0] - 1, 2**20)
    assert piece is not None and piece.events is not None
    rows = matcher.selection.select(piece.events, ViewCondition())
    matches = wait_until(lambda: matching.match_rows(matcher, rows, {}), "the table is not known")
    assert matches is not None
    assert list(zip(matches.events.tolist(), matches.subscriptions, strict=True)) == [(0, 7), (1, 8)]
    # The stream has the contents of its table from a tick on.
    assert matching.match_rows(matcher, rows, {"Portfolios": ticks[0] - 1})
    with pytest.raises(SmileError, match="not known"):
        matching.match_rows(matcher, rows, {"Portfolios": ticks[0]})
    with pytest.raises(SmileError, match="Portfolios"):
        matching.add_filter(matcher, 9, IN_PORTFOLIO.format(n=9), {"Accounts": "Portfolios"})
    matching.close_matcher(matcher)


def test_the_filter_belongs_to_the_name_and_to_the_token(start: Start) -> None:
    broker = start()
    publish(broker, "Quotes", ("A", 1), ("A", 2))
    receiver = subscribe(broker, "price > 1")
    assert prices(receiver, 1) == [2]
    token = receiver.acknowledge_all()
    assert refusal(broker, "price > 0") == "E141"
    assert refusal(broker, "") == "E141"
    assert refusal(broker, "price > 0", name="other", resume=token) == "E094"
    publish(broker, "Quotes", ("A", 3))
    assert prices(subscribe(broker, "1 < price", "moved", resume=token), 1) == [3]
    status = broker.subscriptions.status()["local/n"]
    assert status["filter"] == "price > 1" and status["waiting_events"] == 1


@pytest.mark.parametrize(
    ("text", "code", "relation"),
    [
        ("price >", "E010", "Quotes"),
        ("colour = 1", "E022", "Quotes"),
        ("symbol IN (SELECT symbol FROM Sums)", "E145", "Quotes"),
        ("total > 1", "E142", "Sums"),
    ],
)
def test_a_wrong_filter_is_refused(start: Start, text: str, code: str, relation: str) -> None:
    broker = start()
    assert refusal(broker, text, relation=relation) == code
    assert broker.subscriptions.status() == {}


def test_changes_are_insertions_and_deletions(start: Start) -> None:
    broker = start()
    for change in ("update", None):
        with pytest.raises(SmileError) as caught:
            publish(broker, "Portfolios", (change, 7, "IBM"))
        assert caught.value.diagnostics[0].code == "E080"


def test_contents_that_were_removed_are_not_guessed(start: Start) -> None:
    """The contents as of the kept events are known. A subscription to earlier events is refused, or begins later."""
    broker = start(keep="0 seconds")
    publish(broker, "Portfolios", ("insert", 7, "IBM"), ("insert", 7, "IBM"))
    publish(broker, "Quotes", ("IBM", 1))

    def is_removed() -> bool:
        broker.truncate_log()
        return broker.log.truncated_to("Portfolios") is not None

    wait_until(is_removed, "nothing is removed from the log")
    for price in (2, 3):
        assert refusal(broker, IN_PORTFOLIO.format(n=7)) in ("E097", "E146")
        receiver = subscribe(broker, IN_PORTFOLIO.format(n=7), start="kept")
        publish(broker, "Portfolios", ("delete", 7, "IBM"))
        publish(broker, "Quotes", ("IBM", price))
        publish(broker, "Portfolios", ("insert", 7, "IBM"))
        received = prices(receiver, 1)
        while received[-1] != price:
            received += prices(receiver, 1)
        # The first quote may still be in the log, and the contents at its tick known.
        assert received == sorted(set(received)) and set(received) <= {1, 2, 3}
        broker.subscriptions.drop(SubscriptionKey("local", "n"))
        broker = start(keep="0 seconds")


def test_a_damaged_checkpoint_is_refused(start: Start, tmp_path: Path) -> None:
    broker = start(keep="0 seconds")
    publish(broker, "Portfolios", ("insert", 7, "IBM"))
    path = tmp_path / "data" / "tables" / "Portfolios.json"

    def is_stored() -> bool:
        broker.truncate_log()
        return path.exists()

    wait_until(is_stored, "there is no checkpoint")
    broker = start()
    path.write_text(path.read_text().replace("IBM", "SUN"))
    assert refusal(broker, IN_PORTFOLIO.format(n=7), start="new") == "E105"


def test_a_change_of_the_table_s_definition_ends_the_subscription(start: Start) -> None:
    broker = start()
    receiver = subscribe(broker, IN_PORTFOLIO.format(n=7))
    other = subscribe(broker, "price > 1", "other")
    broker.apply(Source("p.smile", PROGRAM + "CREATE VIEW Cheap AS SELECT price FROM Quotes WHERE price < 5;"))
    assert receiver.ended == []
    without = "\n".join(
        line for line in PROGRAM.splitlines() if "Portfolios (t TIME KEY, change STRING NOT" not in line
    )
    broker.apply(Source("p.smile", without))
    assert [problem.diagnostics[0].code for problem in receiver.ended] == ["E095"]
    assert other.ended == []


def test_positions_of_an_earlier_version_have_no_filters(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.db"
    row = ("local", "n", "Quotes", "{}", "Quotes", "h", '{"0": 7}', "", 5)
    database = sqlite3.connect(path)
    database.execute(
        "CREATE TABLE subscriptions (principal TEXT, name TEXT, relation TEXT, conditions TEXT, stream TEXT, history TEXT,"
        " ticks TEXT, resume TEXT, seen INTEGER, crc INTEGER, PRIMARY KEY (principal, name))"
    )
    database.execute(f"PRAGMA application_id = {int.from_bytes(b'SMIP', 'big')}")
    database.execute("PRAGMA user_version = 1")
    marks = ", ".join("?" * 10)
    database.execute(f"INSERT INTO subscriptions VALUES ({marks})", (*row, zlib.crc32(repr(row).encode())))
    database.commit()
    database.close()
    key = SubscriptionKey("local", "n")
    record = SubscriptionRecord(key, "Quotes", "{}", "Quotes", "h", {"0": 7}, "", 5)
    for _ in range(2):
        store = PositionStore(path, flush=False)
        assert store.read() == {key: record}
        store.close()
