"""The spellings of data types: each names one type of `smile.algebra.types`, and the check that its length implies."""

import re

from sqlglot import exp

from smile import limits
from smile.algebra.types import BOOL, BYTES, DATE, FLOAT, INT, INTERVAL, STRING, TIME, TIMESTAMP, DataType, decimal_type
from smile.errors import error, nearest
from smile.source import Span

SPELLINGS: dict[str, DataType] = {
    "bool": BOOL, "boolean": BOOL,
    "int": INT, "integer": INT, "bigint": INT, "smallint": INT, "int8": INT, "int4": INT, "long": INT,
    "float": FLOAT, "double": FLOAT, "double precision": FLOAT, "real": FLOAT, "float8": FLOAT,
    "string": STRING, "text": STRING, "varchar": STRING, "char": STRING, "character varying": STRING,
    "time": TIME, "interval": INTERVAL, "timestamp": TIMESTAMP, "datetime": TIMESTAMP, "date": DATE,
    "bytes": BYTES, "bytea": BYTES, "blob": BYTES,
}  # fmt: skip
DECIMALS = ("decimal", "numeric", "dec")


def parse_type_name(text: str, span: Span | None) -> tuple[DataType, int | None] | None:
    """The type, and for a string the greatest length if one is given; None if no such type exists."""
    found = re.fullmatch(r"([^\W\d][\w ]*?)\s*(?:\(([^()]*)\))?", text.strip())
    if found is None:
        return None
    name, args = found[1].casefold(), found[2]
    name = name.removesuffix(" without time zone")
    written = [n.strip() for n in args.split(",")] if args else []
    if not all(n.isdecimal() for n in written):
        raise error("E025", f"the parameters of the type {name} are whole numbers", span)
    numbers = [int(n) for n in written]
    if name in DECIMALS:
        return _decimal(numbers, span), None
    if name not in SPELLINGS:
        return None
    type = SPELLINGS[name]
    if len(numbers) > 1 or (numbers and type not in (STRING, FLOAT, TIMESTAMP)):
        raise error("E025", f"the type {name} has no such parameters", span)
    return type, (numbers[0] if numbers and type == STRING else None)


def _decimal(numbers: list[int], span: Span | None) -> DataType:
    most = limits.decimal_digits_max
    digits, scale = (*numbers, 0)[:2] if numbers else (most, most // 2)
    if len(numbers) > 2 or not (1 <= digits <= most and 0 <= scale <= digits):
        hint = f"Write decimal(digits, scale), with at most {most} digits of which scale are behind the point."
        raise error("E025", f"there is no decimal({', '.join(map(str, numbers))})", span, hint)
    return decimal_type(digits, scale)


def base_type(node: exp.DataType, span: Span | None) -> DataType:
    """The type that a CAST names."""
    text = str(node.args["kind"])
    known = parse_type_name(text, span)
    if known is None:
        raise error("E025", f"there is no type {text}", span, nearest(text, (*SPELLINGS, *DECIMALS)))
    return known[0]
