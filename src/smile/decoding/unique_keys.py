"""The values of UNIQUE columns as short keys: two events have the same key if and only if they have the same values.

A key is a hash of 128 bits, so that values of any length take little space. Two different values with the same hash are
too improbable to be considered: one such pair is expected among 10^19 events.
"""

from collections.abc import Sequence
from hashlib import blake2b

import pyarrow as pa
from msgspec import msgpack

from smile.algebra import mmpl

KEY_BYTES = 16


def unique_keys(stream: mmpl.StreamDef, events: pa.RecordBatch) -> dict[tuple[str, ...], list[bytes | None]]:
    """For the columns of each UNIQUE, the key of each event; None if one of its values is NULL."""
    return {columns: _keys([events.column(name) for name in columns]) for columns in stream.unique}


def _keys(columns: Sequence[pa.Array]) -> list[bytes | None]:
    lists = [_plain_values(column) for column in columns]
    return [
        None if None in values else blake2b(msgpack.encode(values), digest_size=KEY_BYTES).digest()
        for values in zip(*lists, strict=True)
    ]


def _plain_values(column: pa.Array) -> list[object]:
    """The values of a column; -0.0 becomes 0.0, which it is equal to."""
    values: list[object] = column.to_pylist()
    return [None if v is None else v + 0.0 for v in values] if pa.types.is_floating(column.type) else values  # type: ignore[operator]
