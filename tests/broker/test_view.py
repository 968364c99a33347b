"""Subscribers of random views, each at its own pace: some read always, some only at the end, some leave and return with
their tokens. In the end each has the rows of the view, and nothing that a subscriber received is withdrawn."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from smile import limits
from smile.algebra import mmpl
from smile.broker.maintenance.listener import ViewSnapshot
from smile.broker.views import view_store
from smile.broker.views.condition import ViewCondition
from smile.broker.views.portable_tokens import base_streams
from smile.broker.views.view import View, ViewSubscription
from smile.encoding.json_changes import json_changes
from smile.engine.local import LocalEngine
from smile.errors import SmileError
from smile.gateway.frames import frame_batch, row_messages
from smile.kernels.compile import Kernels, materialized_name
from smile.kernels.materialized_view import MaterializedView
from smile.kernels.unsupported_join import UnsupportedJoinError
from smile.log.input_batch import InputBatch
from smile.program import compile_program
from smile.reference.history import History
from smile.source import Source
from tests.engine.invariants import Run, draw
from tests.engine.subscriber_knowledge import SubscriberKnowledge
from tests.engine.test_programs import kernels
from tests.kernels.harness import cuts, input_batch_between
from tests.random_programs import SEED_ID, seeds

Json = dict[str, Any]


@dataclass
class Subscriber:
    """Stores what it receives, and checks that nothing is withdrawn."""

    view: View
    condition: ViewCondition
    rows: dict[str, Json] = field(default_factory=dict)
    resume: str | None = None
    woken: int = 0
    heard: SubscriberKnowledge = field(default_factory=SubscriberKnowledge)
    delivered: set[str] = field(default_factory=set)
    """The rows since the last reset."""
    subscription: ViewSubscription = field(init=False)

    def __post_init__(self) -> None:
        self.come()

    def come(self) -> None:
        self.subscription = self.view.subscribe(self.condition, self.wake, self.resume)

    def wake(self) -> None:
        self.woken += 1

    def take(self, most: int, fitting: int | None = None) -> bool:
        """With `fitting`, only so many rows arrive, and the others are returned."""
        frame = self.subscription.next_frame(most)
        if frame is None:
            return False
        assert frame.row_count <= most
        messages = [json.loads(message) for message in row_messages(frame)]
        assert frame_batch(frame).num_rows == frame.row_count == len(messages)
        is_cut = fitting is not None and fitting < len(messages)
        if is_cut:
            messages, progress = messages[:fitting], self.subscription.progress
            self.subscription.return_rows(frame, len(messages))
            assert frame.progress is None or self.subscription.progress is not progress
        if frame.reset:
            self.rows.clear()
            self.delivered.clear()
        for message in messages:
            key = json.dumps(message["key"], sort_keys=True)
            if self.condition.only_final:
                assert message["final"]
                assert key not in self.delivered, "a final row comes once"
                self.delivered.add(key)
            if message.get("deleted"):
                self.rows.pop(key, None)
            else:
                self.rows[key] = message
        problems = [p for message in messages for p in self.heard.receive(message)]
        assert not problems
        self.resume = self.resume if is_cut else frame.resume or self.resume
        return True


def all_rows(engine: LocalEngine, name: str) -> ViewSnapshot:
    kept = engine.kernels.transforms[materialized_name(name)]
    assert isinstance(kept, MaterializedView)
    return ViewSnapshot(name, kept.read_rows(engine.state.states[materialized_name(name)]), engine.state.horizons)


def expected(view: View, engine: LocalEngine, condition: ViewCondition) -> dict[str, Json]:
    snapshot = all_rows(engine, view.name)
    source = view.source
    messages = json.loads(msgspec.json.encode(list(json_changes(source, snapshot.rows, snapshot.horizons))))
    met = [
        view.condition({c: {**m["key"], **m["row"]}[c] for c in condition.columns}).values == condition.values
        for m in messages
    ]
    return {
        json.dumps(m["key"], sort_keys=True): m
        for m, meets in zip(messages, met, strict=True)
        if meets and (m["final"] or not condition.only_final)
    }


def without_steps_of_final(rows: dict[str, Json]) -> dict[str, Json]:
    """Whoever has a final row is not told that its steps have grown."""
    return {k: {**m, "steps": None if m["final"] else m["steps"]} for k, m in rows.items()}


def conditions(random: Random, view: View, row: Json) -> ViewCondition:
    """Now and then one that some row meets."""
    fixed = [c for c in view.source.type.heading.columns if c in view.source.layout.fixed]
    columns = random.sample(fixed, min(len(fixed), random.choice((0, 1, 1, 2))))
    return view.condition({c: row[c] for c in columns if c in row}, only_final=random.random() < 0.3)


@contextmanager
def tight(random: Random) -> Iterator[None]:
    """What happens after thousands of rows happens after a few."""
    with (
        patch.object(limits, "deleted_rows_max", random.choice((0, 0, 2, 100))),
        patch.object(limits, "progress_marks_max", random.choice((1, 3, 1000))),
        patch.object(view_store, "_ENCODED_ROWS_SPARE", random.choice((-5, 0, 3, 1000))),
    ):
        yield


def view_of(name: str, program: mmpl.Program, engine: Kernels) -> View:
    seconds = iter(range(1_000_000))
    return View(name, engine.inputs[name], "digest", dict, base_streams(program, name), lambda: float(next(seconds)))


@pytest.mark.parametrize("seed", seeds(150), ids=SEED_ID)
def test_everybody_ends_with_what_the_view_shows(seed: int) -> None:
    random = Random(seed)
    with tight(random), patch.object(View, "_check_token_horizons", lambda *_: None):
        try:
            _check(draw(seed, views_max=3), random)
        except UnsupportedJoinError:
            return  # an outer join whose rows would share a key: refused, and said so


def _check(run: Run, random: Random) -> None:
    program = run.program
    engine = LocalEngine(kernels(program))
    views = {name: view_of(name, program, engine.kernels) for name in program.subscriptions}
    subscribers: list[Subscriber] = []
    histories = [History.from_lines(program, run.lines[:n]) for n in cuts(random, len(run.lines))]
    histories = [History.from_lines(program), *histories, histories[-1].with_finished_streams()]
    _feed(engine, views, InputBatch({}, {}), random)
    for before, after in pairwise(histories):
        _feed(engine, views, input_batch_between(program, before, after), random)
        _subscribe(random, views, subscribers)
        for one in subscribers:
            _listen(random, one)
    for one in subscribers:
        while one.take(random.choice((1, 7, 1000))):
            pass
        assert without_steps_of_final(one.rows) == without_steps_of_final(expected(one.view, engine, one.condition))
        assert one.resume is not None
    for view in views.values():
        snapshot = view.snapshot(ViewCondition())
        assert snapshot.row_count == view.row_count == len(expected(view, engine, ViewCondition()))
    assert subscribers


def _feed(engine: LocalEngine, views: dict[str, View], frame: InputBatch, random: Random) -> None:
    """Delivers a batch; sometimes the rows after it are restored as a snapshot."""
    batch = engine.advance(frame)
    for name, view in views.items():
        if random.random() < 0.15:
            view.restore(all_rows(engine, name))
        else:
            view.deliver(batch.deltas.get(name), batch.horizons)
        if random.random() < 0.3:
            view.wake_for_progress()


def _subscribe(random: Random, views: dict[str, View], subscribers: list[Subscriber]) -> None:
    for view in views.values():
        if random.random() < 0.5 or not subscribers:
            snapshot = view.snapshot(ViewCondition())
            some = [json.loads(message) for message in row_messages(snapshot)] or [{"key": {}, "row": {}}]
            chosen = random.choice(some)
            subscribers.append(Subscriber(view, conditions(random, view, {**chosen["key"], **chosen["row"]})))


def _listen(random: Random, one: Subscriber) -> None:
    if random.random() < 0.6:
        while one.take(random.choice((1, 2, 1000)), random.choice((None, 1, 3))) and random.random() < 0.7:
            pass
    if random.random() < 0.15:
        one.subscription.close()
        if one.resume is None:
            one.rows.clear()
        one.come()
        # Who comes with a token it has the rows of just that moment, or is told all anew.
        one.heard = SubscriberKnowledge()


FLOOR = """
CREATE STREAM Bids (t: time -> issue: string, price: int);
CREATE VIEW Counts AS SELECT issue, COUNT(*) AS n FROM Bids GROUP BY issue;
SUBSCRIBE Counts;
"""


def counts() -> tuple[LocalEngine, View]:
    engine = LocalEngine(kernels(compile_program(Source("floor.smile", FLOOR)).rewritten))
    return engine, View("Counts", engine.kernels.inputs["Counts"], "digest", lambda: {"Bids": 100}, {"Bids"})


def test_who_waits_is_woken_and_nobody_else() -> None:
    engine, view = counts()
    program = compile_program(Source("floor.smile", FLOOR)).rewritten
    ibm, hal = (Subscriber(view, view.condition({"issue": issue})) for issue in ("IBM", "HAL"))
    view.deliver(None, {"Bids": 0})
    for one in (ibm, hal):
        assert one.take(10)
        assert not one.take(10)
    history = History.from_lines(program, [{"stream": "Bids", "at": 5, "event": {"issue": "IBM", "price": 3}}])
    batch = engine.advance(input_batch_between(program, History.from_lines(program), history))
    view.deliver(batch.deltas["Counts"], batch.horizons)
    assert (ibm.woken, hal.woken) == (1, 0)
    assert ibm.take(10)
    assert not hal.take(10), "progress alone may wait"
    assert next(iter(ibm.rows.values()))["knowledge"] == {"n": {"at_least": 1}}


def test_rows_are_encoded_once_and_only_while_they_are_current() -> None:
    engine, view = counts()
    program = compile_program(Source("floor.smile", FLOOR)).rewritten
    history, encoded = History.from_lines(program), []
    for tick in range(1, 20):
        lines = [{"stream": "Bids", "at": t, "event": {"issue": f"I{t % 3}", "price": 3}} for t in range(1, tick + 1)]
        after = History.from_lines(program, lines)
        batch = engine.advance(input_batch_between(program, history, after))
        view.deliver(batch.deltas["Counts"], batch.horizons)
        history = after
        first, second = (row_messages(view.snapshot(ViewCondition())) for _ in range(2))
        assert all(a is b for a, b in zip(first, second, strict=True))
        encoded.append(len(view.snapshot(ViewCondition()).encoded_rows))
    assert encoded == [1, 2, *[3] * 17]


def test_a_row_that_was_never_shown_is_not_sent() -> None:
    text = "CREATE STREAM Bids (t: time -> issue: string);"
    text += "CREATE VIEW Often AS SELECT issue, COUNT(*) AS n FROM Bids GROUP BY issue HAVING COUNT(*) > 1; SUBSCRIBE Often;"
    program = compile_program(Source("often.smile", text)).rewritten
    engine = LocalEngine(kernels(program))
    view = View("Often", engine.kernels.inputs["Often"], "digest", lambda: {"Bids": 0}, {"Bids"})
    one, before, sent = Subscriber(view, ViewCondition()), History.from_lines(program), []
    view.deliver(None, {"Bids": 0})
    assert one.take(10)
    for tick in (1, 2):
        lines = [{"stream": "Bids", "at": t, "event": {"issue": "IBM"}} for t in range(1, tick + 1)]
        after = History.from_lines(program, lines)
        batch = engine.advance(input_batch_between(program, before, after))
        assert len(batch.deltas["Often"]) == 1
        view.deliver(batch.deltas["Often"], batch.horizons)
        before = after
        frame = one.subscription.next_frame(10)
        sent.append(0 if frame is None else frame.row_count)
    assert sent == [0, 1]


def test_who_is_told_all_anew_in_several_frames_is_told_once() -> None:
    """Rows that were hidden, and have expired, before the first frame do not begin it again."""
    text = "CREATE STREAM Bids (t: time -> issue: string, price: int);"
    text += "CREATE VIEW Sums AS SELECT issue, SUM(price) AS total FROM Bids GROUP BY issue HAVING SUM(price) > 0;"
    program = compile_program(Source("sums.smile", f"{text} SUBSCRIBE Sums;")).rewritten
    engine = LocalEngine(kernels(program))
    view = View("Sums", engine.kernels.inputs["Sums"], "digest", lambda: {"Bids": 0}, {"Bids"})
    gone = [f"gone{i}" for i in range(6)]
    prices = [*((issue, 1) for issue in ("A", "B", "C", *gone)), *((issue, -1) for issue in gone)]
    lines = [
        {"stream": "Bids", "at": t, "event": {"issue": issue, "price": price}}
        for t, (issue, price) in enumerate(prices, 1)
    ]
    histories = [History.from_lines(program, lines[:n]) for n in range(len(lines) + 1)]
    with patch.object(limits, "deleted_rows_max", 0):
        for before, after in pairwise(histories):
            batch = engine.advance(input_batch_between(program, before, after))
            view.deliver(batch.deltas["Sums"], batch.horizons)
        one, resets = Subscriber(view, ViewCondition()), 0
        for _ in range(10):
            frame = one.subscription.next_frame(1)
            resets += frame is not None and frame.reset
        assert resets == 1
        assert one.subscription.progress == view.horizons


def test_rows_of_others_that_come_and_go_do_not_begin_a_subscription_anew() -> None:
    """A subscriber that is up to date has passed the changes that do not match its condition."""
    text = "CREATE STREAM Bids (t: time -> issue: string, price: int);"
    text += "CREATE VIEW Sums AS SELECT issue, SUM(price) AS total FROM Bids GROUP BY issue HAVING SUM(price) > 0;"
    program = compile_program(Source("sums.smile", f"{text} SUBSCRIBE Sums;")).rewritten
    engine = LocalEngine(kernels(program))
    view = View("Sums", engine.kernels.inputs["Sums"], "digest", lambda: {"Bids": 0}, {"Bids"})
    prices = [("A", 1), *((f"gone{n // 2}", 1 - 2 * (n % 2)) for n in range(12)), ("A", 1)]
    lines = [{"stream": "Bids", "at": t, "event": {"issue": i, "price": p}} for t, (i, p) in enumerate(prices, 1)]
    histories = [History.from_lines(program, lines[:n]) for n in range(len(lines) + 1)]
    frames = []
    with patch.object(limits, "deleted_rows_max", 0):
        one = Subscriber(view, view.condition({"issue": "A"}))
        for before, after in pairwise(histories):
            batch = engine.advance(input_batch_between(program, before, after))
            view.deliver(batch.deltas["Sums"], batch.horizons)
            while (frame := one.subscription.next_frame(10)) is not None:
                frames.append((frame.row_count, frame.reset))
    assert [frame for frame in frames if frame[0]] == [(1, True), (1, False)]


def test_a_final_row_comes_once_though_its_steps_grow() -> None:
    text = "CREATE STREAM E (t: time -> host: string);"
    text += "CREATE VIEW Alarm AS SELECT host FROM E GROUP BY host HAVING COUNT(*) >= 2; SUBSCRIBE Alarm;"
    program = compile_program(Source("alarm.smile", text)).rewritten
    engine = LocalEngine(kernels(program))
    view = View("Alarm", engine.kernels.inputs["Alarm"], "digest", lambda: {"E": 0}, {"E"})
    kinds = [Subscriber(view, view.condition({}, only_final)) for only_final in (True, False)]
    lines = [{"stream": "E", "at": t, "event": {"host": "a"}} for t in range(1, 6)]
    histories = [History.from_lines(program, lines[:n]) for n in range(len(lines) + 1)]
    counts = list[list[int]]()
    for before, after in pairwise(histories):
        batch = engine.advance(input_batch_between(program, before, after))
        view.deliver(batch.deltas.get("Alarm"), batch.horizons)
        counts.append([0, 0])
        for i, one in enumerate(kinds):
            while (frame := one.subscription.next_frame(10)) is not None:
                counts[-1][i] += frame.row_count
    assert counts == [[0, 0], [1, 1], [0, 0], [0, 0], [0, 0]]


def test_a_gate_opens_when_the_tick_is_reached() -> None:
    _, view = counts()
    woken: list[int] = []
    subscription = view.subscribe(ViewCondition(), lambda: woken.append(1), after={"Bids": 7})
    assert subscription.next_frame(10) is None, "nothing at all is known yet"
    view.deliver(None, {"Bids": 3})
    assert subscription.next_frame(10) is None
    view.deliver(None, {"Bids": 6})
    assert subscription.next_frame(10) is None
    assert not woken
    view.deliver(None, {"Bids": 7})
    assert woken
    frame = subscription.next_frame(10)
    assert frame is not None
    assert frame.progress == {"Bids": 7}


@pytest.mark.parametrize(
    "token", ["", "x", "x.y", "a.e30x", "a.W10", "a.eyJhIjoiYiJ9", "a.eyJhIjp0cnVlfQ", "." * 70_000]
)
def test_what_is_no_token_is_refused(token: str) -> None:
    _, view = counts()
    with pytest.raises(SmileError) as refused:
        view.subscribe(ViewCondition(), lambda: None, resume=token)
    assert refused.value.diagnostics[0].code == "E094"


def test_a_gate_of_no_stream_is_refused() -> None:
    _, view = counts()
    with pytest.raises(SmileError) as refused:
        view.subscribe(ViewCondition(), lambda: None, after={"Bid": 7})
    assert refused.value.diagnostics[0].code == "E076"
    assert refused.value.diagnostics[0].hint == "Did you mean Bids?"


def test_a_token_of_a_later_history_is_refused() -> None:
    _, view = counts()
    view.deliver(None, {"Bids": 50})
    snapshot = view.snapshot(ViewCondition())
    assert snapshot.resume is not None
    view.subscribe(ViewCondition(), lambda: None, resume=snapshot.resume).close()
    _, restored = counts()
    restored.deliver(None, {"Bids": 40})
    restored.log_horizons = lambda: {"Bids": 49}
    with pytest.raises(SmileError) as refused:
        restored.subscribe(ViewCondition(), lambda: None, resume=snapshot.resume)
    assert refused.value.diagnostics[0].code == "E094"


def test_a_view_may_be_ahead_of_the_horizons_that_are_known_of_the_log() -> None:
    """The publisher notes the horizons of a commit after it is on the disk. The view may be quicker."""
    _, view = counts()
    view.deliver(None, {"Bids": 50})
    resume = view.snapshot(ViewCondition()).resume
    view.log_horizons = lambda: {"Bids": 49}
    continued = view.subscribe(ViewCondition(), lambda: None, resume=resume)
    assert continued.last_change is not None


@pytest.mark.parametrize(
    ("where", "message"), [({"isue": "x"}, "Did you mean issue?"), ({"n": 3}, "never change"), ({"issue": 3}, "quotes")]
)
def test_a_wrong_condition_is_refused(where: Json, message: str) -> None:
    _, view = counts()
    with pytest.raises(SmileError) as refused:
        view.condition(where)
    assert refused.value.diagnostics[0].code == "E099"
    assert message in (refused.value.diagnostics[0].hint or "")


def test_an_ended_view_tells_its_subscribers() -> None:
    _, view = counts()
    one = Subscriber(view, ViewCondition())
    view.deliver(None, {"Bids": 1})
    assert one.take(10)
    assert not one.take(10)
    view.end(SmileError([]))
    assert one.woken
    assert one.subscription.ended is not None


def test_rows_that_are_gone_do_not_hold_a_snapshot_up() -> None:
    text = "CREATE STREAM Bids (t: time -> issue: string); CREATE STREAM Ends (u: time -> t: time);"
    text += "CREATE VIEW Open AS SELECT t, issue FROM Bids WHERE t NOT IN (SELECT t FROM Ends); SUBSCRIBE Open;"
    program = compile_program(Source("open.smile", text)).rewritten
    engine = LocalEngine(kernels(program))
    view = View("Open", engine.kernels.inputs["Open"], "digest", lambda: {"Bids": 0, "Ends": 0}, {"Bids", "Ends"})
    events = [{"stream": "Bids", "at": n, "event": {"issue": "IBM"}} for n in range(1, 101)]
    ends = [{"stream": "Ends", "at": 1000 + n, "event": {"t": n}} for n in range(1, 100)]
    before = History.from_lines(program)
    for lines in (events, [*events, *ends]):
        after = History.from_lines(program, lines)
        batch = engine.advance(input_batch_between(program, before, after))
        view.deliver(batch.deltas.get("Open"), batch.horizons)
        before = after
    assert view.row_count == 1
    subscription = view.subscribe(ViewCondition(), lambda: None)
    frame, rest = subscription.next_frame(10), subscription.next_frame(10)
    assert frame is not None
    assert (frame.row_count, frame.reset) == (1, True)
    assert rest is not None
    assert rest.progress is not None


def test_a_token_from_before_the_first_rows_brings_them() -> None:
    """Rows that a view has before any event are delivered at the horizons that subscribers receive before the first
    event."""
    text = "CREATE STREAM Bids (t: time -> issue: string); CREATE VIEW Total AS SELECT COUNT(*) AS n FROM Bids;"
    engine = LocalEngine(kernels(compile_program(Source("total.smile", f"{text} SUBSCRIBE Total;")).rewritten))
    view = View(
        "Total", engine.kernels.inputs["Total"], "digest", lambda: {"Bids": 100}, {"Bids"}, horizons={"Bids": -1}
    )
    first = view.subscribe(ViewCondition(), lambda: None).next_frame(10)
    assert first is not None
    assert first.row_count == 0
    batch = engine.advance(InputBatch({}, {}))
    view.deliver(batch.deltas["Total"], batch.horizons)
    again = view.subscribe(ViewCondition(), lambda: None, resume=first.resume).next_frame(10)
    assert again is not None
    assert again.row_count == 1


def test_a_condition_is_met_exactly() -> None:
    text = (
        "CREATE STREAM S (t: time -> x: decimal(10, 2), b: bool, w: string); CREATE VIEW V AS SELECT t, x, b, w FROM S;"
    )
    program = compile_program(Source("s.smile", f"{text} SUBSCRIBE V;")).rewritten
    engine = LocalEngine(kernels(program))
    view = View("V", engine.kernels.inputs["V"], "digest", lambda: {"S": 0}, {"S"})
    rows: list[Json] = [
        {"x": "1.56", "b": True, "w": ""},
        {"x": "1.5", "b": None, "w": None},
        {"x": "-2", "b": False, "w": "é"},
    ]
    lines = [{"stream": "S", "at": n, "event": row} for n, row in enumerate(rows, 1)]
    batch = engine.advance(
        input_batch_between(program, History.from_lines(program), History.from_lines(program, lines))
    )
    view.deliver(batch.deltas["V"], batch.horizons)
    for column in ("x", "b", "w"):
        for number, row in enumerate(rows, 1):
            snapshot = view.snapshot(view.condition({column: row[column]}))
            assert [json.loads(message)["key"]["t"] for message in row_messages(snapshot)] == [number], (column, row)
    assert view.condition({"t": "2024-05-31 14:00:00+02:00"}).values == (1_717_156_800_000_000 * 1024,)
    assert view.condition({"t": "12"}).values == view.condition({"t": 12}).values == (12,)
    for where in ({"x": "1.555"}, {"t": "noon"}):
        with pytest.raises(SmileError):
            view.condition(where)
