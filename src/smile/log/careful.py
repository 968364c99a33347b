"""The careful reader of lines: of every line it either says what the line says, or why it says nothing, and where."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from smile import limits
from smile.algebra.types import INT, Value
from smile.errors import Diagnostic, SmileError, nearest
from smile.log.checks import Row
from smile.log.frame import END
from smile.log.shape import TICK_MAX, Said, Shape
from smile.log.values import Json, Number, cut, from_number, from_text, how_to_write, shown, value_of
from smile.source import Span

_FIELDS: Final = ("stream", "at", "event", "silence_to")
_EXAMPLE: Final = 'Write {"stream": …, "at": …, "event": {…}}, or {"stream": …, "silence_to": …}, on one line.'
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"?')
_TICK: Final = "A tick is a whole number from 0 to 2^63 - 2, or text that holds one."


class _Twice(Exception):
    """A name occurs twice in an object."""


class _NotNumber(Exception):
    """NaN or an infinity, which JSON does not have, though Python reads it."""


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Twice(Counter(name for name, _ in pairs).most_common(1)[0][0])
    return found


def _not_number(text: str) -> NoReturn:
    raise _NotNumber(text)


_JSON: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=Number, parse_int=Number, parse_constant=_not_number
)


class CarefulReader:
    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self._shapes = shapes

    def read(self, raw: bytes, whole: bool = True) -> Said | None:
        """None is what a blank line says. `whole` is false of a last line without an end. A SmileError's span is in
        characters of the line."""
        return _Reading(self._shapes, raw, whole).said() if raw.strip() else None


class _Reading:
    """Of one line."""

    def __init__(self, shapes: Mapping[str, Shape], raw: bytes, whole: bool) -> None:
        self.shapes = shapes
        self.raw = raw
        self.whole = whole
        self.text = ""

    def said(self) -> Said:
        fields = self._fields()
        for name in fields:
            if name not in _FIELDS:
                raise self._refused("E074", f'there is no field "{cut(name)}"', name, near(name, _FIELDS) or _EXAMPLE)
        shape = self._shape(fields["stream"]) if "stream" in fields else None
        if "silence_to" in fields:
            for name in ("at", "event"):
                if name in fields:
                    raise self._refused("E074", f"a silence has no {name}", name, _EXAMPLE)
            return shape, self._tick("silence_to", fields["silence_to"], END), None
        if "event" not in fields:
            raise self._refused("E074", "the line has neither an event nor a silence_to", None, _EXAMPLE)
        if shape is None:
            raise self._refused("E074", "the event does not say its stream", "event", _EXAMPLE)
        tick = self._tick("at", fields["at"], TICK_MAX) if "at" in fields else None
        return shape, tick, self._values(shape, fields["event"])

    def _fields(self) -> dict[str, Json]:
        found = self._json()
        if not isinstance(found, dict):
            hint = "Write one event a line, not an array of them." if isinstance(found, list) else _EXAMPLE
            raise self._refused("E074", f"a line is an object, and this is {shown(found)}", None, hint)
        return found

    def _json(self) -> Json:
        if len(self.raw) > limits.event_line_bytes_max:
            raise self._refused("E071", f"the line has more than {limits.event_line_bytes_max:,} bytes")
        try:
            self.text = self.raw.decode()
        except UnicodeDecodeError as problem:
            at = len(self.raw[: problem.start].decode())
            message = f"the line is not UTF-8 text: byte {self.raw[problem.start]:#04x}"
            raise _error("E072", message, Span(at, at + 1)) from None
        if depth(self.text) > limits.nesting_max:
            raise self._refused("E073", "the line is nested too deeply", None, _EXAMPLE)
        try:
            found: Json = _JSON.decode(self.text)
        except json.JSONDecodeError as problem:
            raise self._not_json(problem) from None
        except _Twice as name:
            message = f'the name "{cut(str(name))}" is given twice in one object'
            raise self._refused("E075", message, str(name), "Leave one of them out.") from None
        except _NotNumber as text:
            raise self._refused("E078", f"{text} is not a number of JSON", None, "Write null for no value.") from None
        return found

    def _not_json(self, problem: json.JSONDecodeError) -> SmileError:
        at = min(problem.pos, len(self.text))
        span = Span(at, at + 1)
        if not self.whole:
            hint = "The file seems to be incomplete: its last line has no end."
            return _error("E073", "the last line is cut off, or not JSON", span, hint)
        return _error("E073", f"the line is not JSON: {lower(problem.msg)}", span, _EXAMPLE)

    def _shape(self, name: Json) -> Shape:
        if not isinstance(name, str) or isinstance(name, Number):
            raise self._refused("E074", f"a stream is named by text, not by {shown(name)}", "stream", _EXAMPLE)
        if name not in self.shapes:
            hint = near(name, self.shapes) or f"There are {cut(', '.join(self.shapes))}."
            raise self._refused("E076", f"there is no stream {cut(name)}", "stream", hint)
        return self.shapes[name]

    def _tick(self, name: str, given: Json, most: int) -> int:
        tick: Value = None
        if isinstance(given, str):
            try:
                tick = from_number(given, INT) if isinstance(given, Number) else from_text(given, INT)
            except ValueError:
                tick = None
        if not isinstance(tick, int) or not 0 <= tick <= most:
            raise self._refused("E079", f"{name} is {shown(given)}, which is not a tick", name, _TICK)
        return tick

    def _values(self, shape: Shape, given: Json) -> Row:
        if not isinstance(given, dict):
            message = f"an event is an object with the stream's columns, and this is {shown(given)}"
            raise self._refused("E074", message, "event", _EXAMPLE)
        stream = shape.stream
        for name in given:
            if name == stream.tick:
                message, hint = f"{name} is the tick of {stream.name}, not a column", "Give the tick as `at`."
                raise self._refused("E077", message, name, hint, within="event")
            if name not in shape.types:
                hint = near(name, shape.types) or f"It has {cut(', '.join(n for n, _ in stream.columns))}."
                message = f"{stream.name} has no column {cut(name)}"
                raise self._refused("E077", message, name, hint, within="event")
        values = []
        for name, data in stream.columns:
            try:
                values.append(value_of(given.get(name), data))
            except ValueError as problem:
                message = f"{stream.name}.{name}: {problem}"
                raise self._refused("E078", message, name, how_to_write(data), within="event") from None
        return tuple(values)

    def _refused(
        self, code: str, message: str, name: str | None = None, hint: str | None = None, within: str | None = None
    ) -> SmileError:
        """At the place where `name` is named, as far as a look at the text can tell; else at all of the line."""
        begin = self._named(within, 0).start if within else 0
        return _error(code, message, self._named(name, begin) if name else Span(0, len(self.text.rstrip())), hint)

    def _named(self, name: str, begin: int) -> Span:
        place = re.compile(rf'"{re.escape(name)}"(?=\s*:)').search(self.text, begin)
        return Span(*place.span()) if place else Span(begin, len(self.text.rstrip()))


def _error(code: str, message: str, span: Span | None = None, hint: str | None = None) -> SmileError:
    return SmileError(Diagnostic(code, message, span, hint))


def near(name: str, candidates: Any) -> str | None:
    """Comparing takes time that grows with the square of the length."""
    return nearest(name, candidates) if len(name) <= limits.excerpt_chars_max else None


def lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def depth(text: str) -> int:
    """How deeply brackets are nested; reading JSON recurses."""
    if text.count("[") + text.count("{") <= limits.nesting_max:
        return 0
    depth = deepest = 0
    for sign in re.findall(r"[\[{\]}]", _STRING.sub("", text)):
        depth += 1 if sign in "[{" else -1
        deepest = max(deepest, depth)
    return deepest
