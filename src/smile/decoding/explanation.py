"""Explains why the decoder refused events: the first problem, with code, message, hint and position.

It reads the JSON once more, slowly, and finds a problem if and only if the decoder does.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from smile import limits
from smile.algebra.json_values import Json, JsonNumber
from smile.algebra.types import INT, TICK_MAX, DataType, Value
from smile.decoding.stream_schema import BROKER_TICK_HINT, StreamSchema, is_tick
from smile.decoding.values import (
    describe_json,
    format_hint,
    parse_number,
    parse_text,
    parse_value,
    shorten,
)
from smile.errors import Diagnostic, SmileError, did_you_mean, event_error
from smile.horizons import END, ORIGIN_MAX
from smile.source import Span

_FIELDS: Final = ("stream", "origin", "at", "event", "silence_to")
_EXAMPLE: Final = 'Write {"stream": …, "at": …, "event": {…}}, or {"stream": …, "silence_to": …}, on one line.'
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"?')


def explain_json(
    schema: StreamSchema, columns: Mapping[str, DataType], body: bytes, number: int | None = None
) -> SmileError | None:
    """The first problem in the body of a publication; or in the line that has the event with this number."""
    prefix = "" if number is None else f"event {number}: "
    place = number
    try:
        decoded = _parse_body(body)
        events = decoded if isinstance(decoded, list) and number is None else [decoded]
        for n, event in enumerate(events, number or 1):
            prefix, place = f"event {n}: ", n
            _check_event(schema, columns, event)
    except _Problem as problem:
        column = problem.name if problem.is_in_event and problem.name in columns else None
        return event_error(problem.code, f"{prefix}{problem.message}", place, column, problem.hint)
    return None


def explain_line(schemas: Mapping[str, StreamSchema], raw: bytes, is_complete: bool) -> SmileError | None:
    """The first problem in a recorded line. The span is in characters of the line."""
    line = _LineExplanation(schemas, raw, is_complete)
    try:
        line.check()
    except _Problem as problem:
        span = problem.span or line.find_span(problem.name, "event" if problem.is_in_event else None)
        return SmileError(Diagnostic(problem.code, problem.message, span, problem.hint))
    return None


class _Problem(Exception):
    """`name` is that of the member with the problem, which may be one of the event; `span` is its position if it is
    known."""

    def __init__(
        self,
        code: str,
        message: str,
        hint: str | None = None,
        name: str | None = None,
        is_in_event: bool = False,
        span: Span | None = None,
    ) -> None:
        self.code, self.message, self.hint, self.name = code, message, hint, name
        self.is_in_event, self.span = is_in_event, span


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _DuplicateNames(dict[str, Json]):
    """An object in which a name occurs twice."""

    def __init__(self, pairs: list[tuple[str, Json]]) -> None:
        super().__init__(pairs)
        self.name, seen = "", set[str]()
        for name, _ in pairs:
            if name in seen:
                self.name = name
                break
            seen.add(name)


class _JsonText:
    """Decodes a JSON text. `constants` has NaN and the infinities in it, which JSON does not have, though Python reads
    them."""

    def __init__(self) -> None:
        self.constants: list[str] = []
        self.decode = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_float=JsonNumber,
            parse_int=JsonNumber,
            parse_constant=self._constant,
        ).decode

    def _object(self, pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        fields = dict(pairs)
        if len(fields) == len(pairs):
            return fields
        return _DuplicateNames(pairs)

    def _constant(self, text: str) -> JsonNumber:
        self.constants.append(text)
        return JsonNumber(text)


def _parse_body(body: bytes) -> Json:
    try:
        text = body.decode()
    except UnicodeDecodeError as problem:
        raise _Problem("E072", f"not UTF-8 text: byte {body[problem.start]:#04x} at {problem.start}") from None
    if _nesting_depth(text) > limits.nesting_max:
        raise _Problem("E073", "nested too deeply")
    try:
        decoded: Json = _JsonText().decode(text)
    except json.JSONDecodeError as problem:
        location = f"line {problem.lineno}, column {problem.colno}"
        hint = 'Write an event as an object with the stream\'s columns, such as {"issue": "IBM"}, or an array of them.'
        raise _Problem("E073", f"not JSON: {_lower_first(problem.msg)} at {location}", hint) from None
    return decoded


def _nesting_depth(text: str) -> int:
    """How deeply brackets are nested; 0 if they cannot exceed the limit. The JSON decoder recurses."""
    if text.count("[") + text.count("{") <= limits.nesting_max:
        return 0
    depth = deepest = 0
    for bracket in re.findall(r"[\[{\]}]", _STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _lower_first(message: str) -> str:
    return message[:1].lower() + message[1:]


# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_event(schema: StreamSchema, columns: Mapping[str, DataType], event: Json, is_recorded: bool = False) -> None:
    if not isinstance(event, dict):
        message = f"an event must be an object with the stream's columns, not {describe_json(event)}"
        raise _Problem("E074", message, _EXAMPLE if is_recorded else None, "event")
    if isinstance(event, _DuplicateNames):
        raise _Problem("E075", f'the name "{shorten(event.name)}" is given twice', "Remove one of them.")
    stream = schema.stream
    for name in event:
        if name in columns:
            continue
        if name == stream.tick:
            message, hint = f"{name} is the tick of {stream.name}", BROKER_TICK_HINT
            if is_recorded:
                message, hint = f"{message}, not a column", "Give the tick as `at`."
        else:
            message = f"{stream.name} has no column {shorten(name)}"
            hint = _nearest_if_short(name, columns) or f"It has {shorten(', '.join(columns))}."
        raise _Problem("E077", message, hint, name, is_in_event=True)
    for name, data in columns.items():
        if name == stream.tick:
            _check_tick_column(schema, data, event.get(name))
            continue
        try:
            parse_value(event.get(name), data)
        except ValueError as problem:
            message = f"{stream.name}.{name}: {problem}"
            raise _Problem("E078", message, format_hint(data), name, is_in_event=True) from None


def _check_tick_column(schema: StreamSchema, data: DataType, value: Json) -> None:
    name = f"{schema.name}.{schema.stream.tick}"
    hint = format_hint(data)
    try:
        tick = parse_value(value, data)
    except ValueError as problem:
        if "out of range" not in str(problem):
            raise _Problem("E079", f"{name}: {problem}", hint) from None
        tick = None
    if not is_tick(tick):
        raise _Problem("E079", f"{name} is {describe_json(value)}, which is not a tick", hint)


def _nearest_if_short(name: str, candidates: Iterable[str]) -> str | None:
    """A suggestion only for short names: the time to compare names grows with the square of their length."""
    return did_you_mean(name, candidates) if len(name) <= limits.excerpt_chars_max else None


def _check_origin(schema: StreamSchema | None, origin: Json) -> None:
    if schema is None or not schema.stream.many_origins:
        message = f"{schema.name} has one origin" if schema is not None else "the line does not name its stream"
        raise _Problem("E074", message, "Declare the stream WITH (ORIGINS = MANY) to name origins.", "origin")
    if not isinstance(origin, JsonNumber) or not str(origin).isdecimal() or int(origin) > ORIGIN_MAX:
        raise _Problem(
            "E074", f"an origin is a number from 0 to {ORIGIN_MAX}, not {describe_json(origin)}", None, "origin"
        )


# ── recorded lines ──────────────────────────────────────────────────────────────────────────────────────────────────


class _LineExplanation:
    def __init__(self, schemas: Mapping[str, StreamSchema], raw: bytes, is_complete: bool) -> None:
        self.schemas = schemas
        self.raw = raw
        self.is_complete = is_complete
        self.text = ""

    def check(self) -> None:
        fields = self._parse_fields()
        for name in fields:
            if name not in _FIELDS:
                hint = _nearest_if_short(name, _FIELDS) or _EXAMPLE
                raise _Problem("E074", f'there is no field "{shorten(name)}"', hint, name)
        schema = self._schema_of(fields["stream"]) if "stream" in fields else None
        if "origin" in fields:
            _check_origin(schema, fields["origin"])
        if "silence_to" in fields:
            for name in ("at", "event"):
                if name in fields:
                    raise _Problem("E074", f"a silence has no {name}", _EXAMPLE, name)
            _check_tick("silence_to", fields["silence_to"], END)
            return
        if "event" not in fields:
            raise _Problem("E074", "the line has neither an event nor a silence_to", _EXAMPLE)
        if schema is None:
            raise _Problem("E074", "the event does not name its stream", _EXAMPLE, "event")
        if "at" in fields:
            _check_tick("at", fields["at"], TICK_MAX)
        _check_event(schema, dict(schema.stream.columns), fields["event"], is_recorded=True)

    def _parse_fields(self) -> dict[str, Json]:
        decoded = self._parse_json()
        if not isinstance(decoded, dict):
            hint = "Write one event per line, not an array of events." if isinstance(decoded, list) else _EXAMPLE
            raise _Problem("E074", f"a line must be an object, not {describe_json(decoded)}", hint)
        return decoded

    def _parse_json(self) -> Json:
        if len(self.raw) > limits.event_line_bytes_max:
            raise _Problem("E071", f"the line has more than {limits.event_line_bytes_max:,} bytes")
        try:
            self.text = self.raw.decode()
        except UnicodeDecodeError as problem:
            position = len(self.raw[: problem.start].decode())
            message = f"the line is not UTF-8 text: byte {self.raw[problem.start]:#04x}"
            raise _Problem("E072", message, span=Span(position, position + 1)) from None
        if _nesting_depth(self.text) > limits.nesting_max:
            raise _Problem("E073", "the line is nested too deeply", _EXAMPLE)
        json_text, decoded = _JsonText(), None
        try:
            decoded = json_text.decode(self.text)
        except json.JSONDecodeError as problem:
            if not json_text.constants:
                raise self._json_problem(problem) from None
        for constant in json_text.constants[:1]:
            raise _Problem("E078", f"{constant} is not a JSON number", "Write null for no value.")
        for part in (decoded, decoded.get("event") if isinstance(decoded, dict) else None):
            if isinstance(part, _DuplicateNames):
                message = f'the name "{shorten(part.name)}" is given twice in one object'
                raise _Problem("E075", message, "Remove one of them.", part.name)
        return decoded

    def _json_problem(self, problem: json.JSONDecodeError) -> _Problem:
        position = min(problem.pos, len(self.text))
        span = Span(position, position + 1)
        if not self.is_complete:
            hint = "The file seems to be incomplete: its last line has no end."
            return _Problem("E073", "the last line is cut off, or not JSON", hint, span=span)
        return _Problem("E073", f"the line is not JSON: {_lower_first(problem.msg)}", _EXAMPLE, span=span)

    def _schema_of(self, name: Json) -> StreamSchema:
        if not isinstance(name, str) or isinstance(name, JsonNumber):
            message = f"the name of a stream must be text, not {describe_json(name)}"
            raise _Problem("E074", message, _EXAMPLE, "stream")
        if name not in self.schemas:
            hint = _nearest_if_short(name, self.schemas) or f"There are {shorten(', '.join(self.schemas))}."
            raise _Problem("E076", f"there is no stream {shorten(name)}", hint, "stream")
        return self.schemas[name]

    def find_span(self, name: str | None, within: str | None) -> Span:
        """The first key `name`, after the key `within` if given. Without `name`, the whole line."""
        begin = 0 if within is None else self._name_span(within, 0).start
        return Span(0, len(self.text.rstrip())) if name is None else self._name_span(name, begin)

    def _name_span(self, name: str, begin: int) -> Span:
        match = re.compile(rf'"{re.escape(name)}"(?=\s*:)').search(self.text, begin)
        return Span(*match.span()) if match else Span(begin, len(self.text.rstrip()))


def _check_tick(name: str, value: Json, tick_max: int) -> None:
    tick: Value = None
    if isinstance(value, str):
        try:
            tick = parse_number(value, INT) if isinstance(value, JsonNumber) else parse_text(value, INT)
        except ValueError:
            tick = None
    if not isinstance(tick, int) or not 0 <= tick <= tick_max:
        hint = f"A tick is a whole number from 0 to {tick_max}, or text that holds one."
        raise _Problem("E079", f"{name} is {describe_json(value)}, which is not a tick", hint, name)
