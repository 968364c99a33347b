"""Translates GROUP BY and aggregates. Expressions after a SUMMARIZE use only its group columns and aggregates."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl, trees
from smile.algebra.types import ELEMENT_TYPES, FLOAT, NULL, STRING, DataType, Value
from smile.errors import error
from smile.lang import span_of
from smile.operators.aggregates import aggregate_type
from smile.recursion import continue_in_threads
from smile.source import Span
from smile.translate.derived_aggregates import (
    VARIANCES,
    ExtremeRow,
    Variance,
    add_variance,
    extreme_row,
    join_extreme_row,
)
from smile.translate.distinct_aggregates import (
    DistinctAggregate,
    distinct_aggregate,
    is_distinct_aggregate,
    join_distinct_aggregate,
)
from smile.translate.expressions import ExpressionTranslator, TypedExpr
from smile.translate.pipeline import QueryPipeline
from smile.translate.scope import free_name

AGGREGATE_FUNCTIONS: Mapping[type[exp.Expr], mmpl.AggregateName] = {
    **{node: cast(mmpl.AggregateName, name.lower()) for name, node in lang.AGGREGATES.items()},
    lang.NestedGroup: "group",
    **{node: cast(mmpl.AggregateName, name.lower()) for name, node in lang.PERCENTILES.items()},
    lang.StringAggregate: "string_agg",
    lang.ArrayAggregate: "array_concat_agg",
    exp.LogicalAnd: "min",
    exp.LogicalOr: "max",
}
"""The aggregates of MMPL by their nodes. Of Booleans, BOOL_AND is the least, and BOOL_OR the greatest."""

_AGGREGATE_NODES = frozenset((*AGGREGATE_FUNCTIONS, *lang.DERIVED_AGGREGATES.values()))

_GROUPED_PREFIX = "\0"
"""Marks the columns of the grouped relation while an expression over the rows is translated."""


_NESTED_AGGREGATE_HINT = "Compute the inner aggregate in a view, and aggregate over that view."


def find_aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates of an expression, without those within subqueries and those with OVER."""
    for part in node.walk(
        bfs=False, prune=lambda n: isinstance(n, exp.Query | exp.Window) or type(n) in _AGGREGATE_NODES
    ):
        if type(part) in _AGGREGATE_NODES:
            yield part


def has_aggregates(node: exp.Expr) -> bool:
    return next(find_aggregates(node), None) is not None


def translate_aggregate(
    node: exp.Expr, translator: ExpressionTranslator, extend: Callable[[str, TypedExpr], str]
) -> mmpl.Aggregate:
    """`extend` adds a column with the value of an expression to the rows."""
    span, function = span_of(node), AGGREGATE_FUNCTIONS[type(node)]
    args = node.expressions if function == "group" else [node.this]
    _refuse_nested_aggregates(args, function.upper(), span)
    if function == "group":
        columns = tuple(dict.fromkeys(translator.column_name(c) for c in args))
        return mmpl.Aggregate("group", columns=columns, span=span)
    (arg,) = args
    if isinstance(arg, exp.Star):
        return mmpl.Aggregate("count", span=span)
    if isinstance(arg, exp.Distinct):
        if is_distinct_aggregate(node):  # only in OVER
            hint = "Use it in a query with GROUP BY, and join that query."
            raise error("E013", f"{function.upper()}(DISTINCT) OVER a window is not supported", span, hint)
        return mmpl.Aggregate("count_distinct", translator.translate(arg.expressions[0]).expr, span=span)
    if isinstance(node, lang.StringAggregate | lang.ArrayAggregate):
        return _joining_aggregate(node, translator, extend)
    if isinstance(node, lang.Percentile):
        typed = translator.translate(arg)
        if isinstance(node, lang.PercentileCont) and (typed.type.is_number or typed.type == NULL):
            typed = TypedExpr(translator.coerce(typed, FLOAT, span, explicit=True), FLOAT)
        fraction = float(node.fraction.name)
        return mmpl.Aggregate(function, typed.expr, fraction=fraction, descending=node.descending, span=span)
    if isinstance(node, exp.LogicalAnd | exp.LogicalOr):
        return mmpl.Aggregate(function, translator.translate_predicate(arg), span=span)
    return mmpl.Aggregate(function, translator.translate(arg).expr, span=span)


