"""Conditions between the times of both sides go into the join: σp(A ⋈ B) = A ⋈p B.

A join that knows how far apart its rows may lie need not remember them for longer. The guard: with a total relation on
its whole key the default row takes part, and there the condition stays where it is.
"""

from dataclasses import replace

from smile.algebra import mmpl, trees
from smile.algebra.heading import Heading, Headings, whole_key_equated
from smile.algebra.rules.apply import moved, to_relations
from smile.algebra.types import TIME, TIMESTAMP


def bound_joins(program: mmpl.Program) -> mmpl.Program:
    return to_relations(program, lambda rel, headings: moved(rel, headings, _into))


def _into(predicate: mmpl.Expr, rel: mmpl.Rel, headings: Headings) -> mmpl.Rel | None:
    if not (isinstance(rel, mmpl.Join) and rel.kind == "inner"):
        return None
    left, right = headings.of(rel.left), headings.of(rel.right)
    if _is_total(left, [a for a, _ in rel.on]) or _is_total(right, [b for _, b in rel.on]):
        return None
    named = trees.columns_in(predicate)
    both = {**left.columns, **right.columns}
    if (
        named <= set(left.columns)
        or named <= set(right.columns)
        or any(both[c] not in (TIME, TIMESTAMP) for c in named)
    ):
        return None
    known = trees.conjuncts(rel.when) if rel.when is not None else []
    return replace(rel, when=trees.conjunction((*known, *trees.conjuncts(predicate))))


def _is_total(side: Heading, joined: list[str]) -> bool:
    return side.total and whole_key_equated(side, joined)
