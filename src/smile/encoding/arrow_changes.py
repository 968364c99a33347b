"""Encodes a view's changes as Arrow: one row for each row that is or was shown, with its complete current knowledge.

The batch has the view's columns with their current values, and `deleted`, `final`, `stays` and `steps` with the same
meaning as in JSON. An evolving column also has columns for its bounds and a column `….knowledge` that says what they
mean: 0 unknown, 1 bounds, 2 exactly, 3 latest.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from smile.algebra.arrow_types import arrow_type
from smile.algebra.types import BOOL, DataType
from smile.columns import knowledge as k, masks, values as v
from smile.columns.knowledge import KnowledgeColumn, LatestColumn, MaskColumn, ObjectColumn, RangeColumn
from smile.columns.values import Array, ValueColumn
from smile.encoding.json_changes import column_of, final_deletions, finals, omit_hidden_rows
from smile.kernels.delta import Delta
from smile.kernels.materialized_view import MaterializedView
from smile.kernels.seals import Horizons
from smile.kernels.transform import InputRelation
from smile.knowledge.values.json import knowledge_json
from smile.knowledge.values.range import MAYBE

UNKNOWN, BOUNDS, EXACTLY, LATEST = range(4)


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
            name, column_of(delta, layout, name), heading.columns[name], source.type.columns[name].evolves
        )
    final = finals(layout, delta)
    final_deletion = final_deletions(source.type, delta, horizons)
    columns["deleted"] = v.arrow_bools(~shown)
    columns["final"] = v.arrow_bools(np.where(shown, final, final_deletion))
    columns["stays"] = v.arrow_bools((delta.new.mask == masks.T) & ~final)
    columns["steps"] = v.arrow_ints(delta.new.steps)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def arrow_schema(source: InputRelation) -> pa.Schema:
    """The schema of the batches that `arrow_changes` returns."""
    materialized = MaterializedView(source)
    return arrow_changes(source, materialized.read_rows(materialized.empty_state()), {}).schema


def _arrow_column(name: str, column: KnowledgeColumn, data: DataType, evolves: bool) -> Mapping[str, pa.Array]:
    kind = arrow_type(data)
    if isinstance(column, ObjectColumn):
        return _arrow_objects(name, column, data)
    arrays = {name: v.to_arrow(k.current_values(column), kind)}
    if not evolves or isinstance(column, ValueColumn):
        return arrays
    exact = column.is_final()
    if isinstance(column, RangeColumn):
        unknown = column.null_codes() == k.NULLABILITY_BY_CODE.index(MAYBE)
        for suffix, end in (("at_least", column.lo), ("at_most", column.hi)):
            if end is None:
                arrays[f"{name}.{suffix}"] = pa.nulls(len(column), kind)
                continue
            bound = ValueColumn(end.data, end.is_valid() & ~unknown) if unknown.any() else end
            arrays[f"{name}.{suffix}"] = v.to_arrow(bound, kind)
        unknown |= ~(_present(column.lo, len(column)) | _present(column.hi, len(column)))
        arrays[f"{name}.knowledge"] = _arrow_codes(np.where(exact, EXACTLY, np.where(unknown, UNKNOWN, BOUNDS)))
    elif isinstance(column, LatestColumn):
        arrays[f"{name}.latest"] = v.to_arrow(column.value, kind)
        arrays[f"{name}.at"] = v.to_arrow(column.tick, pa.int64())
        arrays[f"{name}.knowledge"] = _arrow_codes(
            np.where(exact, EXACTLY, np.where(column.tick.is_valid(), LATEST, UNKNOWN))
        )
    elif isinstance(column, MaskColumn):
        assert data == BOOL
        arrays[f"{name}.knowledge"] = _arrow_codes(np.where(exact, EXACTLY, UNKNOWN))
    return arrays


def _present(end: ValueColumn | None, count: int) -> Array:
    return np.zeros(count, bool) if end is None else end.is_valid()


def _arrow_objects(name: str, column: ObjectColumn, data: DataType) -> Mapping[str, pa.Array]:
    """Nested relations, and columns that mix knowledge domains, are encoded row by row."""
    now = pa.array([_nested_rows(point.now) for point in column.points], arrow_type(data))
    codes = [EXACTLY if "exactly" in knowledge_json(point, data) else UNKNOWN for point in column.points]
    return {name: now, f"{name}.knowledge": _arrow_codes(np.array(codes))}


def _nested_rows(now: Any) -> Any:
    """The rows of a nested relation without their keys; other values unchanged."""
    return [row for _, row in now] if isinstance(now, list) else now


def _arrow_codes(codes: Array) -> pa.Array:
    codes = codes.astype(np.uint8)
    return pa.Array.from_buffers(pa.uint8(), len(codes), [None, pa.py_buffer(codes)])
