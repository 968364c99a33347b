"""Encodes columns as JSON, one value per row: the current values, and what is known of them.

The results equal those of `knowledge.json` for each cell, but are computed column by column.
"""

from decimal import Decimal
from typing import Any

from smile.algebra.coercions import EXACT_CONTEXT
from smile.algebra.types import DataType
from smile.columns import knowledge as k
from smile.columns.knowledge import KnowledgeColumn, LatestColumn, MaskColumn, ObjectColumn, RangeColumn
from smile.columns.values import ValueColumn
from smile.knowledge.values.json import JSON_INT_MAX, Json, knowledge_json, plain_json
from smile.knowledge.values.range import MAYBE, ONLY

_MAYBE, _ONLY = k.NULLABILITY_BY_CODE.index(MAYBE), k.NULLABILITY_BY_CODE.index(ONLY)
_TRUTHS = {1: True, 2: False, 4: None, 0: None}


def now_json(column: KnowledgeColumn, data: DataType) -> list[Any]:
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
    elif data.name in ("timestamp", "date", "bytes"):
        plain_values = [plain_json(value, data) for value in plain_values]
    if values.valid is None:
        return plain_values
    return [value if is_valid else None for value, is_valid in zip(plain_values, values.valid.tolist(), strict=True)]


def known_json(column: KnowledgeColumn, data: DataType) -> list[Json]:
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
    values, ticks = values_json(column.value, data), values_json(column.tick, DataType("time"))
    return [
        {"exactly": value} if sealed else {"unknown": True} if tick is None else {"latest": value, "at": tick}
        for sealed, value, tick in zip(column.sealed.tolist(), values, ticks, strict=True)
    ]


def rows_json(names: tuple[str, ...], columns: list[list[Any]], count: int) -> list[Json]:
    """One JSON object per row."""
    if not names:
        return [{} for _ in range(count)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
