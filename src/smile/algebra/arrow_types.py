"""The Arrow types of each data type: the one in the log and in state, and the one that clients see, which differs for
arrays.

Times, timestamps, dates and intervals are integers, as described in `smile.algebra.types`. They are formatted
when they are shown.
"""

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.types import TIME, DataType

_SIMPLE_ARROW_TYPES = {
    "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "string": pa.string(), "bytes": pa.binary(),
    "time": pa.int64(), "interval": pa.int64(), "timestamp": pa.int64(), "date": pa.int64(), "null": pa.null(),
    "array": pa.binary(),
    "json": pa.string(),
}  # fmt: skip


def arrow_type(data: DataType) -> pa.DataType:
    if data.name == "decimal":
        return pa.decimal128(data.digits, data.scale)
    if data.name == "relation":
        return pa.list_(pa.struct([(name, arrow_type(column)) for name, column in data.columns]))
    return _SIMPLE_ARROW_TYPES[data.name]


def wire_type(data: DataType) -> pa.DataType:
    """The Arrow type of values that clients send and receive."""
    if data.name == "array":
        return pa.list_(wire_type(data.element))
    if data.name == "relation":
        return pa.list_(pa.struct([(name, wire_type(column)) for name, column in data.columns]))
    return arrow_type(data)


def stream_types(stream: mmpl.StreamDef) -> dict[str, DataType]:
    """The types of the columns of a stream, the tick first."""
    return {stream.tick: TIME, **dict(stream.columns)}


def stream_schema(stream: mmpl.StreamDef) -> pa.Schema:
    """The Arrow schema of a batch of events. The tick is never NULL."""
    columns = stream_types(stream)
    return pa.schema([pa.field(name, arrow_type(data), name != stream.tick) for name, data in columns.items()])
