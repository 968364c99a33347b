"""Finds the boxes of a condition: of every Boolean combination of comparisons of one column with constants.

Each expression has the rows for which it is true and those for which it is false; for all others it is NULL. An
expression that is none of these, such as a comparison of two columns, has no boxes.
"""

from collections.abc import Callable
from functools import reduce
from typing import Final, NamedTuple

from smile.algebra import mmpl
from smile.algebra.coercions import cast, is_monotone_cast
from smile.algebra.functions.catalogue import COMPARISONS, evaluate, resolve_signature, type_of
from smile.algebra.functions.text import compile_pattern
from smile.algebra.types import BOOL, STRING, DataType, Value
from smile.registry.boxes import (
    EVERY_ROW,
    NO_ROW,
    Boxes,
    Types,
    column_boxes,
    complement,
    difference,
    intersection,
    union,
)
from smile.registry.interval_set import IntervalSet, Point, PointInterval, PointScale, interval_set, scale_of

_MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NULL_TESTS: Final = ("is null", "is not null")
_DISTINCTIONS: Final = ("is distinct from", "is not distinct from")


class Truth(NamedTuple):
    """The rows for which an expression is true, and those for which it is false."""

    true: Boxes
    false: Boxes


class _Operand(NamedTuple):
    """A column, which may be cast to another type of numbers."""

    column: str
    source: DataType
    type: DataType


def find_boxes(expr: mmpl.Expr, types: Types) -> Boxes | None:
    """The rows for which the expression is true, or None if they are no union of boxes, or of too many."""
    truth = _find_truth(expr, types)
    return None if truth is None else truth.true


def _find_truth(expr: mmpl.Expr, types: Types) -> Truth | None:
    match expr:
        case mmpl.Constant(value):
            return Truth(EVERY_ROW if value is True else NO_ROW, EVERY_ROW if value is False else NO_ROW)
        case mmpl.ColumnRef(name) if types.get(name) == BOOL:
            return _column_truth(name, interval_set([PointInterval(1, 2)]), interval_set([PointInterval(0, 1)]), types)
        case mmpl.Call("and" | "or" as function, args):
            return _connective(function, args, types)
        case mmpl.Call("not", (arg,)):
            truth = _find_truth(arg, types)
            return None if truth is None else Truth(truth.false, truth.true)
        case mmpl.Call(function, (arg,)) if function in _NULL_TESTS:
            return _null_test(function, arg, types)
        case mmpl.Call(function, (left, right)) if function in _DISTINCTIONS:
            return _distinction(function, left, right, types)
        case mmpl.Call(function, (left, right)) if function in COMPARISONS:
            return _comparison(function, left, right, types)
        case mmpl.Call("like", (mmpl.ColumnRef(name), mmpl.Constant(str(pattern), _))):
            return _like(name, pattern, types)
    return None


def _column_truth(column: str, true: IntervalSet, false: IntervalSet, types: Types) -> Truth:
    return Truth(column_boxes(column, true, types), column_boxes(column, false, types))


def _connective(function: str, args: tuple[mmpl.Expr, ...], types: Types) -> Truth | None:
    truths = [_find_truth(arg, types) for arg in args]
    known = [truth for truth in truths if truth is not None]
    if len(known) < len(truths):
        return None
    meet, join = (intersection, union) if function == "and" else (union, intersection)
    true = _fold(meet, [truth.true for truth in known], types)
    false = _fold(join, [truth.false for truth in known], types)
    return None if true is None or false is None else Truth(true, false)


def _fold(operation: Callable[[Boxes, Boxes, Types], Boxes | None], parts: list[Boxes], types: Types) -> Boxes | None:
    def apply(a: Boxes | None, b: Boxes) -> Boxes | None:
        return None if a is None else operation(a, b, types)

    first: Boxes | None = parts[0]
    return reduce(apply, parts[1:], first)


def _null_test(function: str, arg: mmpl.Expr, types: Types) -> Truth | None:
    """A comparison that is neither true nor false is NULL."""
    if isinstance(arg, mmpl.ColumnRef) and arg.name in types:
        scale = scale_of(types[arg.name])
        known = _column_truth(arg.name, IntervalSet(True, ()), interval_set([scale.all_points]), types)
    else:
        truth = _find_truth(arg, types) if _is_boolean(arg, types) else None
        is_known = None if truth is None else union(*truth, types)
        is_null = None if is_known is None else complement(is_known, types)
        if is_known is None or is_null is None:
            return None
        known = Truth(is_null, is_known)
    return known if function == "is null" else Truth(known.false, known.true)


