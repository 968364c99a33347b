"""Converts columns of Arrow tables to the columns of a stream. Each value is converted exactly, or refused.

What JSON takes is taken here too, with the same meaning: text in a column of numbers or times, and floats in columns of
whole numbers if they are whole. Timestamps of any unit are times and ticks; without a time zone they are in UTC.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from smile.algebra.arrow_types import arrow_type
from smile.algebra.coercions import DATE_MAX, DATE_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN, describe_tick
from smile.algebra.types import TICK_MAX, TICKS_PER_MICROSECOND, DataType, Value
from smile.columns import values as v
from smile.decoding.stream_schema import StreamSchema
from smile.decoding.values import INTEGER_TYPES, WHOLE_FLOAT_MAX, array_of, parse_number, parse_text, whole_number
from smile.errors import SmileError, did_you_mean, error

_TEXT: Final = (types.is_string, types.is_large_string, types.is_string_view)
_ARROW_KINDS: Final[Mapping[str, tuple[Callable[[pa.DataType], bool], ...]]] = {
    "bool": (types.is_boolean,),
    "int": (types.is_integer, types.is_floating, types.is_decimal, *_TEXT),
    "float": (types.is_floating, types.is_integer, types.is_decimal, *_TEXT),
    "decimal": (types.is_decimal, types.is_integer, types.is_floating, *_TEXT),
    "string": _TEXT,
    "json": _TEXT,
    "bytes": (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view, *_TEXT),
    "time": (types.is_timestamp, types.is_integer, types.is_floating, *_TEXT),
    "interval": (types.is_integer, types.is_floating, *_TEXT),
    "timestamp": (types.is_timestamp, types.is_integer, types.is_floating, *_TEXT),
    "date": (types.is_date, types.is_integer, types.is_floating, *_TEXT),
    "array": (types.is_list, types.is_large_list, types.is_fixed_size_list, *_TEXT),
}
"""The Arrow types that can be converted to each type. A value may still be out of range."""

_TIME_RANGES: Final = {"timestamp": (TIMESTAMP_MIN, TIMESTAMP_MAX), "date": (DATE_MIN, DATE_MAX)}


def check_columns(path: str, schema: StreamSchema, file_schema: pa.Schema) -> None:
    """Raises an error unless the file's columns fit the stream. All columns except the tick may be missing."""
    name = schema.name
    for column in file_schema.names:
        if column not in schema.types:
            hint = did_you_mean(column, schema.types) or f"It has {', '.join(schema.types)}."
            raise error("E077", f"{path}: {name} has no column {column}", hint=hint)
        if file_schema.names.count(column) > 1:
            raise error("E075", f"{path}: the column {column} is given twice", hint="Remove one of them.")
        arrow_type, data = value_type(file_schema.field(column).type), schema.types[column]
        if not types.is_null(arrow_type) and not any(fits(arrow_type) for fits in _ARROW_KINDS[data.name]):
            raise error("E078", f"{path}: {name}.{column} is {data}, but is given as {arrow_type}")
    if schema.stream.tick not in file_schema.names:
        raise error("E077", f"{path}: the column {schema.stream.tick} is missing, which is the tick of {name}")


def stream_events(path: str, schema: StreamSchema, table: pa.Table) -> pa.RecordBatch:
    """Converts the rows of a recorded table to events of the stream. Raises an error if one violates a CHECK."""
    columns = [stream_column(path, schema, name, table) for name in schema.arrow_schema.names]
    events = pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)
    for row in schema.checks.violations(events).tolist()[:1]:
        raise error(
            "E080",
            f"{path}, tick {describe_tick(events.column(0)[row].as_py())}: {schema.checks.describe(events, row)}",
        )
    return events


