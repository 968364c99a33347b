"""Applies rewrite rules to the relational and scalar expressions of a program."""

from collections.abc import Callable
from dataclasses import replace

from smile.algebra import mmpl, trees
from smile.algebra.heading import stream_heading
from smile.analysis.headings import Headings

RelationRewrite = Callable[[mmpl.Rel, Headings], mmpl.Rel]
RestrictionPush = Callable[[mmpl.Expr, mmpl.Rel, Headings], mmpl.Rel | None]
"""Gives the relation with the predicate moved into it, or None if the predicate cannot be moved there."""


def rewrite_bodies(program: mmpl.Program, change: RelationRewrite) -> mmpl.Program:
    """Rewrites the bodies of views. The headings of the relations that a body reads are those after their rewrite."""
    headings = Headings({s.name: stream_heading(s) for s in program.streams})
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

    def push_past(source: mmpl.Rel) -> mmpl.Rel | None:
        if not isinstance(source, mmpl.Restrict):
            return push(rel.predicate, source, headings)
        pushed_input = push_past(source.input)
        return None if pushed_input is None else replace(source, input=pushed_input)

    pushed = push_past(rel.input)
    return rel if pushed is None else pushed
