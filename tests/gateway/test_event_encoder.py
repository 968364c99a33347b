"""Events are encoded once for all durable subscriptions to their relation."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from smile.broker.subscriptions.event_subscription import EventFrame
from smile.broker.subscriptions.selection import StreamSelection, find_selection
from smile.broker.views.condition import ViewCondition
from smile.encoding import json_events
from smile.gateway import event_encoder
from smile.gateway.event_encoder import EventEncoder
from smile.gateway.http.response import encode
from smile.program import compile_program
from smile.source import Source

PROGRAM = """
CREATE STREAM Quotes (t: time -> symbol: string, price: int);
CREATE VIEW Dear AS SELECT t, symbol FROM Quotes WHERE price >= 0;
"""
EVENTS = 200


@pytest.fixture(scope="module")
def selections() -> list[StreamSelection]:
    program = compile_program(Source("quotes.smile", PROGRAM)).original
    found = [find_selection(program, name) for name in ("Quotes", "Dear")]
    return [selection for selection in found if selection is not None]


def frame_of(selection: StreamSelection, chosen: list[int]) -> EventFrame:
    """Events with these numbers. Events of two origins have the same ticks."""
    columns = {
        "t": pa.array([i // 2 + 1 for i in chosen], pa.int64()),
        "symbol": pa.array([f"S{i}" for i in chosen]),
        "price": pa.array(chosen, pa.int64()),
    }
    rows = selection.select(pa.RecordBatch.from_pydict(columns), ViewCondition())
    ticks, origins = tuple(i // 2 + 1 for i in chosen), tuple(str(i % 2) for i in chosen)
    return EventFrame(1, selection.source, rows, ticks, origins, {}, {}, "")


def encoded(frame: EventFrame) -> list[bytes]:
    return [encode(e) for e in json_events.json_events(frame.source, frame.rows, frame.ticks, frame.origins)]


@pytest.mark.parametrize("bytes_max", [0, 500, 2**20])
def test_frames_are_those_that_are_encoded_alone(selections: list[StreamSelection], bytes_max: int) -> None:
    assert len(selections) == 2
    encoder, random = EventEncoder(bytes_max), Random(7)
    for _ in range(300):
        start = random.randrange(EVENTS)
        chosen = [i for i in range(start, min(EVENTS, start + 20)) if random.random() < 0.7]
        frame = frame_of(random.choice(selections), chosen)
        selection = next(s for s in selections if s.source is frame.source)
        assert encoder.encode(selection, frame) == encoded(frame)
        assert encoder._bytes == sum(map(len, encoder._texts.values())) <= bytes_max


def test_an_event_is_encoded_once(selections: list[StreamSelection], monkeypatch: pytest.MonkeyPatch) -> None:
    counts = list[int]()

    def counting(source: object, rows: object, ticks: list[int], origins: list[str]) -> object:
        counts.append(len(ticks))
        return json_events.json_events(source, rows, ticks, origins)  # type: ignore[arg-type]

    monkeypatch.setattr(event_encoder, "json_events", counting)
    encoder, quotes = EventEncoder(), selections[0]
    for chosen in (np.arange(50), np.arange(30, 80), np.arange(80)):
        encoder.encode(quotes, frame_of(quotes, chosen.tolist()))
    assert counts == [50, 30]
