"""Applies rewrite rules to the relational and scalar expressions of a program."""

from collections.abc import Callable
from dataclasses import replace

from smile.algebra import mmpl, trees
from smile.analysis.headings import Headings

RelationRewrite = Callable[[mmpl.Rel, Headings], mmpl.Rel]
RestrictionPush = Callable[[mmpl.Expr, mmpl.Rel, Headings], mmpl.Rel | None]
"""Gives the relation with the predicate moved into it, or None if the predicate cannot be moved there."""


def rewrite_bodies(program: mmpl.Program, change: RelationRewrite) -> mmpl.Program:
    """Rewrites the bodies of views. The headings of the relations that a body reads are those after their rewrite."""
    headings = Headings.of_inputs(program)
    views = []
    for view in program.views:
        body = change(view.body, headings)
        headings.relations[view.name] = headings.heading_of(body)
        views.append(replace(view, body=body))
    return replace(program, views=tuple(views))


def rewrite_relations(program: mmpl.Program, change: RelationRewrite) -> mmpl.Program:
    """Rewrites every relational expression, inputs first."""
    return rewrite_bodies(
        program, lambda body, headings: trees.rebuild_relation(body, lambda rel: change(rel, headings))
    )


def push_restriction(rel: mmpl.Rel, headings: Headings, push: RestrictionPush) -> mmpl.Rel:
    """Moves a restriction to where `push` places it. It may pass other restrictions, whose order stays the same."""
    if not isinstance(rel, mmpl.Restrict):
        return rel
    passed, source = list[mmpl.Restrict](), rel.input
    while isinstance(source, mmpl.Restrict):
        passed.append(source)
        source = source.input
    pushed = push(rel.predicate, source, headings)
    if pushed is None:
        return rel
    for restrict in reversed(passed):
        pushed = replace(restrict, input=pushed)
    return pushed
