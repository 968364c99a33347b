"""Transfer functions over types: what the types of its columns say of an expression. Sound by construction: whatever
the columns' values become, the expression's value stays within its type."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from smile.algebra import mmpl, trees
from smile.algebra.coercions import cast_is_monotone
from smile.algebra.scalars import COMPARISONS, SCALARS, Growth, type_of
from smile.algebra.types import BOOL, DataType
from smile.knowledge.symbolic import ONE, UNBOUNDED, ZERO, Bound, Interval, greatest, least
from smile.knowledge.types import ColumnType, Course, Direction, MaskType

MEASURED = ("int", "decimal", "float", "time", "interval", "timestamp", "date")
"""Types whose values have a range that is worth inferring."""

TOTAL = frozenset({"+", "-", "*", "neg", "abs", "sign", "floor", "ceil", "round"})
"""Functions that are NULL only if an argument is, overflow aside."""

Columns = Mapping[str, ColumnType]


def expression_type(expr: mmpl.Expr, columns: Columns) -> ColumnType:
    found = _expression_type(expr, columns)
    by_default = not found.nullable and all(columns[c].by_default for c in trees.columns_in(expr))
    return replace(found, by_default=by_default)


def _expression_type(expr: mmpl.Expr, columns: Columns) -> ColumnType:
    data = type_of(expr, {n: c.data for n, c in columns.items()})
    match expr:
        case mmpl.Column(name):
            return columns[name]
        case mmpl.Constant(value, _):
            return _constant(value, data)
        case mmpl.Call(function, args):
            parts = [expression_type(a, columns) for a in args]
            if data == BOOL:
                return _boolean(expr, columns, predicate_mask(expr, columns))
            return _call(function, parts, data, expr, columns)
        case mmpl.Cast(arg, target):
            return _cast(expression_type(arg, columns), target)
        case mmpl.Case():
            return _case(expr, columns, data)
    raise AssertionError(expr)


def _constant(value: object, data: DataType) -> ColumnType:
    domain = "mask" if data == BOOL else "once"
    mask = MaskType() if data == BOOL else None
    range_ = Interval.exactly(value) if isinstance(value, int | Decimal | float) and data.name in MEASURED else None
    return ColumnType(data, domain, range_, ZERO, nullable=value is None, mask=mask)


def steps_of(expr: mmpl.Expr, columns: Columns) -> Bound:
    """Columns that are fixed become known with their row, at one step; every other takes its own."""
    named = [columns[c] for c in sorted(trees.columns_in(expr))]
    steps = ONE if any(not c.evolves for c in named) else ZERO
    for column in named:
        if column.evolves:
            steps = steps + column.steps
    return steps


def _summary(expr: mmpl.Expr, columns: Columns) -> tuple[bool, Bound]:
    return any(columns[c].evolves for c in trees.columns_in(expr)), steps_of(expr, columns)


# ── numbers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _call(function: str, parts: list[ColumnType], data: DataType, expr: mmpl.Expr, columns: Columns) -> ColumnType:
    scalar = SCALARS[function]
    evolves, steps = _summary(expr, columns)
    direction = Direction.FIXED
    for index in range(len(parts)):
        direction = direction.with_(_through(function, scalar.growth_in(index), index, parts))
    if not scalar.strict and any(p.null_evolves for p in parts):
        direction = Direction.EITHER  # NULL is passed over, and where the value will come in is open
    undefined = scalar.partial or function == "/"  # at a divisor of zero, which only ranges can exclude
    nullable = undefined or not scalar.strict or any(p.nullable for p in parts)
    # An interval is counted in ticks, a timestamp in microseconds, a date in days: their sums have no range here.
    mixed = any(p.data.name in ("timestamp", "date") for p in parts) and function in ("+", "-")
    range_ = _range(function, [p.range for p in parts]) if data.name in MEASURED and not mixed else None
    if range_ is None and data.name in MEASURED:
        range_ = UNBOUNDED
    moves = evolves and (any(p.null_evolves for p in parts) or (function not in TOTAL and nullable))
    return ColumnType(data, _domain(evolves), range_, steps, direction, evolves, nullable, moves)


def _domain(evolves: bool) -> str:
    return "range" if evolves else "once"


def _through(function: str, growth: Growth, index: int, parts: list[ColumnType]) -> Direction:
    """The direction that one argument's movement gives the result."""
    direction = parts[index].direction
    if direction is Direction.FIXED:
        return direction
    if function == "*":
        growth = _growth_of_product([p.range for i, p in enumerate(parts) if i != index])
    if growth is Growth.UP:
        return direction
    return direction.flipped if growth is Growth.DOWN else Direction.EITHER


