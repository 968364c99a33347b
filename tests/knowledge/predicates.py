"""Random predicates that bound columns: comparisons with constants, in all the forms that people write."""

from collections.abc import Mapping
from random import Random

from smile.algebra.coercions import can_cast, common_type
from smile.algebra.functions.catalogue import resolve_signature
from smile.algebra.mmpl import Call, Cast, ColumnRef, Constant, Expr
from smile.algebra.types import BOOL, FLOAT, INT, DataType
from tests.knowledge.chains import MONEY, extreme, ordinary

COMPARISONS = ("<", "<=", ">", ">=", "=", "<>")


def bounding_predicate(random: Random, types: Mapping[str, DataType], depth: int = 2, extremes: float = 0.2) -> Expr:
    """`extremes`: how often a constant is one at which arithmetic overflows."""
    chosen = random.random()
    if depth and chosen < 0.35:
        parts = tuple(bounding_predicate(random, types, depth - 1, extremes) for _ in range(2))
        return Call(random.choice(("and", "or")), parts)
    if depth and chosen < 0.5:
        return Call("not", (bounding_predicate(random, types, depth - 1, extremes),))
    name = random.choice(list(types))
    data = types[name]
    if chosen < 0.6:
        return Call(random.choice(("is null", "is not null")), (ColumnRef(name),))
    if data == BOOL:
        return ColumnRef(name)
    if chosen < 0.65:
        tests = ("is distinct from", "is not distinct from")
        return Call(random.choice(tests), (ColumnRef(name), constant(random, data, extremes)))
    left, right = _comparable(_expression(random, name, data, extremes), _other(random, name, types, extremes), types)
    comparisons = COMPARISONS if data.is_ordered else ("=", "<>")
    return Call(random.choice(comparisons), (left, right) if random.random() < 0.7 else (right, left))


def constant(random: Random, data: DataType, extremes: float) -> Constant:
    value = (extreme if random.random() < extremes else ordinary)(random, data)
    return Constant(None if random.random() < 0.05 else value, data)


def _expression(random: Random, name: str, data: DataType, extremes: float) -> tuple[Expr, DataType]:
    """A column, below functions for which a comparison can be solved, and some for which it cannot."""
    expr: Expr = ColumnRef(name)
    for _ in range(random.choice((0, 0, 0, 1, 1, 2))):
        function = random.choice(("+", "-", "*", "/", "abs", "neg"))
        other = constant(random, random.choice((data, INT)), extremes)
        args = [(expr, data)] if function in ("abs", "neg") else [(expr, data), (other, other.type)]
        if random.random() < 0.5:
            args.reverse()
        signature = resolve_signature(function, tuple(t for _, t in args))
        if signature is None or not all(can_cast(t, s) for (_, t), s in zip(args, signature.args, strict=True)):
            continue
        expr = Call(function, tuple(_cast(e, t, s) for (e, t), s in zip(args, signature.args, strict=True)))
        data = signature.result
    return expr, data


def _other(random: Random, name: str, types: Mapping[str, DataType], extremes: float) -> tuple[Expr, DataType]:
    others = [n for n, t in types.items() if t == types[name] and n != name]
    if others and random.random() < 0.2:
        return ColumnRef(random.choice(others)), types[name]
    is_number = types[name].is_number
    data = random.choice((INT, MONEY, FLOAT)) if is_number and random.random() < 0.5 else types[name]
    return constant(random, data, extremes), data


def _comparable(a: tuple[Expr, DataType], b: tuple[Expr, DataType], types: Mapping[str, DataType]) -> tuple[Expr, Expr]:
    common = common_type(a[1], b[1])
    if common is None:
        (name,) = {e.name for e in (a[0], b[0]) if isinstance(e, ColumnRef)} or {next(iter(types))}
        return ColumnRef(name), Constant(None, types[name])
    return _cast(*a, common), _cast(*b, common)


def _cast(expr: Expr, source: DataType, target: DataType) -> Expr:
    return expr if source == target else Cast(expr, target)
