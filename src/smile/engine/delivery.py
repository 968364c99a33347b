"""What subscribers are told, as Arrow: a row for each row that is shown, or was, with its whole present knowledge.

Columns are those of the view with their present values; `deleted`, `final`, `stays` and `steps` as in JSON; and of each
column that evolves its bounds, and in `….knowledge` what they mean: 0 unknown, 1 bounds, 2 exactly, 3 latest.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from smile.algebra.arrow_types import arrow_type
from smile.algebra.types import BOOL, DataType
from smile.columns import knowledge as k, masks, values as v
from smile.columns.knowledge import Column, Latests, Masks, Objects, Ranges
from smile.columns.values import Array, Values, places_of
from smile.engine.messages import deleted_for_good, finals
from smile.kernels.changes import Changes
from smile.kernels.seals import Horizons
from smile.kernels.transform import Input
from smile.knowledge.json import knowledge_json
from smile.knowledge.range import MAYBE

UNKNOWN, BOUNDS, EXACTLY, LATEST = range(4)


def arrow_changes(source: Input, changes: Changes, horizons: Horizons, every: bool = False) -> pa.RecordBatch:
    """Changes of a view; rows that are hidden before and after are left out, unless `every` one is asked for."""
    shown = masks.shown(changes.new.mask)
    told = shown | masks.shown(changes.old_mask())
    if not every and not told.all():
        changes = changes.take(places_of(told))
        shown = shown[told]
    layout, heading = source.layout, source.type.heading
    columns: dict[str, pa.Array] = {}
    for name in (*heading.key, *(c for c in heading.values if c not in heading.key)):
        column: Column = changes.fixed[name] if name in layout.fixed else changes.new.columns[name]
        columns |= _arrow_column(name, column, heading.columns[name], source.type.columns[name].evolves)
    final = finals(layout, changes)
    gone = deleted_for_good(source.type, changes, horizons)
    columns["deleted"] = v.arrow_bools(~shown)
    columns["final"] = v.arrow_bools(np.where(shown, final, gone))
    columns["stays"] = v.arrow_bools((changes.new.mask == masks.T) & ~final)
    columns["steps"] = v.arrow_ints(changes.new.steps)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _arrow_column(name: str, column: Column, data: DataType, evolves: bool) -> Mapping[str, pa.Array]:
    kind = arrow_type(data)
    if isinstance(column, Objects):
        return _arrow_objects(name, column, data)
    found = {name: v.to_arrow(k.now_of(column), kind)}
    if not evolves or isinstance(column, Values):
        return found
    exact = column.finals()
    if isinstance(column, Ranges):
        unknown = column.null_codes() == k.NULLS.index(MAYBE)
        for word, end in (("at_least", column.lo), ("at_most", column.hi)):
            if end is None:
                found[f"{name}.{word}"] = pa.nulls(len(column), kind)
                continue
            bound = Values(end.data, end.there() & ~unknown) if unknown.any() else end
            found[f"{name}.{word}"] = v.to_arrow(bound, kind)
        unknown |= ~(_has(column.lo, len(column)) | _has(column.hi, len(column)))
        found[f"{name}.knowledge"] = _codes(np.where(exact, EXACTLY, np.where(unknown, UNKNOWN, BOUNDS)))
    elif isinstance(column, Latests):
        found[f"{name}.latest"] = v.to_arrow(column.value, kind)
        found[f"{name}.at"] = v.to_arrow(column.tick, pa.int64())
        found[f"{name}.knowledge"] = _codes(np.where(exact, EXACTLY, np.where(column.tick.there(), LATEST, UNKNOWN)))
    elif isinstance(column, Masks):
        assert data == BOOL
        found[f"{name}.knowledge"] = _codes(np.where(exact, EXACTLY, UNKNOWN))
    return found


def _has(end: Values | None, count: int) -> Array:
    return np.zeros(count, bool) if end is None else end.there()


def _arrow_objects(name: str, column: Objects, data: DataType) -> Mapping[str, pa.Array]:
    """Nested relations, and points of several domains: row by row."""
    now = pa.array([_rows(p.now) for p in column.points], arrow_type(data))
    told = [EXACTLY if "exactly" in knowledge_json(p, data) else UNKNOWN for p in column.points]
    return {name: now, f"{name}.knowledge": _codes(np.array(told))}


def _rows(now: Any) -> Any:
    """Of a nested relation the rows, without their keys."""
    return [row for _, row in now] if isinstance(now, list) else now


def _codes(codes: Array) -> pa.Array:
    codes = codes.astype(np.uint8)
    return pa.Array.from_buffers(pa.uint8(), len(codes), [None, pa.py_buffer(codes)])
