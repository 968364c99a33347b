"""Columns of tables as their stream has them: each value exactly, or an error that says why not."""

from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from smile.algebra.types import DataType
from smile.errors import SmileError, error, nearest
from smile.log.batch_checks import breaking
from smile.log.shape import Shape

_KINDS: Final[Mapping[str, tuple[Callable[[pa.DataType], bool], ...]]] = {
    "bool": (types.is_boolean,),
    "int": (types.is_integer,),
    "float": (types.is_floating, types.is_integer),
    "decimal": (types.is_decimal, types.is_integer),
    "string": (types.is_string, types.is_large_string, types.is_string_view),
    "bytes": (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view),
    "time": (types.is_integer,),
    "interval": (types.is_integer,),
    "timestamp": (types.is_timestamp, types.is_integer),
    "date": (types.is_date, types.is_integer),
}
"""What may be read as each type; whether a value then fits is another matter."""


def check_columns(path: str, shape: Shape, found: pa.Schema) -> None:
    """An error unless the file's columns can be the stream's. Those it lacks are NULL, but for the tick."""
    name = shape.name
    for column in found.names:
        if column not in shape.types:
            hint = nearest(column, shape.types) or f"It has {', '.join(shape.types)}."
            raise error("E077", f"{path}: {name} has no column {column}", hint=hint)
        if found.names.count(column) > 1:
            raise error("E075", f"{path}: the column {column} is given twice", hint="Leave one of them out.")
        given, data = _plain(found.field(column).type), shape.types[column]
        if not types.is_null(given) and not any(fits(given) for fits in _KINDS[data.name]):
            raise error("E078", f"{path}: {name}.{column} is {data}, and the file has {given}")
    if shape.stream.tick not in found.names:
        raise error("E077", f"{path}: the column {shape.stream.tick} is missing, which is the tick of {name}")


def events_of(path: str, shape: Shape, found: pa.Table) -> pa.RecordBatch:
    """What the file has of these columns, as the stream's schema says."""
    columns = [column_of(path, shape, name, found) for name in shape.schema.names]
    events = pa.RecordBatch.from_arrays(columns, schema=shape.schema)
    row = breaking(shape, events)
    if row is not None:
        raise error("E080", f"{path}, tick {row[0]!r}: {shape.broken_check(row)}")
    return events


def column_of(path: str, shape: Shape, name: str, found: pa.Table) -> pa.Array:
    """One of them."""
    data, target = shape.types[name], shape.schema.field(name).type
    if name not in found.schema.names:
        return pa.nulls(found.num_rows, target)
    try:
        column = _cast(found.column(name).combine_chunks(), data, target)
        column.validate(full=True)
    except pa.ArrowException as problem:
        raise _wrong(path, shape, name, str(problem)) from None
    if data.name == "float" and pc.all(pc.is_finite(column)).as_py() is False:
        raise _wrong(path, shape, name, "NaN and infinities are not allowed")
    return column


def _cast(column: pa.Array, data: DataType, target: pa.DataType) -> pa.Array:
    given = _plain(column.type)
    if given != column.type:
        column = column.cast(given)
    if types.is_timestamp(given):
        column = column.cast(pa.timestamp("us", given.tz))
    elif types.is_date(given):
        column = column.cast(pa.date32()).cast(pa.int32())
    elif data.name == "decimal" and types.is_integer(given):
        column = column.cast(pa.decimal128(20, 0))
    return column.cast(target)


def _plain(given: pa.DataType) -> pa.DataType:
    return given.value_type if types.is_dictionary(given) else given


def _wrong(path: str, shape: Shape, name: str, problem: str) -> SmileError:
    return error("E078", f"{path}: {shape.name}.{name} is {shape.types[name]}: {problem}")
