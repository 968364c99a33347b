"""Values as text for people: times are local, floats have about six digits. Programs read `value`, which is exact."""

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import ROUND_HALF_EVEN, Context, Decimal
from math import isfinite
from typing import Any

from smile.client.ticks import interval_text, tick_text
from smile.client.values import ViewColumn, document_text

DIGITS = 6
_EXACT = Context(prec=400)


def value_text(
    value: Any, column: ViewColumn | None = None, today: date | None = None, rounding: str = ROUND_HALF_EVEN
) -> str:
    """`column` says what ints are. Times of the day `today` are shown without the date."""
    if column is not None and column.kind == "json" and isinstance(value, dict | list):
        return document_text(value, is_compact=True)
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case float():
            return float_text(value, rounding)
        case int() if column is not None and column.kind == "time":
            return tick_text(value, today)
        case int() if column is not None and column.kind == "interval":
            return interval_text(value)
        case tuple():
            element = None if column is None else column.element
            return "[" + ", ".join(value_text(v, element, today, rounding) for v in value) + "]"
        case list():
            return rows_text(value, column, today)
    return str(value)


def rows_text(
    rows: Sequence[Mapping[str, Any]],
    column: ViewColumn | None = None,
    today: date | None = None,
    states: Sequence[str] = (),
    is_open: bool = False,
) -> str:
    """A nested relation. A row that may leave or change is marked, and `…` stands for rows that may still come."""
    columns = {} if column is None else column.by_name
    texts = [", ".join(f"{name} {value_text(v, columns.get(name), today)}" for name, v in row.items()) for row in rows]
    marks = ["" if state == "final" else "~" for state in states] or [""] * len(texts)
    parts = [text + mark for text, mark in zip(texts, marks, strict=True)] + ["…"] * is_open
    return "{" + "; ".join(parts) + "}"


def float_text(value: float, rounding: str = ROUND_HALF_EVEN) -> str:
    """Six significant digits, but all digits before the point if they are at most 15. What is rounded is the shortest
    text of the number: one that has six digits is shown as it was written, also as a bound."""
    if not isfinite(value) or value == 0:
        return "0" if value == 0 else str(value)
    shortest = Decimal(repr(value))
    exponent = shortest.adjusted()
    is_plain = -DIGITS < exponent < 15
    last_place = Decimal(1).scaleb(min(0, exponent - DIGITS + 1) if is_plain else exponent - DIGITS + 1)
    rounded = shortest.quantize(last_place, rounding, _EXACT)
    if is_plain:
        text = f"{rounded:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{float(rounded):.{DIGITS}g}"
