"""Aggregates over knowledge: the result contains the aggregate of every possible outcome of the group's members.

A member under T always takes part, one under F never, any other may. While the group is not sealed, further members may
appear. Their values are in the column's domain lo..hi, and above the values that time has passed. It is the domain of
rows that are shown: a member that lies outside of it is hidden in the end, and contributes nothing. Bounds are never
derived from how many members may appear.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any, Final

from smile.algebra.coercions import EXACT_CONTEXT, fit_number
from smile.algebra.mmpl import Aggregate, AggregateName
from smile.algebra.percentiles import percentile_position, value_between
from smile.algebra.types import BOOL, FLOAT, DataType, Value, decimal_type
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.latest import LatestValue, TickAndSource
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.masked import MaskedValue
from smile.knowledge.values.nested import NestedRelation, NestedRow
from smile.knowledge.values.range import MAYBE, NEVER, ONLY, Range, RangeEnd, hull, max_lower_bound, min_upper_bound
from smile.knowledge.values.transfer import to_operand
from smile.limits import decimal_digits_max


@dataclass(frozen=True)
class Member:
    """One row of the group. `value` is that of the argument, None if there is no argument; for `group` it is a
    NestedRow. Only `latest` needs `tick`, and only a joining one the `key` and the cells that it is ordered by."""

    mask: Mask
    value: CellKnowledge | None = None
    tick: TickAndSource | None = None
    key: tuple[Any, ...] = ()
    order: tuple[CellKnowledge, ...] = ()


@dataclass(frozen=True)
class _Contribution:
    """A member that contributes a value to an aggregate, certainly or possibly. Members that cannot contribute have
    none."""

    range: Range
    is_certain: bool
    now: Value  # None: it contributes nothing at present


_PLAIN: Final = Aggregate("count")


def aggregate(
    function: AggregateName,
    members: Sequence[Member],
    sealed: bool,
    lo: RangeEnd,
    hi: RangeEnd,
    type: DataType,
    is_passed: Callable[[Value], bool] = lambda _: False,
    nullable: bool = True,
    can_overflow: bool = False,
    values_max: int | None = None,
    call: Aggregate = _PLAIN,
) -> CellKnowledge:
    """`type` is that of the argument, lo..hi its domain (None: no bound); only `latest` asks whether it is `nullable`.
    `values_max`: the greatest number of different values, if the domain has few (`distinct_values_max`).
    `is_passed`: whether no member that appears later can have a lower value than this one; for `earliest`, whether none
    can have this tick or an earlier one. `can_overflow`: a sum can. SUM of ints is a decimal. AVG is a float, except
    that AVG of intervals is an interval. `call` has the fraction of a percentile and the order
    of the joining ones."""
    if function == "group":
        return NestedRelation({m.key: MaskedValue(m.mask, m.value or NestedRow()) for m in members}, sealed)
    is_ranged = type != BOOL
    domain = Range(lo if is_ranged else None, hi if is_ranged else None, MAYBE if nullable else NEVER)
    if function == "latest":
        return _latest(members, sealed, domain)
    if function == "earliest":
        return _earliest(members, sealed, domain, is_passed)
    contributions = [p for m in members if (p := _contribution(m, lo, hi, type)) is not None]
    match function:
        case "count":
            return _count(contributions, sealed)
        case "count_distinct":
            return _count_distinct(contributions, sealed, values_max)
        case "sum":
            return _sum(contributions, sealed, lo, hi, type, can_overflow)
        case "max":
            return _max(contributions, sealed, lo, hi)
        case "min":
            return _min(contributions, sealed, lo, hi, is_passed)
        case "avg":
            return _avg(contributions, sealed, lo, hi, type)
        case "percentile_cont" | "percentile_disc":
            order = _Order(function == "percentile_cont", call.fraction, call.descending, type)
            return _percentile(contributions, sealed, lo, hi, order)
        case "string_agg" | "array_concat_agg":
            pairs = [(p, m) for m in members if (p := _contribution(m, lo, hi, type)) is not None]
            return _joining_aggregate(pairs, sealed, call, type)


def _contribution(member: Member, lo: RangeEnd, hi: RangeEnd, type: DataType) -> _Contribution | None:
    """NULL contributes nothing, so a value that may be NULL is not certain to contribute."""
    value_range = Range.exactly(True) if member.value is None else to_operand(member.value, type)
    if isinstance(value_range, Mask):
        value_range = value_range.to_range()
    if member.mask.is_permanently_hidden or value_range.nulls is ONLY:
        return None
    least, greatest = max_lower_bound(value_range.lo, lo), min_upper_bound(value_range.hi, hi)
    if least is not None and greatest is not None and least > greatest:
        return None
    is_certain = member.mask.is_permanently_shown and value_range.nulls is NEVER
    now = value_range.now if member.mask.is_shown else None
    return _Contribution(Range(least, greatest), is_certain, now)


# ── counts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _count(contributions: list[_Contribution], sealed: bool) -> Range:
    now = sum(p.now is not None for p in contributions)
    return Range(sum(p.is_certain for p in contributions), len(contributions) if sealed else None, NEVER, now)


def _count_distinct(contributions: list[_Contribution], sealed: bool, values_max: int | None) -> Range:
    """Values that are not exact may all become equal to one that is counted already, or may all differ. There are never
    more than the domain has."""
    certain_values = {p.range.lo for p in contributions if p.is_certain and p.range.is_final}
    exact_values = {p.range.lo for p in contributions if p.range.is_final}
    inexact_count = sum(not p.range.is_final for p in contributions)
    least = max(len(certain_values), int(any(p.is_certain for p in contributions)))
    now = len({p.now for p in contributions if p.now is not None})
    most = len(exact_values) + inexact_count if sealed else None
    return Range(least, min_upper_bound(most, values_max), NEVER, now)


# ── sums ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _sum(
    contributions: list[_Contribution], sealed: bool, lo: RangeEnd, hi: RangeEnd, type: DataType, can_overflow: bool
) -> Range:
    """A sum that is not a value of its type is NULL. So if it can overflow, nothing is known of it while members may
    appear."""
    now = _exact_sum([p.now for p in contributions if p.now is not None], type)
    if can_overflow and not sealed:
        return Range.bottom(now=now)
    lows = [p.range.lo if p.is_certain or p.range.lo is None else min(p.range.lo, _zero(type)) for p in contributions]
    highs = [p.range.hi if p.is_certain or p.range.hi is None else max(p.range.hi, _zero(type)) for p in contributions]
    is_unbounded_below = None in lows or (not sealed and (lo is None or lo < 0))
    is_unbounded_above = None in highs or (not sealed and (hi is None or hi > 0))
    least, greatest = (
        (None if is_unbounded_below else _exact_sum(lows, type)),
        (None if is_unbounded_above else _exact_sum(highs, type)),
    )
    may_overflow = can_overflow and (least is None or greatest is None)
    if may_overflow and all(p.is_certain and p.range.is_final for p in contributions):
        return Range.exactly(None)
    return Range.bottom(now=now) if may_overflow else Range(least, greatest, NEVER, now)


def _zero(type: DataType) -> Any:
    return 0.0 if type.name == "float" else Decimal(0) if type.name == "decimal" else 0


def _exact_sum(values: Sequence[Any], type: DataType) -> Value:
    """The exact sum, independent of the order; None if it overflows. A float is rounded once, at the end."""
    if type.name == "float":
        return _round_to_float(sum(map(Fraction, values), Fraction(0)))
    if type.name == "interval":
        return fit_number(int(sum(values)), type)
    exact = reduce(EXACT_CONTEXT.add, (Decimal(v) for v in values), Decimal(0))
    return fit_number(exact, decimal_type(decimal_digits_max, type.scale or 0))


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


# ── strings and arrays ──────────────────────────────────────────────────────────────────────────────────────────────


def _joining_aggregate(
    pairs: Sequence[tuple[_Contribution, Member]], sealed: bool, call: Aggregate, type: DataType
) -> Range:
    """Nothing is known of it until it is final."""
    now = _joined([(p.now, m) for p, m in pairs if p.now is not None], call, type)
    if sealed and all(p.is_certain and p.range.is_final and all(c.is_final for c in m.order) for p, m in pairs):
        return Range.exactly(_joined([(p.range.lo, m) for p, m in pairs], call, type))
    return Range(None, None, NEVER if any(p.is_certain for p, _ in pairs) else MAYBE, now)


def _joined(texts: list[tuple[Any, Member]], call: Aggregate, type: DataType) -> str | bytes | None:
    if call.distinct:
        words = sorted({text for text, _ in texts}, reverse=call.descending)
    else:
        texts = sorted(texts, key=lambda pair: pair[1].key)
        for number, descending in reversed(list(enumerate(call.directions))):
            texts.sort(key=lambda pair: _orderable(pair[1].order[number].now), reverse=descending)
        words = [text for text, _ in texts]
    separator: Any = b"" if type.name == "array" else call.separator
    return separator.join(words) if words else None


def _orderable(value: Any) -> tuple[bool, Any]:
    """NULL comes last in ascending order."""
    return value is None, False if value is None else value


# ── percentiles ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Order:
    """Which of the ordered values a percentile is."""

    is_continuous: bool
    fraction: float
    descending: bool
    type: DataType

    def value(self, values: Sequence[Any]) -> Value:
        if not values:
            return None
        ordered = sorted(values)
        at = percentile_position(self.fraction, self.is_continuous, self.descending, len(ordered))
        first: Any = ordered[at.first]
        second: Any = ordered[at.second]
        if self.is_continuous:
            return value_between(first, second, at.proportion, self.type)
        value: Value = first + 0.0 if self.type == FLOAT else first  # zero has one sign
        return value


def _percentile(contributions: list[_Contribution], sealed: bool, lo: RangeEnd, hi: RangeEnd, order: _Order) -> Range:
    """It lies among the values of all members, and of the domain while members may appear."""
    now = order.value([p.now for p in contributions if p.now is not None])
    if sealed and all(p.is_certain and p.range.is_final for p in contributions):
        return Range.exactly(order.value([p.range.lo for p in contributions]))
    extent = _value_extent(contributions, sealed, lo, hi)
    return Range(extent.lo, extent.hi, extent.nulls, now)


# ── extremes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _max(contributions: list[_Contribution], sealed: bool, lo: RangeEnd, hi: RangeEnd) -> Range:
    """At least the values of certain members; at most the values of all, or the domain while members may appear."""
    extent = _value_extent(contributions, sealed, lo, hi)
    now = max((p.now for p in contributions if p.now is not None), default=None)
    if extent.nulls is not NEVER:
        return Range(extent.lo, extent.hi, extent.nulls, now)
    return Range(reduce(max_lower_bound, (p.range.lo for p in contributions if p.is_certain)), extent.hi, NEVER, now)


def _min(
    contributions: list[_Contribution],
    sealed: bool,
    lo: RangeEnd,
    hi: RangeEnd,
    is_passed: Callable[[Value], bool],
) -> Range:
    """The mirror of MAX. Members that appear later cannot lower it once time has passed its upper bound."""
    now = min((p.now for p in contributions if p.now is not None), default=None)
    upper_bounds = [p.range.hi for p in contributions if p.is_certain]
    greatest = reduce(min_upper_bound, upper_bounds) if upper_bounds else None
    extent = _value_extent(contributions, sealed or (greatest is not None and is_passed(greatest)), lo, hi)
    if extent.nulls is not NEVER:
        return Range(extent.lo, extent.hi, extent.nulls, now)
    return Range(extent.lo, greatest, NEVER, now)


def _value_extent(contributions: list[_Contribution], sealed: bool, lo: RangeEnd, hi: RangeEnd) -> Range:
    """All values that members may have, and whether there may be no member."""
    ranges = [p.range for p in contributions] + ([] if sealed else [Range(lo, hi)])
    if not ranges:
        return Range.exactly(None)
    extent = hull(ranges)
    return Range(extent.lo, extent.hi, NEVER if any(p.is_certain for p in contributions) else MAYBE)


def _latest(members: Sequence[Member], sealed: bool, domain: Range) -> LatestValue:
    """The latest member that stays and whose value is final is a bound: the final value is its value, or a later
    one. Until no later one is possible, the value is anywhere in the domain."""
    present = _present_by_time(members)
    shown_members = [m for m in present if m.mask.is_shown]
    final_members = [m for m in present if m.mask.is_permanently_shown and m.value is not None and m.value.is_final]
    now = shown_members[-1].value.now if shown_members and shown_members[-1].value is not None else None
    last = final_members[-1] if final_members else None
    value = None if last is None or last.value is None else last.value.now
    if sealed and last is (present[-1] if present else None):
        return LatestValue.exactly(value)
    is_certain = any(m.mask.is_permanently_shown for m in present)
    bounds = Range(domain.lo, domain.hi, domain.nulls if is_certain else MAYBE, now)
    return LatestValue(value, None if last is None else last.tick, bounds)


def _earliest(members: Sequence[Member], sealed: bool, domain: Range, is_passed: Callable[[Value], bool]) -> Range:
    """Exact if the earliest member stays, its value is final, and no member can appear before it."""
    present = _present_by_time(members)
    now = next((m.value.now for m in present if m.mask.is_shown and m.value is not None), None)
    if not present:
        return Range.exactly(None) if sealed else Range(domain.lo, domain.hi, MAYBE)
    first = present[0]
    is_settled = first.mask.is_permanently_shown and first.value is not None and first.value.is_final
    if is_settled and (sealed or (first.tick is not None and is_passed(first.tick[0]))):
        return Range.exactly(now)
    is_certain = any(m.mask.is_permanently_shown for m in present)
    return Range(domain.lo, domain.hi, domain.nulls if is_certain else MAYBE, now)


def _present_by_time(members: Sequence[Member]) -> list[Member]:
    """The members that may be shown, by tick and source."""
    if any(m.tick is None for m in members):
        raise ValueError("the latest or earliest of rows without a tick")
    return sorted((m for m in members if not m.mask.is_permanently_hidden), key=lambda m: m.tick or (0, 0))
