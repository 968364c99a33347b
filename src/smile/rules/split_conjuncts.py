"""Splits WHERE a AND b into WHERE a and WHERE b, so that each condition can be moved separately."""

from smile.algebra import mmpl, trees
from smile.analysis.headings import Headings
from smile.rules.apply import rewrite_relations


def split_conjuncts(program: mmpl.Program) -> mmpl.Program:
    return rewrite_relations(program, _split)


def _split(rel: mmpl.Rel, _: Headings) -> mmpl.Rel:
    if not isinstance(rel, mmpl.Restrict):
        return rel
    result = rel.input
    for predicate in trees.conjuncts(rel.predicate):
        result = mmpl.Restrict(result, predicate, span=predicate.span or rel.span)
    return result
