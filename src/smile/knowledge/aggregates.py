"""Aggregates over knowledge: the result contains the aggregate of every way the group's members may turn out.

A member under T takes part for good, one under F never, any other may. While the group is not sealed, members may
appear of which nothing is known but the domain lo..hi of the column. Nothing is bounded by counting what may appear.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

from smile.algebra.coercions import EXACT
from smile.algebra.mmpl import AggregateName
from smile.algebra.types import DataType, Value
from smile.knowledge.known import Known
from smile.knowledge.latest import At, Latest
from smile.knowledge.mask import Mask
from smile.knowledge.masked import Masked
from smile.knowledge.nested import Nested, Row
from smile.knowledge.range import MAYBE, NEVER, ONLY, End, Range, earlier, hull, later
from smile.knowledge.transfer import operand


@dataclass(frozen=True)
class Member:
    """One row of the group. `value` is the argument's, None where there is no argument; for `group` it is a Row.
    `tick` is (tick, source), and needed by `latest` alone."""

    mask: Mask
    value: Known | None = None
    tick: At | None = None
    key: tuple[Any, ...] = ()


@dataclass(frozen=True)
class _Part:
    """A member as an aggregate sees it: `sure` to contribute a value, or maybe, or not at all (then it is left out)."""

    range: Range
    sure: bool
    now: Value  # None: contributes nothing now


def aggregate(
    function: AggregateName, members: Sequence[Member], sealed: bool, lo: End, hi: End, type: DataType
) -> Known:
    """`type` is the argument's, lo..hi its domain (None: no bound). SUM of ints is a decimal; AVG is a float,
    but of intervals it is one too."""
    if function == "group":
        return Nested({m.key: Masked(m.mask, m.value or Row()) for m in members}, sealed)
    if function == "latest":
        return _latest(members, sealed)
    parts = [p for m in members if (p := _part(m, type)) is not None]
    match function:
        case "count":
            return _count(parts, sealed)
        case "count_distinct":
            return _count_distinct(parts, sealed)
        case "sum":
            return _sum(parts, sealed, lo, hi, type)
        case "max":
            return _max(parts, sealed, lo, hi)
        case "min":
            return _min(parts, sealed, lo, hi)
        case "avg":
            return _avg(parts, sealed, lo, hi, type)


def _part(member: Member, type: DataType) -> _Part | None:
    """NULL contributes nothing, so a value that may be NULL only may contribute."""
    known = Range.exactly(True) if member.value is None else operand(member.value, type)
    if isinstance(known, Mask):
        known = known.range()
    if member.mask.gone or known.nulls is ONLY:
        return None
    sure = member.mask.stays and known.nulls is NEVER
    return _Part(Range(known.lo, known.hi), sure, known.now if member.mask.shown else None)


# ── counts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _count(parts: list[_Part], sealed: bool) -> Range:
    now = sum(p.now is not None for p in parts)
    return Range(sum(p.sure for p in parts), len(parts) if sealed else None, NEVER, now)


def _count_distinct(parts: list[_Part], sealed: bool) -> Range:
    """Values not exact may all turn out to be one that is there already, or all different."""
    sure = {p.range.lo for p in parts if p.sure and p.range.is_final}
    exact = {p.range.lo for p in parts if p.range.is_final}
    others = sum(not p.range.is_final for p in parts)
    least = max(len(sure), int(any(p.sure for p in parts)))
    now = len({p.now for p in parts if p.now is not None})
    return Range(least, len(exact) + others if sealed else None, NEVER, now)


# ── sums ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _sum(parts: list[_Part], sealed: bool, lo: End, hi: End, type: DataType) -> Range:
    lows = [p.range.lo if p.sure or p.range.lo is None else min(p.range.lo, _zero(type)) for p in parts]
    highs = [p.range.hi if p.sure or p.range.hi is None else max(p.range.hi, _zero(type)) for p in parts]
    below = None in lows or (not sealed and (lo is None or lo < 0))
    above = None in highs or (not sealed and (hi is None or hi > 0))
    least, greatest = (None if below else _total(lows, type)), (None if above else _total(highs, type))
    # A sum of floats beyond all floats is NULL, as any overflow; exact sums do not overflow.
    overflows = (least is None and not below) or (greatest is None and not above)
    now = _total([p.now for p in parts if p.now is not None], type)
    if overflows and all(p.sure and p.range.is_final for p in parts) and sealed:
        return Range.exactly(None)
    return Range(least, greatest, MAYBE if overflows else NEVER, now)


def _zero(type: DataType) -> Any:
    return 0.0 if type.name == "float" else Decimal(0) if type.name == "decimal" else 0


def _total(values: Sequence[Any], type: DataType) -> Value:
    """Exact, whatever the order; a float is rounded once, at the end."""
    if type.name == "float":
        return _rounded(sum(map(Fraction, values), Fraction(0)))
    if type.name == "interval":
        return int(sum(values))
    return reduce(EXACT.add, (Decimal(v) for v in values), Decimal(0))


def _rounded(exact: Fraction) -> float | None:
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return None


def _avg(parts: list[_Part], sealed: bool, lo: End, hi: End, type: DataType) -> Range:
    now = _mean([p.now for p in parts if p.now is not None], type)
    if sealed and all(p.sure and p.range.is_final for p in parts):
        return Range.exactly(_mean([p.range.lo for p in parts], type))
    around = [Range(_measured(p.range.lo, type), _measured(p.range.hi, type)) for p in parts]
    if not sealed:
        around.append(Range(_measured(lo, type), _measured(hi, type)))
    found = hull(around)
    return Range(found.lo, found.hi, NEVER if any(p.sure for p in parts) else MAYBE, now)


def _measured(end: End, type: DataType) -> End:
    return None if end is None else end if type.name == "interval" else float(end)


def _mean(values: Sequence[Any], type: DataType) -> Value:
    """Of intervals the nearest whole tick, of two that are as near the even one."""
    if not values:
        return None
    exact = sum(map(Fraction, values), Fraction(0)) / len(values)
    return round(exact) if type.name == "interval" else _rounded(exact)


# ── extremes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _max(parts: list[_Part], sealed: bool, lo: End, hi: End) -> Range:
    """At least what sure members have; at most what any may have, or the domain while members may appear."""
    around = _extent(parts, sealed, lo, hi)
    now = max((p.now for p in parts if p.now is not None), default=None)
    if around.nulls is not NEVER:
        return Range(around.lo, around.hi, around.nulls, now)
    return Range(reduce(later, (p.range.lo for p in parts if p.sure)), around.hi, NEVER, now)


def _min(parts: list[_Part], sealed: bool, lo: End, hi: End) -> Range:
    around = _extent(parts, sealed, lo, hi)
    now = min((p.now for p in parts if p.now is not None), default=None)
    if around.nulls is not NEVER:
        return Range(around.lo, around.hi, around.nulls, now)
    return Range(around.lo, reduce(earlier, (p.range.hi for p in parts if p.sure)), NEVER, now)


def _extent(parts: list[_Part], sealed: bool, lo: End, hi: End) -> Range:
    """All values that may be among the members, and whether there may be none."""
    ranges = [p.range for p in parts] + ([] if sealed else [Range(lo, hi)])
    if not ranges:
        return Range.exactly(None)
    around = hull(ranges)
    return Range(around.lo, around.hi, NEVER if any(p.sure for p in parts) else MAYBE)


def _latest(members: Sequence[Member], sealed: bool) -> Latest:
    """The latest member that stays and whose value is settled is a bound: the final value is it, or a later one."""
    if any(m.tick is None for m in members):
        raise ValueError("the latest of rows without a tick")
    present = sorted((m for m in members if not m.mask.gone), key=lambda m: m.tick or (0, 0))
    shown = [m for m in present if m.mask.shown]
    settled = [m for m in present if m.mask.stays and m.value is not None and m.value.is_final]
    now = shown[-1].value.now if shown and shown[-1].value is not None else None
    if not settled:
        return Latest(sealed=sealed and not present, now=now)
    last = settled[-1]
    assert last.value is not None
    return Latest(last.value.now, last.tick, sealed and last is present[-1], now)
