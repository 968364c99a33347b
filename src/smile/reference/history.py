"""A history: for every stream, all events at or below its horizon. Horizons never decrease."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from smile.algebra import mmpl
from smile.algebra.coercions import parse_literal
from smile.algebra.types import INT_MAX, DataType, Value

HORIZON_MIN = -1
"""The horizon of a stream of which nothing is known."""

END = INT_MAX
"""The horizon of a stream that is finished."""

RecordedLine = Mapping[str, Any]
"""A line of a recorded history: an event, a silence of one stream, or a silence of all streams."""


@dataclass
class History:
    """`events` has for each stream a row of plain values for each tick with an event."""

    streams: Mapping[str, mmpl.StreamDef]
    events: dict[str, dict[int, dict[str, Value]]] = field(default_factory=dict)
    horizons: dict[str, int] = field(default_factory=dict)
    last_tick: int = HORIZON_MIN

    @staticmethod
    def from_lines(program: mmpl.Program, lines: Iterable[RecordedLine] = ()) -> "History":
        streams = {s.name: s for s in history_streams(program)}
        history = History(streams, {n: {} for n in streams}, dict.fromkeys(streams, HORIZON_MIN))
        for line in lines:
            history.add(line)
        return history

    def add(self, line: RecordedLine) -> None:
        if "silence_to" in line:
            for stream in [line["stream"]] if "stream" in line else list(self.streams):
                self._advance_horizon(stream, int(line["silence_to"]))
            return
        stream = self.streams[line["stream"]]
        tick = int(line["at"]) if "at" in line else self.last_tick + 1
        event_values = line["event"]
        row = {name: parse_json_value(event_values.get(name), data) for name, data in stream.columns}
        self.events[stream.name][tick] = {stream.tick: tick, **row}
        self.last_tick = max(self.last_tick, tick)
        self._advance_horizon(stream.name, tick)

    def with_finished_streams(self) -> "History":
        """The same history with every stream finished."""
        return History(self.streams, {n: dict(e) for n, e in self.events.items()}, dict.fromkeys(self.streams, END))

    def _advance_horizon(self, stream: str, tick: int) -> None:
        self.horizons[stream] = max(self.horizons[stream], tick)


def history_streams(program: mmpl.Program) -> tuple[mmpl.StreamDef, ...]:
    """The streams of the program, and those of its imports."""
    imported_streams = (
        replace(stream, name=i.horizon_name(stream.name))
        for i in program.imports
        if i.stream is None
        for stream in history_streams(i.exporting_program)
    )
    return (*program.input_streams, *imported_streams)


def read_events(text: str) -> list[RecordedLine]:
    """Reads NDJSON. Blank lines are skipped; numbers with a fraction stay text, so that no digit is lost."""
    return [json.loads(line, parse_float=str) for line in text.splitlines() if line.strip()]


def parse_json_value(value: Any, data: DataType) -> Value:
    """Converts a JSON value to the column's type. Ticks, dates and the like may be written as text."""
    if value is None:
        return None
    if data.name in ("string", "bool"):
        return value  # type: ignore[no-any-return]
    if data.name in ("time", "interval", "timestamp", "date") and isinstance(value, int):
        return value
    if data.name == "time":
        return int(value)
    parsed = parse_literal(str(value), data)
    return parsed + 0.0 if isinstance(parsed, float) else parsed  # minus zero becomes zero
