"""Durable subscriptions of the Python client, and `smile subscribe --name`."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from smile.client import Client, connect, connect_async
from smile.errors import SmileError
from tests.brokers import PROGRAM, BrokerProcess, InProcessBroker, bid
from tests.processes import SMILE, WAIT_S, clean_environment, invoke_smile, wait_until


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path) as broker:
        yield broker


def test_events_until_they_are_acknowledged(broker: InProcessBroker) -> None:
    ticks = [int(tick) for tick in broker.publish("Bids", *(bid("IBM", n) for n in range(5)))]
    with connect(broker.url) as client:
        with client.durable("Bids", name="billing") as orders:
            first, second = next(orders), orders.event(WAIT_S)
            assert (first["price"], first.tick, first.stream, first.origin) == (0, ticks[0], "Bids", "0")
            assert second.values["price"] == 1
            token = orders.ack(WAIT_S)
            assert token == orders.token
            assert next(orders)["price"] == 2
        with client.durable("Bids", name="billing") as orders:
            assert [next(orders)["price"] for _ in range(3)] == [2, 3, 4]
            with pytest.raises(SmileError, match="longer than"):
                orders.event(0.05)
        with client.durable("Bids", name="other", resume=token) as orders:
            assert next(orders)["price"] == 2
        assert {s["name"] for s in client.subscriptions()} == {"billing", "other"}
        client.drop_subscription("other")
        assert {s["name"] for s in client.subscriptions()} == {"billing"}


def test_errors_reach_the_application(broker: InProcessBroker) -> None:
    with connect(broker.url) as client:
        with pytest.raises(SmileError, match="no events") as refusal:
            client.durable("Totals", name="x")
        assert refusal.value.diagnostics[0].code == "E142"
        first = client.durable("Bids", name="billing")
        client.durable("Bids", name="billing")
        with pytest.raises(SmileError, match="taken over") as refusal:
            next(first)
        assert refusal.value.diagnostics[0].code == "E140"
        with pytest.raises(SmileError, match="taken over"):
            first.ack(WAIT_S)


def test_a_restart_of_the_broker_repeats_nothing_to_the_application(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as broker:
        port = broker.port
        broker.publish("Bids", *(bid("IBM", n) for n in range(3)))
        client = connect(broker.url)
        orders = client.durable("Bids", name="billing")
        assert [next(orders)["price"] for _ in range(2)] == [0, 1]
        orders.ack(WAIT_S)
        assert next(orders)["price"] == 2  # not acknowledged: the broker sends it again
    with InProcessBroker(tmp_path, listen=f"127.0.0.1:{port}") as broker:
        broker.publish("Bids", bid("IBM", 3))
        assert next(orders)["price"] == 3
        orders.ack(WAIT_S)
        client.close()
        with connect(broker.url) as later, later.durable("Bids", name="billing") as orders:
            broker.publish("Bids", bid("IBM", 4))
            assert next(orders)["price"] == 4


def test_with_asyncio(broker: InProcessBroker) -> None:
    broker.publish("Bids", bid("IBM", 1), bid("IBM", 200))

    async def run() -> list[int]:
        async with connect_async(broker.url) as client, await client.durable("Dear", name="dear") as dear:
            prices = [(await anext(dear))["price"]]
            await dear.ack()
            broker.publish("Bids", bid("IBM", 300))
            async for event in dear:
                prices.append(event["price"])
                break
            return prices

    assert asyncio.run(run()) == [200, 300]


@pytest.mark.slow
def test_after_a_restart_a_named_subscription_skips_what_it_has_handled(tmp_path: Path) -> None:
    """All rows may come again: `reset` says so, and the keys of rows say which were handled."""
    (tmp_path / "floor.smile").write_text(PROGRAM)
    handled: list[int] = []

    def handle(client: Client, count: int) -> bool:
        """Handles new rows until there are `count`. Returns whether all rows have begun again."""
        with client.subscribe("Dear", name="pager") as rows:
            has_reset = False
            while len(handled) < count:
                frame = rows.frame(WAIT_S)
                has_reset |= frame.reset
                keys = [row.key["bidid"] for row in frame.changes if row.final]
                handled.extend(key for key in keys if key not in handled)
                rows.ack()
            wait_until(lambda: client.subscriptions()[0]["resume"], "nothing is stored")
        return has_reset

    with (
        BrokerProcess(tmp_path, options=["--engine", "local"]) as broker,
        connect(broker.url, timeout=WAIT_S) as client,
    ):
        ticks = [*client.publish("Bids", [bid("IBM", 200), bid("IBM", 1), bid("HP", 300)])]
        assert handle(client, 2)
        broker.kill()
        broker.start()
        ticks += client.publish("Bids", bid("SUN", 400))
        handle(client, 3)
    assert handled == [ticks[0], ticks[2], ticks[3]]


def test_a_view_with_a_name_continues_where_it_was_acknowledged(broker: InProcessBroker) -> None:
    broker.publish("Bids", bid("IBM", 1))
    with connect(broker.url) as client:
        with client.subscribe("Totals", name="board") as totals:
            frame = totals.frame(WAIT_S)
            while frame.progress is None or not client.snapshot("Totals"):
                frame = totals.frame(WAIT_S)
            totals.ack()
            wait_until(lambda: client.subscriptions()[0]["resume"], "nothing is stored")
        broker.publish("Bids", bid("SUN", 5))
        with client.subscribe("Totals", name="board") as totals:
            changes = totals.frame(WAIT_S).changes
            while not changes:  # a frame may have progress only
                changes = totals.frame(WAIT_S).changes
            assert [change.key["issue"] for change in changes] in (["SUN"], ["IBM", "SUN"])


def test_the_command_prints_events_once(broker: InProcessBroker, tmp_path: Path) -> None:
    broker.publish("Bids", bid("IBM", 1), bid("IBM", 2))
    environment = clean_environment(SMILE_URL=broker.url)

    def run(count: int) -> list[int]:
        command = [SMILE, "subscribe", "Bids", "--name", "billing"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            prices = [json.loads(process.stdout.readline())["event"]["price"] for _ in range(count)]
            with connect(broker.url) as client:
                wait_until(lambda: client.subscriptions()[0]["waiting_events"] == 0, "it does not acknowledge")
            process.send_signal(signal.SIGINT)
            return prices

    assert run(2) == [1, 2]
    broker.publish("Bids", bid("IBM", 3))
    assert run(1) == [3]
    listed = invoke_smile("subscriptions", SMILE_URL=broker.url)
    assert "local/billing: events of Bids" in listed.stdout and "0 events waiting" in listed.stdout
    entry = json.loads(invoke_smile("subscriptions", "--json", SMILE_URL=broker.url).stdout)
    assert entry["name"] == "billing" and entry["resume"]
    assert invoke_smile("subscriptions", "--drop", "billing", SMILE_URL=broker.url).exit_code == 0
    assert invoke_smile("subscriptions", SMILE_URL=broker.url).stdout == "there are no durable subscriptions\n"
    assert invoke_smile("subscriptions", "--drop", "billing", SMILE_URL=broker.url).exit_code == 1
    assert invoke_smile("subscribe", "Bids", "--start", "new", SMILE_URL=broker.url).exit_code == 2
