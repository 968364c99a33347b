"""`aggregate OVER (…)`: each is computed beforehand, as a column; those of one window by one OVER."""

from sqlglot import exp

from smile.algebra import mmpl
from smile.algebra.translate.aggregation import FUNCTIONS, translate_aggregate
from smile.algebra.translate.expressions import Expressions, Typed, interval_ticks
from smile.algebra.translate.pipeline import Pipeline
from smile.algebra.translate.scope import free_name
from smile.errors import error
from smile.lang import span_of


def lift_overs(pipeline: Pipeline, output: exp.Expr, expressions: Expressions) -> None:
    """Compute every window of one expression, and lift it out of that."""
    for node in output.walk(bfs=False, prune=lambda n: isinstance(n, exp.Query | exp.Window)):
        if isinstance(node, exp.Window):
            name = _over(pipeline, node, output.alias if output.unalias() is node else "", expressions)
            expressions.lift(node, Typed(mmpl.Column(name, span=span_of(node)), pipeline.heading.columns[name]))


def _over(pipeline: Pipeline, node: exp.Window, wanted: str, expressions: Expressions) -> str:
    span = span_of(node)
    if type(node.this) not in FUNCTIONS:
        raise error("E042", "only aggregates can have OVER", span)
    partition = [("partition", expressions.translate(p)) for p in node.args.get("partition_by") or []]
    order = node.args.get("order")
    ordered = order.expressions if order is not None else []
    by = expressions.translate(ordered[0].this).expr if len(ordered) == 1 else None
    if not isinstance(by, mmpl.Column) or ordered[0].args.get("desc"):
        raise error("E046", "OVER needs ORDER BY the tick, ascending", span, "Write OVER (ORDER BY t).")
    aggregate = translate_aggregate(node.this, expressions)
    per = tuple(dict.fromkeys(pipeline.extend_all(partition)))
    frame, last = _frame(node), pipeline.rel
    if isinstance(last, mmpl.Over) and (last.per, last.by, last.range) == (per, by.name, frame):
        same = next((n for n, a in last.aggregates if a == aggregate), None)
        if same is not None:
            return same
        base, others = last.input, last.aggregates
    else:
        base, others = last, ()
    name = free_name(wanted or aggregate.function, pipeline.heading.columns)
    pipeline.rel = mmpl.Over(base, per, by.name, frame, (*others, (name, aggregate)), span=span)
    return name


def _frame(node: exp.Window) -> int | None:
    """The interval of RANGE … PRECEDING; None if it is unbounded, as it is where none is given."""
    spec = node.args.get("spec")
    if spec is None or spec.args.get("start") == "UNBOUNDED":
        return None
    ticks = interval_ticks(spec.args["start"], "Write RANGE INTERVAL '1' HOUR PRECEDING.")
    if ticks < 0:
        raise error("E046", "a range reaches back, not forward", span_of(node))
    return ticks
