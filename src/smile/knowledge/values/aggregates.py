"""Aggregates over knowledge: the result contains the aggregate of every possible outcome of the group's members.

A member under T always takes part, one under F never, any other may. While the group is not sealed, further members may
appear, of which only the column's domain lo..hi is known. Bounds are never derived from how many members may appear.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

from smile.algebra.coercions import EXACT_CONTEXT
from smile.algebra.mmpl import AggregateName
from smile.algebra.types import DataType, Value
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.latest import LatestValue, TickAndSource
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.masked import MaskedValue
from smile.knowledge.values.nested import NestedRelation, NestedRow
from smile.knowledge.values.range import MAYBE, NEVER, ONLY, Range, RangeEnd, hull, max_lower_bound, min_upper_bound
from smile.knowledge.values.transfer import to_operand


@dataclass(frozen=True)
class Member:
    """One row of the group. `value` is that of the argument, None if there is no argument; for `group` it is a
    NestedRow. Only `latest` needs `tick`."""

    mask: Mask
    value: CellKnowledge | None = None
    tick: TickAndSource | None = None
    key: tuple[Any, ...] = ()


@dataclass(frozen=True)
class _Contribution:
    """A member that contributes a value to an aggregate, certainly or possibly. Members that cannot contribute have
    none."""

    range: Range
    is_certain: bool
    now: Value  # None: it contributes nothing at present


def aggregate(
    function: AggregateName, members: Sequence[Member], sealed: bool, lo: RangeEnd, hi: RangeEnd, type: DataType
) -> CellKnowledge:
    """`type` is that of the argument, lo..hi its domain (None: no bound). SUM of ints is a decimal. AVG is a float,
    except that AVG of intervals is an interval."""
    if function == "group":
        return NestedRelation({m.key: MaskedValue(m.mask, m.value or NestedRow()) for m in members}, sealed)
    if function == "latest":
        return _latest(members, sealed)
    contributions = [p for m in members if (p := _contribution(m, type)) is not None]
    match function:
        case "count":
            return _count(contributions, sealed)
        case "count_distinct":
            return _count_distinct(contributions, sealed)
        case "sum":
            return _sum(contributions, sealed, lo, hi, type)
        case "max":
            return _max(contributions, sealed, lo, hi)
        case "min":
            return _min(contributions, sealed, lo, hi)
        case "avg":
            return _avg(contributions, sealed, lo, hi, type)


def _contribution(member: Member, type: DataType) -> _Contribution | None:
    """NULL contributes nothing, so a value that may be NULL is not certain to contribute."""
    value_range = Range.exactly(True) if member.value is None else to_operand(member.value, type)
    if isinstance(value_range, Mask):
        value_range = value_range.to_range()
    if member.mask.is_permanently_hidden or value_range.nulls is ONLY:
        return None
    is_certain = member.mask.is_permanently_shown and value_range.nulls is NEVER
    now = value_range.now if member.mask.is_shown else None
    return _Contribution(Range(value_range.lo, value_range.hi), is_certain, now)


# ── counts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _count(contributions: list[_Contribution], sealed: bool) -> Range:
    now = sum(p.now is not None for p in contributions)
    return Range(sum(p.is_certain for p in contributions), len(contributions) if sealed else None, NEVER, now)


def _count_distinct(contributions: list[_Contribution], sealed: bool) -> Range:
    """Values that are not exact may all become equal to one that is counted already, or may all differ."""
    certain_values = {p.range.lo for p in contributions if p.is_certain and p.range.is_final}
    exact_values = {p.range.lo for p in contributions if p.range.is_final}
    inexact_count = sum(not p.range.is_final for p in contributions)
    least = max(len(certain_values), int(any(p.is_certain for p in contributions)))
    now = len({p.now for p in contributions if p.now is not None})
    return Range(least, len(exact_values) + inexact_count if sealed else None, NEVER, now)


# ── sums ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _sum(contributions: list[_Contribution], sealed: bool, lo: RangeEnd, hi: RangeEnd, type: DataType) -> Range:
    lows = [p.range.lo if p.is_certain or p.range.lo is None else min(p.range.lo, _zero(type)) for p in contributions]
    highs = [p.range.hi if p.is_certain or p.range.hi is None else max(p.range.hi, _zero(type)) for p in contributions]
    is_unbounded_below = None in lows or (not sealed and (lo is None or lo < 0))
    is_unbounded_above = None in highs or (not sealed and (hi is None or hi > 0))
    least, greatest = (
        (None if is_unbounded_below else _exact_sum(lows, type)),
        (None if is_unbounded_above else _exact_sum(highs, type)),
    )
    # A sum that is too large for a float is NULL, like any overflow. Sums of other types do not overflow.
    overflows = (least is None and not is_unbounded_below) or (greatest is None and not is_unbounded_above)
    now = _exact_sum([p.now for p in contributions if p.now is not None], type)
    if overflows and all(p.is_certain and p.range.is_final for p in contributions) and sealed:
        return Range.exactly(None)
    return Range(least, greatest, MAYBE if overflows else NEVER, now)


def _zero(type: DataType) -> Any:
    return 0.0 if type.name == "float" else Decimal(0) if type.name == "decimal" else 0


def _exact_sum(values: Sequence[Any], type: DataType) -> Value:
    """The exact sum, independent of the order. A float is rounded once, at the end."""
    if type.name == "float":
        return _round_to_float(sum(map(Fraction, values), Fraction(0)))
    if type.name == "interval":
        return int(sum(values))
    return reduce(EXACT_CONTEXT.add, (Decimal(v) for v in values), Decimal(0))


def _round_to_float(exact: Fraction) -> float | None:
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return None


def _avg(contributions: list[_Contribution], sealed: bool, lo: RangeEnd, hi: RangeEnd, type: DataType) -> Range:
    now = _exact_mean([p.now for p in contributions if p.now is not None], type)
    if sealed and all(p.is_certain and p.range.is_final for p in contributions):
        return Range.exactly(_exact_mean([p.range.lo for p in contributions], type))
    ranges = [Range(_average_end(p.range.lo, type), _average_end(p.range.hi, type)) for p in contributions]
    if not sealed:
        ranges.append(Range(_average_end(lo, type), _average_end(hi, type)))
    mean_range = hull(ranges)
    return Range(mean_range.lo, mean_range.hi, NEVER if any(p.is_certain for p in contributions) else MAYBE, now)


def _average_end(end: RangeEnd, type: DataType) -> RangeEnd:
    return None if end is None else end if type.name == "interval" else float(end)


def _exact_mean(values: Sequence[Any], type: DataType) -> Value:
    """The mean, rounded once. For intervals it is the nearest tick; a tie goes to the even one."""
    if not values:
        return None
    exact = sum(map(Fraction, values), Fraction(0)) / len(values)
    return round(exact) if type.name == "interval" else _round_to_float(exact)


# ── extremes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _max(contributions: list[_Contribution], sealed: bool, lo: RangeEnd, hi: RangeEnd) -> Range:
    """At least the values of certain members; at most the values of all, or the domain while members may appear."""
    extent = _value_extent(contributions, sealed, lo, hi)
    now = max((p.now for p in contributions if p.now is not None), default=None)
    if extent.nulls is not NEVER:
        return Range(extent.lo, extent.hi, extent.nulls, now)
    return Range(reduce(max_lower_bound, (p.range.lo for p in contributions if p.is_certain)), extent.hi, NEVER, now)


def _min(contributions: list[_Contribution], sealed: bool, lo: RangeEnd, hi: RangeEnd) -> Range:
    extent = _value_extent(contributions, sealed, lo, hi)
    now = min((p.now for p in contributions if p.now is not None), default=None)
    if extent.nulls is not NEVER:
        return Range(extent.lo, extent.hi, extent.nulls, now)
    return Range(extent.lo, reduce(min_upper_bound, (p.range.hi for p in contributions if p.is_certain)), NEVER, now)


def _value_extent(contributions: list[_Contribution], sealed: bool, lo: RangeEnd, hi: RangeEnd) -> Range:
    """All values that members may have, and whether there may be no member."""
    ranges = [p.range for p in contributions] + ([] if sealed else [Range(lo, hi)])
    if not ranges:
        return Range.exactly(None)
    extent = hull(ranges)
    return Range(extent.lo, extent.hi, NEVER if any(p.is_certain for p in contributions) else MAYBE)


def _latest(members: Sequence[Member], sealed: bool) -> LatestValue:
    """The latest member that stays and whose value is final is a bound: the final value is its value, or a later
    one."""
    if any(m.tick is None for m in members):
        raise ValueError("the latest of rows without a tick")
    present = sorted((m for m in members if not m.mask.is_permanently_hidden), key=lambda m: m.tick or (0, 0))
    shown_members = [m for m in present if m.mask.is_shown]
    final_members = [m for m in present if m.mask.is_permanently_shown and m.value is not None and m.value.is_final]
    now = shown_members[-1].value.now if shown_members and shown_members[-1].value is not None else None
    if not final_members:
        return LatestValue(sealed=sealed and not present, now=now)
    last = final_members[-1]
    assert last.value is not None
    return LatestValue(last.value.now, last.tick, sealed and last is present[-1], now)
