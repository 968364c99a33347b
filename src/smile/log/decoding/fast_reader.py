"""The fast reader of recorded events. What it accepts, the diagnosing reader accepts too, with the same result. For all
other lines it returns None, and the diagnosing reader decides.

msgspec refuses what violates JSON's grammar or the columns' types. But of two equal names it takes the last. So the
reader counts the quotes of a line: it expects two for each name and each text that was decoded. A duplicate name, or a
quote within a text, adds more, and then the diagnosing reader decides.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType
from msgspec.structs import astuple

from smile import limits
from smile.algebra.coercions import DATE_MAX, DATE_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN
from smile.algebra.types import INT, INT_MAX, INT_MIN, DataType, Value
from smile.horizons import END
from smile.log.decoding.checks import EventRow
from smile.log.decoding.stream_schema import TICK_MAX, ParsedLine, StreamSchema
from smile.log.decoding.values import JsonNumber, parse_number, parse_text

Int64 = Annotated[int, Meta(ge=INT_MIN, le=INT_MAX)]

_FIELD_TYPES: Final[Mapping[str, Any]] = {  # Any: a union of types has no type that can be written
    "bool": bool | None | UnsetType,
    "int": Int64 | str | None | UnsetType,
    "time": Int64 | str | None | UnsetType,
    "interval": Int64 | str | None | UnsetType,
    "timestamp": Annotated[int, Meta(ge=TIMESTAMP_MIN, le=TIMESTAMP_MAX)] | str | None | UnsetType,
    "date": Annotated[int, Meta(ge=DATE_MIN, le=DATE_MAX)] | str | None | UnsetType,
    "float": float | None | UnsetType,
    "string": str | None | UnsetType,
    "bytes": str | None | UnsetType,
    "decimal": Raw | UnsetType,
}
"""What msgspec decodes a column to. Text in a column of another type, and every decimal, is parsed afterwards."""

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

DECODE_PROBLEMS: Final = (msgspec.MsgspecError, ValueError, KeyError, RecursionError)


class _Line(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    stream: str | UnsetType = UNSET
    at: Int64 | str | UnsetType = UNSET
    event: Raw | UnsetType = UNSET
    silence_to: Int64 | str | UnsetType = UNSET


class ColumnReader:
    """Decodes the columns of an event."""

    def __init__(self, columns: Sequence[tuple[str, DataType]]) -> None:
        fields = [(f"c{i}", _FIELD_TYPES[data.name], UNSET) for i, (_, data) in enumerate(columns)]
        names = {f"c{i}": name for i, (name, _) in enumerate(columns)}
        self.event_type = msgspec.defstruct("Event", fields, rename=names, forbid_unknown_fields=True, gc=False)
        self.decode = msgspec.json.Decoder(self.event_type).decode
        self._types = [data for _, data in columns]
        self._common_types = tuple(_COMMON_TYPES.get(data.name) for data in self._types)
        self._common_quotes = sum(4 if kind is str else 2 for kind in self._common_types)

    def values(self, event: msgspec.Struct) -> tuple[int, EventRow]:
        """The number of quotes in the values and their names, and the values."""
        decoded = astuple(event)
        if tuple(map(type, decoded)) == self._common_types:
            return self._common_quotes, decoded
        return _parse_values(decoded, self._types)


class FastReader:
    def __init__(self, schemas: Mapping[str, StreamSchema]) -> None:
        self._streams: dict[str | UnsetType, tuple[StreamSchema, ColumnReader]] = {
            name: (schema, ColumnReader(schema.stream.columns)) for name, schema in schemas.items()
        }
        self._decode = msgspec.json.Decoder(_Line).decode

    def read(self, raw: bytes) -> ParsedLine | None:
        if len(raw) > limits.event_line_bytes_max:
            return None
        try:
            line = self._decode(raw)
            if line.event is UNSET or line.silence_to is not UNSET:
                return self._read_silence(line, raw)
            schema, column_reader = self._streams[line.stream]
            quotes = raw.count(b'"') - 6
            tick = None
            if line.at is not UNSET:
                tick, used = _parse_tick(line.at, TICK_MAX)
                quotes -= used
            used, values = column_reader.values(column_reader.decode(line.event))
            return None if quotes != used else (schema, tick, values)
        except DECODE_PROBLEMS:
            return None

    def _read_silence(self, line: _Line, raw: bytes) -> ParsedLine | None:
        if line.silence_to is UNSET or line.at is not UNSET or line.event is not UNSET:
            return None
        tick, used = _parse_tick(line.silence_to, END)
        if line.stream is UNSET:
            return (None, tick, None) if raw.count(b'"') == used else None
        schema, _ = self._streams[line.stream]
        return (schema, tick, None) if raw.count(b'"') == used + 4 else None


def _parse_values(decoded: tuple[Any, ...], types: list[DataType]) -> tuple[int, EventRow]:  # Any: what msgspec decoded
    """The number of quotes in the values and their names, and the values."""
    quotes, row = 0, None
    for i, value in enumerate(decoded):
        kind = value.__class__
        if kind is str:
            quotes += 4
            data = types[i]
            if data.name == "string":
                continue
            value = parse_text(value, data)
        elif kind is Raw:
            value, used = _parse_decimal(bytes(value), types[i])
            quotes += used
        elif value is UNSET:
            value = None
        else:
            quotes += 2
            continue
        row = row or list(decoded)
        row[i] = value
    return quotes, decoded if row is None else tuple(row)


def _parse_tick(value: int | str, tick_max: int) -> tuple[int, int]:
    """The tick, and the number of quotes in it and its name."""
    if isinstance(value, int):
        tick, quotes = value, 2
    else:
        tick, quotes = int(parse_text(value, INT)), 4  # type: ignore[arg-type]  # an int's text is an int
    if 0 <= tick <= tick_max:
        return tick, quotes
    raise ValueError


def _parse_decimal(text: bytes, data: DataType) -> tuple[Value, int]:
    """The value, and the number of quotes in it and its name."""
    if text == b"null":
        return None, 2
    if text.startswith(b'"'):
        return parse_text(msgspec.json.decode(text, type=str), data), 4
    return parse_number(JsonNumber(text.decode()), data), 2
