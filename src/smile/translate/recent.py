"""Translates comparisons with NOW() in WHERE to LAST: `t > NOW() - INTERVAL '1' HOUR` means the rows of the last hour.

NOW() is the horizon of the relation. A view depends on nothing else, so NOW() has no meaning in other places.
"""

from dataclasses import dataclass

from sqlglot import exp

from smile.algebra import mmpl
from smile.algebra.types import TIME, TIMESTAMP
from smile.errors import error
from smile.lang import span_of
from smile.operators.window import recent_rows_hint
from smile.source import Span
from smile.translate.expressions import ExpressionTranslator, interval_ticks, misplaced_clock_error
from smile.translate.pipeline import QueryPipeline

_HINT = "Write WHERE t > NOW() - INTERVAL '1' HOUR, where t is the tick. It means LAST(s, t, INTERVAL '1' HOUR)."
_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}


@dataclass(frozen=True)
class RecentRows:
    """The rows whose `tick` plus `size` is after now. `size` is None for `tick <= NOW()`, which is true of all rows."""

    tick: exp.Column
    size: int | None
    span: Span | None


def reads_clock(node: exp.Expr) -> bool:
    return any(
        isinstance(n, exp.CurrentTimestamp) for n in node.walk(bfs=False, prune=lambda n: isinstance(n, exp.Query))
    )


def recent_rows(node: exp.Expr) -> RecentRows:
    """The meaning of a condition with NOW()."""
    if isinstance(node, exp.Between):
        low = recent_rows(exp.GTE(this=node.this, expression=node.args["low"]))
        high = recent_rows(exp.LTE(this=node.this, expression=node.args["high"]))
        if low.size is None or high.size is not None:
            raise misplaced_clock_error(node)
        return low
    comparison, a, b = type(node), node.this, node.args.get("expression")
    if comparison not in _FLIPPED or b is None:
        raise misplaced_clock_error(node)
    if reads_clock(a):
        comparison, a, b = _FLIPPED[comparison], b, a
    a, b = a.unnest(), b.unnest()
    if isinstance(a, exp.Interval) and isinstance(b, exp.Sub) and isinstance(b.this, exp.CurrentTimestamp):
        return _recent(b.expression, a, comparison, node)  # INTERVAL d > NOW() - t
    if isinstance(b, exp.CurrentTimestamp) and isinstance(a, exp.Add):
        return _recent(a.this, a.expression, comparison, node)  # t + INTERVAL d > NOW()
    if isinstance(b, exp.Sub) and isinstance(b.this, exp.CurrentTimestamp):
        return _recent(a, b.expression, comparison, node)  # t > NOW() - INTERVAL d
    if isinstance(b, exp.CurrentTimestamp) and isinstance(a, exp.Column) and comparison is exp.LTE:
        return RecentRows(a, None, span_of(node))
    raise misplaced_clock_error(node)


def _recent(tick: exp.Expr, size: exp.Expr, comparison: type[exp.Expr], node: exp.Expr) -> RecentRows:
    tick, size = tick.unnest(), size.unnest()
    if comparison not in (exp.GT, exp.GTE) or not isinstance(tick, exp.Column) or not isinstance(size, exp.Interval):
        raise misplaced_clock_error(node)
    # LAST has the rows of which tick + size > now. Ticks are whole: t >= x is t + 1 > x.
    return RecentRows(tick, interval_ticks(size) + (comparison is exp.GTE), span_of(node))


def restrict_to_recent_rows(pipeline: QueryPipeline, rows: RecentRows, translator: ExpressionTranslator) -> None:
    column = translator.column_name(rows.tick)
    if pipeline.heading.tick[:1] != (column,):
        is_time = pipeline.heading.columns[column] in (TIME, TIMESTAMP)
        message = f"only a tick can be compared with NOW(), and {column} is not the tick"
        raise error("E199", message, rows.span, recent_rows_hint(pipeline.heading) if is_time else _HINT)
    if rows.size is not None:
        pipeline.rel = mmpl.Window("last", pipeline.rel, column, rows.size, None, span=rows.span)
