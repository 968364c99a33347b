"""Requests for which there is no memory are answered with 503, wherever it is lacking; the next ones succeed."""

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from smile import limits
from smile.broker.maintenance.local_executor import LocalExecutor
from smile.broker.publishing import publisher
from smile.broker.publishing.published_events import PublishedEvents
from smile.decoding.event_decoder import EventDecoder
from smile.gateway.http import publish as entry
from smile.log.storage.durable import DurableLog
from smile.source import Source
from tests.brokers import PROGRAM, InProcessBroker, bid, open_broker
from tests.processes import WAIT_S, wait_until

MEMORY_ERRORS = [MemoryError(), pa.ArrowMemoryError("malloc of size 123 failed")]


def failing_once(original: Callable[..., Any], problem: Exception) -> Callable[..., Any]:
    problems = [problem]

    def call(*arguments: Any, **named: Any) -> Any:
        if problems:
            raise problems.pop()
        return original(*arguments, **named)

    return call


@pytest.mark.parametrize("problem", MEMORY_ERRORS, ids=["Python", "Arrow"])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (EventDecoder, "decode_json"),
        (DurableLog, "append"),
        (publisher, "CommitGroup"),
        (publisher, "_find_violations"),
    ],
    ids=["decoding", "the log", "a commit group", "CHECKs"],
)
def test_a_publication_without_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, problem: Exception
) -> None:
    with InProcessBroker(tmp_path, idle_ms=60_000) as served, served.http() as http, served.websocket() as talk:
        path = "/streams/Bids/events"
        assert http.post(path, json=bid()).status_code == 200
        publish = {"publish": "Bids", "id": 1, "events": [bid()]}
        asked: list[Callable[[], Any]] = [lambda: http.post(path, json=bid()).json(), lambda: talk.ask(publish)]
        for ask in asked:
            with monkeypatch.context() as broken:
                broken.setattr(owner, name, failing_once(getattr(owner, name), problem))
                # This table has the function itself.
                broken.setitem(entry._DECODE, "application/json", EventDecoder.decode_json)
                assert ask()["error"]["code"] == "E114"
        assert http.post(path, json=bid()).status_code == 200
        assert served.broker.is_live
        assert served.broker.status()["publisher"]["events"] == 2


def test_what_is_logged_is_acknowledged_though_there_is_no_memory_to_note_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with InProcessBroker(tmp_path, idle_ms=60_000) as served:
        monkeypatch.setattr(
            PublishedEvents, "record_commit", failing_once(PublishedEvents.record_commit, MemoryError())
        )
        (first,) = served.publish("Bids", bid(price=1))
        (second,) = served.publish("Bids", bid(price=2))
        assert int(first) < int(second)
        assert [row["row"]["total"] for row in served.rows("Totals", Bids=second)] == [3]


def test_a_stop_does_not_wait_for_a_batch_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "maintainer_stop_s_max", 0.2)
    with open_broker(tmp_path, Source("floor.smile", PROGRAM), flight="", flush=False) as broker:
        has_begun, may_end = Event(), Event()

        def advance(_: LocalExecutor) -> bool:
            has_begun.set()
            return not may_end.wait(WAIT_S)

        monkeypatch.setattr(LocalExecutor, "advance", advance)
        try:
            assert has_begun.wait(WAIT_S)
            broker.stop()
            assert not may_end.is_set() and broker.has_unfinished_work
        finally:
            may_end.set()
        wait_until(lambda: not broker.has_unfinished_work, "the batch does not end")
