"""GROUP BY and aggregates. After a SUMMARIZE, an expression stands on its columns alone: groups and aggregates."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl, trees
from smile.algebra.heading import aggregate_type
from smile.algebra.translate.expressions import ExpressionTranslator, TypedExpr
from smile.algebra.translate.pipeline import QueryPipeline
from smile.algebra.translate.scope import free_name
from smile.algebra.types import DataType
from smile.errors import error
from smile.lang import span_of
from smile.source import Span

AGGREGATE_FUNCTIONS: dict[type[exp.Expr], mmpl.AggregateName] = {
    exp.Sum: "sum",
    exp.Count: "count",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "avg",
    lang.Latest: "latest",
    lang.NestedGroup: "group",
}

_GROUPED_PREFIX = "\0"
"""Before the name of a column of the grouped relation, while an expression over the rows is translated."""


def find_aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates of a query's own expression: not those of a subquery in it, nor those with OVER."""
    for part in node.walk(
        bfs=False, prune=lambda n: isinstance(n, exp.Query | exp.Window) or type(n) in AGGREGATE_FUNCTIONS
    ):
        if type(part) in AGGREGATE_FUNCTIONS:
            yield part


def has_aggregates(node: exp.Expr) -> bool:
    return next(find_aggregates(node), None) is not None


def translate_aggregate(node: exp.Expr, expressions: ExpressionTranslator) -> mmpl.Aggregate:
    span, function = span_of(node), AGGREGATE_FUNCTIONS[type(node)]
    args = node.expressions if function == "group" else [node.this]
    for arg in args:
        if has_aggregates(arg) or any(isinstance(n, exp.Window) for n in arg.walk(bfs=False, prune=_is_query)):
            raise error("E042", f"{function.upper()} of an aggregate", span, "Aggregate a view that aggregates.")
    if function == "group":
        columns = tuple(dict.fromkeys(expressions.column_name(c) for c in args))
        return mmpl.Aggregate("group", columns=columns, span=span)
    (arg,) = args
    if isinstance(arg, exp.Star):
        return mmpl.Aggregate("count", span=span)
    if isinstance(arg, exp.Distinct):
        return mmpl.Aggregate("count_distinct", expressions.translate(arg.expressions[0]).expr, span=span)
    return mmpl.Aggregate(function, expressions.translate(arg).expr, span=span)


def _is_query(node: exp.Expr) -> bool:
    return isinstance(node, exp.Query)


@dataclass
class GroupingBuilder:
    """What is being grouped by and computed of each group. `rows` translates what is evaluated on rows; `avoid` are
    names that no aggregate may get."""

    pipeline: QueryPipeline
    row_translator: ExpressionTranslator
    reserved_names: Collection[str] = ()
    group_columns: dict[mmpl.Expr, str] = field(default_factory=dict)
    aggregates: dict[str, mmpl.Aggregate] = field(default_factory=dict)
    aggregate_columns: dict[int, str] = field(default_factory=dict)

    def add_group_column(self, name: str, typed: TypedExpr) -> None:
        """Group by an expression of the rows; `name` is the name it is wanted by."""
        column = self.pipeline.extend(name, typed)
        self.group_columns[typed.expr] = self.group_columns[mmpl.ColumnRef(column)] = column

    def add_aggregates(self, output: exp.Expr) -> None:
        """Compute the aggregates of one expression."""
        for node in find_aggregates(output):
            aggregate = translate_aggregate(node, self.row_translator)
            aggregate_type(aggregate, self.pipeline.heading, span_of(node))
            name = next((n for n, a in self.aggregates.items() if a == aggregate), None)
            if name is None:
                alias = output.alias if output.unalias() is node else ""
                used_names = {*self.group_columns.values(), *self.aggregates, *self.reserved_names}
                name = free_name(alias or aggregate.function, used_names)
                self.aggregates[name] = aggregate
            self.aggregate_columns[id(node)] = name

    def summarize(self) -> ExpressionTranslator:
        """Put the SUMMARIZE on the pipeline; how to translate what is evaluated on groups."""
        pipeline, source = self.pipeline, self.pipeline.heading
        per = tuple(dict.fromkeys(self.group_columns.values()))
        if self.aggregates:
            pipeline.rel = mmpl.Summarize(pipeline.rel, per, tuple(self.aggregates.items()), span=pipeline.rel.span)
        else:
            pipeline.rel = mmpl.Distinct(mmpl.Project(pipeline.rel, per, span=pipeline.rel.span))
        pipeline.computed.clear()
        groups = dict(self.group_columns)

        def finish(typed: TypedExpr) -> TypedExpr:
            return TypedExpr(_rewrite_over_groups(typed.expr, groups, source.key), typed.type)

        columns = pipeline.heading.columns
        lifted = dict(self.row_translator.lifted)
        lifted |= {
            p: _mark_grouped_columns(TypedExpr(mmpl.ColumnRef(n), columns[n]))
            for p, n in self.aggregate_columns.items()
        }
        row_type_of = self.row_translator.type_of

        def type_of(name: str, span: Span | None) -> DataType:
            return source.columns.get(name) or row_type_of(name, span)

        return replace(self.row_translator, type_of=type_of, begin=_mark_grouped_columns, finish=finish, lifted=lifted)


def _mark_grouped_columns(typed: TypedExpr) -> TypedExpr:
    """An expression over the grouped relation, to be part of one over the rows."""
    new_names = {c: _GROUPED_PREFIX + c for c in trees.columns_in(typed.expr)}
    return TypedExpr(trees.rename_columns(typed.expr, new_names), typed.type)


def _rewrite_over_groups(expr: mmpl.Expr, groups: Mapping[mmpl.Expr, str], key: tuple[str, ...]) -> mmpl.Expr:
    """An expression over rows as one over groups: what was grouped by is a column, and nothing else is left."""
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
