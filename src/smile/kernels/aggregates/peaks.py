"""Peaks: of each group the greatest, or the least, of some values of its members, NULL where there is none.

A peak is one column of the group's row. A value that comes is compared with it alone. Only when the value that is the
peak is taken away, and none as good comes with the same batch, are the members of that group read: then the work is in
proportion to the group.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from smile.algebra.types import INT_MAX, INT_MIN
from smile.columns import values as v
from smile.columns.values import Array, Bools, Indices, Values, ranks
from smile.kernels.aggregates.accumulator import Place
from smile.kernels.aggregates.parts import Argument, Batch, Parts, parts_of
from smile.kernels.changes import Groups


@dataclass(frozen=True)
class Peak:
    """`of` gives the values that members have for it: not valid where a member has none."""

    column: str
    of: Callable[[Parts], Values]
    greatest: bool


def moved(
    peak: Peak, had: Values, batch: Batch, old: Parts | None, new: Parts, argument: Argument, place: Place
) -> Values:
    """The peak of each group after a batch."""
    best = best_by(batch.groups, peak.of(new), peak.greatest)
    found = better(had, best, peak.greatest)
    if old is None:
        return found
    lost = _lost(peak, had, best, batch.groups, peak.of(old))
    if not len(lost):
        return found
    who, fixed, version = place.members(place, lost)
    parts = parts_of(argument.of(fixed, version.columns, len(version)), version.mask)
    again = best_of(who, len(lost), peak.of(parts), peak.greatest)
    return put(found, lost, again)


def _lost(peak: Peak, had: Values, best: Values, groups: Groups, taken: Values) -> Indices:
    """The groups whose peak is among what is taken away, with nothing as good in its place."""
    mine = had.take(groups.of)
    hit = taken.there() & mine.there() & v.equal_data(taken.data, mine.data)
    if not hit.any():
        return np.zeros(0, np.int64)
    struck = np.zeros(groups.count, bool)
    struck[groups.of[hit]] = True
    return np.flatnonzero(struck & ~is_as_good(best, had, peak.greatest))


# ── comparing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _comparable(a: Values, b: Values) -> tuple[Array, Array]:
    if isinstance(a.data, np.ndarray) and isinstance(b.data, np.ndarray):
        return a.data, b.data
    codes = ranks(Values(v.concat([Values(a.data), Values(b.data)]).data))
    return codes[: len(a)], codes[len(a) :]


def is_as_good(a: Values, b: Values, greatest: bool) -> Bools:
    """Where a is there and at least as good as b, or there is no b."""
    x, y = _comparable(a, b)
    good = np.asarray(x >= y if greatest else x <= y, bool)
    return a.there() & (good | b.nulls())


def better(a: Values, b: Values, greatest: bool) -> Values:
    """The better of the two; a value is better than none."""
    if a.valid is None and b.valid is None and isinstance(a.data, np.ndarray) and a.data.dtype != bool:
        return Values(np.maximum(a.data, b.data) if greatest else np.minimum(a.data, b.data))
    found = v.where(is_as_good(b, a, greatest), b, a)
    return found if found.valid is None or not found.valid.all() else Values(found.data)


def put(into: Values, at: Indices, values: Values) -> Values:
    """With other values in some places."""
    where = np.arange(len(into))
    where[at] = np.arange(len(into), len(into) + len(at))
    return v.concat([into, values]).take(where)


# ── the best of each group ──────────────────────────────────────────────────────────────────────────────────────────


def best_by(groups: Groups, values: Values, greatest: bool) -> Values:
    """Of each group, of the values that are valid."""
    data = values.data
    if not isinstance(data, np.ndarray) or data.dtype == object:
        return best_of(groups.of, groups.count, values, greatest)
    pick = np.maximum if greatest else np.minimum
    if values.valid is None:
        return Values(pick.reduceat(data[groups.order], groups.starts))
    there = np.logical_or.reduceat(values.valid[groups.order], groups.starts)
    worst = _worst(data, greatest)
    found = pick.reduceat(np.where(values.valid, data, worst)[groups.order], groups.starts)
    return Values(found, None if there.all() else there)


def _worst(data: Array, greatest: bool) -> float | int:
    if data.dtype == np.float64:
        return -np.inf if greatest else np.inf
    if data.dtype == bool:
        return not greatest
    return INT_MIN if greatest else INT_MAX


def best_of(who: Indices, count: int, values: Values, greatest: bool) -> Values:
    """Of each of `count` groups; `who` is the group of each value, in any order."""
    at = np.flatnonzero(values.there())
    valid = np.zeros(count, bool)
    if not len(at):
        return v.empty_like(values, count)
    kept = values.take(at)
    codes = ranks(Values(kept.data))
    order = np.lexsort((codes if greatest else -codes, who[at]))
    owner = who[at][order]
    last = np.append(owner[1:] != owner[:-1], True)
    place = np.zeros(count, np.int64)
    place[owner[last]] = order[last]
    valid[owner[last]] = True
    return Values(kept.take(place).data, None if valid.all() else valid)
