"""Types of expressions: derives the type of an expression from the types of its columns. It is sound: whatever values
the columns take, the value of the expression is within its type."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from smile import limits
from smile.algebra import mmpl, trees
from smile.algebra.coercions import is_monotone_cast
from smile.algebra.functions.catalogue import COMPARISONS, SCALAR_FUNCTIONS, Monotonicity, Signature, type_of
from smile.algebra.types import BOOL, DataType, Value
from smile.knowledge.column_values import narrow_columns, value_limits
from smile.knowledge.symbolic import ONE, UNBOUNDED, ZERO, Bound, Interval, Number, greatest
from smile.knowledge.types import ColumnType, Direction, MaskDirection, MaskType
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.range import MAYBE, ONLY, Range
from smile.knowledge.values.transfer import Operand, call_knowledge, call_limits, cast_limits, exact_cell

RANGED_TYPES = ("int", "decimal", "float", "time", "interval", "timestamp", "date")
"""Types for whose values a range is inferred."""

ColumnTypes = Mapping[str, ColumnType]


def expression_type(expr: mmpl.Expr, columns: ColumnTypes) -> ColumnType:
    column = _expression_type(expr, columns)
    latest = only_latest_column(expr, columns)
    if latest is not None:
        column = replace(column, domain="latest", is_by_source=columns[latest].is_by_source)
    operands = [columns[c] for c in trees.columns_in(expr)]
    return replace(
        column,
        has_default=not column.nullable and all(c.has_default for c in operands),
        follows_group_key=any(c.follows_group_key for c in operands),
    )


def only_latest_column(expr: mmpl.Expr, columns: ColumnTypes) -> str | None:
    """The latest column of which the expression is a function, if none of its other columns evolves."""
    evolving = [c for c in trees.columns_in(expr) if columns[c].evolves]
    return evolving[0] if len(evolving) == 1 and columns[evolving[0]].domain == "latest" else None


def _expression_type(expr: mmpl.Expr, columns: ColumnTypes) -> ColumnType:
    data = type_of(expr, {n: columns[n].data for n in trees.columns_in(expr) if n in columns})
    match expr:
        case mmpl.ColumnRef(name):
            return columns[name]
        case mmpl.Constant(value, _):
            return _constant_type(value, data)
        case mmpl.Call(_, args):
            argument_types = [expression_type(a, columns) for a in args]
            if data == BOOL:
                return _boolean_type(argument_types, expr, columns)
            return _call_type(argument_types, data, expr, columns)
        case mmpl.Cast(arg, target):
            return _cast_type(expression_type(arg, columns), target)
        case mmpl.Case():
            return _case_type(expr, columns, data)
    raise AssertionError(expr)


def _constant_type(value: Value, data: DataType) -> ColumnType:
    domain = "mask" if data == BOOL else "once"
    mask = MaskType() if data == BOOL else None
    range_ = Interval.exactly(value) if isinstance(value, int | Decimal | float) and data.name in RANGED_TYPES else None
    values = frozenset(() if value is None else (value,))
    return ColumnType(data, domain, range_, ZERO, nullable=value is None, mask=mask, values=values)


def expression_steps(expr: mmpl.Expr, columns: ColumnTypes) -> Bound:
    """The fixed columns together take one step, when their row becomes known; each other column takes its own steps."""
    column_types = [columns[c] for c in sorted(trees.columns_in(expr))]
    steps = ONE if any(not c.evolves for c in column_types) else ZERO
    for column in column_types:
        if column.evolves:
            steps = steps + column.steps
    return steps


def _evolution(expr: mmpl.Expr, columns: ColumnTypes) -> tuple[bool, Bound]:
    return any(columns[c].evolves for c in trees.columns_in(expr)), expression_steps(expr, columns)


# ── numbers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _call_type(parts: list[ColumnType], data: DataType, expr: mmpl.Call, columns: ColumnTypes) -> ColumnType:
    function, scalar = expr.function, SCALAR_FUNCTIONS[expr.function]
    evolves, steps = _evolution(expr, columns)
    direction = Direction.FIXED
    for index in range(len(parts)):
        direction = direction.combine(_argument_direction(function, scalar.monotonicity_in(index), index, parts))
    nullability = _call_nullability(expr, parts, data, evolves)
    if nullability.becomes_null or (not scalar.strict and any(p.null_evolves for p in parts)):
        # NULL has no place in the order. A function that ignores NULL may be moved either way by a value that appears.
        direction = Direction.EITHER
    # Intervals count ticks, timestamps microseconds and dates days, so their sums are given no range.
    has_mixed_units = any(p.data.name in ("timestamp", "date") for p in parts) and function in ("+", "-")
    range_, narrow_range = None, None
    if data.name in RANGED_TYPES:
        nullable = [p.nullable for p in parts]
        range_, narrow_range = (
            _with_limits((None if has_mixed_units else _call_range(function, ranges, nullable)) or UNBOUNDED, limit)
            for limit in [nullability.limits]
            for ranges in ([p.range for p in parts], [p.shown_range for p in parts])
        )
    return ColumnType(
        data, _domain_name(evolves), range_, steps, direction, evolves, nullability.nullable, nullability.null_evolves,
        narrow_range=_if_narrower(narrow_range, range_), per_event=_call_per_event(function, parts),
    )  # fmt: skip


def _if_narrower(narrow_range: Interval | None, range_: Interval | None) -> Interval | None:
    return None if narrow_range == range_ else narrow_range


class _Nullability(NamedTuple):
    """The limits of an expression, whether it can be NULL, whether that can change, and whether it can change without a
    change of an operand to or from NULL: by an overflow, for example."""

    limits: Operand
    nullable: bool
    null_evolves: bool
    becomes_null: bool


def _call_nullability(call: mmpl.Call, parts: list[ColumnType], data: DataType, evolves: bool) -> _Nullability:
    signature = Signature(tuple(p.data for p in parts), data)
    # The limits of a constant are its value, also of a text.
    limits_of_parts = [
        exact_cell(a.value, a.type) if isinstance(a, mmpl.Constant) else value_limits(p)
        for a, p in zip(call.args, parts, strict=True)
    ]
    limits = call_limits(call.function, limits_of_parts, signature)
    operands = [_or_null(o) if p.nullable else o for o, p in zip(limits_of_parts, parts, strict=True)]
    nullable = call_knowledge(call.function, operands, limits_of_parts, signature).contains(None)
    becomes_null = evolves and limits.contains(None)
    null_evolves = nullable and (becomes_null or any(p.null_evolves for p in parts))
    return _Nullability(limits, nullable, null_evolves, becomes_null)


def _or_null(limits: Operand) -> Operand:
    if isinstance(limits, Mask):
        return Mask(limits.possible | {None})
    return limits if limits.nulls is ONLY else Range(limits.lo, limits.hi, MAYBE)


def _with_limits(range_: Interval | None, limits: Operand) -> Interval | None:
    if range_ is None or isinstance(limits, Mask) or limits.lo is None:
        return range_
    return range_.with_extremes(*(Bound.from_number(end).extreme for end in (limits.lo, limits.hi)))


def magnitude_per_event(column: ColumnType) -> Number | None:
    """The greatest absolute value for each event that the row has absorbed. None: not a number."""
    if column.per_event is not None:
        return column.per_event
    limits = value_limits(column)
    if not column.data.is_number or isinstance(limits, Mask):
        return None
    return max(abs(Fraction(limits.lo)), abs(Fraction(limits.hi)))


def _call_per_event(function: str, parts: list[ColumnType]) -> Number | None:
    if function in ("+", "-") and any(p.per_event is not None for p in parts):
        magnitudes = [magnitude_per_event(p) for p in parts]
        return None if None in magnitudes else sum(m for m in magnitudes if m is not None)
    return greatest_per_event(parts) if function in ("neg", "abs", "coalesce", "greatest", "least") else None


def greatest_per_event(parts: list[ColumnType]) -> Number | None:
    """`per_event` of a column that has the value of one of these."""
    magnitudes = [magnitude_per_event(p) for p in parts]
    if None in magnitudes or all(p.per_event is None for p in parts):
        return None
    return max(m for m in magnitudes if m is not None)


def _domain_name(evolves: bool) -> str:
    return "range" if evolves else "once"


def _argument_direction(function: str, monotonicity: Monotonicity, index: int, parts: list[ColumnType]) -> Direction:
    """The direction in which one argument moves the result."""
    direction = parts[index].direction
    if direction is Direction.FIXED:
        return direction
    if function == "*":
        monotonicity = _product_monotonicity([p.range for i, p in enumerate(parts) if i != index])
    if monotonicity is Monotonicity.INCREASING:
        return direction
    return direction.opposite if monotonicity is Monotonicity.DECREASING else Direction.EITHER


def _product_monotonicity(others: list[Interval | None]) -> Monotonicity:
    if all(r is not None and r.is_nonnegative for r in others):
        return Monotonicity.INCREASING
    if len(others) == 1 and others[0] is not None and others[0].is_nonpositive:
        return Monotonicity.DECREASING
    return Monotonicity.MONOTONE


def _call_range(function: str, ranges: list[Interval | None], nullable: list[bool]) -> Interval | None:
    """`nullable`: which operands may be NULL."""
    known_ranges = [r for r in ranges if r is not None]
    if len(known_ranges) < len(ranges):
        return None
    match function, known_ranges:
        case "+", [a, b]:
            return a + b
        case "-", [a, b]:
            return a - b
        case "*", [a, b]:
            return a * b
        case "neg", [a]:
            return -a
        case "abs", [a]:
            return a if a.is_nonnegative else -a if a.is_nonpositive else Interval(ZERO, greatest(-a.lo, a.hi))
        case "greatest", operands:
            return _greatest_range(operands, nullable)
        case "least", operands:
            return -_greatest_range([-r for r in operands], nullable)
        case "coalesce", [first, *rest]:
            for r in rest:
                first = first.hull(r)
            return first
        case "nullif", [first, _]:
            return first
    return None


def _greatest_range(ranges: list[Interval], nullable: list[bool]) -> Interval:
    """NULLs are ignored, so only operands that cannot be NULL are sure to take part."""
    result = ranges[0]
    for r in ranges[1:]:
        result = result.hull(r)
    for r, may_be_null in zip(ranges, nullable, strict=True):
        if not may_be_null:
            result = Interval(greatest(result.lo, r.lo), result.hi)
    return result


def _cast_type(arg: ColumnType, target: DataType) -> ColumnType:
    monotone = is_monotone_cast(arg.data, target)
    same_unit = arg.data.is_number and target.is_number
    if target == BOOL:
        mask = MaskType() if not arg.evolves else MaskType(MaskDirection.EITHER, arg.steps)
        return ColumnType(target, "mask", None, arg.steps, Direction.FIXED, arg.evolves, True, arg.null_evolves, mask)
    limits_of_result = cast_limits(value_limits(arg), arg.data, target)
    may_fail = limits_of_result.contains(None)
    range_, narrow_range = None, None
    if target.name in RANGED_TYPES:
        keeps_range = same_unit and not _can_round(arg.data, target)
        range_, narrow_range = (arg.range, arg.narrow_range) if keeps_range else (UNBOUNDED, None)
        range_ = _with_limits(range_, limits_of_result)
    is_directed = (monotone and not may_fail) or arg.direction is Direction.FIXED
    return ColumnType(
        target, _domain_name(arg.evolves), range_, arg.steps, arg.direction if is_directed else Direction.EITHER,
        arg.evolves, arg.nullable or may_fail, arg.null_evolves or (arg.evolves and may_fail),
        narrow_range=narrow_range, per_event=arg.per_event if same_unit else None,
    )  # fmt: skip


def _can_round(source: DataType, target: DataType) -> bool:
    """Whether a cast between numbers may change a value, and so its bounds."""
    return (
        source.name == "float"
        or (target.name == "int" and source.name != "int")
        or (source.name == target.name == "decimal" and (target.scale or 0) < (source.scale or 0))
        or target.name == "float"
    )


def _case_type(expr: mmpl.Case, columns: ColumnTypes, data: DataType) -> ColumnType:
    """In a branch, its condition holds, and no condition before it."""
    values, remaining_columns = [], columns
    for condition, result in expr.branches:
        values.append(expression_type(result, narrow_columns(remaining_columns, condition, in_every_row=True)))
        remaining_columns = narrow_columns(remaining_columns, condition, holds=False, or_null=True, in_every_row=True)
    values.append(expression_type(expr.otherwise, remaining_columns))
    conditions = [predicate_mask(c, columns) for c, _ in expr.branches]
    evolves, steps = _evolution(expr, columns)
    direction = Direction.FIXED
    for value in values:
        direction = direction.combine(value.direction)
    if any(c.direction is not MaskDirection.DECIDED for c in conditions):
        direction = Direction.EITHER
    nullable = any(v.nullable for v in values)
    if data == BOOL:
        mask = MaskType(MaskDirection.EITHER, steps) if evolves else MaskType()
        return ColumnType(data, "mask", None, steps, Direction.FIXED, evolves, nullable, evolves and nullable, mask)
    # A branch that is NULL has no range, so the hull is that of the others.
    results = [v for v in values if v.values is None or v.values]
    range_, narrow_range = None, None
    if data.name in RANGED_TYPES:
        range_, narrow_range = (_hull([r.range for r in results]), _hull([r.shown_range for r in results]))
    return ColumnType(
        data, _domain_name(evolves), range_, steps, direction, evolves, nullable, evolves and nullable,
        narrow_range=_if_narrower(narrow_range, range_), values=_listed_values(results),
        per_event=greatest_per_event(results),
    )  # fmt: skip


def _hull(ranges: list[Interval | None]) -> Interval:
    hull = ranges[0] if ranges and ranges[0] is not None else UNBOUNDED
    for r in ranges[1:]:
        hull = hull.hull(r) if r is not None else UNBOUNDED
    return hull


def _listed_values(results: list[ColumnType]) -> frozenset[Value] | None:
    values: set[Value] = set()
    for result in results:
        if result.values is None:
            return None
        values |= result.values
    return frozenset(values) if len(values) <= limits.listed_values_max else None


# ── predicates ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _boolean_type(parts: list[ColumnType], expr: mmpl.Call, columns: ColumnTypes) -> ColumnType:
    evolves, steps = _evolution(expr, columns)
    mask = predicate_mask(expr, columns)
    nullability = _call_nullability(expr, parts, BOOL, evolves)
    steps = mask.steps if evolves else steps
    return ColumnType(
        BOOL, "mask", None, steps, Direction.FIXED, evolves, nullability.nullable, nullability.null_evolves, mask
    )


def predicate_mask(expr: mmpl.Expr, columns: ColumnTypes) -> MaskType:
    """How rows that begin hidden are shown and hidden by a predicate."""
    if not any(columns[c].evolves for c in trees.columns_in(expr)):
        return MaskType()
    match expr:
        case mmpl.ColumnRef(name):
            return columns[name].mask or MaskType(MaskDirection.EITHER, columns[name].steps)
        case mmpl.Call("and", args):
            return conjunction_mask([predicate_mask(a, columns) for a in args])
        case mmpl.Call("or", args):
            return disjunction_mask([predicate_mask(a, columns) for a in args])
        case mmpl.Call("not", (arg,)):
            return negation_mask(predicate_mask(arg, columns))
        case mmpl.Call(function, (a, b)) if function in COMPARISONS:
            return _comparison_mask(
                function, expression_type(a, columns), expression_type(b, columns), expression_steps(expr, columns)
            )
    return MaskType(MaskDirection.EITHER, expression_steps(expr, columns))


def _comparison_mask(function: str, a: ColumnType, b: ColumnType, steps: Bound) -> MaskType:
    """The mask follows from the direction in which the left operand moves relative to the right one."""
    if a.null_evolves or b.null_evolves:
        return MaskType(MaskDirection.EITHER, steps)
    direction = a.direction.combine(b.direction.opposite)
    if direction not in (Direction.UP, Direction.DOWN):
        # A Boolean evolves without a direction.
        can_change = direction is Direction.EITHER or a.evolves or b.evolves
        return MaskType(MaskDirection.EITHER, steps) if can_change else MaskType()
    rises = (direction is Direction.UP) == (function in (">", ">="))
    can_be_final_true = _has_finite_end(a) and _has_finite_end(b)
    if function == "=":
        return MaskType(MaskDirection.PEAKS, Bound.from_number(2), can_be_final_true)
    if function == "<>":
        return MaskType(MaskDirection.EITHER, Bound.from_number(3))
    return (
        MaskType(MaskDirection.RISES, ONE)
        if rises
        else MaskType(MaskDirection.FALLS, Bound.from_number(2), can_be_final_true)
    )


def _has_finite_end(column: ColumnType) -> bool:
    """Whether a number bounds its movement: then a comparison can be decided before the column is final."""
    if column.direction is Direction.FIXED:
        return True
    end = None if column.range is None else column.range.hi if column.direction is Direction.UP else column.range.lo
    return end is not None and end.is_finite


def conjunction_mask(masks: list[MaskType]) -> MaskType:
    """The mask of rows that all masks show. Masks that only rise give one that only rises; the same holds for
    falling."""
    directions = {m.direction for m in masks} - {MaskDirection.DECIDED}
    can_be_final = all(m.can_be_final_true for m in masks)
    if not directions:
        return MaskType(can_be_final_true=can_be_final)
    if directions == {MaskDirection.RISES}:
        return MaskType(MaskDirection.RISES, ONE, can_be_final)
    if directions == {MaskDirection.FALLS}:
        return MaskType(MaskDirection.FALLS, Bound.from_number(2), can_be_final)
    if directions <= {MaskDirection.RISES, MaskDirection.FALLS, MaskDirection.PEAKS}:
        return MaskType(MaskDirection.PEAKS, Bound.from_number(2), can_be_final)
    return MaskType(MaskDirection.EITHER, _total_steps(masks), can_be_final)


def disjunction_mask(masks: list[MaskType]) -> MaskType:
    directions = {m.direction for m in masks} - {MaskDirection.DECIDED}
    if not directions:
        return MaskType()
    if directions == {MaskDirection.RISES}:
        return MaskType(MaskDirection.RISES, ONE)
    if directions == {MaskDirection.FALLS}:
        return MaskType(MaskDirection.FALLS, Bound.from_number(2))
    return MaskType(MaskDirection.EITHER, _total_steps(masks))


def negation_mask(mask: MaskType) -> MaskType:
    opposite = {
        MaskDirection.RISES: MaskDirection.FALLS,
        MaskDirection.FALLS: MaskDirection.RISES,
        MaskDirection.PEAKS: MaskDirection.EITHER,
    }
    direction = opposite.get(mask.direction, mask.direction)
    steps = {MaskDirection.RISES: ONE, MaskDirection.FALLS: Bound.from_number(2), MaskDirection.DECIDED: ONE}.get(
        direction, mask.steps + ONE
    )
    return MaskType(direction, steps)


def _total_steps(masks: list[MaskType]) -> Bound:
    steps = ZERO
    for mask in masks:
        if mask.direction is not MaskDirection.DECIDED:
            steps = steps + mask.steps
    return steps + ONE
