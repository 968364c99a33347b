"""Constant folding: computes expressions without columns, and simplifies AND, OR and CASE with constant operands."""

from smile.algebra import mmpl, trees
from smile.algebra.coercions import cast
from smile.algebra.functions.catalogue import evaluate, resolve_signature
from smile.algebra.types import BOOL


def fold_expression(expr: mmpl.Expr) -> mmpl.Expr:
    return trees.rebuild_expr(expr, _fold_node)


def _fold_node(expr: mmpl.Expr) -> mmpl.Expr:
    match expr:
        case mmpl.Call("and" | "or" as function, args):
            return _fold_connective(expr, function, args)
        case mmpl.Call(function, args) if all(isinstance(a, mmpl.Constant) for a in args):
            constants = [a for a in args if isinstance(a, mmpl.Constant)]
            signature = resolve_signature(function, tuple(c.type for c in constants))
            assert signature is not None
            value = evaluate(function, tuple(c.value for c in constants), signature)
            return mmpl.Constant(value, signature.result, span=expr.span)
        case mmpl.Cast(mmpl.Constant(value, source), target):
            return mmpl.Constant(cast(value, source, target), target, span=expr.span)
        case mmpl.Case(branches, otherwise):
            return _fold_case(expr, branches, otherwise)
    return expr


def _fold_connective(expr: mmpl.Expr, function: str, args: tuple[mmpl.Expr, ...]) -> mmpl.Expr:
    absorbing = mmpl.Constant(function == "or", BOOL)
    neutral = mmpl.Constant(function == "and", BOOL)
    if absorbing in args:
        return mmpl.Constant(absorbing.value, BOOL, span=expr.span)
    operands = tuple(a for a in args if a != neutral)
    if len(operands) == len(args):
        return expr
    return mmpl.Call(function, operands, span=expr.span) if len(operands) > 1 else operands[0] if operands else neutral


def _fold_case(expr: mmpl.Expr, branches: tuple[tuple[mmpl.Expr, mmpl.Expr], ...], otherwise: mmpl.Expr) -> mmpl.Expr:
    remaining = []
    for condition, value in branches:
        if isinstance(condition, mmpl.Constant) and condition.value is not True:
            continue
        if isinstance(condition, mmpl.Constant):
            otherwise = value
            break
        remaining.append((condition, value))
    return mmpl.Case(tuple(remaining), otherwise, span=expr.span) if remaining else otherwise
