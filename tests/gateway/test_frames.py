"""Frames: whatever the size of rows, each is bounded, together they are what the view shows, and none is kept for long."""

import json
import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from smile import limits
from smile.gateway.frames import FrameEncoder, encode_ahead, encode_websocket
from tests.brokers import InProcessBroker, apply_frame
from tests.repeatable import scaled

PROGRAM = """
CREATE STREAM Notes (t: time -> name: int, body: string);
CREATE VIEW Shown AS SELECT * FROM Notes;
CREATE VIEW Last AS SELECT name, MAX(body) AS body FROM Notes GROUP BY name;
"""
SMALL = 2_000


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with InProcessBroker(tmp_path_factory.mktemp("frames"), PROGRAM) as broker:
        yield broker


def published(served: InProcessBroker, events: list[dict[str, Any]]) -> str:
    with served.http() as http:
        tick = http.post("/streams/Notes/events", json=events).json()["ticks"][-1]
        for view in ("Shown", "Last"):
            assert http.get(f"/views/{view}", params={"after.Notes": tick}).status_code == 200
    return str(tick)


def shown(served: InProcessBroker, view: str) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    with served.http() as http:
        apply_frame(rows, http.get(f"/views/{view}").json())
    return rows


def notes(random_: random.Random, count: int) -> list[dict[str, Any]]:
    """Most are small, some have more than a frame does."""
    sizes = [random_.choice([0, 1, 50, 700, SMALL, 3 * SMALL]) for _ in range(count)]
    return [{"name": random_.randrange(20), "body": random_.choice("abc") * size} for size in sizes]


def bounded(rows: list[bytes]) -> bool:
    return len(rows) <= 1 or sum(map(len, rows)) <= SMALL