def _distinction(function: str, left: mmpl.Expr, right: mmpl.Expr, types: Types) -> Truth | None:
    if isinstance(left, mmpl.Constant) and not isinstance(right, mmpl.Constant):
        left, right = right, left
    if not isinstance(right, mmpl.Constant):
        return None
    if right.value is None:
        return _null_test("is null" if function == "is not distinct from" else "is not null", left, types)
    equal = _comparison("=", left, right, types) if right.type != BOOL else _find_truth(left, types)
    if equal is None:
        return None
    same = equal.false if right.value is False else equal.true
    other = difference(EVERY_ROW, same, types)
    if other is None:
        return None
    return Truth(same, other) if function == "is not distinct from" else Truth(other, same)


def _is_boolean(expr: mmpl.Expr, types: Types) -> bool:
    return type_of(expr, types) == BOOL


# ── comparisons of a column with a constant ─────────────────────────────────────────────────────────────────────────


def _comparison(function: str, left: mmpl.Expr, right: mmpl.Expr, types: Types) -> Truth | None:
    if _constant(left) is not None:
        left, right, function = right, left, _MIRRORED[function]
    constant, operand = _constant(right), _operand(left, types)
    if constant is None or operand is None or constant.type != operand.type:
        return None
    if constant.value is None:
        return Truth(NO_ROW, NO_ROW)
    if constant.value != constant.value:
        return None  # NaN has no place in the order
    scale = scale_of(operand.source)
    below, equal, above = _three_parts(operand, scale, constant.value)
    parts = {"=": [equal], "<>": [below, above], "<": [below], "<=": [below, equal], ">": [above], ">=": [equal, above]}
    every_value = interval_set([scale.all_points])
    true = every_value.intersection(interval_set(parts[function]))
    false = every_value.intersection(true.complement(scale))
    return _column_truth(operand.column, true, false, types)


def _three_parts(
    operand: _Operand, scale: PointScale, value: Value
) -> tuple[PointInterval, PointInterval, PointInterval]:
    """The points whose values are below, equal to and above a value."""
    first, end = scale.all_points
    if operand.source == operand.type:
        point = scale.point(value)
        after = scale.successor(point)
    else:
        point, after = (_first_point(operand, scale, value, comparison) for comparison in (">=", ">"))
    return PointInterval(first, point), PointInterval(point, after), PointInterval(after, end)


def _first_point(operand: _Operand, scale: PointScale, value: Value, comparison: str) -> Point:
    """The first integer point for whose value the comparison holds: by bisection, since casts are monotone."""
    signature = resolve_signature(comparison, (operand.type, operand.type))
    assert signature is not None
    low, high = scale.all_points
    while low < high:
        middle = (low + high) // 2
        if evaluate(comparison, (cast(scale.value(middle), operand.source, operand.type), value), signature):
            high = middle
        else:
            low = middle + 1
    return low


def _constant(expr: mmpl.Expr) -> mmpl.Constant | None:
    """A constant, also one that is cast."""
    if isinstance(expr, mmpl.Cast) and isinstance(expr.arg, mmpl.Constant):
        return mmpl.Constant(cast(expr.arg.value, expr.arg.type, expr.type), expr.type)
    return expr if isinstance(expr, mmpl.Constant) else None


def _operand(expr: mmpl.Expr, types: Types) -> _Operand | None:
    match expr:
        case mmpl.ColumnRef(name) if name in types:
            return _Operand(name, types[name], types[name])
        case mmpl.Cast(mmpl.ColumnRef(name), target) if name in types and _is_exact_cast(types[name], target):
            return _Operand(name, types[name], target)
    return None


def _is_exact_cast(source: DataType, target: DataType) -> bool:
    """Whether the cast is monotone, and every value has a result."""
    scale = scale_of(source)
    if not (source.is_number and target.is_number and scale.is_discrete and is_monotone_cast(source, target)):
        return False
    first, end = scale.all_points
    assert end is not None, "discrete types are finite"
    return all(cast(scale.value(point), source, target) is not None for point in (first, end - 1))


def _like(column: str, pattern: str, types: Types) -> Truth | None:
    """A pattern that is a text, or a text and `%`."""
    parts = compile_pattern(pattern, "\\")
    if types.get(column) != STRING or parts is None:
        return None
    has_wildcard = bool(parts) and not isinstance(parts[-1], str)
    text = parts[:-1] if has_wildcard else parts
    if not all(isinstance(part, str) for part in text) or (has_wildcard and not pattern.endswith("%")):
        return None
    scale, prefix = scale_of(STRING), "".join(map(str, text))
    matching = PointInterval(prefix, _end_of_prefix(prefix) if has_wildcard else scale.successor(prefix))
    true = interval_set([matching])
    false = interval_set([scale.all_points]).intersection(true.complement(scale))
    return _column_truth(column, true, false, types)


def _end_of_prefix(prefix: str) -> str | None:
    """The first text after all that begin with the prefix. Surrogates are no characters of a text."""
    rest = prefix.rstrip("\U0010ffff")
    if not rest:
        return None
    return rest[:-1] + chr(0xE000 if rest[-1] == "\ud7ff" else ord(rest[-1]) + 1)
