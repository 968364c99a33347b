"""Translates VALUES: constants in rows, as the contents of a table or as a relation in FROM."""

from collections.abc import Mapping, Sequence

from sqlglot import exp

from smile.algebra import mmpl
from smile.algebra.coercions import common_type, to_text
from smile.algebra.functions.catalogue import evaluate_expr
from smile.algebra.types import INT, NULL, STRING, DataType, Value
from smile.errors import error
from smile.lang import span_of
from smile.source import Span
from smile.translate.expressions import ExpressionTranslator, TypedExpr
from smile.translate.scope import Scope, free_name

_CONSTANT_HINT = "VALUES has constants, and expressions of constants."


def constant_rows(rows: Sequence[exp.Expr], types: Sequence[DataType]) -> tuple[tuple[Value, ...], ...]:
    """The values of rows whose columns have these types."""
    return tuple(_constant_row(row, types) for row in rows)


def row_text(row: Sequence[Value], types: Mapping[str, DataType]) -> str:
    """The row as an error names it."""
    cells = zip(row, types.values(), strict=True)
    return f"({', '.join('NULL' if value is None else to_text(value, data) for value, data in cells)})"


def translate_values(node: exp.Values) -> mmpl.Rel:
    """A relation with the columns `column1`, `column2`, …. Its hidden key is the number of the row."""
    span = span_of(node)
    width = len(node.expressions[0].expressions)
    types = [_common_type([_cells(row, width)[i] for row in node.expressions]) for i in range(width)]
    names = [f"column{i + 1}" for i in range(width)]
    number = free_name("row", names)
    rows = tuple((n, *row) for n, row in enumerate(constant_rows(node.expressions, types), 1))
    columns = ((number, INT), *zip(names, types, strict=True))
    return mmpl.Project(mmpl.Values(columns, (number,), rows, span=span), tuple(names), span=span)


def _common_type(cells: Sequence[exp.Expr]) -> DataType:
    result = NULL
    for cell in cells:
        type = _translator().translate(cell).type
        common = common_type(result, type)
        if common is None:
            raise error("E030", f"a column of VALUES has the incompatible types {result} and {type}", span_of(cell))
        result = common
    return STRING if result == NULL else result


def _constant_row(row: exp.Expr, types: Sequence[DataType]) -> tuple[Value, ...]:
    return tuple(_constant(cell, type) for cell, type in zip(_cells(row, len(types)), types, strict=True))


def _cells(row: exp.Expr, width: int) -> Sequence[exp.Expr]:
    cells: Sequence[exp.Expr] = row.expressions
    if len(cells) != width:
        raise error("E044", f"this row has {len(cells)} values, but there are {width} columns", span_of(row))
    return cells


def _constant(node: exp.Expr, type: DataType) -> Value:
    translator, span = _translator(), span_of(node)
    typed = translator.adapt_literal(translator.translate(node), type)
    value = evaluate_expr(translator.coerce(typed, type, span, explicit=_is_number(typed, type)), {}, {})
    if value is None and not (isinstance(typed.expr, mmpl.Constant) and typed.expr.value is None):
        raise error("E212", f"this value does not fit {type}", span)
    return value + 0.0 if isinstance(value, float) else value  # minus zero becomes zero


def _is_number(typed: TypedExpr, type: DataType) -> bool:
    """Numbers are converted as PostgreSQL converts them in INSERT."""
    return typed.type.is_number and type.is_number


def _translator() -> ExpressionTranslator:
    def no_columns(name: str, span: Span | None) -> DataType:
        raise error("E212", f"{name} is a column", span, _CONSTANT_HINT)

    return ExpressionTranslator(Scope(), no_columns)