def _growth_of_product(others: list[Interval | None]) -> Growth:
    if all(r is not None and r.is_nonnegative for r in others):
        return Growth.UP
    if len(others) == 1 and others[0] is not None and others[0].is_nonpositive:
        return Growth.DOWN
    return Growth.EITHER


def _range(function: str, ranges: list[Interval | None]) -> Interval | None:
    known = [r for r in ranges if r is not None]
    if len(known) < len(ranges):
        return None
    match function, known:
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


def _cast(arg: ColumnType, target: DataType) -> ColumnType:
    monotone = cast_is_monotone(arg.data, target)
    same_unit = arg.data.is_number and target.is_number
    if target == BOOL:
        mask = MaskType() if not arg.evolves else MaskType(Course.EITHER, arg.steps)
        return ColumnType(target, "mask", None, arg.steps, Direction.FIXED, arg.evolves, True, arg.null_evolves, mask)
    range_ = (
        (arg.range if same_unit and not _rounds(arg.data, target) else UNBOUNDED) if target.name in MEASURED else None
    )
    direction = arg.direction if monotone or arg.direction is Direction.FIXED else Direction.EITHER
    moves = arg.null_evolves or (arg.evolves and not same_unit)
    nullable = arg.nullable or not same_unit
    return ColumnType(target, _domain(arg.evolves), range_, arg.steps, direction, arg.evolves, nullable, moves)


def _rounds(source: DataType, target: DataType) -> bool:
    """Whether a cast between numbers may move a value, and so its bounds."""
    return (
        source.name == "float"
        or (target.name == "int" and source.name != "int")
        or (source.name == target.name == "decimal" and (target.scale or 0) < (source.scale or 0))
        or target.name == "float"
    )


def _case(expr: mmpl.Case, columns: Columns, data: DataType) -> ColumnType:
    values = [expression_type(v, columns) for _, v in expr.branches] + [expression_type(expr.otherwise, columns)]
    conditions = [predicate_mask(c, columns) for c, _ in expr.branches]
    evolves, steps = _summary(expr, columns)
    direction = Direction.FIXED
    for value in values:
        direction = direction.with_(value.direction)
    if any(c.course is not Course.DECIDED for c in conditions):
        direction = Direction.EITHER
    nullable = any(v.nullable for v in values)
    if data == BOOL:
        mask = MaskType(Course.EITHER, steps) if evolves else MaskType()
        return ColumnType(data, "mask", None, steps, Direction.FIXED, evolves, nullable, evolves and nullable, mask)
    # A branch that is NULL has no range of its own: the hull is over the others.
    ranges = [v.range for v, e in zip(values, _results(expr), strict=True) if not _is_null(e)]
    range_ = None
    if data.name in MEASURED:
        range_ = ranges[0] if ranges and ranges[0] is not None else UNBOUNDED
        for r in ranges[1:]:
            range_ = range_.hull(r) if r is not None else UNBOUNDED
    return ColumnType(data, _domain(evolves), range_, steps, direction, evolves, nullable, evolves and nullable)


def _results(expr: mmpl.Case) -> list[mmpl.Expr]:
    return [v for _, v in expr.branches] + [expr.otherwise]


def _is_null(expr: mmpl.Expr) -> bool:
    return isinstance(expr, mmpl.Constant) and expr.value is None


# ── predicates ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _boolean(expr: mmpl.Expr, columns: Columns, mask: MaskType) -> ColumnType:
    evolves, steps = _summary(expr, columns)
    named = [columns[c] for c in trees.columns_in(expr)]
    nullable, moves = any(c.nullable for c in named), any(c.null_evolves for c in named)
    steps = mask.steps if evolves else steps
    return ColumnType(BOOL, "mask", None, steps, Direction.FIXED, evolves, nullable, moves, mask)


