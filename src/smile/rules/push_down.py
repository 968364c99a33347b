"""Predicate push-down: moves a restriction towards the streams, below every operator for which the result is the same.

The guard for a join on the whole key of a total relation T: A ⋈ σp(T) = σp(A ⋈ T) only if p is not true of the default
row of T.
"""

from collections.abc import Mapping
from dataclasses import replace

from smile.algebra import mmpl, trees
from smile.algebra.functions.catalogue import evaluate_expr
from smile.algebra.heading import Heading, is_key_equated
from smile.algebra.types import Value
from smile.analysis.headings import Headings
from smile.operators.aggregates import default_value
from smile.rules.apply import push_restriction, rewrite_relations


def push_down(program: mmpl.Program) -> mmpl.Program:
    """Repeats until no restriction moves: a restricted aggregate is no longer total, so that further restrictions may
    be pushed into it."""
    pushed = rewrite_relations(program, _push)
    return program if pushed == program else push_down(pushed)


def _push(rel: mmpl.Rel, headings: Headings) -> mmpl.Rel:
    return push_restriction(rel, headings, _push_below)


def _push_below(predicate: mmpl.Expr, rel: mmpl.Rel, headings: Headings) -> mmpl.Rel | None:
    """`rel` with the predicate moved into its inputs, or None if that is not possible."""
    columns = trees.columns_in(predicate)

    def push_into(source: mmpl.Rel, moved: mmpl.Expr = predicate) -> mmpl.Rel:
        return _push(mmpl.Restrict(source, moved, span=predicate.span), headings)

    match rel:
        case mmpl.Project():
            return replace(rel, input=push_into(rel.input)) if not headings.heading_of(rel.input).total else None
        case mmpl.Rename():
            if headings.heading_of(rel.input).total:
                return None
            old = {new: old for old, new in rel.pairs}
            return replace(rel, input=push_into(rel.input, trees.rename_columns(predicate, old)))
        case mmpl.Extend():
            if columns & {n for n, _ in rel.assignments} or headings.heading_of(rel.input).total:
                return None
            return replace(rel, input=push_into(rel.input))
        case mmpl.Window(kind="tumble" | "hop"):
            return None if columns & {"window_start", "window_end"} else replace(rel, input=push_into(rel.input))
        case mmpl.Ungroup():
            return None if columns & {*rel.names, rel.ordinality} else replace(rel, input=push_into(rel.input))
        case mmpl.Window():
            return replace(rel, input=push_into(rel.input))
        case mmpl.Best() | mmpl.Over() | mmpl.OverRows() | mmpl.Session() | mmpl.Silence():
            # The predicate keeps or drops whole groups, so what is computed over a group stays the same.
            return replace(rel, input=push_into(rel.input)) if columns and columns <= set(rel.per) else None
        case mmpl.Distinct():
            return replace(rel, input=push_into(rel.input))
        case mmpl.Union() | mmpl.Merge():
            if not all(columns <= set(headings.heading_of(i).columns) for i in rel.inputs):
                return None
            return replace(rel, inputs=tuple(push_into(i) for i in rel.inputs))
        case mmpl.Join():
            return _push_below_join(predicate, rel, headings)
        case mmpl.Asof():
            return (
                replace(rel, left=push_into(rel.left))
                if columns <= set(headings.heading_of(rel.left).columns)
                else None
            )
    return None


def _push_below_join(predicate: mmpl.Expr, join: mmpl.Join, headings: Headings) -> mmpl.Rel | None:
    columns = trees.columns_in(predicate)
    left, right = headings.heading_of(join.left), headings.heading_of(join.right)
    merged_columns = {a for a, b in join.on if a == b}
    left_total = left.total and is_key_equated(left, (a for a, _ in join.on))
    right_total = right.total and is_key_equated(right, (b for _, b in join.on))
    if left_total and right_total and join.kind in ("inner", "left", "right", "full"):
        # Every row of one side matches a row of the other. A row filtered on one side would come back as a default row.
        return None
    if columns <= set(left.columns) and join.kind in ("inner", "left", "semi", "anti", "match"):
        if join.kind == "inner" and left_total and _can_hold_of_default(predicate, join.left, left):
            return None
        return replace(join, left=_push(mmpl.Restrict(join.left, predicate, span=predicate.span), headings))
    if columns <= set(right.columns) - merged_columns and join.kind in ("inner", "right"):
        if right_total and _can_hold_of_default(predicate, join.right, right):
            return None
        return replace(join, right=_push(mmpl.Restrict(join.right, predicate, span=predicate.span), headings))
    return None


def _can_hold_of_default(predicate: mmpl.Expr, rel: mmpl.Rel, heading: Heading) -> bool:
    """Whether the predicate can be true of a default row. The key of a default row can have any value."""
    default = _default_row(rel, heading)
    if not trees.columns_in(predicate) <= default.keys():
        return True
    return evaluate_expr(predicate, default, heading.columns) is True


def _default_row(rel: mmpl.Rel, heading: Heading) -> Mapping[str, Value]:
    """The aggregates of a default row that are known here. Those of a view are not, nor are nested relations."""
    match rel:
        case mmpl.Summarize():
            calls = {n: a for n, a in rel.aggregates if n in heading.columns and a.function != "group"}
            return {n: default_value(a, heading.columns[n]) for n, a in calls.items()}
        case mmpl.Project():
            return _default_row(rel.input, heading)
        case _:
            return {}