@pytest.mark.parametrize("seed", range(scaled(5)))
def test_frames_of_any_rows_come_to_what_the_view_shows(
    served: InProcessBroker, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(limits, "frame_rows_bytes_max", SMALL)
    random_ = random.Random(seed)
    published(served, notes(random_, 60))
    view = served.broker.view("Last")
    kept = FrameEncoder(lambda message, rows: encode_websocket(message, rows) if bounded(list(rows)) else b"too large")
    subscriptions = [view.subscribe(view.condition({}), lambda: None) for _ in range(3)]
    tables: list[dict[str, Any]] = [{} for _ in subscriptions]
    resets, resumes = [0] * 3, [""] * 3
    for step in range(200):
        if step in (3, 11, 40):
            published(served, notes(random_, 15))
        i = random_.randrange(3)
        before = subscriptions[i].progress
        frame = kept.encode_next(subscriptions[i])
        if frame is None:
            continue
        assert frame.is_complete or subscriptions[i].progress is before
        message = json.loads(b"{" + frame.body)
        assert len(message["rows"]) == frame.row_count
        assert ("progress" in message) == ("resume" in message) == frame.is_complete
        resets[i] += message.get("reset", False)
        resumes[i] = message.get("resume", resumes[i])
        apply_frame(tables[i], message)
    assert resets == [1, 1, 1]
    assert tables == [shown(served, "Last")] * 3
    again = view.subscribe(view.condition({}), lambda: None, resumes[0])
    published(served, [{"name": 7, "body": "d"}])
    message = json.loads(b"{" + getattr(kept.encode_next(again), "body", b"}"))
    assert "reset" not in message
    assert [row["key"] for row in message["rows"]] == [{"name": 7}]


def test_a_row_that_changes_between_two_frames_is_told_as_it_is(
    served: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has not gone out waits in the view, and nowhere else."""
    monkeypatch.setattr(limits, "frame_rows_bytes_max", SMALL)
    published(served, [{"name": name, "body": "a" * 1_500} for name in range(3)])
    with served.websocket() as connection:
        connection.ask({"subscribe": "Last", "id": 1, "window": 1})
        first = connection.receive()
        assert (len(first["rows"]), first["reset"], "progress" in first) == (1, True, False)
        published(served, [{"name": name, "body": "b"} for name in range(3)])
        connection.send({"ack": 1, "n": 1})
        second = connection.receive()
        assert ([row["row"]["body"] for row in second["rows"]], "progress" in second) == (["b"] * 3, True)


def test_large_rows_go_over_in_many_frames(served: InProcessBroker) -> None:
    body = "x" * 300_000
    for begin in range(0, 12, 3):
        published(served, [{"name": name, "body": body} for name in range(begin, begin + 3)])
    with served.websocket(max_size=limits.frame_rows_bytes_max + 1_000) as connection:
        connection.ask({"subscribe": "Shown", "id": 1})
        frames = [connection.receive()]
        while "progress" not in frames[-1]:
            frames.append(connection.receive())
    assert [len(frame["rows"]) for frame in frames] == [3] * 4
    assert ["reset" in frame for frame in frames] == [True, False, False, False]


def test_large_rows_as_server_sent_events(served: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "frame_rows_bytes_max", SMALL)
    tick = published(served, notes(random.Random(1), 50))
    rows: dict[str, Any] = {}
    kinds = []
    params = {"after.Notes": tick}
    with served.http() as http, http.stream("GET", "/views/Shown/changes", params=params) as answer:
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name == "event":
                kinds.append(value)
            elif name == "data" and kinds[-1] == "change":
                apply_frame(rows, {"rows": [json.loads(value)]})
            elif name == "data" and kinds[-1] == "progress":
                break
    assert kinds == ["reset", *["change"] * 50, "progress"]
    assert rows == shown(served, "Shown")


def test_what_was_told_is_not_kept(served: InProcessBroker) -> None:
    """Subscribers come and go in any number, and each receives other horizons."""
    for begin in range(0, 40, 8):
        published(served, [{"name": name, "body": "x" * 100_000} for name in range(begin, begin + 8)])
    view = served.broker.view("Shown")
    kept = FrameEncoder(encode_websocket)

    def come_and_go() -> int:
        subscription, rows = view.subscribe(view.condition({}), lambda: None), 0
        while (frame := kept.encode_next(subscription)) is not None:
            rows += frame.row_count
            if frame.is_complete:
                break
        subscription.close()
        return rows

    assert come_and_go() == 40
    tracemalloc.start()
    try:
        for _ in range(20):
            view.deliver(None, {**view.horizons})
            assert come_and_go() == 40
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3 * limits.frame_rows_bytes_max
    assert peak < 12 * limits.frame_rows_bytes_max


def test_those_who_are_told_the_same_share_a_frame(served: InProcessBroker) -> None:
    published(served, [{"name": 1, "body": "x"}])
    view = served.broker.view("Shown")
    made: list[int] = []

    def make(frame: Any, rows: Any) -> bytes:
        made.append(len(rows))
        return encode_websocket(frame, rows)

    kept = FrameEncoder(make)
    horizons = view.horizons
    frames = [kept.encode_next(view.subscribe(view.condition({}), lambda: None)) for _ in range(100)]
    if view.horizons is horizons:
        assert made == [1]
    assert len({frame.body for frame in frames if frame is not None}) == len(made) < 100


def test_rows_of_different_conditions_are_encoded_together(served: InProcessBroker) -> None:
    """The frames are the same as without it, and no cursor moves before its frame."""
    random_ = random.Random(5)
    published(served, notes(random_, 40))
    view = served.broker.view("Last")
    conditions = [view.condition({"name": name}) for name in range(20)]
    first, second = ([view.subscribe(condition, lambda: None) for condition in conditions] for _ in range(2))
    encoder = FrameEncoder(encode_websocket)
    for subscription in (*first, *second):
        while encoder.encode_next(subscription) is not None:
            pass
    published(served, [{"name": name, "body": f"z{name}"} for name in range(0, 20, 2)])
    positions = [subscription.position for subscription in first]
    one_by_one = [encoder.encode_next(subscription) for subscription in second]
    assert sum(frame is not None for frame in one_by_one) == 10
    encoded = view._store.encoded_rows
    expected = dict(encoded)
    encoded.clear()
    encode_ahead(first)
    assert encoded == {number: expected[number] for number in sorted(expected)[-10:]}
    assert [subscription.position for subscription in first] == positions
    bodies = [None if frame is None else frame.body for frame in map(encoder.encode_next, first)]
    assert bodies == [None if frame is None else frame.body for frame in one_by_one]


def test_encoding_ahead_is_bounded(served: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    published(served, [{"name": name, "body": "a"} for name in range(20)])
    view = served.broker.view("Last")
    subscriptions = [view.subscribe(view.condition({"name": name}), lambda: None) for name in range(20)]
    encoder = FrameEncoder(encode_websocket)
    for subscription in subscriptions:
        while encoder.encode_next(subscription) is not None:
            pass
    published(served, [{"name": name, "body": "z" * 1_000} for name in range(20)])
    encoded = view._store.encoded_rows
    encoded.clear()
    monkeypatch.setattr(limits, "encoded_ahead_rows_max", 7)
    encode_ahead(subscriptions)
    assert len(encoded) == 7
    encoded.clear()
    monkeypatch.setattr(limits, "encoded_ahead_rows_max", 100)
    monkeypatch.setattr(limits, "frame_rows_bytes_max", SMALL)
    encode_ahead(subscriptions)
    assert 0 < len(encoded) < 20
