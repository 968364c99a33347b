"""Encodes a view's changes as Arrow: one row for each row that is or was shown, with its complete current knowledge.

The batch has the view's columns with their current values, and `deleted`, `final`, `stays` and `steps` with the same
meaning as in JSON. An evolving column also has columns for its bounds and a column `….knowledge` that says what they
mean: 0 unknown, 1 bounds, 2 exactly, 3 latest. The bounds are `….at_least` and `….at_most`, or `….latest` and `….at`,
with `….source` if rows of several sources can share a tick. Of a nested relation, 4 means rows: `….rows` has the state
of each, and `….open` says whether rows may still come or leave.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from smile.algebra.arrays import decode_array
from smile.algebra.arrow_types import wire_type
from smile.algebra.types import BOOL, JSON, DataType
from smile.columns import knowledge as k, masks, values as v
from smile.columns.knowledge import KnowledgeColumn, LatestColumn, MaskColumn, ObjectColumn, RangeColumn
from smile.columns.values import Array, ValueColumn
from smile.encoding.arrow_values import wire_array
from smile.encoding.json_changes import column_after, is_deletion_final, omit_hidden_rows
from smile.kernels.delta import Delta, is_row_final
from smile.kernels.materialized_view import MaterializedView
from smile.kernels.seals import Horizons
from smile.kernels.transform import InputRelation
from smile.knowledge.types import ColumnType
from smile.knowledge.values.range import MAYBE

UNKNOWN, BOUNDS, EXACTLY, LATEST, ROWS = range(5)


def arrow_changes(
    source: InputRelation, delta: Delta, horizons: Horizons, include_hidden: bool = False
) -> pa.RecordBatch:
    """Omits rows that are hidden both before and after the batch, unless `include_hidden`."""
    delta = delta if include_hidden else omit_hidden_rows(delta)
    shown = masks.is_shown(delta.new.mask)
    layout, heading = source.layout, source.type.heading
    columns: dict[str, pa.Array] = {}
    for name in (*heading.key, *(c for c in heading.value_columns if c not in heading.key)):
        columns |= _arrow_column(
            name, column_after(delta, layout, name), heading.columns[name], source.type.columns[name]
        )
    final = is_row_final(layout, delta)
    final_deletion = is_deletion_final(source.type, delta, horizons)
    columns["deleted"] = v.arrow_bools(~shown)
    columns["final"] = v.arrow_bools(np.where(shown, final, final_deletion))
    columns["stays"] = v.arrow_bools((delta.new.mask == masks.T) & ~final)
    columns["steps"] = v.arrow_ints(delta.new.steps)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def arrow_schema(source: InputRelation) -> pa.Schema:
    """The schema of the batches that `arrow_changes` returns."""
    materialized = MaterializedView(source)
    return arrow_changes(source, materialized.read_rows(materialized.empty_state()), {}).schema


def _arrow_column(name: str, column: KnowledgeColumn, data: DataType, type_: ColumnType) -> Mapping[str, pa.Array]:
    if isinstance(column, ObjectColumn):
        return _arrow_objects(name, column, data)
    arrays = {name: wire_array(k.current_values(column), data)}
    if not type_.evolves or isinstance(column, ValueColumn):
        return arrays
    exact = column.is_final()
    if isinstance(column, RangeColumn):
        bounds, codes = _arrow_bounds(name, column, data)
        arrays |= {**bounds, f"{name}.knowledge": _arrow_codes(codes)}
    elif isinstance(column, LatestColumn):
        bounds, codes = _arrow_bounds(name, column.bounds, data)
        if data == BOOL:
            bounds, codes = {}, np.where(exact, EXACTLY, UNKNOWN)
        arrays |= bounds
        arrays[f"{name}.latest"] = wire_array(column.value, data)
        arrays[f"{name}.at"] = v.to_arrow(column.tick, pa.int64())
        if type_.is_by_source:
            arrays[f"{name}.source"] = v.to_arrow(ValueColumn(column.source, column.tick.valid), pa.int64())
        arrays[f"{name}.knowledge"] = _arrow_codes(np.where(column.tick.is_valid() & ~exact, LATEST, codes))
    elif isinstance(column, MaskColumn):
        assert data == BOOL
        arrays[f"{name}.knowledge"] = _arrow_codes(np.where(exact, EXACTLY, UNKNOWN))
    return arrays


def _arrow_bounds(name: str, ranges: RangeColumn, data: DataType) -> tuple[dict[str, pa.Array], Array]:
    """The columns of the bounds, and what they mean. If NULL is possible, no bound is sure to hold; of JSON, which has
    no order, only an exact value is."""
    arrays = {}
    unknown = ranges.null_codes() == k.NULLABILITY_BY_CODE.index(MAYBE)
    if data == JSON:
        unknown |= ~ranges.is_final()
    for suffix, end in (("at_least", ranges.lo), ("at_most", ranges.hi)):
        if end is None:
            arrays[f"{name}.{suffix}"] = pa.nulls(len(ranges), wire_type(data))
            continue
        bound = ValueColumn(end.data, end.is_valid() & ~unknown) if unknown.any() else end
        arrays[f"{name}.{suffix}"] = wire_array(bound, data)
    unknown |= ~(_present(ranges.lo, len(ranges)) | _present(ranges.hi, len(ranges)))
    return arrays, np.where(ranges.is_final(), EXACTLY, np.where(unknown, UNKNOWN, BOUNDS))


def _present(end: ValueColumn | None, count: int) -> Array:
    return np.zeros(count, bool) if end is None else end.is_valid()


def _arrow_objects(name: str, column: ObjectColumn, data: DataType) -> Mapping[str, pa.Array]:
    """Nested relations are encoded row by row."""
    now = pa.array([_nested_rows(point.now, data) for point in column.points], wire_type(data))
    known = [point.wire() for point in column.points]
    codes = [EXACTLY if "exactly" in wire else ROWS if "rows" in wire else UNKNOWN for wire in known]
    return {
        name: now,
        f"{name}.rows": pa.array([wire.get("rows") for wire in known], pa.list_(pa.string())),
        f"{name}.open": pa.array([wire.get("open") for wire in known], pa.bool_()),
        f"{name}.knowledge": _arrow_codes(np.array(codes, np.uint8)),
    }


def _nested_rows(now: Any, data: DataType) -> Any:
    """The rows of a nested relation without their keys; other values unchanged."""
    if not isinstance(now, list):
        return now
    arrays = {name: column.element for name, column in data.columns if column.name == "array"}
    return [
        {c: decode_array(value, arrays[c]) if c in arrays and value is not None else value for c, value in row.items()}
        for _, row in now
    ]


def _arrow_codes(codes: Array) -> pa.Array:
    codes = codes.astype(np.uint8)
    return pa.Array.from_buffers(pa.uint8(), len(codes), [None, pa.py_buffer(codes)])
