"""Durable subscriptions: every event once in the order of ticks; what was acknowledged is never delivered again, what was
not is never lost; and the log keeps it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from smile.broker.broker import Broker
from smile.broker.publishing.publication import Publication, SilencePublication
from smile.broker.subscriptions.durable_request import DurableRequest
from smile.broker.subscriptions.durable_subscriptions import SubscriptionClaim
from smile.broker.subscriptions.event_subscription import EventFrame
from smile.broker.subscriptions.position_store import SubscriptionKey
from smile.errors import SmileError
from smile.log.storage.pieces import StreamPiece
from smile.source import Source
from tests.brokers import open_broker
from tests.processes import WAIT_S, wait_until

PROGRAM = """
CREATE STREAM Bids (t: time -> issue: string, shares: int);
CREATE STREAM Timed (t: time -> v: int) WITH (TICKS = PUBLISHER);
CREATE VIEW Large AS SELECT t, issue, shares * 2 AS twice FROM Bids WHERE shares > 5;
CREATE VIEW LargeIbm AS SELECT issue, twice FROM Large WHERE issue = 'IBM';
CREATE VIEW Sums AS SELECT issue, SUM(shares) AS total FROM Bids GROUP BY issue;
SUBSCRIBE Large, LargeIbm, Sums;
"""
KEY = SubscriptionKey("local", "billing")


@dataclass
class Receiver:
    """A subscriber that reads until nothing is new."""

    broker: Broker
    relation: str = "Bids"
    key: SubscriptionKey = KEY
    ended: list[SmileError] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    claim: SubscriptionClaim = field(init=False)

    def __post_init__(self) -> None:
        request = DurableRequest(self.key, self.relation, **{"where": {}, **self.options})
        self.claim = self.broker.subscriptions.open_events(request, lambda: None, self.ended.append)

    def frame(self, rows_max: int = 500) -> EventFrame | None:
        assert self.claim.events is not None
        return self.claim.events.next_frame(rows_max)

    def values(self, column: str = "shares", rows_max: int = 500) -> list[Any]:
        received = []
        while (frame := self.frame(rows_max)) is not None:
            received += column_of(frame, column)
        return received

    def wait_for(self, count: int, column: str = "shares") -> list[Any]:
        received: list[Any] = []

        def has_come() -> bool:
            received.extend(self.values(column))
            return len(received) >= count

        wait_until(has_come, f"{count} events do not come")
        return received

    def acknowledge_all(self) -> str:
        assert self.claim.events is not None
        return self.claim.acknowledge_frame(self.claim.events._last_number).result(WAIT_S)


def column_of(frame: EventFrame, column: str) -> list[Any]:
    values = frame.rows.fixed[column].data
    return list(values.to_pylist() if hasattr(values, "to_pylist") else values.tolist())


def publish(broker: Broker, *rows: tuple[Any, ...], stream: str = "Bids") -> list[int]:
    return list(broker.publish(Publication(stream, rows)).result(WAIT_S).ticks)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    opened: list[Any] = []

    def open_one(**settings: Any) -> Broker:
        stop()
        opened.append(open_broker(tmp_path / "data", Source("p.smile", PROGRAM), silence_ms=10, idle_ms=20, **settings))
        return opened[-1].__enter__()  # type: ignore[no-any-return]

    def stop() -> None:
        while opened:
            opened.pop().__exit__(None, None, None)

    yield open_one
    stop()


def test_every_event_once_in_order(start: Callable[..., Broker]) -> None:
    broker = start()
    for n in range(20):
        publish(broker, ("IBM", n), ("SUN", 100 + n))
    receiver = Receiver(broker)
    assert receiver.wait_for(40) == [v for n in range(20) for v in (n, 100 + n)]
    ticks = publish(broker, ("IBM", 1000))
    frame = wait_until(receiver.frame, "the event does not come")
    assert frame is not None and frame.ticks == tuple(ticks)


def test_what_is_not_acknowledged_is_delivered_again(start: Callable[..., Broker]) -> None:
    broker = start()
    publish(broker, *(("IBM", n) for n in range(10)))
    receiver = Receiver(broker)
    first = receiver.frame(4)
    assert first is not None and column_of(first, "shares") == [0, 1, 2, 3]
    receiver.claim.acknowledge_events({first.origins[1]: first.ticks[1]}).result(WAIT_S)
    receiver.claim.release()
    assert Receiver(broker).values() == list(range(2, 10))


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_acknowledged_is_not_delivered_again(start: Callable[..., Broker], restarts: bool) -> None:
    broker = start()
    publish(broker, ("IBM", 1), ("IBM", 2))
    receiver = Receiver(broker)
    assert receiver.wait_for(2) == [1, 2]
    receiver.acknowledge_all()
    receiver.claim.release()
    broker = start() if restarts else broker
    publish(broker, ("IBM", 3))
    assert Receiver(broker).wait_for(1) == [3]


def test_a_selection_of_a_stream(start: Callable[..., Broker]) -> None:
    broker = start()
    publish(broker, ("IBM", 7), ("SUN", 8), ("IBM", 3), ("IBM", 9))
    assert Receiver(broker, "Large").wait_for(3, "twice") == [14, 16, 18]
    assert Receiver(broker, "LargeIbm", SubscriptionKey("local", "b")).wait_for(2, "twice") == [14, 18]
    conditional = Receiver(broker, "Bids", SubscriptionKey("local", "c"), options={"where": {"issue": "SUN"}})
    assert conditional.wait_for(1) == [8]


def test_a_view_that_is_no_selection_has_no_events(start: Callable[..., Broker]) -> None:
    broker = start()
    with pytest.raises(SmileError, match="no selection") as refusal:
        Receiver(broker, "Sums")
    assert refusal.value.diagnostics[0].code == "E142"
    with pytest.raises(SmileError) as refusal:
        Receiver(broker, "Nothing")
    assert refusal.value.diagnostics[0].code == "E021"


def test_the_window_limits_what_is_not_acknowledged(start: Callable[..., Broker]) -> None:
    broker = start()
    publish(broker, *(("IBM", n) for n in range(10)))
    receiver = Receiver(broker, options={"window": 3})
    assert receiver.values(rows_max=2) == [0, 1, 2]
    receiver.claim.acknowledge_frame(1).result(WAIT_S)
    assert receiver.values(rows_max=2) == [3, 4]


def test_events_that_do_not_fit_come_with_the_next_frame(start: Callable[..., Broker]) -> None:
    broker = start()
    publish(broker, *(("IBM", n) for n in range(6)))
    receiver = Receiver(broker)
    frame = receiver.frame()
    assert frame is not None and receiver.claim.events is not None
    kept = receiver.claim.events.return_events(frame, 2)
    assert column_of(kept, "shares") == [0, 1]
    assert receiver.values() == [2, 3, 4, 5]
    receiver.claim.acknowledge_frame(1).result(WAIT_S)
    receiver.claim.release()
    assert Receiver(broker).values() == [2, 3, 4, 5]


def test_a_later_subscriber_takes_over(start: Callable[..., Broker]) -> None:
    broker = start()
    publish(broker, ("IBM", 1))
    first = Receiver(broker)
    assert first.wait_for(1) == [1]
    second = Receiver(broker)
    assert first.ended[0].diagnostics[0].code == "E140"
    with pytest.raises(SmileError, match="taken over"):
        first.acknowledge_all()
    assert second.wait_for(1) == [1]
    first.claim.release()
    assert broker.subscriptions.status()["local/billing"]["connected"]


def test_names_belong_to_principals_and_to_one_relation(start: Callable[..., Broker]) -> None:
    broker = start()
    publish(broker, ("IBM", 7))
    mine, theirs = Receiver(broker), Receiver(broker, key=SubscriptionKey("other", "billing"))
    assert mine.wait_for(1) == theirs.wait_for(1) == [7]
    assert not mine.ended
    with pytest.raises(SmileError, match="belongs to a subscription to Bids") as refusal:
        Receiver(broker, "Large")
    assert refusal.value.diagnostics[0].code == "E141"
    broker.subscriptions.drop(KEY)
    assert mine.ended[0].diagnostics[0].code == "E143"
    assert Receiver(broker, "Large").wait_for(1, "twice") == [14]
    with pytest.raises(SmileError, match="not a name"):
        Receiver(broker, key=SubscriptionKey("local", "a/b"))


def test_where_a_new_subscription_begins(start: Callable[..., Broker]) -> None:
    broker = start()
    publish(broker, ("IBM", 1))
    later = Receiver(broker, key=SubscriptionKey("local", "new"), options={"start": "new"})
    publish(broker, ("IBM", 2))
    assert later.wait_for(1) == [2]
    assert Receiver(broker).wait_for(2) == [1, 2]


def test_the_log_keeps_what_is_not_acknowledged(start: Callable[..., Broker]) -> None:
    """Silence needs no acknowledgement: otherwise a quiet stream would hold back all others."""
    broker = start(keep="0 seconds")
    publish(broker, ("IBM", 1), ("IBM", 2))
    receiver = Receiver(broker)
    assert receiver.wait_for(2) == [1, 2]

    def truncate() -> int | None:
        broker.truncate_log()
        return broker.log.truncated_to("Bids")

    wait_until(lambda: broker.view("Sums").row_count, "the view is not computed")
    for _ in range(3):
        assert truncate() is None
    receiver.acknowledge_all()
    wait_until(lambda: (receiver.frame(), truncate())[1], "nothing is removed from the log")
    receiver.claim.release()
    publish(broker, ("IBM", 3))
    for _ in range(3):
        truncate()
    broker = start(keep="0 seconds")
    truncate()
    assert Receiver(broker).wait_for(1) == [3]


def test_who_was_away_too_long_is_told(start: Callable[..., Broker]) -> None:
    broker = start(keep="0 seconds", away_max="0 seconds")
    publish(broker, ("IBM", 1))
    receiver = Receiver(broker)
    receiver.claim.release()
    wait_until(lambda: broker.view("Sums").row_count, "the view is not computed")

    def is_truncated() -> bool:
        broker.truncate_log()
        return broker.log.truncated_to("Bids") is not None

    wait_until(is_truncated, "nothing is removed from the log")
    assert broker.subscriptions.status()["local/billing"]["gone"]
    with pytest.raises(SmileError, match="were removed from the log") as refusal:
        Receiver(broker)
    assert refusal.value.diagnostics[0].code == "E097" and "kept" in (refusal.value.diagnostics[0].hint or "")
    again = Receiver(broker, options={"start": "kept"})
    publish(broker, ("IBM", 2))
    assert again.wait_for(1)[-1] == 2


def test_a_program_change_ends_what_it_changes(start: Callable[..., Broker]) -> None:
    broker = start()
    bids, large = Receiver(broker), Receiver(broker, "Large", SubscriptionKey("local", "large"))
    publish(broker, ("IBM", 7))
    assert large.wait_for(1, "twice") == [14]
    large.acknowledge_all()
    broker.apply(Source("p.smile", PROGRAM.replace("shares > 5", "shares > 100")))
    assert large.ended[0].diagnostics[0].code == "E095" and not bids.ended
    large.claim.release()
    publish(broker, ("IBM", 8), ("IBM", 101))
    assert Receiver(broker, "Large", SubscriptionKey("local", "large")).wait_for(1, "twice") == [202]


def test_a_token_is_of_one_selection_and_one_history(start: Callable[..., Broker]) -> None:
    broker = start()
    publish(broker, ("IBM", 7), ("IBM", 8))
    receiver = Receiver(broker)
    receiver.wait_for(2)
    token = receiver.acknowledge_all()
    with pytest.raises(SmileError, match="not a token of events of Large") as refusal:
        Receiver(broker, "Large", SubscriptionKey("local", "x"), options={"resume": token})
    assert refusal.value.diagnostics[0].code == "E094"
    other = Receiver(broker, key=SubscriptionKey("local", "y"), options={"resume": token})
    publish(broker, ("IBM", 9))
    assert other.wait_for(1) == [9]


def test_an_acknowledgement_without_a_connection(start: Callable[..., Broker]) -> None:
    broker = start()
    publish(broker, ("IBM", 7), ("IBM", 8))
    receiver = Receiver(broker)
    frame = wait_until(receiver.frame, "no events come")
    assert frame is not None
    receiver.claim.release()
    broker.subscriptions.acknowledge(KEY, next(frame.tokens())).result(WAIT_S)
    assert Receiver(broker).wait_for(1) == [8]
    with pytest.raises(SmileError, match="no durable subscription"):
        broker.subscriptions.acknowledge(SubscriptionKey("local", "nobody"), frame.resume)


def test_ticks_of_publishers(start: Callable[..., Broker]) -> None:
    broker = start()
    publish(broker, (5, 1), (9, 2), stream="Timed")
    broker.publish(SilencePublication("Timed", 20)).result(WAIT_S)
    receiver = Receiver(broker, "Timed")
    assert receiver.wait_for(2, "v") == [1, 2]
    assert receiver.acknowledge_all()
    status = broker.subscriptions.status()["local/billing"]
    assert status["lag_s"] is None and status["waiting_events"] == 0 and min(status["position"].values()) >= 9


def test_events_of_a_fast_origin_do_not_wait_for_a_slow_one(start: Callable[..., Broker]) -> None:
    """Events of both origins are in the order of ticks as far as both are known; a position has a tick for each."""
    broker = start()
    schema = broker.log.schemas["Timed"].arrow_schema

    def append(origin: str, lo: int, hi: int, *events: tuple[int, int]) -> None:
        batch = pa.RecordBatch.from_pylist([{"t": t, "v": v} for t, v in events], schema) if events else None
        broker.log.append([StreamPiece("Timed", origin, lo, hi, batch)])
        broker.subscriptions.log_advanced()

    broker.log.append([StreamPiece("Timed", origin, -1, 0) for origin in ("7", "8")])
    append("7", 0, 3, (1, 1), (3, 3))
    append("8", 0, 9, (2, 2), (8, 8))
    receiver = Receiver(broker, "Timed")
    assert receiver.wait_for(4, "v") == [1, 2, 3, 8]
    receiver.acknowledge_all()
    append("8", 9, 20, (15, 15))
    assert receiver.values("v") == [15]
    append("7", 3, 20, (10, 10))
    assert receiver.values("v") == [10]
    receiver.claim.release()
    assert Receiver(broker, "Timed").values("v") == [10, 15]
    assert broker.subscriptions.needed_horizons(10**12, 0) == {"Timed": 3, "Timed:7": 3, "Timed:8": 9}


def test_a_damaged_file_is_refused(start: Callable[..., Broker], tmp_path: Path) -> None:
    broker = start()
    Receiver(broker).claim.release()
    start()
    path = tmp_path / "data" / "subscriptions.db"
    wait_until(path.exists, "there is no file")
    start().stop()
    path.write_bytes(path.read_bytes().replace(b"billing", b"xilling"))
    with pytest.raises(SmileError, match="damaged") as refusal:
        start()
    assert refusal.value.diagnostics[0].code == "E105"
