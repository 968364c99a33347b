"""Ranks of rows ordered by values that can evolve. No two rows have the same rank, because keys break ties.

A row surely precedes another row if its last possible rank is before the other's first possible rank. NULL is greater
than all values, as in PostgreSQL.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smile.columns import values as v
from smile.columns.knowledge import KnowledgeColumn, RangeColumn
from smile.columns.ranges import to_range_column
from smile.columns.values import Array, Bools, Indices, ValueColumn

NEVER_NULL, ONLY_NULL = 0, 2
"""Codes of `RangeColumn.null_codes`: the cell cannot be NULL; the cell can only be NULL."""


@dataclass(frozen=True)
class RowRanks:
    """For each row the first and the last rank that it can get, and its present rank. Ranks are less than `size`. If
    nothing evolves, all three are the same array."""

    first: Array
    last: Array
    now: Array
    size: int


def rank_rows(by: Sequence[tuple[KnowledgeColumn, bool]], key: Sequence[ValueColumn], count: int) -> RowRanks:
    """Ranks rows by these columns, each ascending or descending, then by key."""
    bounds = [_rank_bounds(column, descending) for column, descending in by]
    keys = [v.ranks(column) for column in key]
    now = _unique_ranks([now for _, _, now in bounds], keys, count)
    if all(isinstance(column, ValueColumn) for column, _ in by):
        return RowRanks(now, now, now, count)
    doubled_keys = [np.concatenate([r, r]) for r in keys]
    ranks = _unique_ranks([np.concatenate([lo, hi]) for lo, hi, _ in bounds], doubled_keys, 2 * count)
    first, last = ranks[:count], ranks[count:]
    exact = np.logical_and.reduce([lo == hi for lo, hi, _ in bounds])
    return RowRanks(first, np.where(exact, first, last), now, 2 * count)


def _unique_ranks(columns: Sequence[Array], keys: Sequence[Array], count: int) -> Array:
    ranks = np.empty(count, np.int64)
    sort_columns = [*reversed(keys), *reversed(columns)]
    ranks[np.lexsort(sort_columns) if sort_columns else np.arange(count)] = np.arange(count)
    return ranks


def _rank_bounds(column: KnowledgeColumn, descending: bool) -> tuple[Array, Array, Array]:
    """For each row the ranks of its least possible value, its greatest possible value, and its present value."""
    if isinstance(column, ValueColumn):
        ranks = v.ranks(column)
        return (~ranks, ~ranks, ~ranks) if descending else (ranks, ranks, ranks)
    range_bounds = range_ranks(to_range_column(column))
    null_codes = range_bounds.null_codes
    lo = np.where(null_codes == ONLY_NULL, range_bounds.null_rank, range_bounds.lo)
    hi = np.where(null_codes == NEVER_NULL, range_bounds.hi, range_bounds.null_rank)
    return (~hi, ~lo, ~range_bounds.now) if descending else (lo, hi, range_bounds.now)


@dataclass(frozen=True)
class RangeRanks:
    """Ranges with ranks as bounds. A range without a lower bound starts at -1, below all values. `null_rank` is above
    all values, and above the upper bound of a range that has none."""

    lo: Array
    hi: Array
    now: Array
    null_codes: Array
    null_rank: int

    def is_surely_equal(self, a: Indices | slice, b: Indices | slice) -> Bools:
        """Whether the cells of two rows are permanently equal. NULL equals NULL."""
        only_null = self.null_codes == ONLY_NULL
        exact = (self.null_codes == NEVER_NULL) & (self.lo == self.hi)
        return np.asarray((exact[a] & exact[b] & (self.lo[a] == self.lo[b])) | (only_null[a] & only_null[b]))

    def can_be_equal(self, a: Indices | slice, b: Indices | slice) -> Bools:
        can_have_value, can_be_null = self.null_codes != ONLY_NULL, self.null_codes != NEVER_NULL
        overlap = (self.lo[a] <= self.hi[b]) & (self.lo[b] <= self.hi[a])
        return np.asarray((can_have_value[a] & can_have_value[b] & overlap) | (can_be_null[a] & can_be_null[b]))


def range_ranks(ranges: RangeColumn) -> RangeRanks:
    count = len(ranges)
    pieces = [ranges.now, *(end for end in (ranges.lo, ranges.hi) if end is not None)]
    ranks = np.unique(v.ranks(v.concat(pieces)), return_inverse=True)[1].reshape(-1)
    top = len(ranks)
    now = np.where(ranges.now.is_valid(), ranks[:count], top + 1)
    lo, hi = np.full(count, -1), np.full(count, top)
    if ranges.lo is not None:
        lo = np.where(ranges.lo.is_valid(), ranks[count : 2 * count], -1)
    if ranges.hi is not None:
        hi = np.where(ranges.hi.is_valid(), ranks[-count:] if count else ranks, top)
    return RangeRanks(lo, hi, now, ranges.null_codes(), top + 1)


# ── counting ────────────────────────────────────────────────────────────────────────────────────────────────────────


def count_preceding(ranks: Array, weights: Array, asked_ranks: Array, group_numbers: Array, size: int) -> Array:
    """For each row the total weight of the other rows of its group whose ranks are less than its asked rank."""
    sort_keys = group_numbers * size + ranks
    order = np.argsort(sort_keys)
    ranked = sort_keys[order]
    sums = np.zeros(len(sort_keys) + 1, np.int64)
    np.cumsum(weights[order], out=sums[1:])
    preceding = (
        sums[np.searchsorted(ranked, group_numbers * size + asked_ranks)]
        - sums[np.searchsorted(ranked, group_numbers * size)]
    )
    return np.asarray(preceding - np.where(ranks < asked_ranks, weights, 0))
