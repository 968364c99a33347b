"""The decoder of events: published events and recorded lines, in JSON or Arrow, become rows of their stream.

It accepts exactly the events that fit the columns of their stream. What it refuses, `smile.decoding.explanation`
explains. The CHECKs are evaluated later, on whole batches (`smile.decoding.checks`).

msgspec refuses what violates JSON's grammar or the columns' types. But of two equal names it takes the last. So the
decoder counts: an object with a duplicate name has more members than names.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
from msgspec import UNSET, Meta, Raw, UnsetType
from msgspec.structs import astuple

from smile import limits
from smile.algebra import mmpl
from smile.algebra.coercions import DATE_MAX, DATE_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN
from smile.algebra.json_values import JsonNumber
from smile.algebra.types import INT, INT_MAX, INT_MIN, TICK_MAX, DataType, Value
from smile.decoding.arrow_events import read_arrow_stream, read_arrow_table
from smile.decoding.csv_events import csv_to_ndjson
from smile.decoding.explanation import explain_json, explain_line
from smile.decoding.parquet_events import read_parquet_file
from smile.decoding.stream_schema import AbsentColumns, EventRow, StreamSchema, is_tick
from smile.decoding.values import INTEGER_TYPES, array_of, parse_number, parse_text, whole_number
from smile.errors import SmileError, did_you_mean, error
from smile.horizons import END, ORIGIN_MAX

ParsedLine = tuple[StreamSchema | None, int | None, EventRow | None, str | None]
"""The content of a line: stream, tick, values and origin. With values (of all columns except the tick) it is an event;
its tick may be None, and is then derived from the lines before. Without values it is a silence up to the tick; without
a stream, of all streams. The origin is None if the line names none."""

Int64 = Annotated[int, Meta(ge=INT_MIN, le=INT_MAX)]
Origin = Annotated[int, Meta(ge=0, le=ORIGIN_MAX)]

_ELEMENT_TYPES: Final[Mapping[str, Any]] = {  # Any: a union of types has no type that can be written
    "bool": bool | None,
    "int": Int64 | float | str | None,
    "time": Annotated[int, Meta(ge=0, le=TICK_MAX)] | float | str | None,
    "interval": Int64 | float | str | None,
    "timestamp": Annotated[int, Meta(ge=TIMESTAMP_MIN, le=TIMESTAMP_MAX)] | float | str | None,
    "date": Annotated[int, Meta(ge=DATE_MIN, le=DATE_MAX)] | float | str | None,
    "float": float | str | None,
    "string": str | None,
    "bytes": str | None,
}
_FIELD_TYPES: Final[Mapping[str, Any]] = {
    **{name: kind | UnsetType for name, kind in _ELEMENT_TYPES.items()},
    "decimal": Raw | UnsetType,
    "json": Raw | UnsetType,
}
"""What msgspec decodes a column to. Text in a column of another type, a float in one of whole numbers, every decimal
and all JSON are converted afterwards."""


def _field_type(data: DataType) -> Any:
    """Also of arrays."""
    if data.name != "array":
        return _FIELD_TYPES[data.name]
    element: Any = Raw if data.element.name == "decimal" else _ELEMENT_TYPES[data.element.name]
    return list[element] | str | None | UnsetType


_COMMON_TYPES: Final = {
    "bool": bool,
    "int": int,
    "time": int,
    "interval": int,
    "timestamp": int,
    "date": int,
    "float": float,
    "string": str,
}
"""The usual decoded type of a column. A value of this type needs no further parsing."""

_DECODE_PROBLEMS: Final = (msgspec.MsgspecError, ValueError, KeyError, RecursionError)
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)


class _Line(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    stream: str | UnsetType = UNSET
    at: Int64 | float | str | UnsetType = UNSET
    event: Raw | UnsetType = UNSET
    silence_to: Int64 | float | str | UnsetType = UNSET
    origin: Origin | UnsetType = UNSET


class EventDecoder:
    """Decodes the events of a program's streams. Thread-safe. `imported_from` has where each imported stream comes
    from, and a hint where to publish: it takes no events here."""

    def __init__(
        self, streams: Iterable[mmpl.StreamDef], imported_from: Mapping[str, tuple[str, str]] = MappingProxyType({})
    ) -> None:
        self._imported_from = imported_from
        self.schemas = {stream.name: StreamSchema(stream) for stream in streams}
        self._published = {
            name: _EventsDecoder(schema, schema.published_types) for name, schema in self.schemas.items()
        }
        self._recorded: dict[str | UnsetType, _EventsDecoder] = {
            name: _EventsDecoder(schema, dict(schema.stream.columns)) for name, schema in self.schemas.items()
        }
        self._decode_line = msgspec.json.Decoder(_Line).decode

    def schema(self, stream: str) -> StreamSchema:
        schema = self.schemas.get(stream)
        if stream in self._imported_from:
            source, hint = self._imported_from[stream]
            raise error("E128", f"{stream} is imported from {source}", hint=hint)
        if schema is None:
            hint = did_you_mean(stream[:100], self.schemas) or f"There are {', '.join(self.schemas)}."
            raise error("E076", f"there is no stream {stream[:100]}", hint=hint)
        return schema

    # ── published events ────────────────────────────────────────────────────────────────────────────────────────────
    # Either all events are decoded, or all are refused. An error has the event's number, starting at 1. `absent` gets
    # the number of events without a column, for each column that is NULL then.

    def decode_json(self, stream: str, body: bytes, absent: AbsentColumns | None = None) -> list[EventRow]:
        """Decodes one event, or an array of events. If publishers set the ticks of the stream, rows begin with them."""
        return _check_count(self._published[self.schema(stream).name].decode(body, absent))

    def decode_ndjson(self, stream: str, body: bytes, absent: AbsentColumns | None = None) -> list[EventRow]:
        """Decodes one event per line; blank lines are ignored."""
        return _check_count(self._published[self.schema(stream).name].decode_lines(body, absent))

    def decode_csv(self, stream: str, body: bytes, absent: AbsentColumns | None = None) -> list[EventRow]:
        """Decodes a table in CSV, whose first line has the names of columns. An empty field is NULL, and not absent."""
        decoder = self._published[self.schema(stream).name]
        kinds = {name: data.name for name, data in decoder.columns.items()}
        return _check_count(decoder.decode_lines(csv_to_ndjson(body, kinds), absent))

    def decode_arrow(self, stream: str, body: bytes, absent: AbsentColumns | None = None) -> pa.RecordBatch:
        """Decodes an Arrow IPC stream."""
        return read_arrow_stream(self.schema(stream), body, absent)

    def decode_parquet(self, stream: str, body: bytes, absent: AbsentColumns | None = None) -> pa.RecordBatch:
        """Decodes a file in Parquet."""
        return read_parquet_file(self.schema(stream), body, absent)

    def decode_batch(self, stream: str, batch: pa.RecordBatch, absent: AbsentColumns | None = None) -> pa.RecordBatch:
        """Converts an Arrow batch to the columns of the stream."""
        return read_arrow_table(self.schema(stream), pa.Table.from_batches([batch]), absent)

    # ── recorded lines ──────────────────────────────────────────────────────────────────────────────────────────────

    def decode_line(self, raw: bytes, is_complete: bool = True) -> ParsedLine | None:
        """None for a blank line. `is_complete` is False for a last line without a line end. The span of a SmileError is
        in characters of the line."""
        try:
            if len(raw) > limits.event_line_bytes_max:
                raise ValueError
            line = self._decode_line(raw)
            if line.event is UNSET or line.silence_to is not UNSET:
                return self._silence(line, raw)
            decoder = self._recorded[line.stream]
            values, members = astuple(decoder.decode_event(line.event)), decoder.width + 3
            if tuple(map(type, values)) != decoder.common_types:
                members += decoder.nested_members(values) - values.count(UNSET)
                values = decoder.parse_values(values)
            if line.at is UNSET:
                tick, members = None, members - 1
            else:
                tick = _parse_tick(line.at, TICK_MAX)
            origin = None if line.origin is UNSET else _check_origin(decoder.schema, line.origin)
            members += origin is not None
            if raw.count(b":") != members:
                _check_members(raw, members)
            return decoder.schema, tick, values, origin
        except _DECODE_PROBLEMS:
            if not raw.strip():
                return None
            raise explain_line(self.schemas, raw, is_complete) or _unexplained_error() from None

    def _silence(self, line: _Line, raw: bytes) -> ParsedLine:
        if line.silence_to is UNSET or line.at is not UNSET or line.event is not UNSET:
            raise ValueError
        schema = None if line.stream is UNSET else self.schemas[line.stream]
        origin = None if line.origin is UNSET else _check_origin(schema, line.origin)
        _check_members(raw, 1 + (schema is not None) + (origin is not None))
        return schema, _parse_tick(line.silence_to, END), None, origin


class _EventsDecoder:
    """Decodes JSON objects with these columns to rows."""

    def __init__(self, schema: StreamSchema, columns: Mapping[str, DataType]) -> None:
        self.schema = schema
        self.columns = columns
        fields = [(f"c{i}", _field_type(data), UNSET) for i, data in enumerate(columns.values())]
        names = {f"c{i}": name for i, name in enumerate(columns)}
        event_type: Any = msgspec.defstruct("Event", fields, rename=names, forbid_unknown_fields=True, gc=False)
        decoder = msgspec.json.Decoder(event_type)
        self.decode_event: Callable[[bytes | Raw], msgspec.Struct] = decoder.decode
        self._decode_lines = decoder.decode_lines
        self._decode_events = msgspec.json.Decoder(list[event_type] | event_type).decode
        self._types = list(columns.values())
        self.width = len(columns)
        self.common_types = tuple(_COMMON_TYPES.get(data.name) for data in self._types)
        self._json_columns = [i for i, data in enumerate(self._types) if data.name == "json"]
        self._begins_with_tick = schema.stream.tick in columns
        self._change = list(columns).index(mmpl.CHANGE_COLUMN) if schema.has_deletions else None

    def decode(self, body: bytes, absent: AbsentColumns | None = None) -> list[EventRow]:
        try:
            events = self._decode_events(body)
            return self._rows(body, events if isinstance(events, list) else [events], absent)
        except _DECODE_PROBLEMS:
            raise explain_json(self.schema, self.columns, body) or _unexplained_error() from None

    def decode_lines(self, body: bytes, absent: AbsentColumns | None = None) -> list[EventRow]:
        try:
            return self._rows(body, self._decode_lines(body), absent)
        except _DECODE_PROBLEMS:
            lines = [line for line in body.split(b"\n") if line.strip()]
            return [self._decode_single(line, number, absent) for number, line in enumerate(lines, 1)]

    def _decode_single(self, line: bytes, number: int, absent: AbsentColumns | None) -> EventRow:
        try:
            return self._rows(line, [self.decode_event(line)], absent)[0]
        except _DECODE_PROBLEMS:
            raise explain_json(self.schema, self.columns, line, number) or _unexplained_error() from None

    def _rows(self, text: bytes, events: list[msgspec.Struct], absent: AbsentColumns | None) -> list[EventRow]:
        """The rows of all events in the text. Raises one of `_DECODE_PROBLEMS` if an event does not fit."""
        rows, members = list[EventRow](), 0
        incomplete: Counter[tuple[type | None, ...]] = Counter()  # the events of which the same columns are absent
        last: tuple[type | None, ...] = self.common_types
        run = 0  # most often, the same ones are absent from one event after another
        for event in events:
            values = astuple(event)
            members += self.width
            types = tuple(map(type, values))
            if types != self.common_types:
                missing = types.count(UnsetType)
                if missing:
                    members -= missing
                    if self._change is None or values[self._change] != "delete":
                        if types == last:
                            run += 1
                        else:
                            incomplete[last] += run
                            last, run = types, 1
                members += self.nested_members(values)
                values = self.parse_values(values)
            rows.append(values)
        _check_members(text, members)
        if self._begins_with_tick and not all(is_tick(row[0]) for row in rows):
            raise ValueError
        if absent is not None and run:
            incomplete[last] += run
            self._count_absent(incomplete, absent)
        return rows

    def _count_absent(self, incomplete: Mapping[tuple[type | None, ...], int], absent: AbsentColumns) -> None:
        warned = self.schema.warned_columns
        for types, events in incomplete.items():
            for name, kind in zip(self.columns, types, strict=True):
                if kind is UnsetType and name in warned:
                    absent[name] = absent.get(name, 0) + events

    def nested_members(self, decoded: tuple[Any, ...]) -> int:  # Any: what msgspec decoded
        """The members of all objects in columns of JSON. Of equal names there, the last one counts."""
        texts = (decoded[i] for i in self._json_columns)
        return sum(_count_members(bytes(text)) for text in texts if text is not UNSET)

    def parse_values(self, decoded: tuple[Any, ...]) -> EventRow:  # Any: what msgspec decoded
        return tuple([_parse_value(value, data) for value, data in zip(decoded, self._types, strict=True)])


def _unexplained_error() -> SmileError:
    """Never needed, if the explanation finds a problem wherever the decoder does."""
    return error("E073", "not JSON")


def _check_count(rows: list[EventRow]) -> list[EventRow]:
    events_max = limits.publication_events_max
    if len(rows) > events_max:
        raise error("E092", f"{len(rows):,} events are published at once, but the limit is {events_max:,}")
    return rows


def _check_members(text: bytes, count: int) -> None:
    """Raises ValueError unless the objects in a JSON text have this many members in all. Each member has one colon
    outside of strings; so if there are only as many colons in all, none of them is in a string."""
    if text.count(b":") != count and _count_members(text) != count:
        raise ValueError


def _count_members(text: bytes) -> int:
    outside_strings = (_ESCAPE.sub(b"", text) if b"\\" in text else text).split(b'"')[::2]
    return b"".join(outside_strings).count(b":")


def _check_origin(schema: StreamSchema | None, origin: int) -> str:
    if schema is None or not schema.stream.many_origins:
        raise ValueError
    return str(origin)


def _parse_value(value: Any, data: DataType) -> Value:  # Any: what msgspec decoded
    kind = value.__class__
    if kind is str:
        return parse_text(value, data) if data.name != "string" else value
    if kind is float and data.name in INTEGER_TYPES:
        return whole_number(value, data)
    if kind is list:
        return array_of(value, data, _parse_value)
    if kind is Raw:
        text = bytes(value)
        return parse_text(text.decode(), data) if data.name == "json" else _parse_decimal(text, data)
    return None if value is UNSET else value


def _parse_tick(value: int | float | str, tick_max: int) -> int:
    tick = parse_text(value, INT) if isinstance(value, str) else value
    tick = whole_number(tick, INT) if isinstance(tick, float) else tick
    if not isinstance(tick, int) or not 0 <= tick <= tick_max:
        raise ValueError
    return tick


def _parse_decimal(text: bytes, data: DataType) -> Value:
    if text == b"null":
        return None
    if text.startswith(b'"'):
        return parse_text(msgspec.json.decode(text, type=str), data)
    return parse_number(JsonNumber(text.decode()), data)