def predicate_mask(expr: mmpl.Expr, columns: Columns) -> MaskType:
    """How the rows that a predicate shows come and go, given that they begin hidden."""
    if not any(columns[c].evolves for c in trees.columns_in(expr)):
        return MaskType()
    match expr:
        case mmpl.Column(name):
            return columns[name].mask or MaskType(Course.EITHER, columns[name].steps)
        case mmpl.Call("and", args):
            return both([predicate_mask(a, columns) for a in args])
        case mmpl.Call("or", args):
            return either([predicate_mask(a, columns) for a in args])
        case mmpl.Call("not", (arg,)):
            return negated(predicate_mask(arg, columns))
        case mmpl.Call(function, (a, b)) if function in COMPARISONS:
            return _comparison(
                function, expression_type(a, columns), expression_type(b, columns), steps_of(expr, columns)
            )
    return MaskType(Course.EITHER, steps_of(expr, columns))


def _comparison(function: str, a: ColumnType, b: ColumnType, steps: Bound) -> MaskType:
    """By the direction in which the left operand moves against the right one."""
    if a.null_evolves or b.null_evolves:
        return MaskType(Course.EITHER, steps)
    direction = a.direction.with_(b.direction.flipped)
    if direction not in (Direction.UP, Direction.DOWN):
        # Booleans evolve without a direction.
        moves = direction is Direction.EITHER or a.evolves or b.evolves
        return MaskType(Course.EITHER, steps) if moves else MaskType()
    rises = (direction is Direction.UP) == (function in (">", ">="))
    settles = _has_end(a) and _has_end(b)
    if function == "=":
        return MaskType(Course.PEAKS, Bound.of(2), settles)
    if function == "<>":
        return MaskType(Course.EITHER, Bound.of(3))
    return MaskType(Course.RISES, ONE) if rises else MaskType(Course.FALLS, Bound.of(2), settles)


def _has_end(column: ColumnType) -> bool:
    """Whether there is a number beyond which it cannot move: a comparison may be decided there before it is final."""
    if column.direction is Direction.FIXED:
        return True
    end = None if column.range is None else column.range.hi if column.direction is Direction.UP else column.range.lo
    return end is not None and end.is_finite


def both(masks: list[MaskType]) -> MaskType:
    """Rows that all of the masks show. What only rises, and what only falls, go on doing so together."""
    courses = {m.course for m in masks} - {Course.DECIDED}
    final = all(m.final_true for m in masks)
    if not courses:
        return MaskType(final_true=final)
    if courses == {Course.RISES}:
        return MaskType(Course.RISES, ONE, final)
    if courses == {Course.FALLS}:
        return MaskType(Course.FALLS, Bound.of(2), final)
    if courses <= {Course.RISES, Course.FALLS, Course.PEAKS}:
        return MaskType(Course.PEAKS, Bound.of(2), final)
    return MaskType(Course.EITHER, _total(masks), final)


def either(masks: list[MaskType]) -> MaskType:
    courses = {m.course for m in masks} - {Course.DECIDED}
    if not courses:
        return MaskType()
    if courses == {Course.RISES}:
        return MaskType(Course.RISES, ONE)
    if courses == {Course.FALLS}:
        return MaskType(Course.FALLS, Bound.of(2))
    return MaskType(Course.EITHER, _total(masks))


def negated(mask: MaskType) -> MaskType:
    opposite = {Course.RISES: Course.FALLS, Course.FALLS: Course.RISES, Course.PEAKS: Course.EITHER}
    course = opposite.get(mask.course, mask.course)
    steps = {Course.RISES: ONE, Course.FALLS: Bound.of(2), Course.DECIDED: ONE}.get(course, mask.steps + ONE)
    return MaskType(course, steps)


def _total(masks: list[MaskType]) -> Bound:
    steps = ZERO
    for mask in masks:
        if mask.course is not Course.DECIDED:
            steps = steps + mask.steps
    return steps + ONE
