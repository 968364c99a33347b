"""The rewrite rules of MMPL, in the order in which they are applied.

A rule does not change which rows a view has, neither while events arrive nor in the end. All bounds stay correct.
"""

from collections.abc import Callable

from smile.algebra import mmpl
from smile.rules.bound_joins import bound_joins
from smile.rules.count_nulls import count_nulls
from smile.rules.fold_constants import fold_constants
from smile.rules.merge_restricts import merge_restricts
from smile.rules.prune_columns import prune_columns
from smile.rules.push_down import push_down
from smile.rules.share_expressions import share_expressions
from smile.rules.split_conjuncts import split_conjuncts

Rule = Callable[[mmpl.Program], mmpl.Program]

RULES: tuple[Rule, ...] = (
    fold_constants,
    count_nulls,
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
