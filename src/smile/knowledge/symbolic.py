"""Bounds of types: polynomials in symbols such as MAXTIME, or infinity. A symbol is a bound that exists but that no
domain gives. A MAX… symbol counts as greater and a MIN… symbol as smaller than every number.

Besides, every bound has a number that is sure to hold, its `extreme`: a stream of MAXTIME events has at most 2^53. It
is infinite where only the type of the values gives a limit. Arithmetic on intervals computes both. Whether an
expression can overflow is decided by the extremes.
"""

import math
import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction

Number = int | Fraction
Extreme = Number | float  # a float is an infinity
Monomial = tuple[str, ...]
MAXTIME = "MAXTIME"


@dataclass(frozen=True)
class Bound:
    """A polynomial (the symbols of each monomial are sorted, no coefficient is zero), or infinity with a sign.

    `extreme` is a number at or beyond the bound: above an upper bound, below a lower one.
    """

    terms: tuple[tuple[Monomial, Number], ...] = ()
    infinite: int = 0
    extreme: Extreme = field(default=math.nan, compare=False)

    def __post_init__(self) -> None:
        if self.extreme != self.extreme:  # not given
            number = self.number
            object.__setattr__(self, "extreme", self.infinite * math.inf if number is None else number)

    @staticmethod
    def from_number(value: int | float | Decimal | Fraction) -> "Bound":
        """The exact value of a number of any kind."""
        number = Fraction(value)
        whole: Number = int(number) if number.denominator == 1 else number
        return Bound((((), whole),)) if whole else Bound()

    @staticmethod
    def symbol(name: str, extreme: Extreme) -> "Bound":
        return Bound((((name,), 1),), extreme=extreme)

    @property
    def number(self) -> Number | None:
        """Its value, if it is a plain number."""
        if self.infinite or any(m for m, _ in self.terms):
            return None
        return self.terms[0][1] if self.terms else 0

    @property
    def limit(self) -> float | Number | None:
        """Its value as every symbol goes to its infinity; None if symbols go in opposite directions."""
        if self.infinite:
            return self.infinite * math.inf
        signs = {_sign(m) * (1 if c > 0 else -1) for m, c in self.terms if m}
        if len(signs) > 1:
            return None
        return signs.pop() * math.inf if signs else self.number

    @property
    def is_finite(self) -> bool:
        return self.number is not None

    def __add__(self, other: "Bound") -> "Bound":
        extreme = add_extremes(self.extreme, other.extreme)
        if self.infinite or other.infinite:
            return Bound(infinite=self.infinite or other.infinite, extreme=extreme)
        terms = dict(self.terms)
        for monomial, coefficient in other.terms:
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return _polynomial(terms, extreme)

    def __neg__(self) -> "Bound":
        return Bound(tuple((m, -c) for m, c in self.terms), -self.infinite, -self.extreme)

    def __sub__(self, other: "Bound") -> "Bound":
        return self + -other

    def __mul__(self, other: "Bound") -> "Bound":
        if not (self.terms or self.infinite) or not (other.terms or other.infinite):
            return ZERO
        extreme = multiply_extremes(self.extreme, other.extreme)
        if self.infinite or other.infinite:
            a, b = self.limit, other.limit
            return Bound(infinite=1 if (a is None or a > 0) == (b is None or b > 0) else -1, extreme=extreme)
        terms: dict[Monomial, Number] = {}
        for m, c in self.terms:
            for n, d in other.terms:
                product = tuple(sorted(m + n))
                terms[product] = terms.get(product, 0) + c * d
        return _polynomial(terms, extreme)

    def __str__(self) -> str:
        if self.infinite:
            return "∞" if self.infinite > 0 else "-∞"
        text = ""
        for monomial, coefficient in sorted(self.terms, key=lambda t: (-len(t[0]), t[0])):
            text += _format_term(monomial, coefficient, first=not text)
        return text or "0"


def add_extremes(a: Extreme, b: Extreme) -> Extreme:
    """Python would convert a fraction to a float to add it to an infinity, and it may be too large for that."""
    infinite = next((x for x in (a, b) if isinstance(x, float)), None)
    return a + b if infinite is None else infinite


def multiply_extremes(a: Extreme, b: Extreme) -> Extreme:
    """An unbounded factor is still finite: zero times infinity is zero."""
    if not isinstance(a, float) and not isinstance(b, float):
        return a * b
    return 0 if not a or not b else math.inf if (a > 0) == (b > 0) else -math.inf


