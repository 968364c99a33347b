"""Reads published events. Either all events fit their stream's columns and CHECKs, or all are refused.

An event has the form of `event` in recorded events. In a publisher-timed stream the tick is one of its columns; other
events must not have a tick. Every error names the event's number, starting at 1, and the column.

As with recorded events, a fast reader accepts the usual input, and a diagnosing reader decides on the rest.
"""

import json
from functools import lru_cache
from typing import Any, Final

import msgspec

from smile import limits
from smile.algebra.trees import columns_in
from smile.algebra.types import Value
from smile.errors import SmileError, error
from smile.log.decoding.checks import Evaluator, EventRow
from smile.log.decoding.diagnosing_reader import lower_first, nearest_if_short, nesting_depth
from smile.log.decoding.fast_reader import DECODE_PROBLEMS, ColumnReader
from smile.log.decoding.published_arrow import read_arrow_events, read_batch_events
from smile.log.decoding.stream_schema import TICK_MAX, StreamSchema
from smile.log.decoding.values import Json, JsonNumber, describe_json, format_hint, parse_value, shorten

__all__ = ["read_arrow_events", "read_batch_events", "read_json_events", "read_ndjson_events"]

_TICK_HINT: Final = f"A tick is a whole number from 0 to {TICK_MAX}, or text that holds one."


def read_json_events(schema: StreamSchema, body: bytes, timed: bool) -> list[EventRow]:
    """Reads one event, or an array of events. Rows begin with the tick if the stream is publisher-timed (`timed`)."""
    parser = _event_parser(schema, timed)
    rows = parser.parse_fast(body)
    return parser.check(parser.parse_diagnosing(_decode_json(body)) if rows is None else rows)


def read_ndjson_events(schema: StreamSchema, body: bytes, timed: bool) -> list[EventRow]:
    """Reads one event per line; blank lines are ignored."""
    parser = _event_parser(schema, timed)
    rows = parser.parse_lines_fast(body)
    if rows is None:
        lines = [line for line in body.split(b"\n") if line.strip()]
        rows = parser.parse_diagnosing([_decode_json(line, n) for n, line in enumerate(lines, 1)])
    return parser.check(rows)


class _DuplicateNames(dict[str, Json]):
    """An object in which a name occurs twice."""

    duplicate_name = ""


def _object_of_pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    repeated, seen = _DuplicateNames(fields), set[str]()
    for name, _ in pairs:
        repeated.duplicate_name = repeated.duplicate_name or (name if name in seen else "")
        seen.add(name)
    return repeated


_JSON: Final = json.JSONDecoder(
    object_pairs_hook=_object_of_pairs, parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=JsonNumber
)
"""NaN and infinities are decoded as numbers, and refused later as values."""


def _decode_json(body: bytes, number: int | None = None) -> Json:
    """Decodes the event with this number, or the whole body."""
    prefix = "" if number is None else f"event {number}: "
    try:
        text = body.decode()
    except UnicodeDecodeError as problem:
        raise error("E072", f"{prefix}not UTF-8 text: byte {body[problem.start]:#04x} at {problem.start}") from None
    if nesting_depth(text) > limits.nesting_max:
        raise error("E073", f"{prefix}nested too deeply")
    try:
        decoded: Json = _JSON.decode(text)
    except json.JSONDecodeError as problem:
        location = f"line {problem.lineno}, column {problem.colno}"
        hint = 'Write an event as an object with the stream\'s columns, such as {"issue": "IBM"}, or an array of them.'
        raise error("E073", f"{prefix}not JSON: {lower_first(problem.msg)} at {location}", hint=hint) from None
    return decoded


@lru_cache(maxsize=1024)
def _event_parser(schema: StreamSchema, timed: bool) -> "_EventParser":
    return _EventParser(schema, timed)


def tick_checks(schema: StreamSchema) -> list[Evaluator]:
    """The checks that can only be evaluated once the event has its tick."""
    checks = zip(schema.checks, schema.stream.checks, strict=True)
    return [evaluate for evaluate, check in checks if schema.stream.tick in columns_in(check)]


