"""SILENCE(t) in a predicate: each comparison of it with an interval becomes a Boolean column, computed beforehand."""

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl
from smile.algebra.translate.expressions import ExpressionTranslator, TypedExpr, interval_ticks
from smile.algebra.translate.pipeline import QueryPipeline
from smile.algebra.translate.scope import free_name
from smile.algebra.types import BOOL
from smile.errors import error
from smile.lang import span_of

FLIPPED_COMPARISONS: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
}


def lift_silences(pipeline: QueryPipeline, node: exp.Expr, expressions: ExpressionTranslator) -> None:
    for comparison in node.walk(bfs=False, prune=lambda n: isinstance(n, exp.Query)):
        if type(comparison) in FLIPPED_COMPARISONS:
            a, b = comparison.this.unnest(), comparison.expression.unnest()
            if isinstance(a, lang.SilenceCall):
                expressions.lift(comparison, _add_silence(pipeline, a, type(comparison), b, expressions))
            elif isinstance(b, lang.SilenceCall):
                expressions.lift(
                    comparison, _add_silence(pipeline, b, FLIPPED_COMPARISONS[type(comparison)], a, expressions)
                )


def _add_silence(
    pipeline: QueryPipeline,
    silence: lang.SilenceCall,
    comparison: type[exp.Expr],
    bound: exp.Expr,
    expressions: ExpressionTranslator,
) -> TypedExpr:
    span = span_of(silence)
    if len(pipeline.scope.from_items) != 1 or not isinstance(silence.this, exp.Column):
        hint = "Make a view of the one relation first."
        raise error("E045", "SILENCE needs a FROM of one relation, and its tick", span, hint)
    ticks = interval_ticks(bound)
    if ticks <= 0:
        raise error("E045", "SILENCE is compared with an interval above zero", span_of(bound))
    tick = expressions.column_name(silence.this)
    per = tuple(expressions.column_name(c) for c in silence.per)
    # Distances are whole ticks: at least d is more than d - 1; at most d is not more than d.
    longer_than = ticks - 1 if comparison in (exp.GTE, exp.LT) else ticks
    name = free_name("silent", pipeline.heading.columns)
    pipeline.rel = mmpl.Silence(pipeline.rel, name, tick, per, longer_than, span=span)
    column: mmpl.Expr = mmpl.ColumnRef(name, span=span)
    if comparison in (exp.LT, exp.LTE):
        column = mmpl.Call("not", (column,), span=span)
    return TypedExpr(column, BOOL)
