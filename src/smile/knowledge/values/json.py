"""Values and knowledge as JSON. Equal knowledge has equal JSON. A number with more digits than a float holds is
text."""

from decimal import Decimal
from typing import Any

from msgspec import Raw

from smile.algebra.arrays import decode_array
from smile.algebra.coercions import to_text
from smile.algebra.json_values import key_text
from smile.algebra.types import JSON, DataType
from smile.knowledge.values.cell_knowledge import CellKnowledge

JSON_INT_MAX = 2**53
"""Readers of JSON that have only floats lose digits of larger integers, so larger ticks are sent as text."""

Json = dict[str, Any]


def knowledge_json(cell: CellKnowledge, data: DataType) -> Json:
    """The knowledge of a cell. JSON has no order, so that it has no bounds."""
    known = cell.wire()
    if data == JSON and not known.keys().isdisjoint(("at_least", "at_most", "between")):
        return {"unknown": True}
    return {
        name: [plain_json(v, data) for v in value] if name == "between"
        else value if name in ("unknown", "source", "rows", "open")
        else tick_json(value) if name == "at"
        else plain_json(value, data)
        for name, value in known.items()
    }  # fmt: skip


def plain_json(value: Any, data: DataType) -> Any:
    """A value as JSON. A nested relation is the list of its rows, in the order of their keys."""
    if value is None or isinstance(value, bool):
        return value
    if data.name == "relation":
        columns = dict(data.columns)
        return [{c: plain_json(v, columns[c]) for c, v in row.items()} for _, row in value]
    if data.name == "array":
        return [plain_json(element, data.element) for element in decode_array(value, data.element)]
    if data.name in ("time", "interval"):
        return tick_json(value)
    if data == JSON:
        return Raw(value.encode())
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else _decimal_json(value)
    return to_text(value, data) if data.name in ("timestamp", "date", "bytes") else value


def key_json(value: Any, data: DataType) -> Any:
    """A value in the key of a row: different values have different JSON there, also NULL and the JSON value null."""
    return plain_json(key_text(value) if data == JSON and value is not None else value, data)


def tick_json(value: int) -> int | str:
    return value if abs(value) <= JSON_INT_MAX else str(value)


def _decimal_json(value: Decimal) -> float | str:
    """A number if a float has exactly these digits, else text."""
    return float(value) if Decimal(repr(float(value))) == value else str(value)
