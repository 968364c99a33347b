"""Expressions over knowledge: the result contains the value of the expression for every possible value of its columns.

Operands are treated as independent of each other, so the result may be wider than necessary, never narrower. If fewer
values are possible for the operands, no more are possible for the result. An absent bound is beyond all numbers: NULL
becomes possible only where a finite bound overflows. The bounds are those of the expression, whatever its row's mask.
"""

from collections.abc import Mapping
from functools import reduce
from itertools import product
from math import prod

from smile import limits
from smile.algebra.coercions import cast, is_monotone_cast
from smile.algebra.functions.catalogue import COMPARISONS, SCALAR_FUNCTIONS, evaluate, signature_of, type_of
from smile.algebra.mmpl import Call, Case, Cast, ColumnRef, Constant, Expr
from smile.algebra.trees import columns_in
from smile.algebra.types import BOOL, DataType, Value
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.comparison import NULL_TESTS, comparison_truths, null_test_truths
from smile.knowledge.values.latest import LatestValue
from smile.knowledge.values.mask import Mask, image
from smile.knowledge.values.masked import MaskedValue
from smile.knowledge.values.once import OnceValue
from smile.knowledge.values.range import MAYBE, NEVER, ONLY, Range, hull, max_lower_bound, min_upper_bound
from smile.knowledge.values.range_arithmetic import strict_image

Operand = Range | Mask


def expression_knowledge(expr: Expr, row: Mapping[str, CellKnowledge], types: Mapping[str, DataType]) -> CellKnowledge:
    """The knowledge of `expr`. Over masked columns the result is masked by all of their masks."""
    masked = {n: c for n in columns_in(expr) if isinstance(c := row[n], MaskedValue)}
    if not masked:
        return _knowledge(expr, row, types)
    mask = reduce(lambda a, b: image(lambda x, y: x and y, a, b), (c.mask for c in masked.values()))
    if mask.is_permanently_hidden:
        return MaskedValue.permanently_hidden()
    return MaskedValue(mask, _knowledge(expr, {**row, **{n: c.value for n, c in masked.items()}}, types))


def _knowledge(expr: Expr, row: Mapping[str, CellKnowledge], types: Mapping[str, DataType]) -> CellKnowledge:
    match expr:
        case ColumnRef():
            return row[expr.name]
        case Constant():
            return exact_cell(expr.value, expr.type)
        case Call():
            return _call_knowledge(expr, row, types)
        case Cast():
            source = type_of(expr.arg, types)
            return _cast_knowledge(to_operand(_knowledge(expr.arg, row, types), source), source, expr.type)
        case Case():
            return _case_knowledge(expr, row, types)
    raise AssertionError(expr)


def exact_cell(value: Value, type: DataType) -> Operand:
    if type == BOOL:
        assert value is None or isinstance(value, bool)
        return Mask.exactly(value)
    return Range.exactly(value)


def to_operand(cell: CellKnowledge, type: DataType) -> Operand:
    """The knowledge as an operand of an expression: a mask if Boolean, else a range. A latest value has bounds only
    once it is final, since a later one may be anything."""
    if isinstance(cell, OnceValue | LatestValue):
        cell = cell.to_range()
    if isinstance(cell, Mask):
        return cell
    if not isinstance(cell, Range):
        return Range(nulls=NEVER, now=True)  # a nested relation is never NULL, and no operator needs more
    if type != BOOL:
        return cell
    return Mask.from_truths(
        (v for v in (True, False, None) if cell.contains(v)), None if cell.now is None else bool(cell.now)
    )


def possible_values(operand: Operand) -> frozenset[Value] | None:
    """All possible values, if they can be enumerated."""
    if isinstance(operand, Mask):
        return operand.possible
    if operand.nulls is ONLY:
        return frozenset((None,))
    if operand.lo is None or operand.lo != operand.hi:
        return None
    return frozenset((operand.lo,) if operand.nulls is NEVER else (operand.lo, None))


def operand_from_values(values: frozenset[Value], type: DataType, now: Value) -> Operand:
    if type == BOOL:
        return Mask.from_truths(values, now)  # type: ignore[arg-type]  # Booleans and NULL, since the type says so
    return hull([Range.exactly(v) for v in values], now)


def unknown_operand(type: DataType, nullable: bool, now: Value) -> Operand:
    """An operand of which nothing is operand, except whether it may be NULL."""
    if type == BOOL:
        return Mask.from_truths((True, False, None) if nullable else (True, False), now)  # type: ignore[arg-type]
    return Range(None, None, MAYBE if nullable else NEVER, now)


# ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _call_knowledge(call: Call, row: Mapping[str, CellKnowledge], types: Mapping[str, DataType]) -> Operand:
    signature = signature_of(call, types)
    operands = [to_operand(_knowledge(a, row, types), t) for a, t in zip(call.args, signature.args, strict=True)]
    name, scalar = call.function, SCALAR_FUNCTIONS[call.function]
    now = evaluate(name, tuple(o.now for o in operands), signature)
    if name in ("and", "or"):
        masks = [o for o in operands if isinstance(o, Mask)]
        return reduce(lambda a, b: image(lambda x, y: evaluate(name, (x, y), signature), a, b), masks)  # type: ignore[arg-type,return-value]
    possible = [p for o in operands if (p := possible_values(o)) is not None]
    if len(possible) == len(operands) and prod(map(len, possible)) <= limits.combinations_max:
        results = frozenset(evaluate(name, values, signature) for values in product(*possible))
        return operand_from_values(results, signature.result, now)
    ranges = [o for o in operands if isinstance(o, Range)]
    if len(ranges) < len(operands):
        return unknown_operand(signature.result, nullable=True, now=now)
    if name in COMPARISONS:
        return Mask(comparison_truths(name, *ranges), now)  # type: ignore[arg-type]
    if name in NULL_TESTS:
        return Mask(null_test_truths(name, ranges), now)  # type: ignore[arg-type]
    if name in _CHOICE_FUNCTIONS:
        return _CHOICE_FUNCTIONS[name](ranges, now)
    if scalar.strict:
        image_range = strict_image(scalar, ranges, signature, now)
        if image_range is not None:
            return to_operand(image_range, signature.result)
        return unknown_operand(signature.result, scalar.partial or any(r.nulls is MAYBE for r in ranges), now)
    return unknown_operand(signature.result, nullable=name != "concat", now=now)


def _coalesce(ranges: list[Range], now: Value) -> Range:
    possible_operands = []
    for r in ranges:
        possible_operands.append(r)
        if r.nulls is NEVER:
            break
    chosen = hull(possible_operands, now)
    if chosen.nulls is ONLY:
        return chosen
    return Range(chosen.lo, chosen.hi, MAYBE if all(r.nulls is not NEVER for r in possible_operands) else NEVER, now)


def _nullif(ranges: list[Range], now: Value) -> Range:
    value, other = ranges
    equal = comparison_truths("=", value, other)
    if equal == {True} or value.nulls is ONLY:
        return Range.exactly(None)
    return Range(value.lo, value.hi, MAYBE if True in equal else value.nulls, now)


def _greatest(ranges: list[Range], now: Value) -> Range:
    """NULLs are ignored, so only operands that cannot be NULL are sure to take part."""
    hull_range = hull(ranges, now)
    never_null = [r for r in ranges if r.nulls is NEVER]
    if not never_null:
        return hull_range
    return Range(reduce(max_lower_bound, (r.lo for r in never_null)), hull_range.hi, NEVER, now)


def _least(ranges: list[Range], now: Value) -> Range:
    hull_range = hull(ranges, now)
    never_null = [r for r in ranges if r.nulls is NEVER]
    if not never_null:
        return hull_range
    return Range(hull_range.lo, reduce(min_upper_bound, (r.hi for r in never_null)), NEVER, now)


_CHOICE_FUNCTIONS = {"coalesce": _coalesce, "nullif": _nullif, "greatest": _greatest, "least": _least}


# ── casts and cases ─────────────────────────────────────────────────────────────────────────────────────────────────


def _cast_knowledge(operand: Operand, source: DataType, target: DataType) -> Operand:
    if source == target:
        return operand
    now = cast(operand.now, source, target)
    values = possible_values(operand)
    if values is not None:
        return operand_from_values(frozenset(cast(v, source, target) for v in values), target, now)
    assert isinstance(operand, Range)
    if not is_monotone_cast(source, target):
        return unknown_operand(target, source.name == "string" or operand.nulls is MAYBE, now)
    lo, hi = cast(operand.lo, source, target), cast(operand.hi, source, target)
    if (lo is None and operand.lo is not None) or (hi is None and operand.hi is not None):
        return Range.bottom(now=now)
    return Range(lo, hi, operand.nulls, now)


def _case_knowledge(case: Case, row: Mapping[str, CellKnowledge], types: Mapping[str, DataType]) -> Operand:
    """The hull of the branches that are not excluded. `now` is that of the current branch."""
    result_type = type_of(case, types)
    possible_results: list[Operand] = []
    now: Value = None
    is_current_decided = is_rest_excluded = False
    for condition, result in case.branches:
        condition_mask = to_operand(_knowledge(condition, row, types), BOOL)
        assert isinstance(condition_mask, Mask)
        if condition_mask.is_permanently_hidden:
            continue
        branch = to_operand(_knowledge(result, row, types), result_type)
        possible_results.append(branch)
        if condition_mask.is_shown and not is_current_decided:
            now, is_current_decided = branch.now, True
        if condition_mask.is_permanently_shown:
            is_rest_excluded = True
            break
    if not is_rest_excluded:
        possible_results.append(to_operand(_knowledge(case.otherwise, row, types), result_type))
        now = now if is_current_decided else possible_results[-1].now
    if result_type == BOOL:
        possible = frozenset[bool | None]().union(*(b.possible for b in possible_results if isinstance(b, Mask)))
        return Mask(possible, now)  # type: ignore[arg-type]
    return hull([b for b in possible_results if isinstance(b, Range)], now)
