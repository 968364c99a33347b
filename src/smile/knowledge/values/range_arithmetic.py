"""Images of ranges under strict functions. A function that is monotone in each argument takes its extreme values at the
corners of its operands' ranges."""

import math
from collections.abc import Iterator
from decimal import Decimal
from itertools import product
from typing import Any

from smile.algebra.coercions import fit_number
from smile.algebra.functions.base import DECREASING, INFINITY, MONOTONE, NOT_MONOTONE, ScalarFunction, Signature
from smile.algebra.types import DataType, Value
from smile.knowledge.values.range import MAYBE, NEVER, ONLY, Range, RangeEnd, hull

Box = tuple[Range, ...]


def strict_image(
    scalar: ScalarFunction, ranges: list[Range], limits: list[Range], signature: Signature, now: Value
) -> Range | None:
    """The possible results of the function, or None if its monotonicity gives no bounds. A NULL operand makes the
    result NULL. If the function may overflow or be undefined, nothing is known of the result. `limits` are those of the
    operands."""
    if any(r.nulls is ONLY for r in ranges):
        return Range.exactly(None)
    if any(scalar.monotonicity_in(i) is NOT_MONOTONE and (r.lo is None or r.lo != r.hi) for i, r in enumerate(ranges)):
        return None
    boxes = list(_boxes(scalar, ranges, signature))
    if not all(_is_defined(scalar, box, limits, signature) for box in boxes):
        return Range.bottom(now=now)
    image = hull([_box_image(scalar, box, signature) for box in boxes])
    return Range(image.lo, image.hi, MAYBE if any(r.nulls is MAYBE for r in ranges) else NEVER, now)


def _boxes(scalar: ScalarFunction, ranges: list[Range], signature: Signature) -> Iterator[Box]:
    """The operands, split at the turning points of the function."""
    pieces = [
        _split_at_turning_point(r, scalar.turning_points[i], signature.args[i]) if i in scalar.turning_points else [r]
        for i, r in enumerate(ranges)
    ]
    return product(*pieces)


def _split_at_turning_point(r: Range, turning_point: int, type: DataType) -> list[Range]:
    """The parts below, at and above the turning point. Every type with a turning point has a next value."""
    below, middle, above = _turning_point_neighbours(turning_point, type)
    pieces = []
    if r.lo is None or r.lo <= below:
        pieces.append(Range(r.lo, below if r.hi is None else min(r.hi, below)))
    if r.contains(middle):
        pieces.append(Range.exactly(middle))
    if r.hi is None or r.hi >= above:
        pieces.append(Range(above if r.lo is None else max(r.lo, above), r.hi))
    return pieces


def _turning_point_neighbours(turning_point: int, type: DataType) -> tuple[Any, Any, Any]:
    if type.name == "float":
        return math.nextafter(turning_point, -INFINITY), float(turning_point), math.nextafter(turning_point, INFINITY)
    step: Any = Decimal((0, (1,), -(type.scale or 0))) if type.name == "decimal" else 1
    return turning_point - step, turning_point + 0 * step, turning_point + step


def _is_defined(scalar: ScalarFunction, box: Box, limits: list[Range], signature: Signature) -> bool:
    """Whether the function has a value everywhere in the box. Limits stand for absent ends. Text has no limits."""
    ends = [
        (limit.lo if r.lo is None else r.lo, limit.hi if r.hi is None else r.hi)
        for r, limit in zip(box, limits, strict=True)
    ]
    corners = list(_corners(scalar, ends))
    if any(None in corner for corner in corners):
        return not scalar.partial
    return all(scalar.apply(corner, signature) is not None for corner in corners)


def _box_image(scalar: ScalarFunction, box: Box, signature: Signature) -> Range:
    """The range of a function that has a value everywhere in the box. An absent end is at infinity."""
    ends = [(-INFINITY if r.lo is None else r.lo, INFINITY if r.hi is None else r.hi) for r in box]
    values = [_corner_value(scalar, corner, signature) for corner in _corners(scalar, ends)]
    if MONOTONE in scalar.monotonicity:
        values = [min(values), max(values)]
    return Range(*map(_finite_end, values))


def _corners(scalar: ScalarFunction, ends: list[tuple[RangeEnd, RangeEnd]]) -> Iterator[tuple[Any, ...]]:
    """The corners of a box at which the function is least and greatest, in this order; or all corners."""
    if MONOTONE in scalar.monotonicity:
        return product(*ends)
    directed = [(hi, lo) if scalar.monotonicity_in(i) is DECREASING else (lo, hi) for i, (lo, hi) in enumerate(ends)]
    return zip(*directed, strict=True)


def _corner_value(scalar: ScalarFunction, corner: tuple[Any, ...], signature: Signature) -> RangeEnd:
    """The result at a corner. An infinity is no bound."""
    if not any(isinstance(v, float) and math.isinf(v) for v in corner):
        return scalar.apply(corner, signature)
    if scalar.limit_at_infinity is None:
        return INFINITY
    limit_value = scalar.limit_at_infinity(corner)
    if isinstance(limit_value, float) and math.isinf(limit_value):
        return limit_value
    return fit_number(limit_value, signature.result)  # type: ignore[arg-type]  # only functions of numbers have limits


def _finite_end(end: RangeEnd) -> RangeEnd:
    return None if isinstance(end, float) and math.isinf(end) else end
