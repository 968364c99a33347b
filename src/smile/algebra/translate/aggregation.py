"""GROUP BY and aggregates. After a SUMMARIZE, an expression stands on its columns alone: groups and aggregates."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl, trees
from smile.algebra.heading import aggregate_type
from smile.algebra.translate.expressions import Expressions, Typed
from smile.algebra.translate.pipeline import Pipeline
from smile.algebra.translate.scope import free_name
from smile.algebra.types import DataType
from smile.errors import error
from smile.lang import span_of
from smile.source import Span

FUNCTIONS: dict[type[exp.Expr], mmpl.AggregateName] = {
    exp.Sum: "sum",
    exp.Count: "count",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "avg",
    lang.Latest: "latest",
    lang.NestedGroup: "group",
}

_GROUPED = "\0"
"""Before the name of a column of the grouped relation, while an expression over the rows is translated."""


def find_aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates of a query's own expression: not those of a subquery in it, nor those with OVER."""
    for part in node.walk(bfs=False, prune=lambda n: isinstance(n, exp.Query | exp.Window) or type(n) in FUNCTIONS):
        if type(part) in FUNCTIONS:
            yield part


def has_aggregates(node: exp.Expr) -> bool:
    return next(find_aggregates(node), None) is not None


def translate_aggregate(node: exp.Expr, expressions: Expressions) -> mmpl.Aggregate:
    span, function = span_of(node), FUNCTIONS[type(node)]
    args = node.expressions if function == "group" else [node.this]
    for arg in args:
        if has_aggregates(arg) or any(isinstance(n, exp.Window) for n in arg.walk(bfs=False, prune=_is_query)):
            raise error("E042", f"{function.upper()} of an aggregate", span, "Aggregate a view that aggregates.")
    if function == "group":
        columns = tuple(dict.fromkeys(expressions.column(c) for c in args))
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
class Grouping:
    """What is being grouped by and computed of each group. `rows` translates what is evaluated on rows; `avoid` are
    names that no aggregate may get."""

    pipeline: Pipeline
    rows: Expressions
    avoid: Collection[str] = ()
    per: dict[mmpl.Expr, str] = field(default_factory=dict)
    aggregates: dict[str, mmpl.Aggregate] = field(default_factory=dict)
    places: dict[int, str] = field(default_factory=dict)

    def by(self, name: str, typed: Typed) -> None:
        """Group by an expression of the rows; `name` is the name it is wanted by."""
        column = self.pipeline.extend(name, typed)
        self.per[typed.expr] = self.per[mmpl.Column(column)] = column

    def add(self, output: exp.Expr) -> None:
        """Compute the aggregates of one expression."""
        for node in find_aggregates(output):
            aggregate = translate_aggregate(node, self.rows)
            aggregate_type(aggregate, self.pipeline.heading, span_of(node))
            name = next((n for n, a in self.aggregates.items() if a == aggregate), None)
            if name is None:
                wanted = output.alias if output.unalias() is node else ""
                taken = {*self.per.values(), *self.aggregates, *self.avoid}
                name = free_name(wanted or aggregate.function, taken)
                self.aggregates[name] = aggregate
            self.places[id(node)] = name

    def close(self) -> Expressions:
        """Put the SUMMARIZE on the pipeline; how to translate what is evaluated on groups."""
        pipeline, source = self.pipeline, self.pipeline.heading
        per = tuple(dict.fromkeys(self.per.values()))
        if self.aggregates:
            pipeline.rel = mmpl.Summarize(pipeline.rel, per, tuple(self.aggregates.items()), span=pipeline.rel.span)
        else:
            pipeline.rel = mmpl.Distinct(mmpl.Project(pipeline.rel, per, span=pipeline.rel.span))
        pipeline.computed.clear()
        groups = dict(self.per)

        def finish(typed: Typed) -> Typed:
            return Typed(_regrouped(typed.expr, groups, source.key), typed.type)

        columns = pipeline.heading.columns
        lifted = dict(self.rows.lifted)
        lifted |= {p: _on_groups(Typed(mmpl.Column(n), columns[n])) for p, n in self.places.items()}
        rows = self.rows.type_of

        def type_of(name: str, span: Span | None) -> DataType:
            return source.columns.get(name) or rows(name, span)

        return replace(self.rows, type_of=type_of, begin=_on_groups, finish=finish, lifted=lifted)


def _on_groups(typed: Typed) -> Typed:
    """An expression over the grouped relation, to be part of one over the rows."""
    marked = {c: _GROUPED + c for c in trees.columns_in(typed.expr)}
    return Typed(trees.rename_columns(typed.expr, marked), typed.type)


def _regrouped(expr: mmpl.Expr, groups: Mapping[mmpl.Expr, str], key: tuple[str, ...]) -> mmpl.Expr:
    """An expression over rows as one over groups: what was grouped by is a column, and nothing else is left."""
    if expr in groups:
        return mmpl.Column(groups[expr], span=expr.span)
    if not isinstance(expr, mmpl.Column):
        return trees.with_parts(expr, tuple(_regrouped(p, groups, key) for p in trees.parts_of(expr)))
    name = expr.name
    if name.startswith(_GROUPED):
        return replace(expr, name=name.removeprefix(_GROUPED))
    if name in key:
        hint = f"Add {name} to GROUP BY, or take it out of the select list."
        raise error("E041", f"the GROUP BY loses the key column {name}", expr.span, hint)
    hint = f"Add {name} to GROUP BY, or take an aggregate of it."
    raise error("E041", f"column {name} is neither grouped nor aggregated", expr.span, hint)
