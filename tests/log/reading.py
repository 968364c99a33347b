"""Shared by the tests of event readers: a stream with a column of every type, and functions that run a reader."""

import io
from collections.abc import Sequence
from typing import Any

from smile.algebra import mmpl
from smile.decoding.event_decoder import EventDecoder
from smile.horizons import HORIZON_MIN, split_name
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
    """All rows by stream and tick. Checks that the ticks of each stream and origin ascend."""
    rows_by_stream: Rows = {s.name: {} for s in streams}
    tick_columns = {s.name: s.tick for s in streams}
    last_ticks: dict[str, int] = {}
    for batch in batches:
        for name, events in batch.events.items():
            stream, _ = split_name(name, tick_columns)
            assert events.num_rows
            for row in events.to_pylist():
                tick = row[tick_columns[stream]]
                assert tick > last_ticks.get(name, HORIZON_MIN)
                last_ticks[name] = tick
                rows_by_stream[stream][tick] = row
    return rows_by_stream
