"""ANY, ALL, and IN with a list: comparisons with the rows of a subquery whose result may be NULL.

`x > ANY (…)` is true if the comparison is true of some row, NULL if it is NULL of some row and true of none, and false
otherwise. `x > ALL (…)` is false if the comparison is false of some row: it is NOT of ANY of the opposite.
"""

from collections.abc import Sequence

from sqlglot import exp

from smile.algebra import mmpl, trees
from smile.algebra.types import BOOL
from smile.source import Span
from smile.translate.pipeline import QueryPipeline, split_equalities
from smile.translate.scope import free_name

_TRUE = mmpl.Constant(True, BOOL)


def quantifier_of(node: exp.Expr) -> exp.Expr | None:
    """The ANY or ALL of a comparison."""
    operand = node.args.get("expression") if isinstance(node, exp.Binary) else None
    return operand if isinstance(operand, exp.Any | exp.All) else None


def restrict_to_any(
    outer: QueryPipeline, inner: QueryPipeline, condition: mmpl.Expr, correlated: Sequence[mmpl.Expr], negated: bool,
    span: Span | None,
) -> None:  # fmt: skip
    """Restricts the outer rows to those for which the condition is true of some inner row; if `negated`, to those for
    which it is false of every inner row. `correlated` are the predicates that select the inner rows."""
    if negated:
        condition = mmpl.Call("coalesce", (condition, _TRUE), span=condition.span)
    kind: mmpl.JoinKind = "anti" if negated else "semi"
    _join(outer, inner, [condition, *correlated], kind, None, span)


def add_any_column(
    outer: QueryPipeline, inner: QueryPipeline, condition: mmpl.Expr, correlated: Sequence[mmpl.Expr], span: Span | None
) -> mmpl.Expr:
    """Whether the condition is true of some inner row: true, false or NULL."""
    is_possible = mmpl.Call("coalesce", (condition, _TRUE), span=condition.span)
    found = []
    for predicate in (condition, is_possible):
        found.append(free_name("found", {*outer.heading.columns, *inner.heading.columns}))
        _join(outer, inner, [predicate, *correlated], "match", found[-1], span)
    is_true, may_be_true = (mmpl.ColumnRef(name) for name in found)
    branches = ((is_true, _TRUE), (may_be_true, mmpl.Constant(None, BOOL)))
    return mmpl.Case(branches, mmpl.Constant(False, BOOL), span=span)


def _join(
    outer: QueryPipeline, inner: QueryPipeline, predicates: Sequence[mmpl.Expr], kind: mmpl.JoinKind,
    match_column: str | None, span: Span | None,
) -> None:  # fmt: skip
    pairs, others = split_equalities(outer, inner, predicates)
    when = trees.conjunction(others) if others else None
    outer.rel = mmpl.Join(kind, outer.rel, inner.rel, tuple(pairs), when, match_column, span=span)
