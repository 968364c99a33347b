"""Constant folding: replaces every scalar expression by its folded form, and drops restrictions that hide nothing."""

from smile.algebra import mmpl
from smile.algebra.folding import fold_expression
from smile.algebra.types import BOOL
from smile.analysis.headings import Headings
from smile.operators.catalogue import map_expressions
from smile.rules.apply import rewrite_relations


def fold_constants(program: mmpl.Program) -> mmpl.Program:
    return rewrite_relations(program, _fold_relation)


def _fold_relation(rel: mmpl.Rel, headings: Headings) -> mmpl.Rel:
    folded = map_expressions(rel, fold_expression)
    if isinstance(folded, mmpl.Restrict) and folded.predicate == mmpl.Constant(True, BOOL):
        # A restriction that hides nothing still makes a total relation non-total. Then it has to stay.
        return folded if headings.heading_of(folded.input).total else folded.input
    return folded
