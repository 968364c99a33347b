"""Parses the names of data types. A length becomes a CHECK."""

import re
from collections.abc import Iterable

from sqlglot import exp

from smile import limits
from smile.algebra.types import (
    BOOL,
    BYTES,
    DATE,
    FLOAT,
    INT,
    INTERVAL,
    JSON,
    STRING,
    TIME,
    TIMESTAMP,
    DataType,
    array_type,
    decimal_type,
)
from smile.errors import did_you_mean, error
from smile.source import Span

TYPE_SPELLINGS: dict[str, DataType] = {
    "bool": BOOL, "boolean": BOOL,
    "int": INT, "integer": INT, "bigint": INT, "smallint": INT, "int8": INT, "int4": INT,
    "int2": INT, "tinyint": INT, "long": INT,
    "float": FLOAT, "double": FLOAT, "double precision": FLOAT, "real": FLOAT, "float8": FLOAT, "float4": FLOAT,
    "string": STRING, "text": STRING, "varchar": STRING, "char": STRING, "character varying": STRING,
    "time": TIME, "interval": INTERVAL, "timestamp": TIMESTAMP, "datetime": TIMESTAMP, "date": DATE,
    "bytes": BYTES, "bytea": BYTES, "blob": BYTES, "json": JSON, "jsonb": JSON,
}  # fmt: skip
_JSON_HINT = "Use json."
_ARRAY_HINT = "An array is written as the type of its elements and brackets: int[]."
_NO_STRUCT_HINT = "Declare a column for each part, or use json."
_NO_ZONE_HINT = "All times are UTC: use timestamp."
TYPE_HINTS = {
    **dict.fromkeys(("variant", "super", "object"), _JSON_HINT),
    **dict.fromkeys(("array", "list"), _ARRAY_HINT),
    **dict.fromkeys(("map", "struct", "row"), _NO_STRUCT_HINT),
    **dict.fromkeys(("timestamptz", "timestamp_ltz", "timestamp with time zone", "time with time zone"), _NO_ZONE_HINT),
    **dict.fromkeys(("serial", "bigserial", "identity"), "The tick numbers the events of a stream."),
    "enum": "Declare a domain: CREATE DOMAIN d AS string CHECK (VALUE IN ('a', 'b')).",
    "money": "Use decimal(digits, scale).",
    "uuid": "A column can be a uuid; an expression is a string.",
}
"""What to write instead of types of other dialects."""

DECIMAL_SPELLINGS = ("decimal", "numeric", "dec")


def parse_type_name(text: str, span: Span | None) -> tuple[DataType, int | None] | None:
    """The type, and the maximum length of a string if one is given. None if there is no such type."""
    if text.endswith("[]"):
        return _parse_array_type(text.removesuffix("[]"), span)
    match = re.fullmatch(r"([^\W\d][\w ]*?)\s*(?:\(([^()]*)\))?", text.strip())
    if match is None:
        return None
    name, args = match[1].casefold(), match[2]
    name = name.removesuffix(" without time zone")
    parameters = [n.strip() for n in args.split(",")] if args else []
    if not all(n.isdecimal() for n in parameters):
        raise error("E025", f"the parameters of the type {name} must be whole numbers", span)
    numbers = [int(n) for n in parameters]
    if name in DECIMAL_SPELLINGS:
        return _parse_decimal_type(numbers, span), None
    if name not in TYPE_SPELLINGS:
        return None
    type = TYPE_SPELLINGS[name]
    if len(numbers) > 1 or (numbers and type not in (STRING, FLOAT, TIMESTAMP)):
        raise error("E025", f"the type {name} has no such parameters", span)
    return type, (numbers[0] if numbers and type == STRING else None)


def _parse_array_type(element: str, span: Span | None) -> tuple[DataType, None] | None:
    parsed = parse_type_name(element, span)
    if parsed is None:
        return None
    if parsed[0].name == "array":
        raise error("E025", f"there is no type {element}[]", span, "The elements of an array are plain values.")
    if parsed[1] is not None:
        raise error("E025", "the elements of an array have no maximum length", span, "Write string[].")
    return array_type(parsed[0]), None


def _parse_decimal_type(numbers: list[int], span: Span | None) -> DataType:
    digits_max = limits.decimal_digits_max
    digits, scale = (*numbers, 0)[:2] if numbers else (digits_max, digits_max // 2)
    if len(numbers) > 2 or not (1 <= digits <= digits_max and 0 <= scale <= digits):
        hint = f"Write decimal(digits, scale) with at most {digits_max} digits, scale of them after the decimal point."
        raise error("E025", f"there is no decimal({', '.join(map(str, numbers))})", span, hint)
    return decimal_type(digits, scale)


def type_hint(text: str, known: Iterable[str]) -> str | None:
    """What to write instead of a type that does not exist."""
    return TYPE_HINTS.get(text.casefold()) or did_you_mean(text, known)


def cast_target_type(node: exp.DataType, span: Span | None) -> DataType:
    """The target type of a CAST."""
    text = str(node.args["kind"])
    parsed = parse_type_name(text, span)
    if parsed is None:
        raise error("E025", f"there is no type {text}", span, type_hint(text, (*TYPE_SPELLINGS, *DECIMAL_SPELLINGS)))
    return parsed[0]
