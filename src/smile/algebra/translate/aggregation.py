"""GROUP BY and the aggregates: of a select list's aggregates to one SUMMARIZE, of its windows to OVERs."""

from collections.abc import Iterable, Sequence

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl
from smile.algebra.heading import aggregate_type
from smile.algebra.translate.expressions import Expressions, Typed, interval_ticks
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


def find_aggregates(node: exp.Expr) -> list[exp.Expr]:
    """The aggregates of a query's own expression: not those of a subquery in it, nor those with OVER."""
    found = []
    for part in node.walk(prune=lambda n: isinstance(n, exp.Query | exp.Window) or type(n) in FUNCTIONS):
        if type(part) in FUNCTIONS:
            found.append(part)
    return found


def translate_aggregate(node: exp.Expr, expressions: Expressions) -> mmpl.Aggregate:
    span, function = span_of(node), FUNCTIONS[type(node)]
    args = node.expressions if function == "group" else [node.this]
    for arg in args:
        if isinstance(arg, exp.Expression) and (find_aggregates(arg) or arg.find(exp.Window)):
            raise error("E042", f"{function.upper()} of an aggregate", span, "Aggregate a view that aggregates.")
    if function == "group":
        columns = [expressions.column(c) for c in args if isinstance(c, exp.Column)]
        if len(columns) < len(args):
            raise error("E042", "GROUP collects columns, not expressions", span)
        return mmpl.Aggregate("group", columns=tuple(columns), span=span)
    (arg,) = args
    if isinstance(arg, exp.Star):
        return mmpl.Aggregate("count", span=span)
    if isinstance(arg, exp.Distinct):
        if function != "count" or len(arg.expressions) != 1:
            raise error("E013", "DISTINCT is supported in COUNT of one expression only", span)
        return mmpl.Aggregate("count_distinct", expressions.translate(arg.expressions[0]).expr, span=span)
    return mmpl.Aggregate(function, expressions.translate(arg).expr, span=span)


def summarize(pipeline: Pipeline, per: Sequence[str], outputs: Iterable[exp.Expr]) -> Expressions:
    """Put a SUMMARIZE on the pipeline that computes all aggregates of `outputs`; how to translate them after it."""
    before = pipeline.expressions()
    aggregates: dict[str, mmpl.Aggregate] = {}
    places: dict[int, str] = {}
    for output in outputs:
        for node in find_aggregates(output):
            aggregate = translate_aggregate(node, before)
            aggregate_type(aggregate, pipeline.heading, span_of(node))
            same = [n for n, a in aggregates.items() if a == aggregate]
            if same:
                places[id(node)] = same[0]
                continue
            wanted = output.alias if output.unalias() is node else ""
            name = free_name(wanted or aggregate.function, (*per, *aggregates))
            aggregates[name] = aggregate
            places[id(node)] = name
    source = pipeline.heading
    if aggregates:
        pipeline.rel = mmpl.Summarize(pipeline.rel, tuple(per), tuple(aggregates.items()), span=pipeline.rel.span)
    else:
        pipeline.rel = mmpl.Distinct(mmpl.Project(pipeline.rel, tuple(per), span=pipeline.rel.span))
    after = pipeline.heading

    def type_of(name: str, span: Span | None) -> DataType:
        if name in after.columns:
            return after.columns[name]
        if name in source.key:
            hint = f"Add {name} to GROUP BY, or take it out of the select list."
            raise error("E041", f"the GROUP BY loses the key column {name}", span, hint)
        hint = f"Add {name} to GROUP BY, or take an aggregate of it."
        raise error("E041", f"column {name} is neither grouped nor aggregated", span, hint)

    lifted = {i: Typed(mmpl.Column(n), after.columns[n]) for i, n in places.items()}
    return Expressions(pipeline.scope, type_of, lifted)


def overs(pipeline: Pipeline, outputs: Iterable[exp.Expr], expressions: Expressions) -> None:
    """Compute every `aggregate OVER (…)` of `outputs` beforehand, one OVER for those of one window."""
    for output in outputs:
        for node in output.walk(prune=lambda n: isinstance(n, exp.Query | exp.Window)):
            if isinstance(node, exp.Window):
                name = _over(pipeline, node, output.alias if output.unalias() is node else "", expressions)
                expressions.lifted[id(node)] = Typed(mmpl.Column(name, span=span_of(node)), pipeline.heading.columns[name])


def _over(pipeline: Pipeline, node: exp.Window, wanted: str, expressions: Expressions) -> str:
    span = span_of(node)
    if type(node.this) not in FUNCTIONS:
        raise error("E042", "only aggregates can have OVER", span)
    per = tuple(
        pipeline.extend("partition", expressions.translate(p)) for p in node.args.get("partition_by") or []
    )
    order = node.args.get("order")
    ordered = order.expressions if order is not None else []
    if len(ordered) != 1 or ordered[0].args.get("desc") or not isinstance(ordered[0].this, exp.Column):
        raise error("E046", "OVER needs ORDER BY the tick, ascending", span)
    by = expressions.column(ordered[0].this)
    aggregate = translate_aggregate(node.this, expressions)
    name = free_name(wanted or aggregate.function, pipeline.heading.columns)
    frame, last = _frame(node), pipeline.rel
    if isinstance(last, mmpl.Over) and (last.per, last.by, last.range) == (per, by, frame):
        aggregates = (*last.aggregates, (name, aggregate))
        pipeline.rel = mmpl.Over(last.input, per, by, frame, aggregates, span=span)
    else:
        pipeline.rel = mmpl.Over(last, per, by, frame, ((name, aggregate),), span=span)
    return name


def _frame(node: exp.Window) -> int | None:
    """The interval of RANGE … PRECEDING; None if it is unbounded, as it is where none is given."""
    spec = node.args.get("spec")
    if spec is None or spec.args.get("start") == "UNBOUNDED":
        return None
    return interval_ticks(spec.args["start"], "Write RANGE INTERVAL '1' HOUR PRECEDING.")
