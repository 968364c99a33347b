"""Translates `aggregate OVER (…)` to a column of the pipeline. Aggregates of the same window share one OVER."""

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl
from smile.errors import error
from smile.lang import span_of
from smile.translate.aggregation import AGGREGATE_FUNCTIONS, translate_aggregate
from smile.translate.expressions import ExpressionTranslator, TypedExpr, interval_ticks
from smile.translate.neighbours import add_neighbour, is_neighbour, neighbour_rank
from smile.translate.over import OverFrame, add_over
from smile.translate.pipeline import QueryPipeline
from smile.translate.ranking import is_ranking, misplaced_rank_error


def lift_window_functions(pipeline: QueryPipeline, output: exp.Expr, translator: ExpressionTranslator) -> None:
    """Adds a column to the pipeline for every window function of an expression."""
    nodes = [n for n in _windows(output) if id(n) not in translator.lifted_values]
    for node in sorted(nodes, key=_rank):
        wanted = output.alias if output.unalias() is node else ""
        if is_neighbour(node):
            translator.add_lifted(node, add_neighbour(pipeline, node, wanted, translator))
            continue
        name = _add_window_function(pipeline, node, wanted, translator)
        translator.add_lifted(node, TypedExpr(mmpl.ColumnRef(name, span=span_of(node)), pipeline.heading.columns[name]))


def window_rank(output: exp.Expr) -> int:
    """Expressions are lifted in this order: what evolves least comes first, because others can be computed over it."""
    return max(map(_rank, _windows(output)), default=0)


def _windows(output: exp.Expr) -> list[exp.Window]:
    nodes = output.walk(bfs=False, prune=lambda n: isinstance(n, exp.Query | exp.Window))
    return [n for n in nodes if isinstance(n, exp.Window)]


def _rank(node: exp.Window) -> int:
    """Frames of earlier rows, of later rows, ranges of time, and last the row just before."""
    if is_neighbour(node):
        return neighbour_rank(node)
    spec = node.args.get("spec")
    if spec is None or spec.args["kind"] != "ROWS":
        return 2
    first, last = lang.frame_positions(spec)
    return 2 if first is None else int(last > 0)


def _add_window_function(
    pipeline: QueryPipeline, node: exp.Window, wanted: str, translator: ExpressionTranslator
) -> str:
    span = span_of(node)
    if is_ranking(node):
        raise misplaced_rank_error(node)
    if type(node.this) not in AGGREGATE_FUNCTIONS:
        raise error("E042", "this function cannot be used with OVER", span, lang.OVER_HINT)
    partition = tuple(translator.translate(p) for p in node.args.get("partition_by") or [])
    order = node.args.get("order")
    order_by = order.expressions if order is not None else []
    by = translator.translate(order_by[0].this).expr if len(order_by) == 1 else None
    if not isinstance(by, mmpl.ColumnRef) or order_by[0].args.get("desc"):
        hint = "Write OVER (ORDER BY t)."
        if not order_by:
            hint += " For an aggregate of the whole partition, join a query that is grouped by its columns."
        raise error("E046", "OVER needs ORDER BY the tick, ascending", span, hint)
    aggregate = translate_aggregate(node.this, translator, pipeline.extend)
    spec = node.args.get("spec")
    frame = OverFrame(partition, by.name, _frame_range(node), span=span)
    if spec is not None and spec.args["kind"] == "ROWS":
        first, last = lang.frame_positions(spec)
        if first is not None:
            frame = OverFrame(partition, by.name, positions=(first, last), span=span)
        elif not {by.name, *(c for p in partition for c in _column_names(p.expr))}.issuperset(pipeline.heading.key):
            hint = "Use RANGE UNBOUNDED PRECEDING, which includes all rows of one tick."
            raise error("E043", f"ROWS needs rows whose key is one tick, but {by.name} is not their key", span, hint)
    (name,) = add_over(pipeline, frame, [(wanted, aggregate)])
    return name


def _column_names(expr: mmpl.Expr) -> tuple[str, ...]:
    return (expr.name,) if isinstance(expr, mmpl.ColumnRef) else ()


def _frame_range(node: exp.Window) -> int | None:
    """The interval of RANGE … PRECEDING in ticks. None if it is unbounded or not given."""
    spec = node.args.get("spec")
    if spec is None or spec.args["kind"] == "ROWS" or spec.args.get("start") == "UNBOUNDED":
        return None
    ticks = interval_ticks(spec.args["start"], "Write RANGE INTERVAL '1' HOUR PRECEDING.")
    if ticks < 0:
        raise error("E046", "the interval of RANGE cannot be negative", span_of(node))
    return ticks
