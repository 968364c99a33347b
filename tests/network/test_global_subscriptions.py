"""Advertisements, global subscriptions and links between brokers with real connections: over HTTP, in the client, on the
command line, and with processes that are killed."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smile.cli.status import broker_text
from smile.client import connect
from smile.errors import SmileError
from smile.gateway.access import Grant, Right
from tests.brokers import Broker, InProcessBroker
from tests.network.processes import NetworkProcesses, link_status, status
from tests.processes import WAIT_S, invoke_smile, wait_until

QUOTES = """
CREATE STREAM Quotes (t: time -> issue: string, price: int);
CREATE STREAM Secret (t: time -> v: int);
CREATE VIEW Cheap AS SELECT t, price FROM Quotes WHERE price < 10;
CREATE VIEW Count AS SELECT COUNT(*) AS n FROM Quotes;
"""
RELAY = "CREATE STREAM Other (t: time -> v: int);\nCREATE VIEW Sum AS SELECT SUM(v) AS s FROM Other;\n"
TOKEN = "smile_secret_of_db2"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[NetworkProcesses]:
    with NetworkProcesses(tmp_path) as network:
        yield network


def wait_until_advertised(broker: Broker, stream: str, token: str | None = None) -> None:
    def is_known() -> bool:
        with broker.http(token) as http:
            known = http.get("/advertisements").json()["advertisements"]
        return any(a["stream"] == stream and a["from"] is not None and a["reachable"] for a in known)

    wait_until(is_known, f"{stream} is not advertised")


def test_a_chain_with_links_that_are_added(network: NetworkProcesses, tmp_path: Path) -> None:
    db1 = network.start_here("db1", QUOTES)
    db2 = network.start_here("db2", RELAY, {"db1": [db1.url]})
    db3 = network.start_here("db3", RELAY)
    db1.publish("Quotes", {"issue": "IBM", "price": 1}, {"issue": "SUN", "price": 2})
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN + "\n")
    added = invoke_smile("link", "add", "db2", db2.url, "--token-file", str(token_file), "--url", db3.url)
    assert added.exit_code == 0 and "added, with a token" in added.output, added.output
    wait_until_advertised(db3, "Quotes")
    with connect(db3.url) as client:
        with client.durable("Quotes", "billing", scope="global") as events:
            assert [events.event().values["price"] for _ in range(2)] == [1, 2]
            db1.publish("Quotes", {"issue": "IBM", "price": 3})
            event = events.event()
            assert (event.stream, event.values) == ("Quotes", {"issue": "IBM", "price": 3})
            assert "/" in event.origin
            events.ack()
        with pytest.raises(SmileError, match="no broker advertises Nothing"):
            client.durable("Nothing", "other", scope="global")
    with db3.http() as http:
        (listed,) = http.get("/subscriptions").json()["subscriptions"]
        assert (listed["scope"], listed["producers"], listed["waiting_events"]) == ("global", 1, 0)
    text = broker_text(status(db2))
    assert "Quotes: of db1, from db1" in text and "Quotes: subscribed globally, from db3" in text
    assert "import Quotes@db1" in text

    # The link is stored, and nobody sees its token.
    shown = invoke_smile("link", "list", "--json", "--url", db3.url).output
    assert json.loads(shown)["links"][0] | {"url": None} == {
        "name": "db2", "url": None, "ca": None, "has_token": True, "from_settings": False
    }  # fmt: skip
    links_file = tmp_path / "db3" / "smile-data" / "links.json"
    assert stat.S_IMODE(links_file.stat().st_mode) == 0o600 and TOKEN in links_file.read_text()
    assert TOKEN not in json.dumps(status(db3)) + shown
    dropped = invoke_smile("link", "drop", "db2", "--url", db3.url)
    assert dropped.exit_code == 0 and dropped.output == ""
    wait_until(lambda: link_status(db3, "db2") == [], "the link is still there")


def test_wrong_commands(network: NetworkProcesses) -> None:
    db1 = network.start_here("db1", QUOTES)
    db2 = network.start_here("db2", RELAY, {"db1": [db1.url]})
    for arguments, message in (
        (("link", "drop", "db1"), "E131"),
        (("link", "add", "db1", db1.url), "E131"),
        (("link", "add", "db2", db1.url), "E131"),
        (("link", "add", "9", db1.url), "is not a name of a broker"),
        (("link", "add", "db3", "example.org"), "is not a URL of a broker"),
        (("link", "drop", "db9"), "E132"),
        (("advertise", "Nothing"), "E021"),
        (("advertise", "Other", "--where", "colour = 1"), "no column colour"),
    ):
        refused = invoke_smile(*arguments, "--url", db2.url)
        assert refused.exit_code == 1 and message in refused.stderr, (arguments, refused.stderr)
    for wrong in (["--withdraw"], ["Other", "--withdraw", "--where", "v = 1"]):
        assert invoke_smile("advertise", *wrong, "--url", db2.url).exit_code == 2
    assert "db1" in invoke_smile("link", "list", "--url", db2.url).output


def test_advertising_by_command(network: NetworkProcesses) -> None:
    db1 = network.start_here("db1", QUOTES)
    db2 = network.start_here("db2", RELAY, {"db1": [db1.url]})
    wait_until_advertised(db2, "Quotes")
    advertised = invoke_smile("advertise", "Quotes", "--where", "price > 10", "--url", db1.url)
    assert "Quotes where price > 10: published here" in advertised.output
    db1.publish("Quotes", {"issue": "IBM", "price": 5}, {"issue": "IBM", "price": 50})
    wait_until(lambda: "where price > 10" in invoke_smile("advertise", "--url", db2.url).output, "it is not known")
    with connect(db2.url) as client, client.durable("Quotes", "billing", scope="global") as events:
        assert events.event().values["price"] == 50
    with connect(db1.url) as client:
        client.unadvertise("Quotes")
        wait_until(lambda: "Quotes" not in [a["stream"] for a in status(db2)["advertisements"]], "it is still known")
        client.advertise("Quotes")
        wait_until_advertised(db2, "Quotes")


def test_server_sent_events_of_all_brokers(network: NetworkProcesses) -> None:
    db1 = network.start_here("db1", QUOTES)
    db2 = network.start_here("db2", QUOTES, {"db1": [db1.url]})
    db1.publish("Quotes", {"issue": "IBM", "price": 1}, {"issue": "SUN", "price": 2})
    db2.publish("Quotes", {"issue": "IBM", "price": 3})
    wait_until_advertised_here(db2)
    with db2.http() as http:
        path, received = "/streams/Quotes/events?name=n&scope=global&where.issue=IBM", set[int]()
        with http.stream("GET", path) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    received.add(json.loads(line[6:])["event"]["price"])
                if len(received) == 2:
                    break
        assert received == {1, 3}
        assert http.get("/streams/Quotes/events?name=n&scope=all").json()["error"]["code"] == "E093"


def wait_until_advertised_here(broker: Broker) -> None:
    """A broker that publishes the stream itself knows the other host too."""
    assert isinstance(broker, InProcessBroker)
    wait_until(lambda: broker.broker.routing.advertised_by("Quotes"), "the other host is not known")


def test_grants_decide_what_neighbours_know(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path / "db1", QUOTES, broker_name="db1", auth=True) as db1:
        accounts = db1.accounts()
        token, publisher = accounts.add_token("db2"), accounts.add_token("publisher")
        accounts.grant(Grant(Right.subscribe, "Cheap", "db2"))
        accounts.grant(Grant(Right.publish, "Quotes", "publisher"))
        accounts.close()
        with InProcessBroker(tmp_path / "db2", RELAY, broker_name="db2") as db2:
            with db2.http() as http:
                assert http.put("/links/db1", json={"url": db1.url, "token": token}).status_code == 200
            wait_until_advertised(db2, "Quotes")
            assert "Secret" not in json.dumps(status(db2)["advertisements"])
            with db1.http(publisher) as http:
                events = [{"issue": "IBM", "price": 5}, {"issue": "IBM", "price": 50}, {"issue": "SUN", "price": 6}]
                assert http.post("/streams/Quotes/events", json=events).status_code == 200
            with connect(db2.url) as client, client.durable("Quotes", "billing", scope="global") as subscription:
                received = [dict(subscription.event().values) for _ in range(2)]
            assert received == [{"price": 5}, {"price": 6}], "only what Cheap selects"
            with db1.http(publisher) as http:
                assert http.get("/links").status_code == http.get("/advertisements").status_code == 403


@pytest.mark.slow
def test_processes_that_are_killed(network: NetworkProcesses) -> None:
    """A chain of three processes over links that lose and repeat messages. The one in the middle is killed, then the
    producer: every event is received once, in order."""
    faults = {"variables": {"SMILE_LINK_FAULTS": "lost=0.05,repeated=0.05,swapped=0.1,seed=3"}}
    db1 = network.start("db1", QUOTES, **faults)
    db2 = network.start("db2", RELAY, {"db1": network.url("db1"), "db3": network.url("db3")}, **faults)
    db3 = network.start("db3", RELAY, **faults)
    wait_until_advertised(db3, "Quotes")
    received, published = list[int](), 0
    with connect(db3.url) as client, client.durable("Quotes", "billing", scope="global") as events:

        def publish(broker: Any, count: int) -> None:
            nonlocal published
            broker.publish("Quotes", *({"issue": "IBM", "price": published + i} for i in range(count)))
            published += count

        def read() -> None:
            while len(received) < published:
                received.append(events.event(WAIT_S).values["price"])
            events.ack()

        publish(db1, 50)
        read()
        for name in ("db2", "db1"):
            broker = network.brokers[name]
            publish(network.brokers["db1"], 50)
            broker.kill()
            broker.start()
            publish(network.brokers["db1"], 50)
            read()
    assert received == list(range(published))
    assert db2.stop() == 0
