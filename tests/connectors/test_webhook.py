"""Webhooks: each final row, or each change, reaches the receiver at least once, with one identifier for each message."""

import base64
import hashlib
import hmac
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from smile import limits
from smile.connectors.sinks.webhook import signature
from tests.connectors.receiver import Receiver, receiving
from tests.connectors.serving import logged, publish, serving
from tests.processes import free_port, wait_until
from tests.repeatable import scaled


def hook(receiver: Receiver, view: str = "Large", **fields: Any) -> dict[str, dict[str, Any]]:
    return {"hook": {"kind": "webhook", "url": receiver.url, "view": view, **fields}}


def test_final_rows_are_posted_once_and_signed(tmp_path: Path) -> None:
    secret = "whsec_" + base64.b64encode(b"key").decode()
    with receiving() as receiver:
        with serving(tmp_path, sinks=hook(receiver, secret=secret)) as (broker, _):
            publish(broker, ("nail", 5), ("screw", 200), ("bolt", 300))
            wait_until(lambda: len(receiver.posted) == 2, "two rows")
        with serving(tmp_path, sinks=hook(receiver, secret=secret)) as (broker, service):
            publish(broker, ("nut", 400))
            wait_until(lambda: len(receiver.posted) == 3, "one more row")
            status = service.status()["sinks"]["hook"]
            assert status["wrote"] == {"posted": 1, "refused_rows": 0} and not service.troubles()
    assert [(body["view"], body["row"]["item"], body["final"]) for _, body, _ in receiver.posted] == [
        ("Large", "screw", True),
        ("Large", "bolt", True),
        ("Large", "nut", True),
    ]
    assert len({headers["webhook-id"] for headers, _, _ in receiver.posted}) == 3
    for headers, _, _ in receiver.posted:
        assert headers["idempotency-key"] == headers["webhook-id"]
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{headers['text']}"
        expected = base64.b64encode(hmac.new(b"key", signed.encode(), hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"


def test_the_signature_is_that_of_the_specification() -> None:
    """An example of the Standard Webhooks' own libraries."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    found = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", '{"test": 2432232314}')
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_rows_that_can_change_are_not_posted_unless_all_changes_are(tmp_path: Path) -> None:
    with receiving() as receiver:
        with serving(tmp_path, sinks=hook(receiver, "Totals")) as (broker, service):
            publish(broker, ("nail", 5))
            wait_until(lambda: broker.view("Totals").row_count == 1, "the row")
            time.sleep(0.2)  # it would have come
            assert service.status()["sinks"]["hook"]["rows"] == 0
        assert receiver.posted == []
        with serving(tmp_path, sinks=hook(receiver, "Totals", changes="all")) as (broker, _):
            wait_until(lambda: len(receiver.posted) == 1, "the row")
            publish(broker, ("nail", 6))
            wait_until(lambda: len(receiver.posted) == 2, "its change")
    assert [body["row"]["total"] for _, body, _ in receiver.posted] == [5, 11]
    assert [body["knowledge"]["total"] for _, body, _ in receiver.posted] == [{"at_least": 5}, {"at_least": 11}]


def test_a_receiver_that_is_away_delays_and_loses_nothing(tmp_path: Path) -> None:
    port = free_port()
    sinks = {"hook": {"kind": "webhook", "url": f"http://127.0.0.1:{port}/", "view": "Large"}}
    with serving(tmp_path, sinks=sinks) as (broker, service):
        publish(broker, ("screw", 200))
        wait_until(lambda: [t.code for t in service.troubles()] == ["E207"], "the trouble")
        assert "does not answer" in service.troubles()[0].message
        with receiving(port) as receiver:
            receiver.answer = lambda _: 503 if len(receiver.posted) < 2 else 200
            wait_until(receiver.taken, "the row")
            assert len({headers["webhook-id"] for headers, _, _ in receiver.posted}) == 1
            wait_until(lambda: not service.troubles(), "no trouble")
        assert not service.list_letters(0, 10)


def test_refused_rows_are_dead_letters_that_can_be_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "webhook_attempts_max", 2)
    statuses = {"bad": 422, "broken": 500, "moved": 301}
    with receiving() as receiver:
        receiver.answer = lambda body: statuses.get(body["row"]["item"], 200)
        with serving(tmp_path, sinks=hook(receiver)) as (broker, service):
            publish(broker, *((item, 200) for item in ("bad", "broken", "good", "moved")))
            wait_until(lambda: len(service.list_letters(0, 10)) == 3 and receiver.taken(), "three letters")
            letters = service.list_letters(0, 10)
            assert [letter.message.partition("answers ")[2] for letter in letters] == [
                "422: said", "500: said", "301: said",
            ]  # fmt: skip
            assert "hidden" not in letters[0].message and '"item": "bad"' in letters[0].body
            assert [body["row"]["item"] for _, body, _ in receiver.posted] == [
                "bad",
                "broken",
                "broken",
                "good",
                "moved",
            ]
        with serving(tmp_path, sinks=hook(receiver)) as (broker, service):
            publish(broker, ("later", 300))
            wait_until(lambda: len(receiver.posted) == 6, "only the new row")
            receiver.answer = lambda _: 200
            service.retry_letter(letters[0].id)
            service.drop_letter(letters[1].id)
            wait_until(lambda: len(receiver.taken()) == 3, "the retried row")
            assert [letter.id for letter in service.list_letters(0, 10)] == [letters[2].id]
    assert [body["row"]["item"] for body in receiver.taken()] == ["good", "later", "bad"]


@pytest.mark.parametrize("seed", range(scaled(3)))
def test_the_receiver_ends_with_the_rows_of_the_view(tmp_path: Path, seed: int) -> None:
    """All changes, a receiver that fails at random, and restarts: applied in their order, each message once, they give
    the rows of the view."""
    random = Random(seed)
    with receiving() as receiver:
        receiver.answer = lambda _: 200 if random.random() < 0.8 else 503
        for _ in range(2):
            with serving(tmp_path, sinks=hook(receiver, "Popular", changes="all")) as (broker, _):
                for _ in range(3):
                    events = [(random.choice("abc"), random.randrange(150)) for _ in range(random.randrange(1, 9))]
                    publish(broker, *events)
                    wait_until(lambda: broker.view("Popular").is_reached(broker.log_horizons), "the view")
                    if random.random() < 0.5:
                        time.sleep(0.1)  # the webhook follows, or does not
        with serving(tmp_path, sinks=hook(receiver, "Popular", changes="all")) as (broker, _):
            publish(broker, ("z", 1), ("z", 2), ("z", 3))

            def is_equal() -> bool:
                shown: dict[str, Any] = {}
                for body in receiver.taken():
                    item = body["key"]["item"]
                    shown.pop(item, None)
                    if "deleted" not in body:
                        shown[item] = body["row"]["total"]
                return shown == expected(broker)

            wait_until(is_equal, f"seed {seed}: {receiver.taken()}, not {expected(broker)}")


def expected(broker: Any) -> dict[str, Any]:
    totals: dict[str, list[int]] = {}
    for item, n in logged(broker):
        totals.setdefault(item, []).append(n)
    return {item: sum(ns) for item, ns in totals.items() if len(ns) > 2 and sum(ns) < 500}


def test_a_row_is_not_passed_over_if_its_letter_cannot_be_stored(tmp_path: Path) -> None:
    with receiving() as receiver:
        receiver.answer = lambda _: 422
        with serving(tmp_path, sinks=hook(receiver)) as (broker, service):
            with closing(sqlite3.connect(tmp_path / "data" / "connectors.sqlite")) as database:
                database.execute("ALTER TABLE dead_letters RENAME TO hidden")
                publish(broker, ("screw", 200))
                wait_until(lambda: [t.code for t in service.troubles()] == ["E209"], "the trouble")
                database.execute("ALTER TABLE hidden RENAME TO dead_letters")
            wait_until(lambda: [letter.body for letter in service.list_letters(0, 10)], "the letter")
            assert [t.code for t in service.troubles()] == ["E207"]
