"""Expressions over knowledge: the result contains the value of the expression for every possible value of its columns.

Operands are treated as independent of each other, so the result may be wider than necessary, never narrower. If fewer
values are possible for the operands, no more are possible for the result. The bounds are those of the expression,
whatever its row's mask.

Every subexpression has limits: a range that all of its values are in. They follow from the limits of the columns, which
are at most those of the types. Where an operand has no bound, its limit decides whether a function can overflow or be
undefined. The limit itself does not become a bound of the result: it would tell a reader nothing.
"""

from collections.abc import Mapping
from functools import reduce
from itertools import product
from math import prod
from typing import NamedTuple

from smile.algebra.coercions import can_fail, cast, is_monotone_cast, type_ends
from smile.algebra.functions.catalogue import (
    COMPARISONS,
    SCALAR_FUNCTIONS,
    Signature,
    evaluate,
    signature_of,
    type_of,
)
from smile.algebra.mmpl import Call, Case, Cast, ColumnRef, Constant, Expr
from smile.algebra.trees import columns_in
from smile.algebra.types import BOOL, DataType, Value
from smile.knowledge.implied_values import ValueSets, case_branches
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.comparison import NULL_TESTS, comparison_truths, null_test_truths
from smile.knowledge.values.latest import LatestValue
from smile.knowledge.values.mask import Mask, image
from smile.knowledge.values.masked import MaskedValue
from smile.knowledge.values.once import OnceValue
from smile.knowledge.values.range import MAYBE, NEVER, ONLY, Range, hull, max_lower_bound, min_upper_bound
from smile.knowledge.values.range_arithmetic import strict_image
from smile.limits import combinations_max

Operand = Range | Mask
ColumnLimits = Mapping[str, Operand]
"""The limits of columns. A column that is not listed has those of its type."""
TYPE_LIMITS: ColumnLimits = {}


def expression_knowledge(
    expr: Expr,
    row: Mapping[str, CellKnowledge],
    types: Mapping[str, DataType],
    limits: ColumnLimits = TYPE_LIMITS,
) -> CellKnowledge:
    """The knowledge of `expr`, without ticks: a latest column counts with its bounds. Over masked columns the result is
    masked by all of their masks."""
    masked = {n: c for n in columns_in(expr) if isinstance(c := row[n], MaskedValue)}
    if not masked:
        return _Evaluator(row, types, limits).evaluate(expr).knowledge
    mask = reduce(lambda a, b: image(lambda x, y: x and y, a, b), (c.mask for c in masked.values()))
    if mask.is_permanently_hidden:
        return MaskedValue.permanently_hidden()
    unmasked_row = {**row, **{n: c.value for n, c in masked.items()}}
    return MaskedValue(mask, _Evaluator(unmasked_row, types, limits).evaluate(expr).knowledge)


def latest_expression_knowledge(
    expr: Expr,
    column: str,
    row: Mapping[str, CellKnowledge],
    types: Mapping[str, DataType],
    limits: ColumnLimits = TYPE_LIMITS,
) -> LatestValue:
    """The knowledge of a function of one latest column and fixed columns: the function of its value at the same
    tick."""
    bounds, latest = _Evaluator(row, types, limits).evaluate(expr).knowledge, row[column]
    bounds_range = bounds.to_range() if isinstance(bounds, Mask) else bounds
    assert isinstance(bounds_range, Range)
    if not isinstance(latest, LatestValue) or latest.occurred_at is None:
        return LatestValue(bounds=bounds_range)
    row_of_value = {**row, column: exact_cell(latest.value, types[column])}
    value = _Evaluator(row_of_value, types, limits).evaluate(expr).knowledge.now
    return LatestValue(value, latest.occurred_at, bounds_range)


class _Estimate(NamedTuple):
    knowledge: CellKnowledge
    limits: Operand


