"""Columns as JSON has them, a value a row: what a column is, and what is known of it. The same as `knowledge.json` says
of each cell, found a column at a time.
"""

from decimal import Decimal
from typing import Any

from smile.algebra.coercions import EXACT
from smile.algebra.types import DataType
from smile.columns import knowledge as k
from smile.columns.knowledge import Column, Latests, Masks, Objects, Ranges
from smile.columns.values import Values
from smile.knowledge.json import JSON_INT_MAX, Json, knowledge_json, plain_json
from smile.knowledge.range import MAYBE, ONLY

_MAYBE, _ONLY = k.NULLS.index(MAYBE), k.NULLS.index(ONLY)
_TRUTHS = {1: True, 2: False, 4: None, 0: None}


def now_json(column: Column, data: DataType) -> list[Any]:
    """What plain SQL gives."""
    if isinstance(column, Objects):
        return [plain_json(point.now, data) for point in column.points]
    return values_json(k.now_of(column), data)


def values_json(values: Values, data: DataType) -> list[Any]:
    found: list[Any] = values.data.to_pylist() if values.is_text else values.data.tolist()
    if data.name in ("time", "interval"):
        found = [tick if -JSON_INT_MAX <= tick <= JSON_INT_MAX else str(tick) for tick in found]
    elif data.name == "decimal":
        if data.scale:
            found = [plain_json(EXACT.scaleb(Decimal(whole), -data.scale), data) for whole in found]
    elif data.name in ("timestamp", "date", "bytes"):
        found = [plain_json(value, data) for value in found]
    if values.valid is None:
        return found
    return [value if there else None for value, there in zip(found, values.valid.tolist(), strict=True)]


def known_json(column: Column, data: DataType) -> list[Json]:
    """What is known."""
    if isinstance(column, Values):
        return [{"exactly": value} for value in values_json(column, data)]
    if isinstance(column, Ranges):
        return _ranges(column, data)
    if isinstance(column, Masks):
        finals = column.finals().tolist()
        truths = zip(finals, column.possible.tolist(), strict=True)
        return [{"exactly": _TRUTHS[bits]} if final else {"unknown": True} for final, bits in truths]
    if isinstance(column, Latests):
        return _latests(column, data)
    return [knowledge_json(point, data) for point in column.points]


def _ranges(column: Ranges, data: DataType) -> list[Json]:
    count = len(column)
    lo, hi = ([None] * count if end is None else values_json(end, data) for end in (column.lo, column.hi))
    finals, codes = column.finals().tolist(), column.null_codes().tolist()
    return [_range(*cell) for cell in zip(finals, codes, lo, hi, strict=True)]


def _range(final: bool, nulls: int, lo: Any, hi: Any) -> Json:
    if final:
        return {"exactly": None if nulls == _ONLY else lo}
    if nulls == _MAYBE or (lo is None and hi is None):
        return {"unknown": True}
    if hi is None:
        return {"at_least": lo}
    return {"at_most": hi} if lo is None else {"between": [lo, hi]}


def _latests(column: Latests, data: DataType) -> list[Json]:
    values, ticks = values_json(column.value, data), values_json(column.tick, DataType("time"))
    return [
        {"exactly": value} if sealed else {"unknown": True} if tick is None else {"latest": value, "at": tick}
        for sealed, value, tick in zip(column.sealed.tolist(), values, ticks, strict=True)
    ]


def rows_json(names: tuple[str, ...], columns: list[list[Any]], count: int) -> list[Json]:
    """An object a row."""
    if not names:
        return [{} for _ in range(count)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
