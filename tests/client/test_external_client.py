"""The external client of the PostgreSQL-PS paper (Table 2): connect, advertise, publish, subscribe with a scope, a filter and
a callback. docs/client.md says which call of this client is which of the paper."""

from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from smile.client import connect
from smile.settings import NeighbourSettings
from tests.brokers import InProcessBroker
from tests.processes import WAIT_S, wait_until

PROGRAM = "CREATE STREAM Quotes (t: time -> symbol: string, price: int);\n"


@pytest.mark.slow
def test_the_four_calls_of_the_paper(tmp_path: Path) -> None:
    """One client publishes at a broker, another one subscribes at its neighbour."""
    received: SimpleQueue[tuple[str, int]] = SimpleQueue()
    settings: dict[str, Any] = {"silence_ms": 10, "idle_ms": 50, "advertise": False}
    with InProcessBroker(tmp_path / "east", PROGRAM, broker_name="east", **settings) as east:
        brokers = {"east": NeighbourSettings(url=(east.url,))}
        with (
            InProcessBroker(tmp_path / "west", PROGRAM, broker_name="west", brokers=brokers, **settings) as west,
            connect(east.url) as publisher,
            connect(west.url) as subscriber,
            subscriber.durable(
                "Quotes",
                name="dear",
                scope="global",
                filter="price > 100",
                callback=lambda quote: received.put((quote["symbol"], quote["price"])),
            ),
        ):
            assert not west.broker.routing.advertised_by("Quotes")
            publisher.advertise("Quotes")
            wait_until(lambda: west.broker.routing.advertised_by("Quotes"), "Quotes is not advertised")
            publisher.publish("Quotes", [{"symbol": "IBM", "price": 120}, {"symbol": "HP", "price": 40}])
            publisher.publish("Quotes", {"symbol": "SUN", "price": 101}, reliability="non-guaranteed")
            assert [received.get(timeout=WAIT_S) for _ in range(2)] == [("IBM", 120), ("SUN", 101)]
            with pytest.raises(Empty):
                received.get(timeout=0.2)
