"""Ranges under strict functions, as `smile.knowledge.corners` has them: what may come of any values of the operands.

Where a corner overflows or is undefined nothing is known, unless there is but one corner: then it is NULL for good.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from smile.algebra.coercions import fit
from smile.algebra.functions_base import DOWN, INFINITE, NEITHER, Growth, Scalar, Signature
from smile.algebra.types import BOOL, DataType, Value
from smile.columns import values as v
from smile.columns.knowledge import Masks, Ranges
from smile.columns.values import Array, Bools, Values
from smile.kernels.expressions.numbers import Kernel
from smile.kernels.expressions.operands import (
    FALSE,
    NEVER,
    NULL,
    ONLY,
    PERHAPS,
    TRUE,
    Operand,
    as_range,
    end_without,
    mask,
    points,
    ranges,
    strict_nulls,
    truths,
    without,
)
from smile.kernels.expressions.plain import all_valid

Image = Callable[[Sequence[Operand]], Operand]
Beyond = Literal["nothing", "no bound"] | Value
"""What a function is where an argument has no bound: undefined, without a bound too, or a value."""


@dataclass(frozen=True)
class Directed:
    """A function that grows one way in each argument, or in some not at all: those must be known.

    `beyond` is for the lower and the upper end. `injective`: different arguments have different results, so that no
    range ever narrows to one value.
    """

    compute: Kernel
    growth: tuple[Growth, ...]
    result: DataType
    partial: bool = False
    beyond: tuple[Beyond, Beyond] = ("no bound", "no bound")
    injective: bool = False

    def __call__(self, operands: Sequence[Operand]) -> Operand:
        args = [as_range(o) for o in operands]
        if NEITHER not in self.growth and self.beyond == ("no bound", "no bound"):
            found = self._plainly(args)
            if found is not None:
                return found
        return self._carefully(args)

    def _plainly(self, args: list[Ranges]) -> Ranges | None:
        """None if there is an overflow somewhere."""
        nows = [a.now for a in args]
        now, bad_now = corner(self.compute, nows)
        ends: list[Values | None] = []
        for low in (True, False):
            wanted = self._ends(args, low)
            if None in wanted:
                ends.append(None)
            elif all(a is b for a, b in zip(wanted, nows, strict=True)):
                if bad_now is not None:
                    return None
                ends.append(now)
            else:
                end, bad = corner(self.compute, wanted)  # type: ignore[arg-type]  # none of them is None
                if bad is not None:
                    return None
                ends.append(end)
        lo, hi = ends
        return Ranges(now, lo, hi, strict_nulls(args)) if self.injective else ranges(now, lo, hi, strict_nulls(args))

    def _ends(self, args: list[Ranges], low: bool) -> list[Values | None]:
        return [a.lo if (g is DOWN) != low else a.hi for a, g in zip(args, self.growth, strict=True)]

    def _carefully(self, args: list[Ranges]) -> Operand:
        count = len(args[0])
        codes = strict_nulls(args)
        codes = np.zeros(count, np.uint8) if codes is None else codes
        spread = np.zeros(count, bool)
        for arg, growth in zip(args, self.growth, strict=True):
            if growth is NEITHER:
                spread |= ~points(arg)
        asked = ~spread & (codes != ONLY)
        now, _ = corner(self.compute, [a.now for a in args])
        (lo, bad_lo), (hi, bad_hi) = (self._end(args, low, asked) for low in (True, False))
        bad = bad_lo | bad_hi
        only = (codes == ONLY) | (bad & np.logical_and.reduce([points(a) for a in args]))
        maybe = bad | (codes == PERHAPS) | (spread & self.partial)
        nulls = np.where(only, np.uint8(ONLY), np.where(maybe, np.uint8(PERHAPS), np.uint8(NEVER)))
        lost = bad | spread | only
        now = without(now, only) if only.any() else now
        if self.result == BOOL:
            return _as_truths(now, end_without(lo, lost), nulls)
        return ranges(now, end_without(lo, lost), end_without(hi, lost), nulls)

    def _end(self, args: list[Ranges], low: bool, asked: Bools) -> tuple[Values | None, Bools]:
        """One end, and where it is undefined."""
        beyond = self.beyond[0 if low else 1]
        wanted = self._ends(args, low)
        nowhere = np.zeros(len(asked), bool)
        if None in wanted:
            end, bad, there = None, nowhere, nowhere
        else:
            within = [Values(e.data, e.there() & asked) for e in wanted if e is not None]
            found = all_valid(within)
            assert found is not None
            there = found
            end, undefined = corner(self.compute, within)
            bad = nowhere if undefined is None else undefined
        if beyond == "no bound":
            return end, bad
        outside = asked & ~there
        if beyond == "nothing":
            return end, bad | outside
        filled = v.constant(beyond, self.result, len(asked))
        return v.where(outside, filled, end) if end is not None else without(filled, ~outside), bad


def corner(compute: Kernel, ends: Sequence[Values]) -> tuple[Values, Bools | None]:
    """The function at a corner, and where it is undefined there."""
    valid = all_valid(ends)
    data, bad = compute([e.data for e in ends], valid)
    if bad is None:
        return Values(data, valid), None
    if valid is None:
        return Values(data, ~bad), bad
    bad = bad & valid
    return Values(data, valid & ~bad), bad if bad.any() else None


def _as_truths(now: Values, point: Values | None, nulls: Array) -> Masks:
    """A Boolean that is known where its operands are."""
    possible = np.full(len(now), TRUE | FALSE, np.uint8)
    if point is not None:
        possible = np.where(point.there(), truths(Values(point.data)), possible)
    possible = np.where(nulls == PERHAPS, possible | np.uint8(NULL), possible)
    return mask(np.where(nulls == ONLY, np.uint8(NULL), possible), truths(now))


_NOTHING: Final[tuple[Beyond, Beyond]] = ("nothing", "nothing")


def directed(scalar: Scalar, signature: Signature, compute: Kernel) -> Directed:
    """The image of a function of the catalogue none of whose arguments grows either way."""
    growth = tuple(scalar.growth_in(i) for i in range(len(signature.args)))
    beyond: tuple[Beyond, Beyond] = ("no bound", "no bound")
    if scalar.limit is not None:
        rest = (0,) * (len(signature.args) - 1)
        beyond = tuple(_limit(scalar.limit((end, *rest)), signature.result) for end in (-INFINITE, INFINITE))  # type: ignore[assignment]
    elif scalar.partial:
        beyond = _NOTHING
    whole = all(t.name != "float" for t in signature.args) and "timestamp" not in {t.name for t in signature.args}
    return Directed(
        compute, growth, signature.result, scalar.partial, beyond, scalar.name in ("+", "-", "neg") and whole
    )


def _limit(found: Any, result: DataType) -> Beyond:
    if isinstance(found, float) and abs(found) == INFINITE:
        return "no bound"
    fitting = fit(found, result)
    return "nothing" if fitting is None else fitting
