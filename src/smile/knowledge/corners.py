"""Images of ranges under strict functions: a function that only grows in each argument has its extremes at corners."""

import math
from collections.abc import Iterator
from decimal import Decimal
from itertools import product
from typing import Any

from smile.algebra.coercions import fit
from smile.algebra.functions_base import DOWN, EITHER, INFINITE, NEITHER, Scalar, Signature
from smile.algebra.types import DataType, Value
from smile.knowledge.range import MAYBE, NEVER, ONLY, End, Range, hull

Box = tuple[Range, ...]


def strict_image(scalar: Scalar, ranges: list[Range], signature: Signature, now: Value) -> Range | None:
    """What the function may become, or None if its growth says nothing. NULL for NULL, whatever the rest."""
    if any(r.nulls is ONLY for r in ranges):
        return Range.exactly(None)
    if any(scalar.growth_in(i) is NEITHER and (r.lo is None or r.lo != r.hi) for i, r in enumerate(ranges)):
        return None
    found = hull([_box_image(scalar, box, signature) for box in _boxes(scalar, ranges, signature)])
    nullable = found.nulls is not NEVER or any(r.nulls is MAYBE for r in ranges)
    return Range(found.lo, found.hi, MAYBE if nullable else NEVER, now)


def _boxes(scalar: Scalar, ranges: list[Range], signature: Signature) -> Iterator[Box]:
    """The operands, cut at the function's pivots."""
    pieces = [_cut(r, scalar.pivot[i], signature.args[i]) if i in scalar.pivot else [r] for i, r in enumerate(ranges)]
    return product(*pieces)


def _cut(r: Range, pivot: int, type: DataType) -> list[Range]:
    """Below the pivot, at it, above it: every type that has a pivot has a next value."""
    below, at, above = _around(pivot, type)
    pieces = []
    if r.lo is None or r.lo <= below:
        pieces.append(Range(r.lo, below if r.hi is None else min(r.hi, below)))
    if r.contains(at):
        pieces.append(Range.exactly(at))
    if r.hi is None or r.hi >= above:
        pieces.append(Range(above if r.lo is None else max(r.lo, above), r.hi))
    return pieces


def _around(pivot: int, type: DataType) -> tuple[Any, Any, Any]:
    if type.name == "float":
        return math.nextafter(pivot, -INFINITE), float(pivot), math.nextafter(pivot, INFINITE)
    step: Any = Decimal((0, (1,), -(type.scale or 0))) if type.name == "decimal" else 1
    return pivot - step, pivot + 0 * step, pivot + step


def _box_image(scalar: Scalar, box: Box, signature: Signature) -> Range:
    """Where a corner overflows or is undefined, the whole is unknown: which way it went is not to be seen."""
    growths = [scalar.growth_in(i) for i in range(len(box))]
    ends = [(-INFINITE if r.lo is None else r.lo, INFINITE if r.hi is None else r.hi) for r in box]
    if EITHER in growths:
        found = [_at(scalar, corner, signature) for corner in product(*ends)]
        return Range.bottom() if None in found else Range(_bound(min(found)), _bound(max(found)))
    directed = [(hi, lo) if g is DOWN else (lo, hi) for g, (lo, hi) in zip(growths, ends, strict=True)]
    low, high = (_at(scalar, corner, signature) for corner in zip(*directed, strict=True))
    return Range.bottom() if low is None or high is None else Range(_bound(low), _bound(high))


def _at(scalar: Scalar, corner: tuple[Any, ...], signature: Signature) -> End:
    """The function at a corner: a value, an infinity (no bound), or None for NULL."""
    if not any(isinstance(v, float) and math.isinf(v) for v in corner):
        return scalar.apply(corner, signature)
    if scalar.limit is None:
        return None if scalar.partial else INFINITE
    found = scalar.limit(corner)
    if found is None or (isinstance(found, float) and math.isinf(found)):
        return found
    return fit(found, signature.result)  # type: ignore[arg-type]  # only functions of numbers have limits


def _bound(end: End) -> End:
    return None if isinstance(end, float) and math.isinf(end) else end
