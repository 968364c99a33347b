"""Translates SILENCE: each comparison of SILENCE(t) with an interval becomes a Boolean column of the pipeline."""

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl
from smile.algebra.types import BOOL
from smile.errors import error
from smile.lang import span_of
from smile.translate.expressions import ExpressionTranslator, TypedExpr, interval_ticks
from smile.translate.pipeline import QueryPipeline
from smile.translate.scope import free_name

FLIPPED_COMPARISONS: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
}


def lift_silences(pipeline: QueryPipeline, node: exp.Expr, translator: ExpressionTranslator) -> None:
    for comparison in node.walk(bfs=False, prune=lambda n: isinstance(n, exp.Query)):
        if type(comparison) in FLIPPED_COMPARISONS:
            a, b = comparison.this.unnest(), comparison.expression.unnest()
            if isinstance(a, lang.SilenceCall):
                translator.add_lifted(comparison, _add_silence(pipeline, a, type(comparison), b, translator))
            elif isinstance(b, lang.SilenceCall):
                translator.add_lifted(
                    comparison, _add_silence(pipeline, b, FLIPPED_COMPARISONS[type(comparison)], a, translator)
                )


def _add_silence(
    pipeline: QueryPipeline,
    silence: lang.SilenceCall,
    comparison: type[exp.Expr],
    bound: exp.Expr,
    translator: ExpressionTranslator,
) -> TypedExpr:
    span = span_of(silence)
    if len(pipeline.scope.from_items) != 1 or not isinstance(silence.this, exp.Column):
        hint = "Use SILENCE in a view over one relation, and read that view."
        raise error("E045", "SILENCE needs a FROM with one relation, and the tick of that relation", span, hint)
    ticks = interval_ticks(bound)
    if ticks <= 0:
        raise error("E045", "SILENCE must be compared with a positive interval", span_of(bound))
    tick = translator.column_name(silence.this)
    per = tuple(translator.column_name(c) for c in silence.per)
    # Distances are whole ticks: at least d is more than d - 1, and at most d is not more than d.
    longer_than = ticks - 1 if comparison in (exp.GTE, exp.LT) else ticks
    name = free_name("silent", pipeline.heading.columns)
    pipeline.rel = mmpl.Silence(pipeline.rel, name, tick, per, longer_than, span=span)
    column: mmpl.Expr = mmpl.ColumnRef(name, span=span)
    if comparison in (exp.LT, exp.LTE):
        column = mmpl.Call("not", (column,), span=span)
    return TypedExpr(column, BOOL)
