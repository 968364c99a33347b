"""Translates `aggregate OVER (…)` to a column of the pipeline. Aggregates of the same window share one OVER."""

from sqlglot import exp

from smile.algebra import mmpl
from smile.errors import error
from smile.lang import span_of
from smile.translate.aggregation import AGGREGATE_FUNCTIONS, translate_aggregate
from smile.translate.expressions import ExpressionTranslator, TypedExpr, interval_ticks
from smile.translate.pipeline import QueryPipeline
from smile.translate.scope import free_name


def lift_window_functions(pipeline: QueryPipeline, output: exp.Expr, translator: ExpressionTranslator) -> None:
    """Adds a column to the pipeline for every window function of an expression."""
    for node in output.walk(bfs=False, prune=lambda n: isinstance(n, exp.Query | exp.Window)):
        if isinstance(node, exp.Window):
            name = _add_window_function(pipeline, node, output.alias if output.unalias() is node else "", translator)
            translator.add_lifted(
                node, TypedExpr(mmpl.ColumnRef(name, span=span_of(node)), pipeline.heading.columns[name])
            )


def _add_window_function(
    pipeline: QueryPipeline, node: exp.Window, wanted: str, translator: ExpressionTranslator
) -> str:
    span = span_of(node)
    if type(node.this) not in AGGREGATE_FUNCTIONS:
        raise error("E042", "only aggregates can be used with OVER", span)
    partition = [("partition", translator.translate(p)) for p in node.args.get("partition_by") or []]
    order = node.args.get("order")
    order_by = order.expressions if order is not None else []
    by = translator.translate(order_by[0].this).expr if len(order_by) == 1 else None
    if not isinstance(by, mmpl.ColumnRef) or order_by[0].args.get("desc"):
        raise error("E046", "OVER needs ORDER BY the tick, ascending", span, "Write OVER (ORDER BY t).")
    aggregate = translate_aggregate(node.this, translator)
    per = tuple(dict.fromkeys(pipeline.extend_all(partition)))
    frame, previous = _frame_range(node), pipeline.rel
    if isinstance(previous, mmpl.Over) and (previous.per, previous.by, previous.range) == (per, by.name, frame):
        existing = next((n for n, a in previous.aggregates if a == aggregate), None)
        if existing is not None:
            return existing
        source, aggregates = previous.input, previous.aggregates
    else:
        source, aggregates = previous, ()
    name = free_name(wanted or aggregate.function, pipeline.heading.columns)
    pipeline.rel = mmpl.Over(source, per, by.name, frame, (*aggregates, (name, aggregate)), span=span)
    return name


def _frame_range(node: exp.Window) -> int | None:
    """The interval of RANGE … PRECEDING in ticks. None if it is unbounded or not given."""
    spec = node.args.get("spec")
    if spec is None or spec.args.get("start") == "UNBOUNDED":
        return None
    ticks = interval_ticks(spec.args["start"], "Write RANGE INTERVAL '1' HOUR PRECEDING.")
    if ticks < 0:
        raise error("E046", "the interval of RANGE cannot be negative", span_of(node))
    return ticks
