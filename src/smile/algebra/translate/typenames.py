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
    numbers = [int(n) for n in re.findall(r"\d+", args)] if args else []
    if name in DECIMALS:
        digits = numbers[0] if numbers else limits.decimal_digits_max
        scale = numbers[1] if len(numbers) > 1 else (0 if numbers else limits.decimal_digits_max // 2)
        if not (1 <= digits <= limits.decimal_digits_max and 0 <= scale <= digits):
            raise error("E025", f"a decimal has at most {limits.decimal_digits_max} digits", span)
        return decimal_type(digits, scale), None
    if name not in SPELLINGS:
        return None
    return SPELLINGS[name], (numbers[0] if numbers and SPELLINGS[name] == STRING else None)


def base_type(node: exp.DataType, span: Span | None) -> DataType:
    """The type that a CAST names."""
    text = node.sql(dialect="postgres").lower()
    known = parse_type_name(_PRINTED.get(text, text), span)
    if known is None:
        raise error("E025", f"there is no type {text}", span, nearest(text, (*SPELLINGS, *DECIMALS)))
    return known[0]


_PRINTED = {"timestamp without time zone": "timestamp", "string": "string"}
