"""Aggregates that are expressions over others: variances over exact sums, and ARG_MAX over the best row of a group."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from smile.algebra import mmpl
from smile.algebra.functions.catalogue import resolve_signature, type_of
from smile.algebra.types import FLOAT, INT, NULL, DataType, decimal_type, json_hint
from smile.errors import error
from smile.lang import span_of
from smile.source import Span
from smile.translate.expressions import ExpressionTranslator, TypedExpr
from smile.translate.null_safe import add_comparable_columns, nulls_among
from smile.translate.pipeline import QueryPipeline
from smile.translate.scope import Scope, free_name

VARIANCES: tuple[type[exp.Expr], ...] = (exp.Variance, exp.VariancePop, exp.StddevSamp, exp.StddevPop)
_WIDE = decimal_type(38, 0)

AddAggregate = Callable[[mmpl.Aggregate], str]
"""Adds an aggregate to a SUMMARIZE, and returns the name of its column."""


# ── variances ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Variance:
    """The columns of the number, the sum and the sum of the squares of the values."""

    kind: type[exp.Expr]
    count: str
    total: str
    squares: str

    def value(self, types: Mapping[str, DataType], span: Span | None) -> TypedExpr:
        """(n * squares - total * total) / (n * (n - 1)), or / (n * n) for the whole population. NULL of no values."""
        n, total, squares = (mmpl.ColumnRef(c, span=span) for c in (self.count, self.total, self.squares))
        spread = _call("-", _call("*", n, squares, types), _call("*", total, total, types), types)
        is_population = self.kind in (exp.VariancePop, exp.StddevPop)
        others = n if is_population else _call("-", n, mmpl.Constant(1, INT), types)
        zero = mmpl.Constant(0.0, FLOAT)
        # The difference of rounded floats can be below zero.
        above_zero = mmpl.Call("greatest", (mmpl.Cast(spread, FLOAT), zero))
        pairs = mmpl.Cast(_call("*", n, others, types), FLOAT)
        variance = mmpl.Call("/", (above_zero, pairs), span=span)
        is_deviation = self.kind in (exp.StddevSamp, exp.StddevPop)
        return TypedExpr(mmpl.Call("sqrt", (variance,), span=span) if is_deviation else variance, FLOAT)


def add_variance(node: exp.Expr, typed: TypedExpr, translator: ExpressionTranslator, add: AddAggregate) -> Variance:
    span = span_of(node)
    if not typed.type.is_number and typed.type != NULL:
        raise error("E031", f"a variance needs numbers, found {typed.type}", span)
    exact = FLOAT if typed.type == FLOAT else _WIDE if typed.type in (INT, NULL) else typed.type
    value = translator.coerce(typed, exact, span, explicit=True)
    square = resolve_signature("*", (exact, exact))
    assert square is not None
    factors = tuple(v if t == exact else mmpl.Cast(v, t) for v, t in zip((value, value), square.args, strict=True))
    return Variance(
        type(node),
        add(mmpl.Aggregate("count", value, span=span)),
        add(mmpl.Aggregate("sum", value, span=span)),
        add(mmpl.Aggregate("sum", mmpl.Call("*", factors), span=span)),
    )


def _call(function: str, a: mmpl.Expr, b: mmpl.Expr, types: Mapping[str, DataType]) -> mmpl.Expr:
    """A call with the casts that it needs."""
    operands = (a, b)
    signature = resolve_signature(function, (type_of(a, types), type_of(b, types)))
    assert signature is not None
    return mmpl.Call(
        function,
        tuple(o if type_of(o, types) == t else mmpl.Cast(o, t) for o, t in zip(operands, signature.args, strict=True)),
    )


# ── ARG_MAX, ARG_MIN ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ExtremeRow:
    """`value` of the row of each group in which `by` is greatest, or least."""

    value: mmpl.Expr
    by: mmpl.Expr
    descending: bool
    wanted: str
    span: Span | None


def extreme_row(node: exp.Expr, wanted: str, translator: ExpressionTranslator) -> ExtremeRow:
    value, by = translator.translate(node.this), translator.translate(node.expression)
    name = "ARG_MAX" if isinstance(node, exp.ArgMax) else "ARG_MIN"
    for typed, fits in ((value, value.type.is_comparable), (by, by.type.is_ordered)):
        if not fits:
            message, hint = f"{name} cannot be applied to a {typed.type.name}", json_hint([typed.type])
            raise error("E031", message, span_of(node), hint)
    return ExtremeRow(value.expr, by.expr, isinstance(node, exp.ArgMax), wanted or name.lower(), span_of(node))


def join_extreme_row(
    groups: QueryPipeline, source: mmpl.Rel, per: Sequence[str], extreme: ExtremeRow, reserved: Iterable[str] = ()
) -> TypedExpr:
    """Joins the groups of `source` with the one row of each group. Rows in which `by` is NULL do not count.
    No column gets one of the `reserved` names."""
    span = extreme.span
    rows = QueryPipeline(source, Scope(), groups.catalog)
    nulls = nulls_among(rows, per)
    rows.restrict([mmpl.Call("is not null", (extreme.by,), span=span)])
    group_columns = add_comparable_columns(rows, per, nulls)
    best = mmpl.Best(rows.rel, 1, ((extreme.by, extreme.descending),), tuple(group_columns), span=span)
    name = free_name("value", group_columns)
    picked = mmpl.Summarize(
        best, tuple(group_columns), ((name, mmpl.Aggregate("min", extreme.value, span=span)),), span=span
    )
    keys = add_comparable_columns(groups, per, nulls)
    taken = {*groups.heading.columns, *reserved}
    new_names: dict[str, str] = {}
    for column in (*group_columns, name):
        new_names[column] = free_name(extreme.wanted if column == name else f"{column}_2", taken)
        taken.add(new_names[column])
    on = tuple((key, new_names[column]) for key, column in zip(keys, group_columns, strict=True))
    groups.rel = mmpl.Join("left", groups.rel, mmpl.Rename(picked, tuple(new_names.items())), on, span=span)
    column = new_names[name]
    return TypedExpr(mmpl.ColumnRef(column, span=span), groups.heading.columns[column])
