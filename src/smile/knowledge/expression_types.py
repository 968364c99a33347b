"""Types of expressions: derives the type of an expression from the types of its columns. It is sound: whatever values
the columns take, the value of the expression is within its type."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from smile.algebra import mmpl, trees
from smile.algebra.coercions import is_monotone_cast
from smile.algebra.functions.catalogue import COMPARISONS, SCALAR_FUNCTIONS, Monotonicity, type_of
from smile.algebra.types import BOOL, DataType
from smile.knowledge.symbolic import ONE, UNBOUNDED, ZERO, Bound, Interval, greatest, least
from smile.knowledge.types import ColumnType, Direction, MaskDirection, MaskType

RANGED_TYPES = ("int", "decimal", "float", "time", "interval", "timestamp", "date")
"""Types for whose values a range is inferred."""

TOTAL_FUNCTIONS = frozenset({"+", "-", "*", "neg", "abs", "sign", "floor", "ceil", "round"})
"""Functions whose result is NULL only if an argument is, apart from overflow."""

ColumnTypes = Mapping[str, ColumnType]


def expression_type(expr: mmpl.Expr, columns: ColumnTypes) -> ColumnType:
    column = _expression_type(expr, columns)
    has_default = not column.nullable and all(columns[c].has_default for c in trees.columns_in(expr))
    return replace(column, has_default=has_default)


def _expression_type(expr: mmpl.Expr, columns: ColumnTypes) -> ColumnType:
    data = type_of(expr, {n: c.data for n, c in columns.items()})
    match expr:
        case mmpl.ColumnRef(name):
            return columns[name]
        case mmpl.Constant(value, _):
            return _constant_type(value, data)
        case mmpl.Call(function, args):
            argument_types = [expression_type(a, columns) for a in args]
            if data == BOOL:
                return _boolean_type(expr, columns, predicate_mask(expr, columns))
            return _call_type(function, argument_types, data, expr, columns)
        case mmpl.Cast(arg, target):
            return _cast_type(expression_type(arg, columns), target)
        case mmpl.Case():
            return _case_type(expr, columns, data)
    raise AssertionError(expr)


def _constant_type(value: object, data: DataType) -> ColumnType:
    domain = "mask" if data == BOOL else "once"
    mask = MaskType() if data == BOOL else None
    range_ = Interval.exactly(value) if isinstance(value, int | Decimal | float) and data.name in RANGED_TYPES else None
    return ColumnType(data, domain, range_, ZERO, nullable=value is None, mask=mask)


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


def _call_type(
    function: str, parts: list[ColumnType], data: DataType, expr: mmpl.Expr, columns: ColumnTypes
) -> ColumnType:
    scalar = SCALAR_FUNCTIONS[function]
    evolves, steps = _evolution(expr, columns)
    direction = Direction.FIXED
    for index in range(len(parts)):
        direction = direction.combine(_argument_direction(function, scalar.monotonicity_in(index), index, parts))
    if not scalar.strict and any(p.null_evolves for p in parts):
        direction = Direction.EITHER  # NULL is ignored, so a value that appears later may move the result either way
    can_be_undefined = scalar.partial or function == "/"  # a divisor may be zero: ranges are not consulted here
    nullable = can_be_undefined or not scalar.strict or any(p.nullable for p in parts)
    # Intervals count ticks, timestamps microseconds and dates days, so their sums are given no range.
    has_mixed_units = any(p.data.name in ("timestamp", "date") for p in parts) and function in ("+", "-")
    range_ = (
        _call_range(function, [p.range for p in parts]) if data.name in RANGED_TYPES and not has_mixed_units else None
    )
    if range_ is None and data.name in RANGED_TYPES:
        range_ = UNBOUNDED
    null_evolves = evolves and (any(p.null_evolves for p in parts) or (function not in TOTAL_FUNCTIONS and nullable))
    return ColumnType(data, _domain_name(evolves), range_, steps, direction, evolves, nullable, null_evolves)


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


def _call_range(function: str, ranges: list[Interval | None]) -> Interval | None:
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
        case "greatest", [first, *rest]:
            for r in rest:
                first = Interval(greatest(first.lo, r.lo), greatest(first.hi, r.hi))
            return first
        case "least", [first, *rest]:
            for r in rest:
                first = Interval(least(first.lo, r.lo), least(first.hi, r.hi))
            return first
        case "coalesce", [first, *rest]:
            for r in rest:
                first = first.hull(r)
            return first
        case "nullif", [first, _]:
            return first
    return None


def _cast_type(arg: ColumnType, target: DataType) -> ColumnType:
    monotone = is_monotone_cast(arg.data, target)
    same_unit = arg.data.is_number and target.is_number
    if target == BOOL:
        mask = MaskType() if not arg.evolves else MaskType(MaskDirection.EITHER, arg.steps)
        return ColumnType(target, "mask", None, arg.steps, Direction.FIXED, arg.evolves, True, arg.null_evolves, mask)
    range_ = (
        (arg.range if same_unit and not _can_round(arg.data, target) else UNBOUNDED)
        if target.name in RANGED_TYPES
        else None
    )
    direction = arg.direction if monotone or arg.direction is Direction.FIXED else Direction.EITHER
    null_evolves = arg.null_evolves or (arg.evolves and not same_unit)
    nullable = arg.nullable or not same_unit
    return ColumnType(
        target, _domain_name(arg.evolves), range_, arg.steps, direction, arg.evolves, nullable, null_evolves
    )


def _can_round(source: DataType, target: DataType) -> bool:
    """Whether a cast between numbers may change a value, and so its bounds."""
    return (
        source.name == "float"
        or (target.name == "int" and source.name != "int")
        or (source.name == target.name == "decimal" and (target.scale or 0) < (source.scale or 0))
        or target.name == "float"
    )


def _case_type(expr: mmpl.Case, columns: ColumnTypes, data: DataType) -> ColumnType:
    values = [expression_type(v, columns) for _, v in expr.branches] + [expression_type(expr.otherwise, columns)]
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
    ranges = [v.range for v, e in zip(values, _case_results(expr), strict=True) if not _is_null(e)]
    range_ = None
    if data.name in RANGED_TYPES:
        range_ = ranges[0] if ranges and ranges[0] is not None else UNBOUNDED
        for r in ranges[1:]:
            range_ = range_.hull(r) if r is not None else UNBOUNDED
    return ColumnType(data, _domain_name(evolves), range_, steps, direction, evolves, nullable, evolves and nullable)


def _case_results(expr: mmpl.Case) -> list[mmpl.Expr]:
    return [v for _, v in expr.branches] + [expr.otherwise]


def _is_null(expr: mmpl.Expr) -> bool:
    return isinstance(expr, mmpl.Constant) and expr.value is None


# ── predicates ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _boolean_type(expr: mmpl.Expr, columns: ColumnTypes, mask: MaskType) -> ColumnType:
    evolves, steps = _evolution(expr, columns)
    column_types = [columns[c] for c in trees.columns_in(expr)]
    nullable, null_evolves = any(c.nullable for c in column_types), any(c.null_evolves for c in column_types)
    steps = mask.steps if evolves else steps
    return ColumnType(BOOL, "mask", None, steps, Direction.FIXED, evolves, nullable, null_evolves, mask)


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
