"""Translates aggregates of different values, such as SUM(DISTINCT x): those of the distinct rows of the group and the
value, joined with the groups."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from smile.algebra import mmpl
from smile.algebra.types import DataType, Value
from smile.errors import error
from smile.lang import span_of
from smile.operators.aggregates import aggregate_type, default_value
from smile.source import Span
from smile.translate.derived_aggregates import VARIANCES, add_variance
from smile.translate.expressions import ExpressionTranslator, TypedExpr
from smile.translate.null_safe import add_comparable_columns, nulls_among
from smile.translate.pipeline import QueryPipeline
from smile.translate.scope import Scope, free_name


@dataclass(frozen=True)
class DistinctAggregate:
    """`node` aggregates the different `values`: rows of one value, or of several that are counted. `counts_nulls`: rows
    with a NULL count too."""

    node: exp.Expr
    values: tuple[TypedExpr, ...]
    counts_nulls: bool
    wanted: str
    span: Span | None

    def empty_value(self, type: DataType) -> Value:
        """Its value for a group without members."""
        if isinstance(self.node, exp.Count):
            return 0
        return default_value(mmpl.Aggregate("sum"), type) if isinstance(self.node, exp.Sum) else None


def is_distinct_aggregate(node: exp.Expr) -> bool:
    """Whether an aggregate is of different values. COUNT(DISTINCT x) has an aggregate of its own."""
    argument = node.this
    if not isinstance(argument, exp.Distinct):
        return False
    return (
        not isinstance(node, exp.Count)
        or isinstance(argument.expressions[0], exp.Tuple)
        or len(argument.expressions) > 1
    )


def distinct_aggregate(node: exp.Expr, wanted: str, translator: ExpressionTranslator) -> DistinctAggregate:
    operands = node.this.expressions
    is_list = isinstance(operands[0], exp.Tuple)
    if is_list:
        operands = operands[0].expressions
    values = tuple(translator.translate(o) for o in operands)
    for typed, operand in zip(values, operands, strict=True):
        if not typed.type.is_ordered:
            raise error("E031", f"DISTINCT cannot compare a {typed.type.name}", span_of(operand))
    return DistinctAggregate(node, values, is_list, wanted or node.key, span_of(node))


def join_distinct_aggregate(
    groups: QueryPipeline, source: mmpl.Rel, per: Sequence[str], distinct: DistinctAggregate, reserved: Iterable[str]
) -> TypedExpr:
    """Joins the groups of `source` with the aggregate of the different values of each. No column gets one of the
    `reserved` names."""
    span = distinct.span
    rows = QueryPipeline(source, Scope(), groups.catalog)
    nulls = nulls_among(rows, per)
    if not distinct.counts_nulls:
        rows.restrict([mmpl.Call("is not null", (v.expr,), span=span) for v in distinct.values])
    group_columns = add_comparable_columns(rows, per, nulls)
    values = rows.extend_all([("value", v) for v in distinct.values])
    columns = tuple(dict.fromkeys((*group_columns, *values)))
    rows.rel = mmpl.Distinct(mmpl.Project(rows.rel, columns, span=span), span=span)
    wanted = free_name(distinct.wanted, (*groups.heading.columns, *rows.heading.columns))
    result = _summarize(rows, group_columns, values[0], wanted, distinct)
    keys = add_comparable_columns(groups, per, nulls)
    taken = {*groups.heading.columns, *reserved}
    new_names: dict[str, str] = {}
    for column in rows.heading.columns:
        new_names[column] = free_name(wanted if column == result else f"{column}_2", taken)
        taken.add(new_names[column])
    on = tuple((key, new_names[column]) for key, column in zip(keys, group_columns, strict=True))
    groups.rel = mmpl.Join("left", groups.rel, mmpl.Rename(rows.rel, tuple(new_names.items())), on, span=span)
    column = new_names[result]
    return TypedExpr(mmpl.ColumnRef(column, span=span), groups.heading.columns[column])


def _summarize(rows: QueryPipeline, per: Sequence[str], value: str, wanted: str, distinct: DistinctAggregate) -> str:
    """Groups the distinct rows. Returns the column of the aggregate."""
    node, span = distinct.node, distinct.span
    aggregates: dict[str, mmpl.Aggregate] = {}

    def add(aggregate: mmpl.Aggregate) -> str:
        aggregate_type(aggregate, rows.heading, span)
        name = free_name(wanted, (*rows.heading.columns, *aggregates))
        aggregates[name] = aggregate
        return name

    typed = TypedExpr(mmpl.ColumnRef(value, span=span), rows.heading.columns[value])
    variance = add_variance(node, typed, rows.translator(), add) if isinstance(node, VARIANCES) else None
    if isinstance(node, exp.Count):
        add(mmpl.Aggregate("count", span=span))
    elif variance is None:
        add(mmpl.Aggregate("sum" if isinstance(node, exp.Sum) else "avg", typed.expr, span=span))
    rows.rel = mmpl.Summarize(rows.rel, tuple(per), tuple(aggregates.items()), span=span)
    rows.computed.clear()
    if variance is None:
        return wanted
    return rows.extend("variance", variance.value(rows.heading.columns, span))
