"""Walks and rebuilds MMPL trees. Nothing is changed in place, and unchanged parts stay the same nodes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache

from smile.algebra.mmpl import Call, Case, Cast, ColumnRef, Expr, Rel


@cache
def _input_fields(node: type) -> tuple[str, ...]:
    """The fields of a class of nodes that hold its inputs: `input`, or `left` and `right`, or the tuple `inputs`."""
    return tuple(f.name for f in fields(node) if f.name in ("input", "left", "right", "inputs"))


def inputs_of(rel: Rel) -> tuple[Rel, ...]:
    names = _input_fields(type(rel))  # type: ignore[arg-type]  # a class has a hash
    if names == ("inputs",):
        inputs: tuple[Rel, ...] = rel.inputs  # type: ignore[attr-defined]  # it has this field
        return inputs
    return tuple([getattr(rel, name) for name in names])


def walk(rel: Rel) -> Iterator[Rel]:
    """The node and all nodes below it. A node comes before its inputs."""
    stack = [rel]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(inputs_of(node)))


def with_inputs(rel: Rel, inputs: tuple[Rel, ...]) -> Rel:
    """The same operator on other inputs. Returns the node itself if no input changed."""
    if all(a is b for a, b in zip(inputs, inputs_of(rel), strict=True)):
        return rel
    names = _input_fields(type(rel))  # type: ignore[arg-type]  # a class has a hash
    changes = {"inputs": inputs} if names == ("inputs",) else dict(zip(names, inputs, strict=True))
    return replace(rel, **changes)


def rebuild_relation(rel: Rel, change: Callable[[Rel], Rel]) -> Rel:
    """Applies `change` to every node, inputs first. It does not recurse: a chain of restrictions may be long."""
    rebuilt: list[Rel] = []
    stack = [(rel, False)]
    while stack:
        node, has_inputs = stack.pop()
        inputs = inputs_of(node)
        if has_inputs or not inputs:
            first = len(rebuilt) - len(inputs)
            rebuilt[first:] = [change(with_inputs(node, tuple(rebuilt[first:])))]
        else:
            stack += [(node, True), *((i, False) for i in reversed(inputs))]
    return rebuilt[0]


def operands_of(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Call():
            return expr.args
        case Cast():
            return (expr.arg,)
        case Case():
            return (*(e for branch in expr.branches for e in branch), expr.otherwise)
        case _:
            return ()


def columns_in(expr: Expr) -> frozenset[str]:
    names = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, ColumnRef):
            names.add(node.name)
        stack.extend(operands_of(node))
    return frozenset(names)


def with_operands(expr: Expr, operands: tuple[Expr, ...]) -> Expr:
    """The same operator on other operands. Returns the node itself if no operand changed."""
    if all(a is b for a, b in zip(operands, operands_of(expr), strict=True)):
        return expr
    match expr:
        case Call():
            return replace(expr, args=operands)
        case Cast():
            return replace(expr, arg=operands[0])
        case Case():
            pairs = tuple(zip(operands[:-1:2], operands[1:-1:2], strict=True))
            return replace(expr, branches=pairs, otherwise=operands[-1])
    raise AssertionError(expr)


def rebuild_expr(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    return change(with_operands(expr, tuple(rebuild_expr(p, change) for p in operands_of(expr))))


def rename_columns(expr: Expr, new_names: Mapping[str, str]) -> Expr:
    def change(e: Expr) -> Expr:
        return replace(e, name=new_names[e.name]) if isinstance(e, ColumnRef) and e.name in new_names else e

    return rebuild_expr(expr, change)


def conjuncts(predicate: Expr) -> list[Expr]:
    """The operands of an AND, including those of nested ANDs, in order."""
    operands: list[Expr] = []
    stack = [predicate]
    while stack:
        node = stack.pop()
        if isinstance(node, Call) and node.function == "and":
            stack.extend(reversed(node.args))
        else:
            operands.append(node)
    return operands


def conjunction(predicates: Sequence[Expr]) -> Expr:
    """The AND of at least one predicate."""
    if len(predicates) == 1:
        return predicates[0]
    return Call("and", tuple(predicates), span=predicates[0].span)
