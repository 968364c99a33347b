"""The protocol without a connection: whatever messages are lost or reordered, every event is logged once and in order,
and subscribers end with the right rows."""

import json
from functools import partial
from random import Random
from typing import Any

import pytest

from smile import limits
from smile.client.changes import Published
from smile.client.feed import FrameQueue
from smile.client.rows import Rows
from smile.client.session import ClientSession
from smile.errors import SmileError, error
from tests.client.fake import Store, row
from tests.repeatable import scaled

LOST = error("E103", "lost")


def nothing() -> None:
    pass


class Wire:
    """A broker at the other end of a wire that may be cut at any message, in either direction."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.session = ClientSession(nothing, nothing)
        self.to_broker: list[dict[str, Any]] = []
        self.to_client: list[dict[str, Any]] = []
        self.feeds: dict[int, dict[str, Any]] = {}

    def connect(self) -> None:
        self.to_broker, self.to_client, self.feeds = [], [], {}
        self.session.on_connected()

    def lose(self) -> None:
        self.session.on_disconnected(LOST)

    def step(self, random: Random) -> bool:
        """One message goes one way; whether there was any."""
        self.to_broker += map(json.loads, self.session.take_outgoing())
        if self.to_client and (not self.to_broker or random.random() < 0.5):
            self.session.receive(json.dumps(self.to_client.pop(0)))
        elif self.to_broker:
            self._received(self.to_broker.pop(0))
        else:
            return False
        return True

    def _received(self, message: dict[str, Any]) -> None:
        match message:
            case {"publish": _, "id": id, "events": events}:
                ticks, repeated = self.store.publish(message["producer"], message["seq"], events)
                self.to_client.append({"id": id, "published": ticks, "repeated": repeated})
            case {"subscribe": view, "id": id}:
                columns = {"k": "string", "n": "int"}
                heading = {"subscribed": view, "key": ["k"], "columns": columns, "streams": ["S"]}
                self.to_client.append({"id": id, **heading})
                self.feeds[id] = {"n": 0, "acked": 0, "resume": message.get("resume"), "window": message["window"]}
            case {"ack": id, "n": n}:
                assert n == self.feeds[id]["acked"] + 1
                self.feeds[id]["acked"] = n
        self._tell()

    def _tell(self) -> None:
        """The snapshot in two frames, as a large one comes, and then all of it with every change."""
        horizon = self.store.horizon
        for id, feed in self.feeds.items():
            if feed["n"] - feed["acked"] + 2 > feed["window"] or feed["resume"] == str(horizon):
                continue
            rows = [row(k, n) for k, n in self.store.counts({}).items()]
            first = {"id": id, "n": feed["n"] + 1, "rows": rows[:1], **({"reset": True} if not feed["n"] else {})}
            last = {"id": id, "n": feed["n"] + 2, "rows": rows[1:], "progress": {"S": horizon}, "resume": str(horizon)}
            self.to_client += [first, last]
            feed["n"] += 2
            feed["resume"] = str(horizon)


@pytest.mark.parametrize("seed", range(scaled(100)))
def test_whatever_is_lost(seed: int) -> None:
    random = Random(seed)
    wire = Wire(Store())
    table, queue = Rows(), FrameQueue()
    session, outcomes = wire.session, dict[int, Published | SmileError]()
    session.subscribe("Counts", {}, {}, table)
    feed = session.subscribe("Counts", {}, {}, queue)
    received: dict[str, int] = {}

    def take() -> None:
        for change in queue.frames.popleft().changes:
            received.pop(change.key["k"], None)
            if not change.deleted:
                received[change.key["k"]] = change.row["n"]
        session.consume_frame(feed)

    sent = 0
    for _ in range(200):
        match random.randrange(10):
            case 0:
                wire.lose()
                wire.connect()
            case 1 | 2:
                number = sent
                events = [{"k": random.choice("abcd")} for _ in range(random.randint(1, 3))]
                session.publish("S", events, partial(outcomes.__setitem__, number))
                sent += 1
            case 3 if queue.frames:
                take()
            case _ if session.connected:
                wire.step(random)
    wire.lose()
    wire.connect()
    for _ in range(10_000):
        if not wire.step(random) and not queue.frames:
            break
        if queue.frames:
            take()
    truth = wire.store.counts({})
    assert sorted(outcomes) == list(range(sent))
    ticks = [tick for n in range(sent) for tick in outcomes[n]]  # type: ignore[union-attr]
    assert ticks == [tick for tick, _ in wire.store.events]
    assert {r.key["k"]: r.row["n"] for r in table} == received == truth
    assert session.unacknowledged == 0


def test_half_a_snapshot_is_not_shown() -> None:
    wire, table = Wire(Store()), Rows()
    wire.session.subscribe("Counts", {}, {}, table)
    wire.connect()
    columns = {"k": "string", "n": "int"}
    heading = {"id": 1, "subscribed": "Counts", "key": ["k"], "columns": columns, "streams": ["S"]}
    whole = {"id": 1, "n": 1, "reset": True, "rows": [row("a", 1), row("b", 1)], "progress": {"S": 5}, "resume": "5"}
    half = {"id": 1, "n": 1, "reset": True, "rows": [row("c", 1)]}
    for message in (heading, whole, half | {"n": 2}):
        wire.session.receive(json.dumps(message))
    assert [r.key["k"] for r in table] == ["a", "b"]
    wire.lose()
    wire.session.on_connected()
    for message in (heading, half, {"id": 1, "n": 2, "rows": [row("b", 2)], "progress": {"S": 7}, "resume": "7"}):
        wire.session.receive(json.dumps(message))
    assert [(r.key["k"], r.row["n"]) for r in table] == [("c", 1), ("b", 2)]
    assert table.progress == {"S": 7}
    assert not table.has_reached({"S": 8})
    assert table.has_reached({"S": 7, "Other": 10**9})


def test_no_more_is_under_way_than_can_be_sent_again() -> None:
    session, turns = ClientSession(nothing, nothing), list[int]()
    for _ in range(limits.client_pending_max):
        assert session.admit(nothing)
        session.publish("S", [{"k": "a"}], lambda _: None)
    wakes = [partial(turns.append, number) for number in range(5)]
    assert not any(map(session.admit, wakes))
    session.cancel_wait(wakes[1])
    for id in (1, 2):
        session.receive(json.dumps({"id": id, "published": [id]}))
    assert turns == [0, 2]
    session.cancel_wait(wakes[2])
    assert turns == [0, 2, 3]
    assert not session.admit(nothing)
    session.on_disconnected(LOST, permanent=True)
    assert turns == [0, 2, 3, 4]
    assert session.admit(nothing)
    with pytest.raises(SmileError, match="lost"):
        session.publish("S", [{"k": "a"}], lambda _: None)


def test_numbers_follow_each_other_in_each_stream() -> None:
    session = ClientSession(nothing, nothing)
    session.on_connected()
    for stream, count in (("S", 3), ("T", 1), ("S", 2), ("T", 1)):
        session.publish(stream, [{"k": "a"}] * count, lambda _: None)
    sent = [json.loads(text) for text in session.take_outgoing()]
    assert [(m["publish"], m["seq"], len(m["events"])) for m in sent] == [
        ("S", 1, 3),
        ("T", 1, 1),
        ("S", 4, 2),
        ("T", 2, 1),
    ]
    assert sent[0]["producer"] == sent[2]["producer"] != sent[1]["producer"]
    assert len({m["id"] for m in sent}) == 4


def test_after_half_a_snapshot_the_token_before_it_holds() -> None:
    wire, table, queue = Wire(Store()), Rows(), FrameQueue()
    for sink in (table, queue):
        wire.session.subscribe("Counts", {}, {}, sink)
    columns = {"k": "string", "n": "int"}
    heading = {"subscribed": "Counts", "key": ["k"], "columns": columns, "streams": ["S"]}
    whole = {"n": 1, "reset": True, "rows": [row("a", 1), row("b", 1)], "progress": {"S": 5}, "resume": "5"}
    half = {"n": 2, "reset": True, "rows": [row("c", 1)]}
    for messages in ((heading, whole, half), (heading, {"n": 1, "rows": [row("b", 2)], "progress": {"S": 7}})):
        wire.session.on_connected()
        for message in messages:
            for id in (1, 2):
                wire.session.receive(json.dumps({"id": id, **message}))
        wire.lose()
    assert [(r.key["k"], r.row["n"]) for r in table] == [("a", 1), ("b", 2)]
    changes = [(c.key["k"], c.deleted) for frame in queue.frames for c in frame.changes]
    assert changes == [("a", False), ("b", False), ("c", False), ("b", False)]
    assert [frame.reset for frame in queue.frames] == [True, True, False]
