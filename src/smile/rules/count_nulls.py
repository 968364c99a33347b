"""Counts NULLs directly: COUNT() - COUNT(e) = COUNT(CASE WHEN e IS NULL THEN TRUE END), which is never below zero.

The guard: both counts are aggregates of one group. In a group without members both sides are 0, so the rule also holds
for default rows.
"""

from dataclasses import replace

from smile.algebra import mmpl, trees
from smile.algebra.types import BOOL
from smile.analysis.headings import Headings
from smile.operators.catalogue import map_expressions
from smile.rules.apply import rewrite_relations


def count_nulls(program: mmpl.Program) -> mmpl.Program:
    return rewrite_relations(program, _count_nulls)


def _count_nulls(rel: mmpl.Rel, headings: Headings) -> mmpl.Rel:
    """Rewrites the differences in an operator right above a summary. The columns stay the same."""
    if not (isinstance(rel, mmpl.Extend | mmpl.Restrict) and isinstance(rel.input, mmpl.Summarize)):
        return rel
    summary, heading = rel.input, headings.heading_of(rel)
    calls = dict(summary.aggregates)
    counts: dict[mmpl.Expr, str] = {}

    def change(expr: mmpl.Expr) -> mmpl.Expr:
        match expr:
            case mmpl.Call("-", (mmpl.ColumnRef(a), mmpl.ColumnRef(b))) if _is_difference(calls, a, b):
                return mmpl.ColumnRef(null_count(calls[b].arg), span=expr.span)
            case mmpl.Call("-", (mmpl.ColumnRef(a), mmpl.ColumnRef(b))) if _is_difference(calls, b, a):
                return mmpl.Call("neg", (mmpl.ColumnRef(null_count(calls[a].arg)),), span=expr.span)
        return expr

    def null_count(arg: mmpl.Expr | None) -> str:
        """The name of the column that counts the members in which `arg` is NULL."""
        assert arg is not None
        name = "nulls"
        while arg not in counts and (name in heading.columns or name in counts.values()):
            name += "_"
        return counts.setdefault(arg, name)

    changed = map_expressions(rel, lambda expr: trees.rebuild_expr(expr, change))
    if not counts:
        return rel
    added = tuple((name, _count_of_nulls(arg)) for arg, name in counts.items())
    counted = replace(summary, aggregates=(*summary.aggregates, *added))
    return mmpl.Project(trees.with_inputs(changed, (counted,)), heading.visible, span=rel.span)


def _is_difference(calls: dict[str, mmpl.Aggregate], rows: str, values: str) -> bool:
    if rows not in calls or values not in calls:
        return False
    counts_rows = calls[rows].function == "count" and calls[rows].arg is None
    return counts_rows and calls[values].function == "count" and calls[values].arg is not None


def _count_of_nulls(arg: mmpl.Expr) -> mmpl.Aggregate:
    is_null = mmpl.Call("is null", (arg,))
    branch = (is_null, mmpl.Constant(True, BOOL))
    return mmpl.Aggregate("count", mmpl.Case((branch,), mmpl.Constant(None, BOOL)))
