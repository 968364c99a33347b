"""Columns that a predicate implies not to be NULL. What it implies for their values is in `implied_values`, and for the
distances of times in `algebra.time_forms`."""

from collections.abc import Iterator

from smile.algebra import mmpl, trees
from smile.algebra.functions.catalogue import SCALAR_FUNCTIONS

FLIPPED_COMPARISONS = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def non_null_columns(predicate: mmpl.Expr) -> Iterator[str]:
    """Columns that are not NULL in any row for which the predicate is true."""
    for conjunct in trees.conjuncts(predicate):
        yield from _columns_of_strict_functions(conjunct)


def _columns_of_strict_functions(expr: mmpl.Expr) -> Iterator[str]:
    """Columns whose NULL makes the expression NULL."""
    match expr:
        case mmpl.ColumnRef(name):
            yield name
        case mmpl.Cast(arg):
            yield from _columns_of_strict_functions(arg)
        case mmpl.Call("is not null", (mmpl.ColumnRef(name),)):
            yield name
        case mmpl.Call(function, args) if SCALAR_FUNCTIONS[function].strict:
            for arg in args:
                yield from _columns_of_strict_functions(arg)