ZERO = Bound()
ONE = Bound.from_number(1)
INFINITE = Bound(infinite=1)


def _polynomial(terms: dict[Monomial, Number], extreme: Extreme) -> Bound:
    return Bound(tuple(sorted((m, c) for m, c in terms.items() if c)), extreme=extreme)


def _sign(monomial: Monomial) -> int:
    return -1 if sum(s.startswith("MIN") for s in monomial) % 2 else 1


def _format_term(monomial: Monomial, coefficient: Number, first: bool) -> str:
    magnitude = -coefficient if coefficient < 0 else coefficient
    number = str(magnitude) if isinstance(magnitude, int) else repr(float(magnitude))
    factors = [*([number] if magnitude != 1 or not monomial else []), *monomial]
    sign = ("-" if first else " - ") if coefficient < 0 else ("" if first else " + ")
    return sign + "*".join(factors)


def least(a: Bound, b: Bound) -> Bound:
    """The lesser of two bounds, or minus infinity if their symbols leave the order open."""
    order = _compare(a, b)
    lesser = Bound(infinite=-1) if order is None else a if order <= 0 else b
    return replace(lesser, extreme=min(a.extreme, b.extreme))


def greatest(a: Bound, b: Bound) -> Bound:
    return -least(-a, -b)


def tighter_bound(a: Bound, b: Bound) -> Bound:
    """The lesser of two upper bounds that both hold; the first if their symbols leave the order open."""
    order = _compare(a, b)
    tighter = a if order is None or order <= 0 else b
    return replace(tighter, extreme=min(a.extreme, b.extreme))


def _compare(a: Bound, b: Bound) -> int | None:
    if a == b:
        return 0
    difference = (a - b).limit if not (a.infinite and b.infinite) else a.infinite - b.infinite
    if difference is None:
        return None
    return (difference > 0) - (difference < 0)


@dataclass(frozen=True)
class Interval:
    """Every value lies in [lo..hi]."""

    lo: Bound
    hi: Bound

    @staticmethod
    def exactly(value: int | float | Decimal | Fraction) -> "Interval":
        return Interval(Bound.from_number(value), Bound.from_number(value))

    @property
    def is_nonnegative(self) -> bool:
        limit = self.lo.limit
        return limit is not None and limit >= 0

    @property
    def is_nonpositive(self) -> bool:
        limit = self.hi.limit
        return limit is not None and limit <= 0

    @property
    def is_empty(self) -> bool:
        """Whether no value lies in it, whatever its symbols stand for."""
        return self.lo.extreme > self.hi.extreme

    @property
    def size(self) -> Bound:
        """The number of integers in it."""
        return self.hi - self.lo + ONE

    def __add__(self, other: "Interval") -> "Interval":
        return Interval(self.lo + other.lo, self.hi + other.hi)

    def __neg__(self) -> "Interval":
        return Interval(-self.hi, -self.lo)

    def __sub__(self, other: "Interval") -> "Interval":
        return self + -other

    def __mul__(self, other: "Interval") -> "Interval":
        corners = [a * b for a in (self.lo, self.hi) for b in (other.lo, other.hi)]
        lo, hi = corners[0], corners[0]
        for corner in corners[1:]:
            lo, hi = least(lo, corner), greatest(hi, corner)
        return Interval(lo, hi)

    def hull(self, other: "Interval") -> "Interval":
        return Interval(least(self.lo, other.lo), greatest(self.hi, other.hi))

    def with_extremes(self, lo: Extreme, hi: Extreme) -> "Interval":
        """The same bounds, of which is known that no value is below `lo` or above `hi`."""
        return Interval(
            replace(self.lo, extreme=max(lo, self.lo.extreme)), replace(self.hi, extreme=min(hi, self.hi.extreme))
        )

    def __str__(self) -> str:
        return f"[{self.lo}..{self.hi}]"


UNBOUNDED = Interval(Bound(infinite=-1), INFINITE)


def end_symbol(end: str, column: str, extreme: Extreme) -> Bound:
    """The symbol for a bound that a column's domain does not give: MAXBID is the greatest #bid."""
    name = end + (re.sub(r"[\W_]", "", column).upper() or "VALUE")
    return Bound.symbol(name if name != MAXTIME else f"{MAXTIME}VALUE", extreme)
