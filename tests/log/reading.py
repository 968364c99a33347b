"""Shared by the tests of event readers: a stream with a column of every type, and functions that run a reader."""

import io
from collections.abc import Sequence
from typing import Any

from smile.algebra import mmpl
from smile.decoding.event_decoder import EventDecoder
from smile.log.input_batch import InputBatch
from smile.log.recorded_events import BadEvent, EventReader
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


def event_reader(text: bytes | str, streams: Sequence[mmpl.StreamDef] = STREAMS) -> EventReader:
    data = text if isinstance(text, bytes) else text.encode()
    return EventReader(EventDecoder(streams), io.BytesIO(data), "events.ndjson")


def tolerant_reader(
    text: bytes | str, streams: Sequence[mmpl.StreamDef] = STREAMS
) -> tuple[EventReader, list[BadEvent]]:
    bad: list[BadEvent] = []
    data = text if isinstance(text, bytes) else text.encode()
    return EventReader(EventDecoder(streams), io.BytesIO(data), "events.ndjson", bad.append), bad


def rows_by_tick(batches: Sequence[InputBatch], streams: Sequence[mmpl.StreamDef] = STREAMS) -> Rows:
    """All rows by stream and tick. Checks that the ticks of each stream ascend."""
    rows_by_stream: Rows = {s.name: {} for s in streams}
    for batch in batches:
        for stream in streams:
            if stream.name in batch.events:
                rows = batch.events[stream.name].to_pylist()
                assert rows
                for row in rows:
                    assert row[stream.tick] > max(rows_by_stream[stream.name], default=-1)
                    rows_by_stream[stream.name][row[stream.tick]] = row
    return rows_by_stream
