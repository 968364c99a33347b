"""Rewrites of MMPL: a visible list of rules, in the order they are applied. Each keeps every view's rows, its rows at
the end of time, and the truth of every bound."""

from collections.abc import Callable

from smile.algebra import mmpl
from smile.algebra.rules.bound_joins import bound_joins
from smile.algebra.rules.fold_constants import fold_constants
from smile.algebra.rules.merge_restricts import merge_restricts
from smile.algebra.rules.prune_columns import prune_columns
from smile.algebra.rules.push_down import push_down
from smile.algebra.rules.share_expressions import share_expressions
from smile.algebra.rules.split_conjuncts import split_conjuncts

Rule = Callable[[mmpl.Program], mmpl.Program]

RULES: tuple[Rule, ...] = (
    fold_constants,
    split_conjuncts,
    push_down,
    bound_joins,
    merge_restricts,
    prune_columns,
    share_expressions,
)


def rewrite(program: mmpl.Program) -> mmpl.Program:
    for rule in RULES:
        program = rule(program)
    return program
