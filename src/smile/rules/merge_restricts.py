"""Merges consecutive restrictions into one, so that the mask of a row is computed once."""

from smile.algebra import mmpl, trees
from smile.analysis.headings import Headings
from smile.rules.apply import rewrite_relations


def merge_restricts(program: mmpl.Program) -> mmpl.Program:
    return rewrite_relations(program, _merge)


def _merge(rel: mmpl.Rel, _: Headings) -> mmpl.Rel:
    if not (isinstance(rel, mmpl.Restrict) and isinstance(rel.input, mmpl.Restrict)):
        return rel
    predicates = dict.fromkeys((*trees.conjuncts(rel.input.predicate), *trees.conjuncts(rel.predicate)))
    return mmpl.Restrict(rel.input.input, trees.conjunction(tuple(predicates)), span=rel.input.span)