def _joining_aggregate(
    node: lang.StringAggregate | lang.ArrayAggregate,
    translator: ExpressionTranslator,
    extend: Callable[[str, TypedExpr], str],
) -> mmpl.Aggregate:
    span, function = span_of(node), AGGREGATE_FUNCTIONS[type(node)]
    _refuse_nested_aggregates(node.order, "STRING_AGG" if function == "string_agg" else "ARRAY_AGG", span)
    if isinstance(node, lang.ArrayAggregate):
        joined, separator = _single_element(node, translator), ""
    else:
        joined = translator.coerce(translator.translate(node.this), STRING, span, explicit=True)
        separator = node.args["separator"].name
    if node.is_distinct:
        return mmpl.Aggregate(
            function, joined, separator=separator, distinct=True, descending=node.descending, span=span
        )
    directions = tuple(bool(o.args.get("desc")) for o in node.order)
    columns = tuple(extend("order_by", translator.translate(o.this)) for o in node.order)
    return mmpl.Aggregate(function, joined, columns, separator=separator, directions=directions, span=span)


def _single_element(node: lang.ArrayAggregate, translator: ExpressionTranslator) -> mmpl.Expr:
    """The array with the value of a row, which may be NULL; NULL for a row that the filter leaves out."""
    span, value = span_of(node), translator.translate(node.this)
    if value.type.name not in (*ELEMENT_TYPES, "null"):
        hint = "The elements of an array are plain values: aggregate one column, or UNNEST the array first."
        raise error("E031", f"ARRAY_AGG makes no array of {value.type}", span, hint)
    array = translator.apply_function("array", [value], span)
    if node.filter is None:
        return array.expr
    branch = (translator.translate_predicate(node.filter), array.expr)
    return mmpl.Case((branch,), mmpl.Constant(None, array.type), span=span)


def _refuse_nested_aggregates(args: Iterable[exp.Expr], name: str, span: Span | None) -> None:
    for arg in args:
        if has_aggregates(arg) or any(isinstance(n, exp.Window) for n in arg.walk(bfs=False, prune=_is_query)):
            raise error("E042", f"{name} cannot be applied to an aggregate", span, _NESTED_AGGREGATE_HINT)


def _is_query(node: exp.Expr) -> bool:
    return isinstance(node, exp.Query)


