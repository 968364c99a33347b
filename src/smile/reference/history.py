"""A history: for every stream, all events at or below its horizon. Horizons never decrease.

Of a stream with many origins, it has the events of each origin at or below the horizon of that origin. The horizon of
the stream is the least of them.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from smile.algebra import mmpl
from smile.algebra.arrays import encode_array
from smile.algebra.coercions import parse_literal
from smile.algebra.json_values import Json, JsonNumber, json_text
from smile.algebra.types import INT_MAX, DataType, Value
from smile.horizons import origin_name, split_name

HORIZON_MIN = -1
"""The horizon of a stream of which nothing is known."""

END = INT_MAX
"""The horizon of a stream that is finished."""

DEFAULT_ORIGIN = "0"
"""The origin of a line that names none."""

RecordedLine = Mapping[str, Any]
"""A line of a recorded history: an event, a silence of one stream, or a silence of all streams. Of a stream with many
origins, a line may name the origin; a silence that names none is one of all origins so far."""


@dataclass
class History:
    """`events` has for each stream a row of plain values for each tick with an event. `horizons` has those of the
    streams, and of the origins of streams with many origins, by `origin_name`. `origins` has the origin of each event
    of such streams, by stream and tick."""

    streams: Mapping[str, mmpl.StreamDef]
    events: dict[str, dict[int, dict[str, Value]]] = field(default_factory=dict)
    horizons: dict[str, int] = field(default_factory=dict)
    last_tick: int = HORIZON_MIN
    origins: dict[str, dict[int, str]] = field(default_factory=dict)

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
                self._advance_horizon(stream, line.get("origin"), int(line["silence_to"]))
            return
        stream = self.streams[line["stream"]]
        tick = int(line["at"]) if "at" in line else self.last_tick + 1
        event_values = line["event"]
        row = {name: parse_json_value(event_values.get(name), data) for name, data in stream.columns}
        self.events[stream.name][tick] = {stream.tick: tick, **row}
        self.last_tick = max(self.last_tick, tick)
        if stream.many_origins:
            self.origins.setdefault(stream.name, {})[tick] = str(line.get("origin", DEFAULT_ORIGIN))
        self._advance_horizon(stream.name, line.get("origin", DEFAULT_ORIGIN), tick)

    def with_finished_streams(self) -> "History":
        """The same history with every stream finished."""
        events = {n: dict(e) for n, e in self.events.items()}
        return History(self.streams, events, dict.fromkeys(self.horizons, END), origins=self.origins)

    def stream_origins(self, stream: str) -> list[str]:
        """The origins of a stream with many origins that are known."""
        names = (split_name(name, self.streams) for name in self.horizons)
        return [origin for of_stream, origin in names if of_stream == stream and origin is not None]

    def _advance_horizon(self, stream: str, origin: object, tick: int) -> None:
        """Without an origin, all origins that are known."""
        if not self.streams[stream].many_origins:
            self.horizons[stream] = max(self.horizons[stream], tick)
            return
        known_origins = self.stream_origins(stream)
        for name in known_origins or [DEFAULT_ORIGIN] if origin is None else [str(origin)]:
            named = origin_name(stream, name)
            self.horizons[named] = max(self.horizons.get(named, HORIZON_MIN), tick)
        self.horizons[stream] = min(self.horizons[origin_name(stream, o)] for o in self.stream_origins(stream))


def history_streams(program: mmpl.Program) -> tuple[mmpl.StreamDef, ...]:
    """The streams of the program, and those of its imports."""
    imported_streams = (
        replace(stream, name=i.horizon_name(stream.name))
        for i in program.imports
        if i.stream is None
        for stream in history_streams(i.exporting_program)
    )
    return (*program.input_streams, *imported_streams)


class WrittenFloat(str):
    """A number with a fraction or an exponent, as it is written: so no digit is lost."""

    __slots__ = ()


def read_events(text: str) -> list[RecordedLine]:
    """Reads NDJSON. Blank lines are skipped."""
    return [json.loads(line, parse_float=WrittenFloat) for line in text.splitlines() if line.strip()]


def _with_written_numbers(value: Any) -> Json:
    match value:
        case dict():
            return {name: _with_written_numbers(item) for name, item in value.items()}
        case list():
            return [_with_written_numbers(item) for item in value]
        case WrittenFloat():
            return JsonNumber(value)
        case int() | float() if not isinstance(value, bool):
            return JsonNumber(repr(value))
    return value


def parse_json_value(value: Any, data: DataType) -> Value:
    """Converts a JSON value to the column's type. Ticks, dates and the like may be written as text."""
    if value is None:
        return None
    if data.name == "json":
        return json_text(_with_written_numbers(value))
    if data.name in ("string", "bool"):
        return value  # type: ignore[no-any-return]
    if isinstance(value, list):
        return encode_array([parse_json_value(element, data.element) for element in value], data.element)
    if data.name in ("time", "interval", "timestamp", "date") and isinstance(value, int):
        return value
    if data.name in ("int", "time", "interval", "timestamp", "date") and isinstance(value, WrittenFloat):
        return int(float(value))
    if data.name in ("int", "time") and isinstance(value, str) and {*".eE"}.intersection(value):
        return int(float(value))
    if data.name == "time":
        return int(value)
    parsed = parse_literal(str(value), data)
    return parsed + 0.0 if isinstance(parsed, float) else parsed  # minus zero becomes zero
