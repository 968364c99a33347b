"""SILENCE(t) in a predicate: each comparison of it with an interval becomes a Boolean column, computed beforehand."""

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl
from smile.algebra.translate.expressions import Expressions, Typed, interval_ticks
from smile.algebra.translate.pipeline import Pipeline
from smile.algebra.translate.scope import free_name
from smile.algebra.types import BOOL
from smile.errors import error
from smile.lang import span_of

FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}


def lift_silences(pipeline: Pipeline, node: exp.Expr, expressions: Expressions) -> None:
    for found in node.walk(bfs=False, prune=lambda n: isinstance(n, exp.Query)):
        if type(found) in FLIPPED:
            a, b = found.this.unnest(), found.expression.unnest()
            if isinstance(a, lang.Silence):
                expressions.lift(found, _comparison(pipeline, a, type(found), b, expressions))
            elif isinstance(b, lang.Silence):
                expressions.lift(found, _comparison(pipeline, b, FLIPPED[type(found)], a, expressions))


def _comparison(
    pipeline: Pipeline, silence: lang.Silence, comparison: type[exp.Expr], bound: exp.Expr, expressions: Expressions
) -> Typed:
    span = span_of(silence)
    if len(pipeline.scope.items) != 1 or not isinstance(silence.this, exp.Column):
        hint = "Make a view of the one relation first."
        raise error("E045", "SILENCE needs a FROM of one relation, and its tick", span, hint)
    ticks = interval_ticks(bound)
    if ticks <= 0:
        raise error("E045", "SILENCE is compared with an interval above zero", span_of(bound))
    tick = expressions.column(silence.this)
    per = tuple(expressions.column(c) for c in silence.per)
    # Distances are whole ticks: at least d is more than d - 1; at most d is not more than d.
    longer_than = ticks - 1 if comparison in (exp.GTE, exp.LT) else ticks
    name = free_name("silent", pipeline.heading.columns)
    pipeline.rel = mmpl.Silence(pipeline.rel, name, tick, per, longer_than, span=span)
    column: mmpl.Expr = mmpl.Column(name, span=span)
    if comparison in (exp.LT, exp.LTE):
        column = mmpl.Call("not", (column,), span=span)
    return Typed(column, BOOL)