class _Evaluator:
    def __init__(self, row: Mapping[str, CellKnowledge], types: Mapping[str, DataType], limits: ColumnLimits) -> None:
        self.row, self.types, self.limits = row, types, limits

    def evaluate(self, expr: Expr) -> _Estimate:
        match expr:
            case ColumnRef(name):
                limits, type, cell = self.limits.get(name), self.types[name], self.row[name]
                knowledge = to_operand(cell, type) if isinstance(cell, LatestValue) else cell
                return _Estimate(knowledge, type_limits(type) if limits is None else limits)
            case Constant():
                exact = exact_cell(expr.value, expr.type)
                return _Estimate(exact, exact)
            case Call(name, args):
                signature = signature_of(expr, self.types)
                parts = [self.evaluate(a) for a in args]
                operands = [to_operand(p.knowledge, t) for p, t in zip(parts, signature.args, strict=True)]
                limits_of_parts = [p.limits for p in parts]
                return _Estimate(
                    call_knowledge(name, operands, limits_of_parts, signature),
                    call_limits(name, limits_of_parts, signature),
                )
            case Cast(arg, target):
                source, part = type_of(arg, self.types), self.evaluate(arg)
                operand = to_operand(part.knowledge, source)
                return _Estimate(
                    cast_knowledge(operand, part.limits, source, target), cast_limits(part.limits, source, target)
                )
            case Case():
                return self._evaluate_case(expr)
        raise AssertionError(expr)

    def _evaluate_case(self, case: Case) -> _Estimate:
        """The hull of the branches that are not excluded. `now` is that of the current branch. In a branch, columns
        have only values for which it is chosen; if there are none, it is excluded."""
        result_type = type_of(case, self.types)
        *branches, otherwise = case_branches(case, self.types)
        possible_results: list[Operand] = []
        limits_of_results: list[Operand] = []
        now: Value = None
        is_current_decided = is_rest_excluded = False
        # Each result is evaluated once: cases may be nested deeply. The limits of a result are the same in every row.
        for (condition, result), branch in zip(case.branches, branches, strict=True):
            condition_mask = to_operand(self.evaluate(condition).knowledge, BOOL)
            assert isinstance(condition_mask, Mask)
            branch_row = _branch_row(self.row, branch.sets)
            estimate = self._evaluate_branch(result, branch_row)
            limits_of_results.append(estimate.limits)
            if is_rest_excluded or condition_mask.is_permanently_hidden or branch_row is None:
                continue
            branch_result = to_operand(estimate.knowledge, result_type)
            possible_results.append(branch_result)
            if condition_mask.is_shown and not is_current_decided:
                now, is_current_decided = branch_result.now, True
            is_rest_excluded = condition_mask.is_permanently_shown
        branch_row = _branch_row(self.row, otherwise.sets)
        estimate = self._evaluate_branch(otherwise.result, branch_row)
        limits_of_results.append(estimate.limits)
        if not is_rest_excluded:
            branch_result = to_operand(estimate.knowledge, result_type)
            possible_results += [] if branch_row is None else [branch_result]
            now = now if is_current_decided else branch_result.now
        return _Estimate(operand_hull(possible_results, now), operand_hull(limits_of_results, None))

    def _evaluate_branch(self, result: Expr, row: Mapping[str, CellKnowledge] | None) -> _Estimate:
        """The result of a branch in which the columns have the values of `row`; None: no values."""
        return self.evaluate(result) if row is None else _Evaluator(row, self.types, self.limits).evaluate(result)


def exact_cell(value: Value, type: DataType) -> Operand:
    if type == BOOL:
        assert value is None or isinstance(value, bool)
        return Mask.exactly(value)
    return Range.exactly(value)


def to_operand(cell: CellKnowledge, type: DataType) -> Operand:
    """The knowledge as an operand of an expression: a mask if Boolean, else a range."""
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


