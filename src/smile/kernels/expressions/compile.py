"""Expressions over columns of knowledge: of every row what `smile.knowledge.transfer.know` says of that row alone.

Compiled once, an expression is a function of columns: of plain values where all that it is made of is fixed, else of
ranges and masks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from smile import limits
from smile.algebra import mmpl, trees
from smile.algebra.coercions import cast, cast_is_monotone
from smile.algebra.functions_base import EITHER, NEITHER, UP, Signature
from smile.algebra.scalars import COMPARISONS, SCALARS, resolve, type_of
from smile.algebra.types import BOOL, NULL, DataType
from smile.columns import knowledge as k, values as v
from smile.columns.knowledge import Column, Kind, Masks, Ranges
from smile.columns.values import Values
from smile.kernels.expressions import choices, corners, images, logic, plain
from smile.kernels.expressions.by_rows import by_rows, call_by_rows
from smile.kernels.expressions.by_value import python_of
from smile.kernels.expressions.casts import cast_kernel, is_injective
from smile.kernels.expressions.images import Image
from smile.kernels.expressions.logic import BITS
from smile.kernels.expressions.operands import Operand, domain_of, operand_of, ranges
from smile.kernels.layout import Layout
from smile.knowledge.comparison import NULL_TESTS
from smile.knowledge.known import Known
from smile.knowledge.transfer import collected


@dataclass(frozen=True)
class Batch:
    """The columns that an expression is computed of."""

    fixed: Mapping[str, Values]
    columns: Mapping[str, Column]
    count: int


@dataclass(frozen=True)
class Node:
    """A part of an expression. One that is `exact` gives Values; else a Boolean gives Masks, and all others Ranges."""

    run: Callable[[Batch], Operand]
    exact: bool
    data: DataType
    constant: bool = False


@dataclass(frozen=True)
class Expression:
    """`kind` is exact if it is made of fixed columns alone."""

    expr: mmpl.Expr
    kind: Kind
    data: DataType
    layout: Layout
    bottoms: Mapping[str, Known]
    run: Callable[[Batch], Column] = field(repr=False)

    def __call__(self, fixed: Mapping[str, Values], columns: Mapping[str, Column], count: int) -> Column:
        return self.run(Batch(fixed, columns, count))


def compile_expression(expr: mmpl.Expr, layout: Layout, bottoms: Mapping[str, Known]) -> Expression:
    types = layout.types
    data = type_of(expr, types)
    names = trees.columns_in(expr)
    exact = all(c in layout.fixed for c in names)
    kind: Kind = "exact" if exact else "mask" if data == BOOL else "object" if data.name == "relation" else "range"
    if all(types[c].name != "relation" and _is_representable(c, layout, bottoms) for c in names):
        node = _Compiler(layout, bottoms).node(expr)
        assert node.exact == exact, "knowledge of NULL's own type is never asked for"
        return Expression(expr, kind, data, layout, bottoms, node.run)

    def run(batch: Batch) -> Column:
        columns = {c: batch.fixed[c] if c in layout.fixed else batch.columns[c] for c in names}
        return by_rows(expr, columns, types, bottoms, kind, data, batch.count)

    return Expression(expr, kind, data, layout, bottoms, run)


def _is_representable(name: str, layout: Layout, bottoms: Mapping[str, Known]) -> bool:
    """Whether the ends of the column's domain, if it may be asked for, are values of the column's type."""
    if name in layout.fixed or layout.evolving[name].kind != "latest":
        return True
    data = layout.evolving[name].data
    for end in domain_of(bottoms[name]):
        if end is not None and python_of(v.of_python([end], data).data, data) != [end]:
            return False
    return True


_COUNTED_MAX: Final = 6
"""With no more operands than this, all combinations of what is possible of them are within `combinations_max`."""
assert limits.combinations_max >= 3**_COUNTED_MAX


class _Compiler:
    def __init__(self, layout: Layout, bottoms: Mapping[str, Known]) -> None:
        self.layout, self.bottoms = layout, bottoms

    def node(self, expr: mmpl.Expr) -> Node:
        match expr:
            case mmpl.Column(name):
                return self._column(name)
            case mmpl.Constant():
                return _constant(expr)
            case mmpl.Call(name, args):
                return self._call(name, [self.node(a) for a in args])
            case mmpl.Cast():
                return _cast(self.node(expr.arg), expr.type)
            case mmpl.Case(branches, otherwise):
                conditions = [self.node(c) for c, _ in branches]
                return _case(conditions, [*(self.node(r) for _, r in branches), self.node(otherwise)])
        raise AssertionError(expr)

    def _column(self, name: str) -> Node:
        if name in self.layout.fixed:
            return Node(lambda batch: batch.fixed[name], True, self.layout.fixed[name])
        evolving, bottom = self.layout.evolving[name], self.bottoms[name]
        data = evolving.data
        if evolving.kind in ("range", "mask"):
            return Node(lambda batch: batch.columns[name], False, data)  # type: ignore[return-value,arg-type]
        return Node(lambda batch: operand_of(batch.columns[name], bottom, data), False, data)

    def _call(self, name: str, args: list[Node]) -> Node:
        signature = resolve(name, tuple(a.data for a in args))
        assert signature is not None, "types have been checked"
        if name in COMPARISONS and args[0].exact and args[1].constant and args[0].data.name in ("string", "bytes"):
            word = args[1].run(Batch({}, {}, 1))
            if isinstance(word, Values) and word.valid is None:
                return _applied(plain.against(name, word.data[0]), args[:1], BOOL)  # type: ignore[arg-type]
        function = _plain if all(a.exact for a in args) else _image
        return _applied(function(name, signature), args, signature.result)


def _applied(function: Image, args: list[Node], result: DataType) -> Node:
    exact = all(a.exact for a in args)
    if all(a.constant for a in args):
        once = Batch({}, {}, 1)
        return _repeated(function([a.run(once) for a in args]), result)
    if len(args) == 1:
        one = args[0].run
        return Node(lambda batch: function((one(batch),)), exact, result)
    if len(args) == 2:
        a, b = (arg.run for arg in args)
        return Node(lambda batch: function((a(batch), b(batch))), exact, result)
    runs = [a.run for a in args]
    return Node(lambda batch: function([run(batch) for run in runs]), exact, result)


def _constant(expr: mmpl.Constant) -> Node:
    return _repeated(v.of_python([expr.value], expr.type), expr.type)


def _repeated(one: Operand, data: DataType) -> Node:
    assert isinstance(one, Values)
    make = plain.repeated(one)
    return Node(lambda batch: make(batch.count), True, data, constant=True)


def _plain(name: str, signature: Signature) -> Image:
    return plain.plain(name, signature)  # type: ignore[return-value]  # all operands are Values


def _image(name: str, signature: Signature) -> Image:
    """The function on knowledge."""
    args, result = signature.args, signature.result
    now = plain.plain(name, signature)
    if args[0] == BOOL:
        if len(args) > _COUNTED_MAX and name not in ("and", "or"):
            return call_by_rows(name, args, result)
        return logic.of_one(name) if len(args) == 1 else logic.folded(name)
    if name in COMPARISONS:
        return logic.comparison(name)
    if name in NULL_TESTS:
        return logic.null_test(name, now)
    match name:
        case "coalesce" if len(args) <= _COUNTED_MAX:
            return choices.coalesce(now)
        case "greatest" | "least" if len(args) <= _COUNTED_MAX:
            return choices.extreme(now, name == "greatest")
        case "nullif":
            return choices.nullif(now)
    scalar = SCALARS[name]
    if not scalar.strict:
        return call_by_rows(name, args, result)
    compute = plain.kernel(name, signature)
    if name in ("*", "/"):
        return corners.Corners(compute, name == "/")
    if name == "abs":
        return corners.Absolute(compute)
    if EITHER in scalar.growth:
        return call_by_rows(name, args, result)
    return images.directed(scalar, signature, compute)


def _cast(arg: Node, target: DataType) -> Node:
    source = arg.data
    if source == target:
        return arg
    if source == NULL:
        return _repeated(v.of_python([None], target), target)
    compute = cast_kernel(source, target)
    if arg.exact:
        return _applied(plain.strict(compute), [arg], target)  # type: ignore[arg-type]  # the operand is Values
    if source == BOOL:
        return _applied(_cast_of_truths(target), [arg], target)
    growth = UP if cast_is_monotone(source, target) else NEITHER
    image = images.Directed(compute, (growth,), target, source.name == "string", injective=is_injective(source, target))
    return _applied(image, [arg], target)


def _cast_of_truths(target: DataType) -> Image:
    """Of what is possible of a Boolean there are so few sets that each is a row of a table."""
    sets = [frozenset(t for t, bit in BITS.items() if possible & bit) for possible in range(8)]
    cells = [collected(frozenset(cast(t, BOOL, target) for t in s or (None,)), target, None) for s in sets]
    table = k.of_points(cells, "range", target)
    now = v.of_python([cast(min(s, key=str), BOOL, target) if len(s) == 1 else None for s in sets], target)
    assert isinstance(table, Ranges)

    def run(operands: Sequence[Operand]) -> Ranges:
        (arg,) = operands
        assert isinstance(arg, Masks)
        found = table.take(np.minimum(arg.possible, 7))
        return ranges(now.take(np.minimum(arg.now, 7)), found.lo, found.hi, found.nulls)

    return run


def _case(conditions: list[Node], results: list[Node]) -> Node:
    data = results[-1].data
    nodes = [*conditions, *results]
    count = len(conditions)
    if all(n.exact for n in nodes):
        return _applied(lambda found: plain.chosen(found[:count], found[count:]), nodes, data)  # type: ignore[arg-type]
    choose = choices.case_of_booleans if data == BOOL else choices.case
    return _applied(lambda found: choose(found[:count], found[count:]), nodes, data)