@dataclass
class GroupingBuilder:
    """Collects the group columns and aggregates of a SUMMARIZE. `row_translator` translates expressions over the rows.
    No aggregate gets one of the `reserved_names`."""

    pipeline: QueryPipeline
    row_translator: ExpressionTranslator
    reserved_names: Collection[str] = ()
    group_columns: dict[mmpl.Expr, str] = field(default_factory=dict)
    aggregates: dict[str, mmpl.Aggregate] = field(default_factory=dict)
    aggregate_names: dict[mmpl.Aggregate, str] = field(default_factory=dict)
    used_names: set[str] = field(default_factory=set)
    aggregate_columns: dict[int, str] = field(default_factory=dict)
    variances: dict[int, Variance] = field(default_factory=dict)
    extreme_rows: dict[int, ExtremeRow] = field(default_factory=dict)
    distinct: dict[int, DistinctAggregate] = field(default_factory=dict)
    empty_distinct_values: dict[str, Value] = field(default_factory=dict)
    """The values of the columns of aggregates with DISTINCT for a group without members."""

    def add_group_column(self, name: str, typed: TypedExpr) -> None:
        """Groups by an expression over the rows. `name` is the preferred name of its column."""
        column = self.pipeline.extend(name, typed)
        self.group_columns[typed.expr] = self.group_columns[mmpl.ColumnRef(column)] = column

    def add_aggregates(self, output: exp.Expr) -> None:
        """Adds the aggregates of one expression."""
        for node in find_aggregates(output):
            alias = output.alias if output.unalias() is node else ""
            if is_distinct_aggregate(node):
                _refuse_nested_aggregates(node.this.expressions, node.key.upper(), span_of(node))
                self.distinct[id(node)] = distinct_aggregate(node, alias, self.row_translator)
                continue
            if type(node) in AGGREGATE_FUNCTIONS:
                aggregate = translate_aggregate(node, self.row_translator, self.pipeline.extend)
                self.aggregate_columns[id(node)] = self._add_aggregate(aggregate, alias)
                continue
            _refuse_nested_aggregates(node.iter_expressions(), node.key.upper(), span_of(node))
            if isinstance(node, VARIANCES):
                self.variances[id(node)] = add_variance(
                    node, self.row_translator.translate(node.this), self.row_translator, self._add_aggregate
                )
            else:
                self.extreme_rows[id(node)] = extreme_row(node, alias, self.row_translator)

    def _add_aggregate(self, aggregate: mmpl.Aggregate, alias: str = "") -> str:
        if aggregate.arg is not None:
            aggregate = replace(aggregate, arg=self.pipeline.shorten(aggregate.arg))
        aggregate_type(aggregate, self.pipeline.heading, aggregate.span)
        name = self.aggregate_names.get(aggregate)
        if name is None:
            if not self.used_names:
                self.used_names.update(self.group_columns.values(), self.reserved_names)
            name = free_name(alias or aggregate.function, self.used_names)
            self.used_names.add(name)
            self.aggregates[name] = aggregate
            self.aggregate_names[aggregate] = name
        return name

    def summarize(self) -> ExpressionTranslator:
        """Adds the SUMMARIZE to the pipeline. Returns the translator for expressions over groups."""
        pipeline, source, rows = self.pipeline, self.pipeline.heading, self.pipeline.rel
        per = tuple(dict.fromkeys(self.group_columns.values()))
        has_joins = bool(self.extreme_rows or self.distinct)
        if has_joins and not self.aggregates:
            self._add_aggregate(mmpl.Aggregate("count"))
        if self.aggregates:
            pipeline.rel = mmpl.Summarize(pipeline.rel, per, tuple(self.aggregates.items()), span=pipeline.rel.span)
        else:
            pipeline.rel = mmpl.Distinct(mmpl.Project(pipeline.rel, per, span=pipeline.rel.span))
        pipeline.computed.clear()
        groups = dict(self.group_columns)

        def finish_expression(typed: TypedExpr) -> TypedExpr:
            return TypedExpr(_rewrite_over_groups(typed.expr, groups, source.key), typed.type)

        columns = pipeline.heading.columns
        derived = {p: TypedExpr(mmpl.ColumnRef(n), columns[n]) for p, n in self.aggregate_columns.items()}
        derived |= {p: v.value(columns, None) for p, v in self.variances.items()}
        derived |= {
            p: join_extreme_row(pipeline, rows, per, e, self.reserved_names) for p, e in self.extreme_rows.items()
        }
        for part, distinct in self.distinct.items():
            derived[part] = typed = join_distinct_aggregate(pipeline, rows, per, distinct, self.reserved_names)
            (column,) = trees.columns_in(typed.expr)
            self.empty_distinct_values[column] = distinct.empty_value(typed.type)
        if has_joins and per:
            # Whether groups without members have a default row does not depend on whether a column can be NULL.
            pipeline.rel = pipeline.without_default_rows(pipeline.rel.span)
        lifted_values = dict(self.row_translator.lifted_values)
        lifted_values |= {p: _mark_grouped_columns(typed) for p, typed in derived.items()}
        row_type_of = self.row_translator.type_of

        def type_of(name: str, span: Span | None) -> DataType:
            return source.columns.get(name) or row_type_of(name, span)

        return replace(
            self.row_translator,
            type_of=type_of,
            mark_lifted=_mark_grouped_columns,
            finish_expression=finish_expression,
            lifted_values=lifted_values,
        )


def _mark_grouped_columns(typed: TypedExpr) -> TypedExpr:
    """Marks the columns of an expression over the grouped relation, so that it can be part of one over the rows."""
    new_names = {c: _GROUPED_PREFIX + c for c in trees.columns_in(typed.expr)}
    return TypedExpr(trees.rename_columns(typed.expr, new_names), typed.type)


@continue_in_threads
def _rewrite_over_groups(expr: mmpl.Expr, groups: Mapping[mmpl.Expr, str], key: tuple[str, ...]) -> mmpl.Expr:
    """Rewrites an expression over rows to one over groups: grouped expressions become columns. Others raise E041."""
    if expr in groups:
        return mmpl.ColumnRef(groups[expr], span=expr.span)
    if not isinstance(expr, mmpl.ColumnRef):
        return trees.with_operands(expr, tuple(_rewrite_over_groups(p, groups, key) for p in trees.operands_of(expr)))
    name = expr.name
    if name.startswith(_GROUPED_PREFIX):
        return replace(expr, name=name.removeprefix(_GROUPED_PREFIX))
    if name in key:
        hint = f"Add {name} to GROUP BY, or take it out of the select list."
        raise error("E041", f"the GROUP BY loses the key column {name}", expr.span, hint)
    hint = f"Add {name} to GROUP BY, or take an aggregate of it."
    raise error("E041", f"column {name} is neither grouped nor aggregated", expr.span, hint)
