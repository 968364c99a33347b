"""Filters and callbacks of durable subscriptions: in the Python client, over WebSockets and HTTP, and in `smile subscribe`."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from smile.client import StreamEvent, connect, connect_async
from smile.errors import SmileError
from smile.gateway.access import Grant, Right
from tests.brokers import InProcessBroker
from tests.processes import SMILE, WAIT_S, clean_environment, invoke_smile, wait_until

PROGRAM = """
CREATE STREAM Quotes (t TIME KEY, symbol STRING, price INT);
CREATE STREAM Portfolios (t TIME KEY, change STRING NOT NULL, id INT, symbol STRING) WITH (CHANGES = TABLE);
CREATE VIEW Sums AS SELECT symbol, SUM(price) AS total FROM Quotes GROUP BY symbol;
SUBSCRIBE Sums;
"""
IN_SEVEN = "symbol IN (SELECT symbol FROM Portfolios WHERE id = 7)"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path, PROGRAM) as broker:
        yield broker


def quotes(*prices: int, symbol: str = "IBM") -> list[dict[str, Any]]:
    return [{"symbol": symbol, "price": price} for price in prices]


def test_a_filter_that_reads_a_table(broker: InProcessBroker) -> None:
    row: dict[str, Any] = {"id": 7, "symbol": "IBM"}
    with connect(broker.url) as client, client.durable("Quotes", name="seven", filter=IN_SEVEN) as seven:
        client.publish("Quotes", quotes(1))
        client.publish("Portfolios", {"change": "insert", **row})
        client.publish("Quotes", quotes(2, 3))
        assert [seven.event(WAIT_S)["price"] for _ in range(2)] == [2, 3]
        seven.ack(WAIT_S)
        client.publish("Portfolios", {"change": "delete", **row})
        client.publish("Quotes", quotes(4))
        client.publish("Portfolios", {"change": "insert", **row})
        client.publish("Quotes", quotes(5))
        assert seven.event(WAIT_S)["price"] == 5
        assert client.subscriptions()[0]["filter"] == IN_SEVEN


def test_a_wrong_filter_has_its_position(broker: InProcessBroker) -> None:
    with connect(broker.url) as client, pytest.raises(SmileError) as refusal:
        client.durable("Quotes", name="n", filter="price > 1 AND\ncolour = 2")
    (problem,) = refusal.value.diagnostics
    assert problem.code == "E022" and problem.span is not None and (problem.span.start, problem.span.end) == (14, 20)
    with broker.http() as http:
        answer = http.get("/streams/Quotes/events", params={"name": "n", "filter": "price > 1 AND\ncolour = 2"})
        assert answer.status_code == 400
        encoded = answer.json()["error"]
        assert (encoded["code"], encoded["line"], encoded["col"], encoded["length"]) == ("E022", 2, 1, 6)
    with broker.websocket() as socket:
        refused = socket.ask({"subscribe": "Sums", "id": 1, "filter": "total > 1"})
        assert refused["error"]["code"] == "E145"


def test_server_sent_events(broker: InProcessBroker) -> None:
    broker.publish("Quotes", *quotes(1, 2, 3))
    with (
        broker.http() as http,
        http.stream("GET", "/streams/Quotes/events", params={"name": "n", "filter": "price % 2 = 0"}) as answer,
    ):
        line = next(line for line in answer.iter_lines() if line.startswith("data: "))
        assert json.loads(line.removeprefix("data: "))["event"]["price"] == 2


def test_a_callback_acknowledges_what_it_has_processed(broker: InProcessBroker) -> None:
    received, is_done = list[int](), Event()

    def process(event: StreamEvent) -> None:
        received.append(event["price"])
        if event["price"] == 6:
            is_done.set()

    with connect(broker.url) as client:
        subscription = client.durable("Quotes", name="n", filter="price % 2 = 0", callback=process)
        client.publish("Quotes", quotes(*range(7)))
        assert is_done.wait(WAIT_S)
        wait_until(lambda: client.subscriptions()[0]["waiting_events"] == 0, "it does not acknowledge")
        subscription.close()
        subscription.join(WAIT_S)
    assert received == [0, 2, 4, 6]


def test_an_event_whose_callback_fails_is_delivered_again(broker: InProcessBroker) -> None:
    received = list[int]()

    def process(event: StreamEvent) -> None:
        received.append(event["price"])
        if received == [1, 2]:
            raise RuntimeError("a bug")

    broker.publish("Quotes", *quotes(1, 2, 3))
    with connect(broker.url) as client:
        with pytest.raises(RuntimeError, match="a bug"):
            client.durable("Quotes", name="n", callback=process).join(WAIT_S)
        assert received == [1, 2]
        again = client.durable("Quotes", name="n", callback=process)
        wait_until(lambda: len(received) == 4, "the events do not come again")
        assert received == [1, 2, 2, 3]
        client.durable("Quotes", name="n")
        with pytest.raises(SmileError, match="taken over"):
            again.join(WAIT_S)


def test_callbacks_with_asyncio(broker: InProcessBroker) -> None:
    async def run() -> list[int]:
        received = list[int]()

        async def process(event: StreamEvent) -> None:
            await asyncio.sleep(0)
            if event["price"] == 3 and received == [2]:
                received.append(-1)
                raise RuntimeError("a bug")
            received.append(event["price"])

        async with connect_async(broker.url) as client:
            subscription = await client.durable("Quotes", name="n", filter="price > 1", callback=process)
            await client.publish("Quotes", quotes(1, 2, 3, 4))
            with pytest.raises(RuntimeError, match="a bug"):
                await subscription.join()
            again = await client.durable(
                "Quotes", name="n", filter="price > 1", callback=lambda event: received.append(event["price"])
            )
            async with asyncio.timeout(WAIT_S):
                while len(received) < 4:
                    await asyncio.sleep(0.01)
            await again.close()
            await again.join()
        return received

    assert asyncio.run(run()) == [2, -1, 3, 4]


def test_a_filter_needs_the_right_to_subscribe_to_its_tables(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path, PROGRAM, auth=True) as broker, closing(broker.accounts()) as accounts:
        token = accounts.add_token("ann")
        accounts.grant(Grant(Right.subscribe, "Quotes", "ann"))
        with connect(broker.url, token) as client:
            with pytest.raises(SmileError, match="SUBSCRIBE ON Portfolios"):
                client.durable("Quotes", name="n", filter=IN_SEVEN)
            accounts.grant(Grant(Right.subscribe, "Portfolios", "ann"))
            rights = broker.access
            wait_until(lambda: rights.is_allowed("ann", Right.subscribe, "Portfolios"), "the right is not known")
            subscription = client.durable("Quotes", name="n", filter=IN_SEVEN)
            accounts.revoke(Grant(Right.subscribe, "Portfolios", "ann"))
            with pytest.raises(SmileError, match="SUBSCRIBE ON Portfolios"):
                subscription.event(WAIT_S)


def test_the_command(broker: InProcessBroker) -> None:
    broker.publish("Quotes", *quotes(1, 2, 3))
    command = [SMILE, "subscribe", "Quotes", "--name", "n", "--filter", "price > 2"]
    environment = clean_environment(SMILE_URL=broker.url)
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"]["price"] == 3
        process.send_signal(signal.SIGINT)
    listed = invoke_smile("subscriptions", SMILE_URL=broker.url)
    assert "events of Quotes where price > 2" in listed.stdout
    wrong = invoke_smile("subscribe", "Quotes", "--name", "w", "--filter", "price > 'x'", SMILE_URL=broker.url)
    assert wrong.exit_code == 2 and "filter:1:9: error E033" in wrong.stderr and "^^^" in wrong.stderr
    assert invoke_smile("subscribe", "Quotes", "--filter", "price > 2", SMILE_URL=broker.url).exit_code == 2
