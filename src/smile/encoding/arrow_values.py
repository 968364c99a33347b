"""Values as Arrow arrays for clients."""

import pyarrow as pa

from smile.algebra.arrays import decode_array
from smile.algebra.arrow_types import wire_type
from smile.algebra.types import DataType
from smile.columns import values as v
from smile.columns.values import ValueColumn


def wire_array(values: ValueColumn, data: DataType) -> pa.Array:
    kind = wire_type(data)
    if data.name != "array":
        return v.to_arrow(values, kind)
    encoded = v.to_arrow(values, pa.binary()).to_pylist()
    return pa.array([None if array is None else decode_array(array, data.element) for array in encoded], kind)