def operand_hull(operands: list[Operand], now: Value) -> Operand:
    """An operand that is one of these, which are all of one type."""
    masks = [o for o in operands if isinstance(o, Mask)]
    if masks:
        return Mask(frozenset[bool | None]().union(*(m.possible for m in masks)), now)  # type: ignore[arg-type]
    return hull([o for o in operands if isinstance(o, Range)], now)


def unknown_operand(type: DataType, nullable: bool, now: Value) -> Operand:
    """An operand of which nothing is known, except whether it may be NULL."""
    if type == BOOL:
        return Mask.from_truths((True, False, None) if nullable else (True, False), now)  # type: ignore[arg-type]
    return Range(None, None, MAYBE if nullable else NEVER, now)


# ── limits ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def type_limits(type: DataType) -> Operand:
    """The limits of a value of which only the type is known."""
    if type == BOOL:
        return Mask.from_truths((True, False))
    return Range(*(type_ends(type) or (None, None)))


def call_limits(name: str, limits: list[Operand], signature: Signature) -> Operand:
    """The limits of a call whose operands have these limits. They include NULL if the call can be NULL although no
    operand is."""
    return _within_type(call_knowledge(name, limits, limits, signature), signature.result)


def cast_limits(limits: Operand, source: DataType, target: DataType) -> Operand:
    return _within_type(cast_knowledge(limits, limits, source, target), target)


def _within_type(limits: Operand, type: DataType) -> Operand:
    least_and_greatest = type_ends(type)
    if isinstance(limits, Mask) or limits.nulls is ONLY or least_and_greatest is None:
        return limits
    least, greatest = least_and_greatest
    return Range(least if limits.lo is None else limits.lo, greatest if limits.hi is None else limits.hi, limits.nulls)


# ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def call_knowledge(name: str, operands: list[Operand], limits: list[Operand], signature: Signature) -> Operand:
    """The knowledge of a call. `limits` are those of the operands."""
    scalar = SCALAR_FUNCTIONS[name]
    now = evaluate(name, tuple(o.now for o in operands), signature)
    if name in ("and", "or"):
        masks = [o for o in operands if isinstance(o, Mask)]
        return reduce(lambda a, b: image(lambda x, y: evaluate(name, (x, y), signature), a, b), masks)  # type: ignore[arg-type,return-value]
    possible = [p for o in operands if (p := possible_values(o)) is not None]
    if len(possible) == len(operands) and prod(map(len, possible)) <= combinations_max:
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
        image_range = strict_image(scalar, ranges, [o for o in limits if isinstance(o, Range)], signature, now)
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


# ── casts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def cast_knowledge(operand: Operand, limits: Operand, source: DataType, target: DataType) -> Operand:
    if source == target:
        return operand
    now = cast(operand.now, source, target)
    values = possible_values(operand)
    if values is not None:
        return operand_from_values(frozenset(cast(v, source, target) for v in values), target, now)
    assert isinstance(operand, Range) and isinstance(limits, Range)
    if not is_monotone_cast(source, target):
        return unknown_operand(target, can_fail(source) or operand.nulls is MAYBE, now)
    filled = operand.filled(limits)
    if None in (cast(filled.lo, source, target), cast(filled.hi, source, target)):
        return Range.bottom(now=now)
    lo, hi = (None if end is None else cast(end, source, target) for end in (operand.lo, operand.hi))
    return Range(lo, hi, operand.nulls, now)


def _branch_row(row: Mapping[str, CellKnowledge], sets: ValueSets | None) -> Mapping[str, CellKnowledge] | None:
    """The cells in a branch of CASE; None if it is excluded."""
    if sets is None:
        return None
    ranges = {n: cell.to_range() if isinstance(cell, LatestValue) else cell for n in sets for cell in [row[n]]}
    clipped = {n: sets[n].clip(cell) for n, cell in ranges.items() if isinstance(cell, Range)}
    if None in clipped.values():
        return None
    return {**row, **clipped}  # type: ignore[dict-item]  # none of them is None
