"""Messages of a real MQTT broker are logged once each, whoever is away in between."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from smile.connectors.sources.mqtt_window import ENTRIES_MAX, MessageWindow, message_digest
from tests.connectors.mosquitto import Mosquitto, running_mosquitto
from tests.connectors.serving import logged, serving
from tests.processes import wait_until

PROGRAM = """
CREATE STREAM Orders (t TIME KEY, item string, n int CHECK (n >= 0));
CREATE VIEW Totals AS SELECT item, COUNT(*) AS orders, SUM(n) AS total FROM Orders GROUP BY item;
SUBSCRIBE Totals;
"""


def source(url: str, **fields: Any) -> dict[str, dict[str, Any]]:
    return {"shop": {"kind": "mqtt", "url": url, "topic": "shop/+/orders", "stream": "Orders", **fields}}


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    with running_mosquitto(tmp_path / "mosquitto") as broker:
        yield broker


def test_messages_become_events(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """Refused messages are dead letters, retained ones do not come twice, and the topic may be a column."""
    with serving(tmp_path, source(mosquitto.url, topic_column="item"), program=PROGRAM) as (broker, service):
        wait_until(lambda: service.status()["sources"]["shop"]["state"] == "working", "connected")
        mosquitto.publish("shop/a/orders", '{"n": 1}', retain=True)
        mosquitto.publish("shop/b/orders", ' {"n": 2 } ', "{}", qos=2)
        mosquitto.publish("shop/a/orders", '{"n": -3}', "[1]", '[{"n":1},{"n":2}]', "\xff", qos=1)
        mosquitto.publish("elsewhere", '{"n": 4}')
        wait_until(lambda: len(logged(broker)) == 3 and len(service.list_letters(0, 10)) == 4, "events and letters")
    with serving(tmp_path, source(mosquitto.url, topic_column="item"), program=PROGRAM) as (broker, service):
        mosquitto.publish("shop/c/orders", '{"n": 5}', qos=0)
        mosquitto.publish("shop/c/orders", '{"n": 6}')
        wait_until(lambda: ("shop/c/orders", 6) in logged(broker), "the last message")
        events = [event for event in logged(broker) if event != ("shop/c/orders", 5)]  # of QoS 0: at most once
        assert events == [("shop/a/orders", 1), ("shop/b/orders", 2), ("shop/b/orders", None), ("shop/c/orders", 6)]
        assert [letter.code for letter in service.list_letters(0, 10)] == ["E080", "E074", "E073", "E073"]


def test_messages_wait_while_smile_is_away_and_while_mosquitto_is(mosquitto: Mosquitto, tmp_path: Path) -> None:
    with serving(tmp_path, source(mosquitto.url), program=PROGRAM) as (_, service):
        wait_until(lambda: service.status()["sources"]["shop"]["state"] == "working", "connected")
    mosquitto.publish("shop/a/orders", *(json.dumps({"n": n}) for n in range(300)))
    with serving(tmp_path, source(mosquitto.url), program=PROGRAM) as (broker, service):
        wait_until(lambda: len(logged(broker)) == 300, "what came while SMILE was away")
        mosquitto.stop()
        wait_until(lambda: [t.code for t in service.troubles()] == ["E204"], "the trouble")
        mosquitto.start()
        wait_until(lambda: not service.troubles(), "connected again")
        mosquitto.publish("shop/a/orders", *(json.dumps({"n": n}) for n in range(300, 400)))
        wait_until(lambda: len(logged(broker)) == 400, "what came afterwards")
        assert [n for _, n in logged(broker)] == list(range(400))
        assert not broker.warnings


def test_a_lost_session_is_reported(mosquitto: Mosquitto, tmp_path: Path) -> None:
    with serving(tmp_path, source(mosquitto.url), program=PROGRAM) as (broker, _):
        mosquitto.publish("shop/a/orders", '{"n": 1}')

        def publishes_and_arrives() -> bool:
            mosquitto.publish("shop/a/orders", '{"n": 1}')
            return bool(logged(broker))

        wait_until(publishes_and_arrives, "an event")
    mosquitto.stop()
    (mosquitto.folder / "mosquitto.db").unlink()
    mosquitto.start()
    with serving(tmp_path, source(mosquitto.url), program=PROGRAM) as (broker, _):
        wait_until(lambda: broker.warnings, "the warning")
        assert "has no session any more" in broker.warnings[0]["what"]


@contextmanager
def cutting_proxy(port: int, random: Random) -> Iterator[int]:
    """Forwards connections to a port, and cuts each of them after some bytes of the client, most of which are
    acknowledgements."""
    listener = socket.create_server(("127.0.0.1", 0))
    sockets, threads = [listener], list[threading.Thread]()

    def forward(a: socket.socket, b: socket.socket, bytes_max: int) -> None:
        with suppress(OSError):
            while bytes_max > 0 and (data := a.recv(min(4096, bytes_max))):
                bytes_max -= len(data)
                b.sendall(data)
        for end in (a, b):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client = listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", port))
                sockets.extend((client, server))
                for ends, bytes_max in (((client, server), random.randrange(200, 900)), ((server, client), 10**9)):
                    threads.append(threading.Thread(target=forward, args=(*ends, bytes_max), daemon=True))
                    threads[-1].start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield listener.getsockname()[1]
    finally:
        for each in reversed(sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in (acceptor, *threads):
            thread.join()
        for each in sockets:
            each.close()


@pytest.mark.slow
def test_cut_connections_neither_lose_nor_double_messages(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Payloads are often equal: only the packet identifier tells them from repeated ones."""
    monkeypatch.setattr("smile.broker.backoff.DELAYS_S", (0.01,))
    random, count = Random(1), 400
    with (
        cutting_proxy(mosquitto.port, random) as port,
        serving(tmp_path, source(f"mqtt://127.0.0.1:{port}"), program=PROGRAM) as (broker, service),
    ):
        wait_until(lambda: service.status()["sources"]["shop"]["state"] == "working", "connected")
        expected = [n % 3 for n in range(count)]
        for begin in range(0, count, 100):
            payloads = [json.dumps({"n": n}) for n in expected[begin : begin + 100]]
            mosquitto.publish("shop/a/orders", *payloads, qos=random.choice([1, 2]))
        wait_until(lambda: len(logged(broker)) >= count, f"{count} events")
        mosquitto.publish("shop/a/orders", '{"n": 99}')
        wait_until(lambda: logged(broker)[-1] == (None, 99), "the last one")
        assert sorted(n for _, n in logged(broker)) == sorted([*expected, 99])
        reads = service.status()["sources"]["shop"]["reads"]
        assert reads["repeated_messages"] > 0, "no acknowledgement was lost: the test shows nothing"


def test_the_window_has_the_messages_that_may_be_repeated() -> None:
    window, entries = (
        MessageWindow(),
        [(packet, message_digest("a", b"%d" % packet)) for packet in range(2 * ENTRIES_MAX)],
    )
    window.add(entries)
    restored = MessageWindow(window.note())
    for packet, digest in entries:
        assert restored.contains((packet, digest)) == (packet >= ENTRIES_MAX)
    other = (ENTRIES_MAX, message_digest("a", b"other"))
    assert not restored.contains(other)
    restored.add([other])
    assert restored.contains(other) and not restored.contains(entries[ENTRIES_MAX])
    assert message_digest("ab", b"c") != message_digest("a", b"bc")
    restored.clear()
    assert restored.note() == "[]"
