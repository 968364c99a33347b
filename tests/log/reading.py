"""What the tests of reading share: a stream with a column of every type, and all that a reader gives."""

import io
from collections.abc import Sequence
from typing import Any

from smile.algebra import mmpl
from smile.log.event_errors import BadEvent
from smile.log.events import EventReader
from smile.log.input_batch import InputBatch
from smile.program import compile_program
from smile.source import Source

PROGRAM = """
CREATE STREAM Bids (bid: time -> issue: string, price: shares, #bid: int);
CREATE STREAM Kinds (t: time -> o: bool, i: int, x: float, d: decimal(5, 2), s: string, y: bytes, p: time, m: interval,
  ts: timestamp, day: date, CHECK (p <= t));
CREATE VIEW V AS SELECT issue FROM Bids;
SUBSCRIBE V;
"""
STREAMS = compile_program(Source("reading.smile", PROGRAM)).original.streams
BIDS, KINDS = STREAMS

Rows = dict[str, dict[int, dict[str, Any]]]


def reader(text: bytes | str, streams: Sequence[mmpl.StreamDef] = STREAMS) -> EventReader:
    data = text if isinstance(text, bytes) else text.encode()
    return EventReader(streams, io.BytesIO(data), "events.ndjson")


def tolerant(text: bytes | str, streams: Sequence[mmpl.StreamDef] = STREAMS) -> tuple[EventReader, list[BadEvent]]:
    bad: list[BadEvent] = []
    data = text if isinstance(text, bytes) else text.encode()
    return EventReader(streams, io.BytesIO(data), "events.ndjson", bad.append), bad


def rows_of(frames: Sequence[InputBatch], streams: Sequence[mmpl.StreamDef] = STREAMS) -> Rows:
    """Every row by its tick; each tick once, in order."""
    found: Rows = {s.name: {} for s in streams}
    for frame in frames:
        for stream in streams:
            if stream.name in frame.events:
                rows = frame.events[stream.name].to_pylist()
                assert rows
                for row in rows:
                    assert row[stream.tick] > max(found[stream.name], default=-1)
                    found[stream.name][row[stream.tick]] = row
    return found
