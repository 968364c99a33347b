"""Moves conditions between the times of both sides into the join: σp(A ⋈ B) = A ⋈p B.

A join with a bound on the time between matching rows can expire its state earlier. The guard: the condition is not
moved into a join on the whole key of a total relation, because default rows take part in that join.
"""

from dataclasses import replace

from smile.algebra import mmpl, trees
from smile.algebra.heading import Heading, is_key_equated
from smile.algebra.time_forms import MOMENT_TYPES
from smile.analysis.headings import Headings
from smile.rules.apply import push_restriction, rewrite_relations


def bound_joins(program: mmpl.Program) -> mmpl.Program:
    return rewrite_relations(program, lambda rel, headings: push_restriction(rel, headings, _push_into_join))


def _push_into_join(predicate: mmpl.Expr, rel: mmpl.Rel, headings: Headings) -> mmpl.Rel | None:
    if not (isinstance(rel, mmpl.Join) and rel.kind == "inner"):
        return None
    left, right = headings.heading_of(rel.left), headings.heading_of(rel.right)
    if _is_total_on(left, [a for a, _ in rel.on]) or _is_total_on(right, [b for _, b in rel.on]):
        return None
    columns = trees.columns_in(predicate)
    column_types = {**left.columns, **right.columns}
    if (
        columns <= set(left.columns)
        or columns <= set(right.columns)
        or any(column_types[c] not in MOMENT_TYPES for c in columns)
    ):
        return None
    conditions = trees.conjuncts(rel.when) if rel.when is not None else []
    return replace(rel, when=trees.conjunction((*conditions, *trees.conjuncts(predicate))))


def _is_total_on(side: Heading, joined: list[str]) -> bool:
    return side.total and is_key_equated(side, joined)
