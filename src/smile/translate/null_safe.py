"""Columns by which groups are joined as GROUP BY and PARTITION BY compare them: a NULL equals a NULL."""

from collections.abc import Sequence

from smile.algebra import mmpl
from smile.algebra.coercions import parse_literal
from smile.algebra.types import BOOL, STRING, DataType, Value
from smile.translate.expressions import TypedExpr
from smile.translate.pipeline import QueryPipeline

_STAND_INS: dict[str, str] = {
    "bool": "false", "int": "0", "float": "0", "decimal": "0", "string": "", "time": "0", "interval": "0 seconds",
    "timestamp": "1970-01-01 00:00:00", "date": "1970-01-01", "bytes": "\\x", "json": "null",
}  # fmt: skip
"""A value of each type that stands for NULL beside a column that says so."""


def nulls_among(pipeline: QueryPipeline, columns: Sequence[str]) -> list[bool]:
    """For each column, whether it can be NULL. The tick cannot."""
    rest = [c for c in columns if c not in pipeline.heading.tick]
    never_null = pipeline.catalog.never_null(pipeline.rel) if rest else frozenset[str]()
    return [c in rest and c not in never_null for c in columns]


def add_comparable_columns(
    pipeline: QueryPipeline, columns: Sequence[str], nulls: Sequence[bool], avoid: Sequence[str] = ()
) -> list[str]:
    """Columns that are never NULL, and equal for two rows if the given ones are equal or both NULL. A column that is
    never NULL stands for itself, with the time at which it is final. `nulls` has whether each can be NULL; it is the
    same for both sides of a join."""
    wanted: list[tuple[str, TypedExpr]] = []
    heading = pipeline.heading
    for column, can_be_null in zip(columns, nulls, strict=True):
        reference, type = mmpl.ColumnRef(column), heading.columns[column]
        if not can_be_null:
            wanted.append((column, TypedExpr(reference, type)))
            continue
        wanted.append((f"{column}_is_null", TypedExpr(mmpl.Call("is null", (reference,)), BOOL)))
        stand_in = mmpl.Constant(_stand_in(type), type)
        wanted.append((f"{column}_value", TypedExpr(mmpl.Call("coalesce", (reference, stand_in)), type)))
    return pipeline.extend_all(wanted, avoid)


def _stand_in(type: DataType) -> Value:
    text = _STAND_INS[type.name]
    return text if type == STRING else parse_literal(text, type)
