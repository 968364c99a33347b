"""Whatever messages arrive, in any order and repeated, the inbox returns the stream: each event once, in order."""

from collections.abc import Sequence
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from smile import limits
from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema
from smile.algebra.types import INT, STRING
from smile.errors import SmileError
from smile.horizons import END, HORIZON_MIN
from smile.log.inbox import Inbox

pytestmark = pytest.mark.slow

STREAM = mmpl.StreamDef("S", "t", (("v", INT), ("w", STRING)))
SCHEMA = stream_schema(STREAM)
Event = tuple[int, int | None, str | None]


def batch(*events: Event) -> pa.RecordBatch:
    columns = zip(*events, strict=True) if events else [(), (), ()]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, t) for c, t in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA
    )


def rows(events: pa.RecordBatch) -> list[Event]:
    return [tuple(row.values()) for row in events.to_pylist()]


def events_in(events: Sequence[Event], lo: int, hi: int) -> pa.RecordBatch:
    return batch(*(e for e in events if lo < e[0] <= hi))


EVENTS = st.dictionaries(st.integers(0, 30), st.tuples(st.none() | st.integers(0, 2), st.none() | st.text("ab")))
RANGES = st.lists(st.tuples(st.integers(-1, 30), st.integers(-1, 30)).map(lambda r: (min(r), max(r))))


@given(EVENTS, RANGES, st.lists(st.booleans()), st.randoms(use_true_random=False))
def test_the_prefix_comes_out_once_and_in_order(
    happened: dict[int, tuple[int | None, str | None]], ranges: list[tuple[int, int]], takes: list[bool], random: Random
) -> None:
    events = [(t, *happened[t]) for t in sorted(happened)]
    inbox = Inbox(STREAM)
    known_ticks: set[int] = set()
    taken: list[Event] = []
    for i, (lo, hi) in enumerate(ranges):
        message = rows(events_in(events, lo, hi))
        random.shuffle(message)
        inbox.receive(lo, hi, batch(*message, *message[:1]))
        known_ticks |= set(range(lo + 1, hi + 1))
        horizon = next(t for t in range(40) if t not in known_ticks) - 1
        assert inbox.known.horizon == horizon
        if i < len(takes) and not takes[i]:
            continue
        prefix = inbox.take()
        if prefix is not None:
            assert prefix[1] == horizon
            taken += rows(prefix[0])
        assert taken == [e for e in events if e[0] <= horizon]
        assert inbox.take() is None
    for lo, hi in [*inbox.gaps, (inbox.known.known_to, 30)]:
        inbox.receive(lo, hi, events_in(events, lo, hi))
    prefix = inbox.take()
    assert taken + (rows(prefix[0]) if prefix else []) == events
    assert inbox.taken_horizon == 30


@given(EVENTS, st.integers(0, 30), st.booleans())
def test_contradictory_messages_are_an_error(
    happened: dict[int, tuple[int | None, str | None]], tick: int, taken: bool
) -> None:
    events = [(t, *happened[t]) for t in sorted(happened)]
    other = {**happened, tick: (7, "other")}
    for contradictory in ([(t, *other[t]) for t in sorted(other)], [e for e in events if e[0] != tick]):
        inbox = Inbox(STREAM)
        inbox.receive(HORIZON_MIN if taken else 0, 30, events_in(events, HORIZON_MIN if taken else 0, 30))
        inbox.take()
        known = inbox.known
        lo, hi = (tick - 1, tick + 3)
        if contradictory == events or (tick == 0 and not taken):
            inbox.receive(lo, hi, events_in(contradictory, lo, hi))
            continue
        with pytest.raises(SmileError) as failure:
            inbox.receive(lo, hi, events_in(contradictory, lo, hi))
        assert failure.value.diagnostics[0].code == "E083"
        assert str(tick) in failure.value.diagnostics[0].message
        assert inbox.known == known


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (batch((5, 1, "a")), "outside"),
        (batch((1, 1, "a")), "outside"),
        (batch((2, 1, "a"), (3, 1, "a"), (2, 1, "b")), "two different events at tick 2"),
        (batch((2, 1, "a")).select(["t", "v"]), "columns"),
    ],
)
def test_a_malformed_message_is_an_error(events: pa.RecordBatch, reason: str) -> None:
    inbox = Inbox(STREAM)
    with pytest.raises(SmileError, match=reason) as failure:
        inbox.receive(1, 4, events)
    assert failure.value.diagnostics[0].code == "E083"
    assert inbox.known == Inbox(STREAM).known


def test_silence_comes_out_too() -> None:
    inbox = Inbox(STREAM, horizon=10)
    inbox.receive(5, 20, batch())
    assert inbox.take() == (batch(), 20)
    inbox.receive(20, END, batch())
    assert inbox.take() == (batch(), END)


def test_waiting_messages_are_bounded_and_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "inbox_waiting_bytes_max", 2_500)
    inbox = Inbox(STREAM)
    for tick in range(2, 10):
        inbox.receive(tick - 1, tick, batch((tick, tick, "a")))
    assert inbox.known.known_to < 9
    assert inbox.take() is None
    taken = []
    for _ in range(9):
        for lo, hi in inbox.gaps or [(inbox.known.known_to, 9)]:
            inbox.receive(lo, hi, events_in([(t, t, "a") for t in range(2, 10)], lo, hi))
        prefix = inbox.take()
        taken += rows(prefix[0]) if prefix else []
    assert taken == [(t, t, "a") for t in range(2, 10)]


def test_taken_events_are_compared_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "inbox_recent_bytes_max", 5_000)
    inbox = Inbox(STREAM)
    for tick in range(10):
        inbox.receive(tick - 1, tick, batch((tick, tick, "a")))
        inbox.take()
    with pytest.raises(SmileError, match="tick 9"):
        inbox.receive(8, 9, batch((9, 0, "other")))
    inbox.receive(-1, 0, batch((0, 0, "other")))
    assert inbox.take() is None
