"""Three-valued (Kleene) logic on columns of masks, and counters of matches.

The bits of a mask say which of true (1), false (2) and NULL (4) are possible. Each match adds to a few counters, by
what is known of it; whether there is a match follows from the counters alone, however many matches there are.
"""

from typing import Final, Literal

import numpy as np

from smile.columns import masks
from smile.columns.knowledge import KnowledgeColumn, MaskColumn
from smile.columns.masks import MaskCodes
from smile.columns.ranges import to_range_column
from smile.columns.values import Array, Bools, ValueColumn
from smile.kernels.expressions.logic import comparison_function

TRUE: Final = 1
FALSE: Final = 2
NULL: Final = 4

# The counters, by number.
SURE: Final = 0
"""Matches that are certain."""
CAN: Final = 1
"""Matches that are possible."""
NOW: Final = 2
"""Current matches."""
MUST: Final = 3
"""Matches that cannot be false, but may be NULL."""
CAN_NULL: Final = 4
"""Matches that may be NULL."""
NOW_NULL: Final = 5
"""Matches that are NULL now."""

COUNTERS_PLAIN: Final = 3
COUNTERS_NULL_AWARE: Final = 6
"""The number of counters where NULL counts as false, and where it is distinguished from false."""


def masks_from_codes(codes: MaskCodes) -> MaskColumn:
    """The codes of row masks as truth values, which are never NULL."""
    return MaskColumn(codes & np.uint8(TRUE | FALSE), np.where(masks.is_shown(codes), np.uint8(TRUE), np.uint8(FALSE)))


def conjunction(a: MaskColumn, b: MaskColumn) -> MaskColumn:
    x, y = a.possible, b.possible
    null = ((x & NULL != 0) & (y & (TRUE | NULL) != 0)) | ((y & NULL != 0) & (x & (TRUE | NULL) != 0))
    possible = (x & y & TRUE) | ((x | y) & FALSE) | np.where(null, np.uint8(NULL), np.uint8(0))
    either = a.now | b.now
    now = np.where(either & FALSE, FALSE, np.where(either & NULL, NULL, TRUE))
    return MaskColumn(possible.astype(np.uint8), now.astype(np.uint8))


def negation(a: MaskColumn) -> MaskColumn:
    return MaskColumn(_swap_truths(a.possible), _swap_truths(a.now))


def _swap_truths(bits: Array) -> Array:
    return ((bits & TRUE) << 1) | ((bits & FALSE) >> 1) | (bits & NULL)


def as_filter(truths: MaskColumn) -> MaskCodes:
    """The row masks of a filter with this condition: NULL counts as false."""
    possible = truths.possible
    return masks.pack_codes((possible & TRUE) != 0, (possible & (FALSE | NULL)) != 0, truths.now == TRUE)


def compare_columns(name: Literal["=", "<="], a: KnowledgeColumn, b: KnowledgeColumn) -> MaskColumn:
    """Compares two columns; NULL if an operand is NULL."""
    if isinstance(a, ValueColumn) and isinstance(b, ValueColumn):
        holds = a.same(b) if name == "=" else a.data <= b.data
        truth_bits = np.where(a.is_valid() & b.is_valid(), np.where(holds, TRUE, FALSE), NULL).astype(np.uint8)
        return MaskColumn(truth_bits, truth_bits)
    return comparison_function(name)([to_range_column(a), to_range_column(b)])


# ── counting ────────────────────────────────────────────────────────────────────────────────────────────────────────


def counter_increments(codes: MaskCodes) -> Array:
    """What each row or pair adds to the counters; absent ones add nothing."""
    return np.stack(
        [masks.is_permanently_shown(codes), masks.can_be_shown(codes), masks.is_shown(codes)], axis=1
    ).astype(np.int64)


def null_aware_increments(truths: MaskColumn, present: Bools) -> Array:
    """What each pair adds to the counters where NULL is distinguished from false."""
    possible, now = truths.possible, truths.now
    flags = (
        possible == TRUE, possible & TRUE != 0, now == TRUE,
        possible & FALSE == 0, possible & NULL != 0, now == NULL,
    )  # fmt: skip
    return np.stack([f & present for f in flags], axis=1).astype(np.int64)


def has_match(counts: Array, can_gain_match: Bools) -> MaskColumn:
    """Whether there is a match; `can_gain_match`: an absent row may still come and match."""
    null_aware = counts.shape[1] == COUNTERS_NULL_AWARE
    is_positive = counts > 0
    can_be_true, cannot_be_false = is_positive[:, CAN] | can_gain_match, is_positive[:, MUST if null_aware else SURE]
    possible = np.where(can_be_true, TRUE, 0) | np.where(cannot_be_false, 0, FALSE)
    now = np.where(is_positive[:, NOW], TRUE, FALSE)
    if null_aware:
        possible |= np.where((is_positive[:, CAN_NULL] | can_gain_match) & ~is_positive[:, SURE], NULL, 0)
        now = np.where(~is_positive[:, NOW] & is_positive[:, NOW_NULL], NULL, now)
    return MaskColumn(possible.astype(np.uint8), now.astype(np.uint8))
