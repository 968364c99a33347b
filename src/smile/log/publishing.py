"""Events as they are published: what is read fits its stream's columns and breaks no CHECK, or nothing is read at all.

An event is what recorded events have as `event`. Of a publisher-timed stream the tick is in it, as the column that it
is; other streams' events may not have one. Every refusal names the event by its number, from 1, and the column.

As with recorded events, a quick reader takes what is usual, and a careful one has the last word.
"""

import json
from functools import lru_cache
from typing import Any, Final

import msgspec

from smile import limits
from smile.algebra.trees import columns_in
from smile.algebra.types import Value
from smile.errors import SmileError, error
from smile.log.careful import depth, lower, near
from smile.log.checks import Evaluator, Row
from smile.log.published_batches import rows_of_arrow, rows_of_batch
from smile.log.quick import REFUSED, Columns
from smile.log.shape import TICK_MAX, Shape
from smile.log.values import Json, Number, cut, how_to_write, shown, value_of

__all__ = ["rows_of_arrow", "rows_of_batch", "rows_of_json", "rows_of_ndjson"]

_TICK: Final = f"A tick is a whole number from 0 to {TICK_MAX}, or text that holds one."


def rows_of_json(shape: Shape, body: bytes, timed: bool) -> list[Row]:
    """An event, or an array of them. A row of a publisher-timed stream has its tick in front, others have none."""
    events = _events(shape, timed)
    found = events.quick(body)
    return events.checked(events.careful(_decoded(body)) if found is None else found)


def rows_of_ndjson(shape: Shape, body: bytes, timed: bool) -> list[Row]:
    """An event a line; blank lines say nothing."""
    events = _events(shape, timed)
    found = events.quick_lines(body)
    if found is None:
        lines = [line for line in body.split(b"\n") if line.strip()]
        found = events.careful([_decoded(line, n) for n, line in enumerate(lines, 1)])
    return events.checked(found)


class _Repeated(dict[str, Json]):
    """An object in which a name occurs twice."""

    twice = ""


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeated, seen = _Repeated(found), set[str]()
    for name, _ in pairs:
        repeated.twice = repeated.twice or (name if name in seen else "")
        seen.add(name)
    return repeated


_JSON: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=Number, parse_int=Number, parse_constant=Number)
"""NaN and infinities become numbers here, and are refused as the values they are."""


def _decoded(body: bytes, number: int | None = None) -> Json:
    """Of one event if it has a number."""
    place = "" if number is None else f"event {number}: "
    try:
        text = body.decode()
    except UnicodeDecodeError as problem:
        raise error("E072", f"{place}not UTF-8 text: byte {body[problem.start]:#04x} at {problem.start}") from None
    if depth(text) > limits.nesting_max:
        raise error("E073", f"{place}nested too deeply")
    try:
        found: Json = _JSON.decode(text)
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        hint = 'Write an event as an object with the stream\'s columns, such as {"issue": "IBM"}, or an array of them.'
        raise error("E073", f"{place}not JSON: {lower(problem.msg)} at {where}", hint=hint) from None
    return found


@lru_cache(maxsize=1024)
def _events(shape: Shape, timed: bool) -> "_Events":
    return _Events(shape, timed)


def tick_checks(shape: Shape) -> list[Evaluator]:
    """The checks that cannot be made before the event has its tick."""
    checks = zip(shape.checks, shape.stream.checks, strict=True)
    return [holds for holds, check in checks if shape.stream.tick in columns_in(check)]


class _Events:
    """How events of one stream are read."""

    def __init__(self, shape: Shape, timed: bool) -> None:
        self.shape = shape
        self.timed = timed
        tick = shape.stream.tick
        self._columns = {name: data for name, data in shape.types.items() if timed or name != tick}
        self._quick = Columns(list(self._columns.items()))
        event: Any = self._quick.event  # a type that is made here
        self._decode = msgspec.json.Decoder(list[event] | event).decode
        self._decode_lines = msgspec.json.Decoder(event).decode_lines
        later = () if timed else tick_checks(shape)
        self._checks = [holds for holds in shape.checks if holds not in later]
        self._no_tick: Row = () if timed else (None,)

    def quick(self, body: bytes) -> list[Row] | None:
        """None if it is not sure."""
        try:
            found = self._decode(body)
            return self._values(body, found if isinstance(found, list) else [found])
        except REFUSED:
            return None

    def quick_lines(self, body: bytes) -> list[Row] | None:
        try:
            return self._values(body, self._decode_lines(body))
        except REFUSED:
            return None

    def _values(self, body: bytes, events: list[msgspec.Struct]) -> list[Row] | None:
        found = [self._quick.values(event) for event in events]
        if body.count(b'"') != sum(quotes for quotes, _ in found):
            return None
        rows = [row for _, row in found]
        return None if self.timed and not all(_is_tick(row[0]) for row in rows) else rows

    def careful(self, given: Json) -> list[Row]:
        events = given if isinstance(given, list) else [given]
        return [self._row(number, event) for number, event in enumerate(events, 1)]

    def _row(self, number: int, event: Json) -> Row:
        stream = self.shape.stream
        if not isinstance(event, dict):
            what = f"an event is an object with the stream's columns, and this is {shown(event)}"
            raise _refused("E074", number, what)
        if isinstance(event, _Repeated):
            what = f'the name "{cut(event.twice)}" is given twice'
            raise _refused("E075", number, what, "Leave one of them out.")
        for name in event:
            if name not in self._columns:
                hint = near(name, self._columns) or f"It has {cut(', '.join(self._columns))}."
                what = f"{stream.name} has no column {cut(name)}"
                if name == stream.tick:
                    what, hint = f"{name} is the tick of {stream.name}", "The broker gives it; leave it out."
                raise _refused("E077", number, what, hint)
        return tuple([self._value(number, event, name) for name in self._columns])

    def _value(self, number: int, event: dict[str, Json], name: str) -> Value:
        data, given = self._columns[name], event.get(name)
        is_tick = name == self.shape.stream.tick
        code, hint = ("E079", _TICK) if is_tick else ("E078", how_to_write(data))
        try:
            value = value_of(given, data)
        except ValueError as problem:
            raise _refused(code, number, f"{self.shape.name}.{name}: {problem}", hint) from None
        if is_tick and not _is_tick(value):
            raise _refused(code, number, f"{self.shape.name}.{name} is {shown(given)}, which is not a tick", hint)
        return value

    def checked(self, rows: list[Row]) -> list[Row]:
        if len(rows) > limits.publication_events_max:
            most = limits.publication_events_max
            raise error("E092", f"{len(rows):,} events are published at once, and at most {most:,} may be")
        for holds in self._checks:
            for number, row in enumerate(rows, 1):
                if holds((*self._no_tick, *row)) is False:
                    raise _refused("E080", number, self.shape.broken_check((*self._no_tick, *row)))
        return rows


def _is_tick(value: Value) -> bool:
    return isinstance(value, int) and 0 <= value <= TICK_MAX


def _refused(code: str, number: int, what: str, hint: str | None = None) -> SmileError:
    return error(code, f"event {number}: {what}", hint=hint)
