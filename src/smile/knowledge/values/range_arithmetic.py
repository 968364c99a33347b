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


def strict_image(scalar: ScalarFunction, ranges: list[Range], signature: Signature, now: Value) -> Range | None:
    """The possible results of the function, or None if its monotonicity gives no bounds. A NULL operand makes the
    result NULL."""
    if any(r.nulls is ONLY for r in ranges):
        return Range.exactly(None)
    if any(scalar.monotonicity_in(i) is NOT_MONOTONE and (r.lo is None or r.lo != r.hi) for i, r in enumerate(ranges)):
        return None
    image = hull([_box_image(scalar, box, signature) for box in _boxes(scalar, ranges, signature)])
    nullable = image.nulls is not NEVER or any(r.nulls is MAYBE for r in ranges)
    return Range(image.lo, image.hi, MAYBE if nullable else NEVER, now)


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


def _box_image(scalar: ScalarFunction, box: Box, signature: Signature) -> Range:
    """If a corner overflows or is undefined, nothing is known: the corner does not show in which direction it
    overflows."""
    growths = [scalar.monotonicity_in(i) for i in range(len(box))]
    ends = [(-INFINITY if r.lo is None else r.lo, INFINITY if r.hi is None else r.hi) for r in box]
    if MONOTONE in growths:
        corner_values = [_corner_value(scalar, corner, signature) for corner in product(*ends)]
        return (
            Range.bottom()
            if None in corner_values
            else Range(_finite_end(min(corner_values)), _finite_end(max(corner_values)))
        )
    directed = [(hi, lo) if g is DECREASING else (lo, hi) for g, (lo, hi) in zip(growths, ends, strict=True)]
    low, high = (_corner_value(scalar, corner, signature) for corner in zip(*directed, strict=True))
    return Range.bottom() if low is None or high is None else Range(_finite_end(low), _finite_end(high))


def _corner_value(scalar: ScalarFunction, corner: tuple[Any, ...], signature: Signature) -> RangeEnd:
    """The result at a corner: a value, an infinity (no bound), or None for NULL."""
    if not any(isinstance(v, float) and math.isinf(v) for v in corner):
        return scalar.apply(corner, signature)
    if scalar.limit_at_infinity is None:
        return None if scalar.partial else INFINITY
    limit_value = scalar.limit_at_infinity(corner)
    if limit_value is None or (isinstance(limit_value, float) and math.isinf(limit_value)):
        return limit_value
    return fit_number(limit_value, signature.result)  # type: ignore[arg-type]  # only functions of numbers have limits


def _finite_end(end: RangeEnd) -> RangeEnd:
    return None if isinstance(end, float) and math.isinf(end) else end