def stream_column(path: str, schema: StreamSchema, name: str, table: pa.Table) -> pa.Array:
    """One column of the stream; NULL if the table does not have it."""
    data, target = schema.types[name], schema.arrow_schema.field(name).type
    if name not in table.schema.names:
        return pa.nulls(table.num_rows, target)
    try:
        column = _cast(table.column(name).combine_chunks(), data, target)
        column.validate(full=True)
    except MemoryError:  # Arrow's own is an ArrowException too, but the column may be correct
        raise
    except (pa.ArrowException, ValueError) as problem:
        given = value_type(table.schema.field(name).type)
        hint = "A time has microseconds: round the column first." if types.is_timestamp(given) else None
        raise _column_error(path, schema, name, str(problem), hint) from None
    if data.name == "float" and pc.all(pc.is_finite(column)).as_py() is False:
        raise _column_error(path, schema, name, "NaN and infinities are not allowed")
    limits = (0, TICK_MAX) if data.name == "time" and name != schema.stream.tick else _TIME_RANGES.get(data.name)
    if limits is not None and not _is_within(column, *limits):
        raise _column_error(path, schema, name, f"a value is not between {limits[0]} and {limits[1]}")
    return column


def _is_within(column: pa.Array, least: int, greatest: int) -> bool:
    extremes = pc.min_max(column)
    lowest, highest = extremes["min"].as_py(), extremes["max"].as_py()
    return lowest is None or bool(least <= lowest and highest <= greatest)


def _cast(column: pa.Array, data: DataType, target: pa.DataType) -> pa.Array:
    given = value_type(column.type)
    if given != column.type:
        column = column.cast(given)
    if data.name == "array" and not is_text(given):
        return _arrays(column, data)
    if data.name not in ("string", "bool") and is_text(given):
        return _each(column, lambda text: parse_text(text, data), target)
    if data.name == "decimal" and types.is_floating(given):
        return _each(column, lambda number: parse_number(repr(number), data), target)
    if data.name in INTEGER_TYPES and types.is_floating(given):
        column = _whole_numbers(column, data)
    elif types.is_timestamp(given):
        column = _microseconds(column)
        if data.name == "time":
            return pc.multiply_checked(column.cast(pa.int64()), TICKS_PER_MICROSECOND)
    elif types.is_date(given):
        column = column.cast(pa.date32()).cast(pa.int32())
    elif data.name == "decimal" and types.is_integer(given):
        column = column.cast(pa.decimal128(20, 0))
    return column.cast(target)


def _arrays(column: pa.Array, data: DataType) -> pa.Array:
    elements = v.from_arrow(_cast_elements(column.flatten(), data.element))
    values = [elements.value_at(i, data.element) for i in range(len(elements))]
    encoded, start = list[bytes | None](), 0
    for length in pc.list_value_length(column).to_pylist():
        end = start + (length or 0)
        encoded.append(None if length is None else array_of(values[start:end], data, lambda value, _: value))
        start = end
    return pa.array(encoded, pa.binary())


def _cast_elements(elements: pa.Array, data: DataType) -> pa.Array:
    if types.is_nested(elements.type):
        raise ValueError("an array of arrays is not an array of values")
    cast = _cast(elements, data, arrow_type(data))
    if data.name == "float" and pc.all(pc.is_finite(cast)).as_py() is False:
        raise ValueError("NaN and infinities are not allowed")
    limits = (0, TICK_MAX) if data.name == "time" else _TIME_RANGES.get(data.name)
    if limits is not None and not _is_within(cast, *limits):
        raise ValueError(f"a value is not between {limits[0]} and {limits[1]}")
    return cast


def _microseconds(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.timestamp("us", column.type.tz))
    except pa.ArrowInvalid:
        raise ValueError("a time has nanoseconds, or is out of range") from None


def is_text(given: pa.DataType) -> bool:
    return any(fits(given) for fits in _TEXT)


def _each(column: pa.Array, convert: Callable[[Any], Value], target: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else convert(value) for value in column.to_pylist()], target)


def _whole_numbers(column: pa.Array, data: DataType) -> pa.Array:
    """As `whole_number` does, which has the error."""
    numbers = column.cast(pa.float64())
    are_whole = pc.and_(
        pc.equal(pc.floor(numbers), numbers), pc.less_equal(pc.abs(numbers), pa.scalar(float(WHOLE_FLOAT_MAX)))
    )
    for number in numbers.filter(pc.invert(are_whole)).slice(0, 1).to_pylist():
        whole_number(number, data)
    return numbers.cast(pa.int64())


def value_type(given: pa.DataType) -> pa.DataType:
    return given.value_type if types.is_dictionary(given) else given


def _column_error(path: str, schema: StreamSchema, name: str, problem: str, hint: str | None = None) -> SmileError:
    return error("E078", f"{path}: {schema.name}.{name} is {schema.types[name]}: {problem}", hint=hint)
