"""Push-down: a restriction moves towards the streams, below every operator that gives the same rows after it.

The guard of every push below a join with a total relation T on its whole key: A ⋈ σp(T) = σp(A ⋈ T) only if p is not
true of T's default row.
"""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from smile.algebra import mmpl, trees
from smile.algebra.heading import Heading, Headings, whole_key_equated
from smile.algebra.rules.apply import to_relations
from smile.algebra.scalars import evaluate_expr
from smile.algebra.types import Value


def push_down(program: mmpl.Program) -> mmpl.Program:
    """Repeated until nothing moves: a relation that is no longer total lets through what it held up before."""
    pushed = to_relations(program, _push)
    return program if pushed == program else push_down(pushed)


def _push(rel: mmpl.Rel, headings: Headings) -> mmpl.Rel:
    if not isinstance(rel, mmpl.Restrict):
        return rel
    below = _below(rel.predicate, rel.input, headings)
    return rel if below is None else below


def _below(predicate: mmpl.Expr, rel: mmpl.Rel, headings: Headings) -> mmpl.Rel | None:
    """`rel` with the predicate somewhere in its inputs, or None if it cannot go there."""
    named = trees.columns_in(predicate)

    def into(source: mmpl.Rel, moved: mmpl.Expr = predicate) -> mmpl.Rel:
        return _push(mmpl.Restrict(source, moved, span=predicate.span), headings)

    match rel:
        case mmpl.Restrict():
            # Restrictions keep their order, but one may pass another on its way down.
            further = _below(predicate, rel.input, headings)
            return None if further is None else replace(rel, input=further)
        case mmpl.Project():
            return replace(rel, input=into(rel.input)) if not headings.of(rel.input).total else None
        case mmpl.Rename():
            if headings.of(rel.input).total:
                return None
            old = {new: old for old, new in rel.pairs}
            return replace(rel, input=into(rel.input, trees.rename_columns(predicate, old)))
        case mmpl.Extend():
            if named & {n for n, _ in rel.assignments} or headings.of(rel.input).total:
                return None
            return replace(rel, input=into(rel.input))
        case mmpl.Window(kind="tumble" | "hop"):
            return None if named & {"window_start", "window_end"} else replace(rel, input=into(rel.input))
        case mmpl.Window():
            return replace(rel, input=into(rel.input))
        case mmpl.Best() | mmpl.Over() | mmpl.Silence():
            # Whole groups are kept or dropped: what is computed over a group stays the same.
            return replace(rel, input=into(rel.input)) if named and named <= set(rel.per) else None
        case mmpl.Distinct():
            return replace(rel, input=into(rel.input))
        case mmpl.Union() | mmpl.Merge():
            if not all(named <= set(headings.of(i).columns) for i in rel.inputs):
                return None
            return replace(rel, inputs=tuple(into(i) for i in rel.inputs))
        case mmpl.Join():
            return _below_join(predicate, rel, headings)
        case mmpl.Asof():
            return replace(rel, left=into(rel.left)) if named <= set(headings.of(rel.left).columns) else None
    return None


def _below_join(predicate: mmpl.Expr, join: mmpl.Join, headings: Headings) -> mmpl.Rel | None:
    named = trees.columns_in(predicate)
    left, right = headings.of(join.left), headings.of(join.right)
    merged = {a for a, b in join.on if a == b}
    restrict = mmpl.Restrict
    if named <= set(left.columns) and join.kind in ("inner", "left", "semi", "anti", "match"):
        whole = whole_key_equated(left, (a for a, _ in join.on))
        if join.kind == "inner" and whole and left.total and _may_hold_of_default(predicate, left):
            return None
        return replace(join, left=_push(restrict(join.left, predicate, span=predicate.span), headings))
    if named <= set(right.columns) - merged and join.kind in ("inner", "right"):
        whole = whole_key_equated(right, (b for _, b in join.on))
        if whole and right.total and _may_hold_of_default(predicate, right):
            return None
        return replace(join, right=_push(restrict(join.right, predicate, span=predicate.span), headings))
    return None


def _may_hold_of_default(predicate: mmpl.Expr, heading: Heading) -> bool:
    """Whether the predicate can be true of a group nobody has heard of.

    Its sums and counts are 0 and the rest NULL, but which is which is not to be seen from a heading: all that could be
    0 are tried as both.
    """
    named = trees.columns_in(predicate)
    if named & set(heading.key):
        return True
    zero = {n: _zero(heading, n) for n in named}
    rows: list[Mapping[str, Value]] = [zero, dict.fromkeys(named)]
    return any(evaluate_expr(predicate, row, heading.columns) is True for row in rows) or len(named) > 1


def _zero(heading: Heading, name: str) -> Value:
    zeros: dict[str, Value] = {"int": 0, "interval": 0, "float": 0.0, "decimal": Decimal(0)}
    return zeros.get(heading.columns[name].name)
