"""Data types of values. How values become known is described in `knowledge`.

Values in Python are bool, int, float, Decimal, str and bytes. A time is its tick. An interval is a number of ticks,
always 1,024 per microsecond. A timestamp is a number of microseconds since 1970-01-01 UTC, a date a number of days.
JSON is its canonical text (`smile.algebra.json_values`). An array is bytes that have its elements and are ordered as
arrays are: see `smile.algebra.arrays`. NULL is None.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

Value = bool | int | float | Decimal | str | bytes | None

TICKS_PER_MICROSECOND: Final = 1024
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
TICK_MAX: Final = INT_MAX - 2**61
"""The greatest tick of an event, and the greatest value of a stream's column of type time. The distance to the greatest
integer is more than 70 years, so that a time plus an ordinary interval does not overflow."""


@dataclass(frozen=True)
class DataType:
    """Decimals have `digits` and `scale`. Relations have `columns`: the name and type of each column. Arrays have one,
    which is their elements."""

    name: str
    digits: int | None = None
    scale: int | None = None
    columns: tuple[tuple[str, "DataType"], ...] = ()

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.digits}, {self.scale})"
        if self.name == "relation":
            return "relation{" + ", ".join(f"{n}: {t}" for n, t in self.columns) + "}"
        if self.name == "array":
            return f"{self.element}[]"
        return self.name

    @property
    def is_number(self) -> bool:
        return self.name in ("int", "decimal", "float")

    @property
    def element(self) -> "DataType":
        """The type of the elements of an array."""
        ((_, element),) = self.columns
        return element

    @property
    def is_comparable(self) -> bool:
        """Whether values are equal or not: rows can be grouped and joined by them."""
        return self.name not in ("relation", "null")

    @property
    def is_ordered(self) -> bool:
        return self.is_comparable and self.name != "json"

    @property
    def is_text(self) -> bool:
        """Whether values are stored as text."""
        return self.name in ("string", "json")


def json_hint(types: Iterable[DataType]) -> str | None:
    """For errors about JSON where a number, a text or an order is needed: what works."""
    part = "Take a part of the JSON as text, j ->> 'a', and cast it if it is a number: (j ->> 'a')::int."
    return part if JSON in types else None


def decimal_type(digits: int, scale: int) -> DataType:
    return DataType("decimal", digits, scale)


def relation_type(columns: tuple[tuple[str, DataType], ...]) -> DataType:
    return DataType("relation", columns=columns)


def array_type(element: DataType) -> DataType:
    return DataType("array", columns=(("element", element),))


BOOL: Final = DataType("bool")
INT: Final = DataType("int")
FLOAT: Final = DataType("float")
STRING: Final = DataType("string")
TIME: Final = DataType("time")
INTERVAL: Final = DataType("interval")
TIMESTAMP: Final = DataType("timestamp")
DATE: Final = DataType("date")
BYTES: Final = DataType("bytes")
JSON: Final = DataType("json")
NULL: Final = DataType("null")
"""The type of a bare NULL. It can be coerced to any other type."""
SUM_OF_INTS: Final = decimal_type(38, 0)

ELEMENT_TYPES: Final = (
    "bool", "int", "float", "decimal", "string", "time", "interval", "timestamp", "date", "bytes",
)  # fmt: skip
"""The types that the elements of an array can have."""

SIMPLE_TYPES: Final = {t.name: t for t in (BOOL, INT, FLOAT, STRING, TIME, INTERVAL, TIMESTAMP, DATE, BYTES, JSON)}