class _EventParser:
    """Parses the events of one stream."""

    def __init__(self, schema: StreamSchema, timed: bool) -> None:
        self.schema = schema
        self.timed = timed
        tick = schema.stream.tick
        self._columns = {name: data for name, data in schema.types.items() if timed or name != tick}
        self._column_reader = ColumnReader(list(self._columns.items()))
        event: Any = self._column_reader.event_type  # Any: the type is created at run time
        self._decode = msgspec.json.Decoder(list[event] | event).decode
        self._decode_lines = msgspec.json.Decoder(event).decode_lines
        deferred = () if timed else tick_checks(schema)
        self._checks = [evaluate for evaluate in schema.checks if evaluate not in deferred]
        self._tick_placeholder: EventRow = () if timed else (None,)

    def parse_fast(self, body: bytes) -> list[EventRow] | None:
        """None if the diagnosing parser must decide."""
        try:
            decoded = self._decode(body)
            return self._fast_rows(body, decoded if isinstance(decoded, list) else [decoded])
        except DECODE_PROBLEMS:
            return None

    def parse_lines_fast(self, body: bytes) -> list[EventRow] | None:
        try:
            return self._fast_rows(body, self._decode_lines(body))
        except DECODE_PROBLEMS:
            return None

    def _fast_rows(self, body: bytes, events: list[msgspec.Struct]) -> list[EventRow] | None:
        parsed = [self._column_reader.values(event) for event in events]
        if body.count(b'"') != sum(quotes for quotes, _ in parsed):
            return None
        rows = [row for _, row in parsed]
        return None if self.timed and not all(_is_tick(row[0]) for row in rows) else rows

    def parse_diagnosing(self, decoded: Json) -> list[EventRow]:
        events = decoded if isinstance(decoded, list) else [decoded]
        return [self._parse_row(number, event) for number, event in enumerate(events, 1)]

    def _parse_row(self, number: int, event: Json) -> EventRow:
        stream = self.schema.stream
        if not isinstance(event, dict):
            problem = f"an event must be an object with the stream's columns, not {describe_json(event)}"
            raise _event_error("E074", number, problem)
        if isinstance(event, _DuplicateNames):
            problem = f'the name "{shorten(event.duplicate_name)}" is given twice'
            raise _event_error("E075", number, problem, "Remove one of them.")
        for name in event:
            if name not in self._columns:
                hint = nearest_if_short(name, self._columns) or f"It has {shorten(', '.join(self._columns))}."
                problem = f"{stream.name} has no column {shorten(name)}"
                if name == stream.tick:
                    problem, hint = f"{name} is the tick of {stream.name}", "The broker sets the tick. Remove it."
                raise _event_error("E077", number, problem, hint)
        return tuple([self._parse_value(number, event, name) for name in self._columns])

    def _parse_value(self, number: int, event: dict[str, Json], name: str) -> Value:
        data, json_value = self._columns[name], event.get(name)
        is_tick = name == self.schema.stream.tick
        code, hint = ("E079", _TICK_HINT) if is_tick else ("E078", format_hint(data))
        try:
            value = parse_value(json_value, data)
        except ValueError as problem:
            raise _event_error(code, number, f"{self.schema.name}.{name}: {problem}", hint) from None
        if is_tick and not _is_tick(value):
            raise _event_error(
                code, number, f"{self.schema.name}.{name} is {describe_json(json_value)}, which is not a tick", hint
            )
        return value

    def check(self, rows: list[EventRow]) -> list[EventRow]:
        if len(rows) > limits.publication_events_max:
            events_max = limits.publication_events_max
            raise error("E092", f"{len(rows):,} events are published at once, but the limit is {events_max:,}")
        for evaluate in self._checks:
            for number, row in enumerate(rows, 1):
                if evaluate((*self._tick_placeholder, *row)) is False:
                    raise _event_error("E080", number, self.schema.describe_violation((*self._tick_placeholder, *row)))
        return rows


def _is_tick(value: Value) -> bool:
    return isinstance(value, int) and 0 <= value <= TICK_MAX


def _event_error(code: str, number: int, problem: str, hint: str | None = None) -> SmileError:
    return error(code, f"event {number}: {problem}", hint=hint)
