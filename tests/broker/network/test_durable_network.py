"""A durable subscriber that comes back at another broker: what it acknowledged is not delivered again, and nothing is
skipped, whatever the other broker has of the stream by then."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from smile.broker.broker import Broker
from smile.broker.subscriptions.position_store import SubscriptionKey
from smile.broker.views.condition import ViewCondition
from smile.broker.views.view import ViewFrame
from smile.errors import SmileError
from tests.broker.network.cables import BrokerNetwork, network_in, publish
from tests.broker.test_durable_subscriptions import Receiver
from tests.processes import WAIT_S

BIDS = "CREATE STREAM Bids (t: time -> issue: string, shares: int CHECK (shares >= 0));\n"
LARGE = "CREATE VIEW Large AS SELECT t, issue, shares FROM Bids WHERE shares > 5;\n"
EXPORTING = BIDS + LARGE
IMPORTING = "IMPORT Bids FROM buys;\n" + LARGE


@pytest.fixture
def network(tmp_path: Path) -> Iterator[BrokerNetwork]:
    with network_in(tmp_path) as network:
        yield network


def wait_for(network: BrokerNetwork, receiver: Receiver, count: int) -> list[int]:
    received: list[int] = []

    def has_come() -> bool:
        received.extend(receiver.values())
        return len(received) >= count

    network.run_until(has_come, f"{count} events do not come")
    return received


def acknowledge_first(receiver: Receiver, count: int) -> str:
    frame = receiver.frame(count)
    assert frame is not None and len(frame.ticks) == count
    token = receiver.acknowledge_all()
    receiver.claim.release()
    return token


@pytest.mark.parametrize("relation", ["Bids", "Large"])
def test_a_token_is_good_at_another_broker(network: BrokerNetwork, relation: str) -> None:
    buys = network.start("buys", EXPORTING)
    floor = network.start("floor", IMPORTING)
    network.connect("floor", "buys")
    publish(buys, "Bids", *(("IBM", n) for n in range(10, 20)))
    token = acknowledge_first(Receiver(buys, relation), 4)
    moved = Receiver(floor, relation, options={"resume": token})
    assert wait_for(network, moved, 6) == list(range(14, 20))
    publish(buys, "Bids", ("IBM", 20))
    assert wait_for(network, moved, 1) == [20]
    back = acknowledge_rest(moved)
    publish(buys, "Bids", ("IBM", 21))
    assert wait_for(network, Receiver(buys, relation, options={"resume": back}), 1) == [21]


def test_a_token_is_not_good_where_only_a_part_of_the_stream_comes_from_a_broker_in_between(
    network: BrokerNetwork,
) -> None:
    buys = network.start("buys", EXPORTING)
    network.start("middle", "IMPORT Bids FROM buys WHERE issue IS NOT NULL;\n")
    end = network.start("end", "IMPORT Bids FROM middle;\n")
    network.connect("middle", "buys")
    network.connect("end", "middle")
    publish(buys, "Bids", ("IBM", 10), ("IBM", 11))
    token = acknowledge_first(Receiver(buys, "Bids"), 1)
    with pytest.raises(SmileError, match="not a token of events of Bids") as refusal:
        Receiver(end, options={"resume": token})
    assert refusal.value.diagnostics[0].code == "E094"


def acknowledge_rest(receiver: Receiver) -> str:
    token = receiver.acknowledge_all()
    receiver.claim.release()
    return token


def test_a_broker_that_is_behind_the_token_waits(network: BrokerNetwork) -> None:
    buys = network.start("buys", EXPORTING)
    floor = network.start("floor", IMPORTING)
    publish(buys, "Bids", *(("IBM", n) for n in range(10)))
    token = acknowledge_first(Receiver(buys), 7)
    moved = Receiver(floor, options={"resume": token})
    network.run(0.2)
    assert moved.values() == []
    network.connect("floor", "buys")
    assert wait_for(network, moved, 3) == [7, 8, 9]


def test_a_broker_whose_log_begins_later_says_so(network: BrokerNetwork) -> None:
    buys = network.start("buys", EXPORTING)
    floor = network.start("floor", IMPORTING + "SUBSCRIBE Large;", keep="0 seconds")
    network.connect("floor", "buys")
    ticks = publish(buys, "Bids", *(("IBM", n) for n in range(10, 14)))
    token = acknowledge_first(Receiver(buys), 1)
    network.wait_for_tick("floor", "Large", {"Bids": ticks[-1]})

    def is_truncated() -> bool:
        floor.truncate_log()
        return (floor.log.truncated_to("Bids") or 0) >= ticks[-1]

    network.run_until(is_truncated, "nothing is removed")
    with pytest.raises(SmileError, match="were removed") as refusal:
        Receiver(floor, options={"resume": token})
    assert refusal.value.diagnostics[0].code == "E097"
    assert Receiver(buys, options={"resume": token}).values() == [11, 12, 13]


@pytest.mark.slow
def test_upstream_keeps_what_a_subscriber_downstream_has_not_acknowledged(network: BrokerNetwork) -> None:
    buys = network.start("buys", EXPORTING, keep="0 seconds")
    floor = network.start("floor", IMPORTING)
    network.connect("floor", "buys")
    ticks = publish(buys, "Bids", *(("IBM", n) for n in range(10, 14)))
    receiver = Receiver(floor)
    assert wait_for(network, receiver, 4) == [10, 11, 12, 13]

    def truncated_to(*_: Any) -> int:
        floor.truncate_log()
        network.run(0.1)
        buys.truncate_log()
        return buys.log.truncated_to("Bids") or 0

    for _ in range(3):
        assert truncated_to() < ticks[0]
    receiver.acknowledge_all()
    run_until_true(network, lambda: (receiver.values(), truncated_to())[1] >= ticks[-1])


def run_until_true(network: BrokerNetwork, condition: Callable[[], bool]) -> None:
    network.run_until(condition, "it does not become true", WAIT_S)


def test_a_lost_cache_is_fetched_again_for_the_subscriber(network: BrokerNetwork) -> None:
    """The position is in a file of its own, and the log is a cache: what it lacks is waited for."""
    buys = network.start("buys", EXPORTING)
    floor = network.start("floor", IMPORTING)
    network.connect("floor", "buys")
    publish(buys, "Bids", *(("IBM", n) for n in range(10, 14)))
    receiver = Receiver(floor)
    wait_for(network, receiver, 4)
    receiver.acknowledge_all()
    network.stop("floor")
    for path in (network.folder / "floor").glob("log*"):
        path.unlink()
    shutil.rmtree(network.folder / "floor" / "state")
    floor = network.start("floor", None)
    again = Receiver(floor)
    network.connect("floor", "buys")
    publish(buys, "Bids", ("IBM", 14))
    assert wait_for(network, again, 1) == [14]


def test_the_program_may_name_the_stream_otherwise(network: BrokerNetwork) -> None:
    buys: Broker = network.start("buys", EXPORTING)
    program = "IMPORT Bids FROM buys AS Offers;\nIMPORT Bids FROM buys WHERE shares > 11 AS Dear;\n"
    floor = network.start("floor", program + "CREATE VIEW V AS SELECT t, shares FROM Offers;\n")
    network.connect("floor", "buys")
    publish(buys, "Bids", *(("IBM", n) for n in range(10, 14)))
    token = acknowledge_first(Receiver(buys), 1)
    assert wait_for(network, Receiver(floor, "Offers", options={"resume": token}), 3) == [11, 12, 13]
    with pytest.raises(SmileError, match="not a token"):  # it selects other events
        Receiver(floor, "Dear", SubscriptionKey("local", "dear"), options={"resume": token})


# ── resume tokens of views ──────────────────────────────────────────────────────────────────────────────────────────

SUMS = "CREATE VIEW Sums AS SELECT issue, SUM(shares) AS total FROM Bids GROUP BY issue;\nSUBSCRIBE Sums;\n"


def token_of(broker: Broker) -> str:
    view = broker.view("Sums")
    token = view.snapshot(ViewCondition()).resume
    assert token is not None
    return token


def test_a_token_of_a_view_waits_at_another_broker(network: BrokerNetwork) -> None:
    """What a subscriber has seen is not shown to it as it was before, although the other broker is behind."""
    buys = network.start("buys", BIDS + SUMS)
    floor = network.start("floor", "IMPORT Bids FROM buys;\n" + SUMS)
    ticks = publish(buys, "Bids", ("IBM", 7))
    network.wait_for_tick("buys", "Sums", {"Bids": ticks[-1]})
    subscription = floor.view("Sums").subscribe(ViewCondition(), lambda: None, token_of(buys))
    network.run(0.2)
    assert subscription.next_frame(10) is None
    network.connect("floor", "buys")
    frames: list[ViewFrame | None] = []

    def has_come() -> bool:
        frames[:] = [subscription.next_frame(10)]
        return frames[0] is not None

    network.run_until(has_come, "the rows do not come")
    assert frames[0] is not None and frames[0].reset and frames[0].row_count == 1
    again = buys.view("Sums").subscribe(ViewCondition(), lambda: None, token_of(floor))
    frame = again.next_frame(10)
    assert frame is None or frame.reset


def test_a_token_of_another_history_is_answered_with_all_rows(network: BrokerNetwork) -> None:
    buys = network.start("buys", BIDS + SUMS)
    sells = network.start("sells", BIDS + SUMS)
    for broker in (buys, sells):
        ticks = publish(broker, "Bids", ("IBM", 7))
        network.wait_for_tick(broker.settings.name, "Sums", {"Bids": ticks[-1]})
    publish(buys, "Bids", ("IBM", 7))
    frame = sells.view("Sums").subscribe(ViewCondition(), lambda: None, token_of(buys)).next_frame(10)
    assert frame is not None and frame.reset and frame.row_count == 1
