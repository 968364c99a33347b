"""Places of rows in the order of values that may evolve: no two rows have one place, since keys decide ties.

A row surely precedes another if the last place it may come to is before the first place of the other. NULL is the
greatest of all values, as in PostgreSQL.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smile.algebra.types import BOOL
from smile.columns import values as v
from smile.columns.knowledge import Column, Masks, Ranges
from smile.columns.ranges import ranges_of
from smile.columns.values import Array, Values

_ONLY = 2


@dataclass(frozen=True)
class Places:
    """Numbers below `size`, each its row's own; all three are the same array where nothing evolves."""

    first: Array
    last: Array
    now: Array
    size: int


def places(by: Sequence[tuple[Column, bool]], key: Sequence[Values], count: int) -> Places:
    """By each column in turn, descending where it says so, then by key."""
    ends = [_ends(column, descending) for column, descending in by]
    keys = [v.ranks(column) for column in key]
    now = _ranked([now for _, _, now in ends], keys, count)
    if all(isinstance(column, Values) for column, _ in by):
        return Places(now, now, now, count)
    twice = [np.concatenate([r, r]) for r in keys]
    both = _ranked([np.concatenate([lo, hi]) for lo, hi, _ in ends], twice, 2 * count)
    first, last = both[:count], both[count:]
    exact = np.logical_and.reduce([lo == hi for lo, hi, _ in ends])
    return Places(first, np.where(exact, first, last), now, 2 * count)


def _ranked(columns: Sequence[Array], keys: Sequence[Array], count: int) -> Array:
    found = np.empty(count, np.int64)
    ranks = [*reversed(keys), *reversed(columns)]
    found[np.lexsort(ranks) if ranks else np.arange(count)] = np.arange(count)
    return found


def _ends(column: Column, descending: bool) -> tuple[Array, Array, Array]:
    """Ranks of the least value that each row may have, of the greatest, and of the present one."""
    if isinstance(column, Values):
        found = v.ranks(column)
        return (~found, ~found, ~found) if descending else (found, found, found)
    assert isinstance(column, Ranges | Masks)
    spread = spread_of(ranges_of(column, BOOL))
    codes = spread.nulls
    lo = np.where(codes == _ONLY, spread.null, spread.lo)
    hi = np.where(codes == 0, spread.hi, spread.null)
    return (~hi, ~lo, ~spread.now) if descending else (lo, hi, spread.now)


@dataclass(frozen=True)
class Spread:
    """Ranges as ranks: -1 is below all values, `null` above all of them and above what is above them."""

    lo: Array
    hi: Array
    now: Array
    nulls: Array
    null: int


def spread_of(ranges: Ranges) -> Spread:
    count = len(ranges)
    pieces = [ranges.now, *(end for end in (ranges.lo, ranges.hi) if end is not None)]
    ranks = np.unique(v.ranks(v.concat(pieces)), return_inverse=True)[1].reshape(-1)
    top = len(ranks)
    now = np.where(ranges.now.there(), ranks[:count], top + 1)
    lo, hi = np.full(count, -1), np.full(count, top)
    if ranges.lo is not None:
        lo = np.where(ranges.lo.there(), ranks[count : 2 * count], -1)
    if ranges.hi is not None:
        hi = np.where(ranges.hi.there(), ranks[-count:] if count else ranks, top)
    return Spread(lo, hi, now, ranges.null_codes(), top + 1)


# ── counting ────────────────────────────────────────────────────────────────────────────────────────────────────────


def before(places_: Array, weights: Array, asked: Array, group: Array, size: int) -> Array:
    """For each row, how many others of its group, by their weights, have a place before the one asked for."""
    points = group * size + places_
    order = np.argsort(points)
    ranked = points[order]
    sums = np.zeros(len(points) + 1, np.int64)
    np.cumsum(weights[order], out=sums[1:])
    found = sums[np.searchsorted(ranked, group * size + asked)] - sums[np.searchsorted(ranked, group * size)]
    return np.asarray(found - np.where(places_ < asked, weights, 0))
