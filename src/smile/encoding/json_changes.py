"""Encodes a view's changes as JSON: one message for each row that is or was shown, with its complete current knowledge.

Rows that are hidden both before and after the batch are omitted. A row that is no longer shown is sent as deleted. The
results equal those of `knowledge.values.json` for each cell, but are computed column by column.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from smile.algebra.coercions import EXACT_CONTEXT
from smile.algebra.types import BOOL, JSON, DataType
from smile.columns import knowledge as k, masks
from smile.columns.knowledge import KnowledgeColumn, LatestColumn, MaskColumn, ObjectColumn, RangeColumn
from smile.columns.ranges import to_mask_column
from smile.columns.values import Bools, ValueColumn, true_indices
from smile.kernels.delta import Delta, is_row_final
from smile.kernels.layout import Layout
from smile.kernels.seals import Horizons, Seals
from smile.kernels.transform import InputRelation
from smile.knowledge.types import RelationType
from smile.knowledge.values.json import JSON_INT_MAX, Json, key_json, knowledge_json, plain_json
from smile.knowledge.values.range import MAYBE, ONLY

_MAYBE, _ONLY = k.NULLABILITY_BY_CODE.index(MAYBE), k.NULLABILITY_BY_CODE.index(ONLY)
_TRUTHS = {1: True, 2: False, 4: None, 0: None}


def json_changes(
    source: InputRelation, delta: Delta, horizons: Horizons, include_hidden: bool = False
) -> Iterator[Json]:
    """With `include_hidden`, all hidden rows are sent as deleted: the caller knows that they were shown once."""
    delta = delta if include_hidden else omit_hidden_rows(delta)
    layout, heading, count = source.layout, source.type.heading, len(delta)
    if not count:
        return
    keys = rows_json(heading.key, [_keys_json(delta.fixed[c], heading.columns[c]) for c in heading.key], count)
    columns = {c: column_after(delta, layout, c) for c in heading.value_columns}
    rows = rows_json(
        heading.value_columns, [_now_json(columns[c], heading.columns[c]) for c in heading.value_columns], count
    )
    evolving = tuple(c for c in heading.value_columns if source.type.columns[c].evolves)
    known = rows_json(evolving, [_known_json(columns[c], heading.columns[c]) for c in evolving], count)
    shown, final = masks.is_shown(delta.new.mask).tolist(), is_row_final(layout, delta).tolist()
    stays, steps = (delta.new.mask == masks.T).tolist(), delta.new.steps.tolist()
    final_deletion = is_deletion_final(source.type, delta, horizons).tolist()
    for i, key in enumerate(keys):
        if not shown[i]:
            yield {"view": source.name, "key": key, "deleted": True, "final": final_deletion[i], "steps": steps[i]}
            continue
        message: Json = {"view": source.name, "key": key, "row": rows[i], "knowledge": known[i], "final": final[i]}
        if stays[i] and not final[i]:
            message["stays"] = True
        message["steps"] = steps[i]
        yield message


# ── what both encodings say of a row ────────────────────────────────────────────────────────────────────────────────


def omit_hidden_rows(delta: Delta) -> Delta:
    """The rows that are shown before or after the batch."""
    shown = masks.is_shown(delta.new.mask) | masks.is_shown(delta.old_mask())
    return delta if shown.all() else delta.take(true_indices(shown))


def column_after(delta: Delta, layout: Layout, name: str) -> KnowledgeColumn:
    """A column as it is after the batch."""
    return delta.fixed[name] if name in layout.fixed else delta.new.columns[name]


def is_deletion_final(type_: RelationType, delta: Delta, horizons: Horizons) -> Bools:
    """Which of the hidden rows will never be shown again. An absent row may come back until its key is sealed."""
    mask = delta.new.mask
    is_final = mask == masks.F
    absent = mask == masks.ABSENT
    if absent.any():
        key: Mapping[str, ValueColumn] = {c: delta.fixed[c] for c in type_.heading.key}
        is_final |= absent & Seals(type_.key_seals, type_.heading.columns).is_sealed(horizons, key, len(delta))
    return np.asarray(is_final)


# ── columns: one JSON value for each row ────────────────────────────────────────────────────────────────────────────


def _now_json(column: KnowledgeColumn, data: DataType) -> list[Any]:
    """The current values, as plain SQL would return them."""
    if isinstance(column, ObjectColumn):
        return [plain_json(point.now, data) for point in column.points]
    return values_json(k.current_values(column), data)


def values_json(values: ValueColumn, data: DataType) -> list[Any]:
    plain_values: list[Any] = values.data.to_pylist() if values.is_text else values.data.tolist()
    if data.name in ("time", "interval"):
        plain_values = [tick if -JSON_INT_MAX <= tick <= JSON_INT_MAX else str(tick) for tick in plain_values]
    elif data.name == "decimal":
        if data.scale:
            plain_values = [
                plain_json(EXACT_CONTEXT.scaleb(Decimal(whole), -data.scale), data) for whole in plain_values
            ]
    elif data.name in ("timestamp", "date", "bytes", "array", "json"):
        plain_values = [plain_json(value, data) for value in plain_values]
    if values.valid is None:
        return plain_values
    return [value if is_valid else None for value, is_valid in zip(plain_values, values.valid.tolist(), strict=True)]


def _keys_json(values: ValueColumn, data: DataType) -> list[Any]:
    """Values of a column of the key."""
    if data != JSON:
        return values_json(values, data)
    texts = zip(values.is_valid().tolist(), values.data.to_pylist(), strict=True)
    return [key_json(text, data) if is_valid else None for is_valid, text in texts]


def _known_json(column: KnowledgeColumn, data: DataType) -> list[Json]:
    """The knowledge of each value, such as {"at_least": 3}."""
    if isinstance(column, ValueColumn):
        return [{"exactly": value} for value in values_json(column, data)]
    if isinstance(column, RangeColumn):
        return _ranges_json(column, data)
    if isinstance(column, MaskColumn):
        finals = column.is_final().tolist()
        truths = zip(finals, column.possible.tolist(), strict=True)
        return [{"exactly": _TRUTHS[bits]} if final else {"unknown": True} for final, bits in truths]
    if isinstance(column, LatestColumn):
        return _latest_json(column, data)
    return [knowledge_json(point, data) for point in column.points]


def _ranges_json(column: RangeColumn, data: DataType) -> list[Json]:
    count = len(column)
    lo, hi = ([None] * count if end is None else values_json(end, data) for end in (column.lo, column.hi))
    finals, codes = column.is_final().tolist(), column.null_codes().tolist()
    if data == JSON:
        lo, hi = ([end if final else None for final, end in zip(finals, ends, strict=True)] for ends in (lo, hi))
    return [_range_json(*cell) for cell in zip(finals, codes, lo, hi, strict=True)]


def _range_json(final: bool, nulls: int, lo: Any, hi: Any) -> Json:
    if final:
        return {"exactly": None if nulls == _ONLY else lo}
    if nulls == _MAYBE or (lo is None and hi is None):
        return {"unknown": True}
    if hi is None:
        return {"at_least": lo}
    return {"at_most": hi} if lo is None else {"between": [lo, hi]}


def _latest_json(column: LatestColumn, data: DataType) -> list[Json]:
    """Where no event decides, what is known is the bounds. Those of a Boolean say nothing until it is exact."""
    bounds = _known_json(to_mask_column(column.bounds), data) if data == BOOL else _ranges_json(column.bounds, data)
    values, ticks = values_json(column.value, data), values_json(column.tick, DataType("time"))
    cells = zip(bounds, values, ticks, column.source.tolist(), strict=True)
    return [_latest_cell_json(*cell) for cell in cells]


def _latest_cell_json(bounds: Json, value: Any, tick: Any, source: int) -> Json:
    if tick is None or "exactly" in bounds:
        return bounds
    return {"latest": value, "at": tick, "source": source} if source else {"latest": value, "at": tick}


def rows_json(names: tuple[str, ...], columns: list[list[Any]], count: int) -> list[Json]:
    """One JSON object per row."""
    if not names:
        return [{} for _ in range(count)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
