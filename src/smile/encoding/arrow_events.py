"""Encodes events of a stream, or of a selection of one, as Arrow: the columns of the events, then `at` and `origin`."""

from collections.abc import Sequence

import pyarrow as pa

from smile.algebra.arrow_types import wire_type
from smile.encoding.arrow_values import wire_array
from smile.kernels.delta import Delta
from smile.kernels.transform import InputRelation


def arrow_events(source: InputRelation, rows: Delta, ticks: Sequence[int], origins: Sequence[str]) -> pa.RecordBatch:
    columns = source.type.heading.columns
    arrays = [wire_array(rows.fixed[c], columns[c]) for c in source.type.heading.value_columns]
    arrays += [pa.array(ticks, pa.int64()), pa.array(origins, pa.string())]
    return pa.RecordBatch.from_arrays(arrays, schema=events_schema(source))


def events_schema(source: InputRelation) -> pa.Schema:
    """The schema of the batches that `arrow_events` returns."""
    columns = source.type.heading.columns
    fields = [(c, wire_type(columns[c])) for c in source.type.heading.value_columns]
    return pa.schema([*fields, ("at", pa.int64()), ("origin", pa.string())])
