"""Expressions over knowledge: the result contains the value of the expression for every possible value of its columns.

Operands are taken to be independent of each other, so the result may be wider than need be, never narrower; the less is
possible of the operands, the less is of the result. A bound that is absent is beyond all numbers: only where a finite
bound overflows is NULL possible. Bounds are those of the expression, whatever its row's mask.
"""

from collections.abc import Mapping
from functools import reduce
from itertools import product
from math import prod

from smile import limits
from smile.algebra.coercions import cast, cast_is_monotone
from smile.algebra.mmpl import Call, Case, Cast, Column, Constant, Expr
from smile.algebra.scalars import COMPARISONS, SCALARS, evaluate, signature_of, type_of
from smile.algebra.trees import columns_in
from smile.algebra.types import BOOL, DataType, Value
from smile.knowledge.comparison import NULL_TESTS, compare, test_null
from smile.knowledge.corners import strict_image
from smile.knowledge.known import Known
from smile.knowledge.latest import Latest
from smile.knowledge.mask import Mask, image
from smile.knowledge.masked import Masked
from smile.knowledge.once import Once
from smile.knowledge.range import MAYBE, NEVER, ONLY, Range, earlier, hull, later

Operand = Range | Mask


def know(expr: Expr, row: Mapping[str, Known], types: Mapping[str, DataType]) -> Known:
    """What is known of `expr`. Over masked columns the result is masked by all of their masks."""
    masked = {n: c for n in columns_in(expr) if isinstance(c := row[n], Masked)}
    if not masked:
        return _know(expr, row, types)
    mask = reduce(lambda a, b: image(lambda x, y: x and y, a, b), (c.mask for c in masked.values()))
    if mask.gone:
        return Masked.nothing()
    return Masked(mask, _know(expr, {**row, **{n: c.inner for n, c in masked.items()}}, types))


def _know(expr: Expr, row: Mapping[str, Known], types: Mapping[str, DataType]) -> Known:
    match expr:
        case Column():
            return row[expr.name]
        case Constant():
            return exactly(expr.value, expr.type)
        case Call():
            return _call(expr, row, types)
        case Cast():
            source = type_of(expr.arg, types)
            return _cast(operand(_know(expr.arg, row, types), source), source, expr.type)
        case Case():
            return _case(expr, row, types)
    raise AssertionError(expr)


def exactly(value: Value, type: DataType) -> Operand:
    if type == BOOL:
        assert value is None or isinstance(value, bool)
        return Mask.exactly(value)
    return Range.exactly(value)


def operand(known: Known, type: DataType) -> Operand:
    """The knowledge as expressions use it: a mask if Boolean, else a range. Of a latest value only the final one is
    known, since a later one may be anything."""
    if isinstance(known, Once | Latest):
        known = known.range()
    if isinstance(known, Mask):
        return known
    if not isinstance(known, Range):
        return Range(nulls=NEVER, now=True)  # a nested relation: never NULL, and no operator asks for more
    if type != BOOL:
        return known
    return Mask.of(
        (v for v in (True, False, None) if known.contains(v)), None if known.now is None else bool(known.now)
    )


def values_of(known: Operand) -> frozenset[Value] | None:
    """All values possible, if they can be counted."""
    if isinstance(known, Mask):
        return known.possible
    if known.nulls is ONLY:
        return frozenset((None,))
    if known.lo is None or known.lo != known.hi:
        return None
    return frozenset((known.lo,) if known.nulls is NEVER else (known.lo, None))


def collected(values: frozenset[Value], type: DataType, now: Value) -> Operand:
    if type == BOOL:
        return Mask.of(values, now)  # type: ignore[arg-type]  # Booleans and NULL, since the type says so
    return hull([Range.exactly(v) for v in values], now)


def unknown(type: DataType, nullable: bool, now: Value) -> Operand:
    """Nothing is known but whether it may be NULL."""
    if type == BOOL:
        return Mask.of((True, False, None) if nullable else (True, False), now)  # type: ignore[arg-type]
    return Range(None, None, MAYBE if nullable else NEVER, now)


# ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _call(call: Call, row: Mapping[str, Known], types: Mapping[str, DataType]) -> Operand:
    signature = signature_of(call, types)
    operands = [operand(_know(a, row, types), t) for a, t in zip(call.args, signature.args, strict=True)]
    name, scalar = call.function, SCALARS[call.function]
    now = evaluate(name, tuple(o.now for o in operands), signature)
    if name in ("and", "or"):
        masks = [o for o in operands if isinstance(o, Mask)]
        return reduce(lambda a, b: image(lambda x, y: evaluate(name, (x, y), signature), a, b), masks)  # type: ignore[arg-type,return-value]
    possible = [p for o in operands if (p := values_of(o)) is not None]
    if len(possible) == len(operands) and prod(map(len, possible)) <= limits.combinations_max:
        results = frozenset(evaluate(name, values, signature) for values in product(*possible))
        return collected(results, signature.result, now)
    ranges = [o for o in operands if isinstance(o, Range)]
    if len(ranges) < len(operands):
        return unknown(signature.result, nullable=True, now=now)
    if name in COMPARISONS:
        return Mask(compare(name, *ranges), now)  # type: ignore[arg-type]
    if name in NULL_TESTS:
        return Mask(test_null(name, ranges), now)  # type: ignore[arg-type]
    if name in _CHOICES:
        return _CHOICES[name](ranges, now)
    if scalar.strict:
        found = strict_image(scalar, ranges, signature, now)
        if found is not None:
            return operand(found, signature.result)
        return unknown(signature.result, scalar.partial or any(r.nulls is MAYBE for r in ranges), now)
    return unknown(signature.result, nullable=name != "concat", now=now)


def _coalesce(ranges: list[Range], now: Value) -> Range:
    reached = []
    for r in ranges:
        reached.append(r)
        if r.nulls is NEVER:
            break
    chosen = hull(reached, now)
    if chosen.nulls is ONLY:
        return chosen
    return Range(chosen.lo, chosen.hi, MAYBE if all(r.nulls is not NEVER for r in reached) else NEVER, now)


def _nullif(ranges: list[Range], now: Value) -> Range:
    value, other = ranges
    equal = compare("=", value, other)
    if equal == {True} or value.nulls is ONLY:
        return Range.exactly(None)
    return Range(value.lo, value.hi, MAYBE if True in equal else value.nulls, now)


def _greatest(ranges: list[Range], now: Value) -> Range:
    """NULLs are passed over: only those that cannot be NULL are sure to take part."""
    around = hull(ranges, now)
    sure = [r for r in ranges if r.nulls is NEVER]
    if not sure:
        return around
    return Range(reduce(later, (r.lo for r in sure)), around.hi, NEVER, now)


def _least(ranges: list[Range], now: Value) -> Range:
    around = hull(ranges, now)
    sure = [r for r in ranges if r.nulls is NEVER]
    if not sure:
        return around
    return Range(around.lo, reduce(earlier, (r.hi for r in sure)), NEVER, now)


_CHOICES = {"coalesce": _coalesce, "nullif": _nullif, "greatest": _greatest, "least": _least}


# ── casts and cases ─────────────────────────────────────────────────────────────────────────────────────────────────


def _cast(known: Operand, source: DataType, target: DataType) -> Operand:
    if source == target:
        return known
    now = cast(known.now, source, target)
    values = values_of(known)
    if values is not None:
        return collected(frozenset(cast(v, source, target) for v in values), target, now)
    assert isinstance(known, Range)
    if not cast_is_monotone(source, target):
        return unknown(target, source.name == "string" or known.nulls is MAYBE, now)
    lo, hi = cast(known.lo, source, target), cast(known.hi, source, target)
    if (lo is None and known.lo is not None) or (hi is None and known.hi is not None):
        return Range.bottom(now=now)
    return Range(lo, hi, known.nulls, now)


def _case(case: Case, row: Mapping[str, Known], types: Mapping[str, DataType]) -> Operand:
    """The hull of the branches not excluded; `now` is that of the current one."""
    result_type = type_of(case, types)
    reached: list[Operand] = []
    now: Value = None
    decided = excluded = False
    for condition, result in case.branches:
        when = operand(_know(condition, row, types), BOOL)
        assert isinstance(when, Mask)
        if when.gone:
            continue
        branch = operand(_know(result, row, types), result_type)
        reached.append(branch)
        if when.shown and not decided:
            now, decided = branch.now, True
        if when.stays:
            excluded = True
            break
    if not excluded:
        reached.append(operand(_know(case.otherwise, row, types), result_type))
        now = now if decided else reached[-1].now
    if result_type == BOOL:
        possible = frozenset[bool | None]().union(*(b.possible for b in reached if isinstance(b, Mask)))
        return Mask(possible, now)  # type: ignore[arg-type]
    return hull([b for b in reached if isinstance(b, Range)], now)
