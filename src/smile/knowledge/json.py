"""Values and knowledge as JSON has them. Equal knowledge has equal JSON; digits beyond a float's travel as text."""

from decimal import Decimal
from typing import Any

from smile.algebra.coercions import to_text
from smile.algebra.types import DataType
from smile.knowledge.cell_knowledge import CellKnowledge

JSON_INT_MAX = 2**53
"""Beyond it, readers of JSON that have only floats lose digits: ticks travel as text."""

Json = dict[str, Any]


def knowledge_json(cell: CellKnowledge, data: DataType) -> Json:
    """What is known of a cell."""
    wire_knowledge = cell.wire()
    return {
        word: [plain_json(v, data) for v in value] if word == "between"
        else value if word == "unknown"
        else tick_json(value) if word == "at"
        else plain_json(value, data)
        for word, value in wire_knowledge.items()
    }  # fmt: skip


def plain_json(value: Any, data: DataType) -> Any:
    """A value as JSON has it. Of a nested relation the rows, in the order of their keys."""
    if value is None or isinstance(value, bool):
        return value
    if data.name == "relation":
        columns = dict(data.columns)
        return [{c: plain_json(v, columns[c]) for c, v in row.items()} for _, row in value]
    if data.name in ("time", "interval"):
        return tick_json(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else _fraction(value)
    return to_text(value, data) if data.name in ("timestamp", "date", "bytes") else value


def tick_json(value: int) -> int | str:
    return value if abs(value) <= JSON_INT_MAX else str(value)


def _fraction(value: Decimal) -> float | str:
    """A number where a float shows just these digits, else text."""
    return float(value) if Decimal(repr(float(value))) == value else str(value)
