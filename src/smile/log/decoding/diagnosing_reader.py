"""The diagnosing reader of recorded events. For each line it returns the content, or an error with reason and position.

It is slower than the fast reader, and decides wherever the fast reader does not accept a line.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from smile import limits
from smile.algebra.types import INT, Value
from smile.errors import Diagnostic, SmileError, did_you_mean
from smile.horizons import END
from smile.log.decoding.checks import EventRow
from smile.log.decoding.stream_schema import TICK_MAX, ParsedLine, StreamSchema
from smile.log.decoding.values import (
    Json,
    JsonNumber,
    describe_json,
    format_hint,
    parse_number,
    parse_text,
    parse_value,
    shorten,
)
from smile.source import Span

_FIELDS: Final = ("stream", "at", "event", "silence_to")
_EXAMPLE: Final = 'Write {"stream": …, "at": …, "event": {…}}, or {"stream": …, "silence_to": …}, on one line.'
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"?')
_TICK_HINT: Final = "A tick is a whole number from 0 to 2^63 - 2, or text that holds one."


class _DuplicateName(Exception):
    """A name occurs twice in an object."""


class _NotNumber(Exception):
    """NaN or an infinity, which JSON does not have, though Python reads it."""


def _object_of_pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _DuplicateName(Counter(name for name, _ in pairs).most_common(1)[0][0])
    return fields


def _not_number(text: str) -> NoReturn:
    raise _NotNumber(text)


_JSON: Final = json.JSONDecoder(
    object_pairs_hook=_object_of_pairs, parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=_not_number
)


class DiagnosingReader:
    def __init__(self, schemas: Mapping[str, StreamSchema]) -> None:
        self._schemas = schemas

    def read(self, raw: bytes, is_complete: bool = True) -> ParsedLine | None:
        """None for a blank line. `is_complete` is False for a last line without a line end. The span of a SmileError is
        in characters of the line."""
        return _LineParser(self._schemas, raw, is_complete).parse() if raw.strip() else None


class _LineParser:
    """Parses one line."""

    def __init__(self, schemas: Mapping[str, StreamSchema], raw: bytes, is_complete: bool) -> None:
        self.schemas = schemas
        self.raw = raw
        self.is_complete = is_complete
        self.text = ""

    def parse(self) -> ParsedLine:
        fields = self._parse_fields()
        for name in fields:
            if name not in _FIELDS:
                raise self._error_at(
                    "E074", f'there is no field "{shorten(name)}"', name, nearest_if_short(name, _FIELDS) or _EXAMPLE
                )
        schema = self._schema_of(fields["stream"]) if "stream" in fields else None
        if "silence_to" in fields:
            for name in ("at", "event"):
                if name in fields:
                    raise self._error_at("E074", f"a silence has no {name}", name, _EXAMPLE)
            return schema, self._parse_tick("silence_to", fields["silence_to"], END), None
        if "event" not in fields:
            raise self._error_at("E074", "the line has neither an event nor a silence_to", None, _EXAMPLE)
        if schema is None:
            raise self._error_at("E074", "the event does not name its stream", "event", _EXAMPLE)
        tick = self._parse_tick("at", fields["at"], TICK_MAX) if "at" in fields else None
        return schema, tick, self._parse_values(schema, fields["event"])

    def _parse_fields(self) -> dict[str, Json]:
        decoded = self._parse_json()
        if not isinstance(decoded, dict):
            hint = "Write one event per line, not an array of events." if isinstance(decoded, list) else _EXAMPLE
            raise self._error_at("E074", f"a line must be an object, not {describe_json(decoded)}", None, hint)
        return decoded

    def _parse_json(self) -> Json:
        if len(self.raw) > limits.event_line_bytes_max:
            raise self._error_at("E071", f"the line has more than {limits.event_line_bytes_max:,} bytes")
        try:
            self.text = self.raw.decode()
        except UnicodeDecodeError as problem:
            position = len(self.raw[: problem.start].decode())
            message = f"the line is not UTF-8 text: byte {self.raw[problem.start]:#04x}"
            raise _error("E072", message, Span(position, position + 1)) from None
        if nesting_depth(self.text) > limits.nesting_max:
            raise self._error_at("E073", "the line is nested too deeply", None, _EXAMPLE)
        try:
            decoded: Json = _JSON.decode(self.text)
        except json.JSONDecodeError as problem:
            raise self._json_error(problem) from None
        except _DuplicateName as name:
            message = f'the name "{shorten(str(name))}" is given twice in one object'
            raise self._error_at("E075", message, str(name), "Remove one of them.") from None
        except _NotNumber as text:
            raise self._error_at("E078", f"{text} is not a JSON number", None, "Write null for no value.") from None
        return decoded

    def _json_error(self, problem: json.JSONDecodeError) -> SmileError:
        position = min(problem.pos, len(self.text))
        span = Span(position, position + 1)
        if not self.is_complete:
            hint = "The file seems to be incomplete: its last line has no end."
            return _error("E073", "the last line is cut off, or not JSON", span, hint)
        return _error("E073", f"the line is not JSON: {lower_first(problem.msg)}", span, _EXAMPLE)

    def _schema_of(self, name: Json) -> StreamSchema:
        if not isinstance(name, str) or isinstance(name, JsonNumber):
            raise self._error_at(
                "E074", f"the name of a stream must be text, not {describe_json(name)}", "stream", _EXAMPLE
            )
        if name not in self.schemas:
            hint = nearest_if_short(name, self.schemas) or f"There are {shorten(', '.join(self.schemas))}."
            raise self._error_at("E076", f"there is no stream {shorten(name)}", "stream", hint)
        return self.schemas[name]

    def _parse_tick(self, name: str, value: Json, tick_max: int) -> int:
        tick: Value = None
        if isinstance(value, str):
            try:
                tick = parse_number(value, INT) if isinstance(value, JsonNumber) else parse_text(value, INT)
            except ValueError:
                tick = None
        if not isinstance(tick, int) or not 0 <= tick <= tick_max:
            raise self._error_at("E079", f"{name} is {describe_json(value)}, which is not a tick", name, _TICK_HINT)
        return tick

    def _parse_values(self, schema: StreamSchema, event: Json) -> EventRow:
        if not isinstance(event, dict):
            message = f"an event must be an object with the stream's columns, not {describe_json(event)}"
            raise self._error_at("E074", message, "event", _EXAMPLE)
        stream = schema.stream
        for name in event:
            if name == stream.tick:
                message, hint = f"{name} is the tick of {stream.name}, not a column", "Give the tick as `at`."
                raise self._error_at("E077", message, name, hint, within="event")
            if name not in schema.types:
                hint = (
                    nearest_if_short(name, schema.types)
                    or f"It has {shorten(', '.join(n for n, _ in stream.columns))}."
                )
                message = f"{stream.name} has no column {shorten(name)}"
                raise self._error_at("E077", message, name, hint, within="event")
        values = []
        for name, data in stream.columns:
            try:
                values.append(parse_value(event.get(name), data))
            except ValueError as problem:
                message = f"{stream.name}.{name}: {problem}"
                raise self._error_at("E078", message, name, format_hint(data), within="event") from None
        return tuple(values)

    def _error_at(
        self, code: str, message: str, name: str | None = None, hint: str | None = None, within: str | None = None
    ) -> SmileError:
        """An error at the first key `name`, after the key `within` if given. Without `name`, at the whole line."""
        begin = self._name_span(within, 0).start if within else 0
        return _error(code, message, self._name_span(name, begin) if name else Span(0, len(self.text.rstrip())), hint)

    def _name_span(self, name: str, begin: int) -> Span:
        match = re.compile(rf'"{re.escape(name)}"(?=\s*:)').search(self.text, begin)
        return Span(*match.span()) if match else Span(begin, len(self.text.rstrip()))


def _error(code: str, message: str, span: Span | None = None, hint: str | None = None) -> SmileError:
    return SmileError(Diagnostic(code, message, span, hint))


def nearest_if_short(name: str, candidates: Any) -> str | None:
    """A suggestion only for short names: the time to compare names grows with the square of their length."""
    return did_you_mean(name, candidates) if len(name) <= limits.excerpt_chars_max else None


def lower_first(message: str) -> str:
    return message[:1].lower() + message[1:]


def nesting_depth(text: str) -> int:
    """How deeply brackets are nested; 0 if they cannot exceed the limit. The JSON decoder recurses."""
    if text.count("[") + text.count("{") <= limits.nesting_max:
        return 0
    depth = deepest = 0
    for bracket in re.findall(r"[\[{\]}]", _STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest
