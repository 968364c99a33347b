"""Masks of many rows in three-valued logic: bits say which of true (1), false (2) and NULL (4) are possible.

Matches are counted by what is known of each, so that whether there is one follows from sums, however many there are.
"""

from typing import Any, Final, Literal

import numpy as np

from smile.algebra.types import DataType
from smile.columns import knowledge as k, masks
from smile.columns.knowledge import Column, Masks
from smile.columns.masks import Codes
from smile.columns.values import Array, Bools, Values
from smile.knowledge.cells import range_of
from smile.knowledge.comparison import compare

TRUE: Final = 1
FALSE: Final = 2
NULL: Final = 4

SURE: Final = 0
"""Matches that stay,"""
CAN: Final = 1
"""that may be there in the end,"""
NOW: Final = 2
"""that are there now;"""
MUST: Final = 3
"""whose absence is excluded, though they may be NULL,"""
CAN_NULL: Final = 4
"""that may be NULL,"""
NOW_NULL: Final = 5
"""and that are."""

PLAIN: Final = 3
AWARE: Final = 6
"""How many counters there are where NULL is false, and where it is told apart."""


def of_codes(codes: Codes) -> Masks:
    """Masks of rows, which are never NULL."""
    return Masks(codes & np.uint8(TRUE | FALSE), np.where(masks.shown(codes), np.uint8(TRUE), np.uint8(FALSE)))


def both(a: Masks, b: Masks) -> Masks:
    x, y = a.possible, b.possible
    null = ((x & NULL != 0) & (y & (TRUE | NULL) != 0)) | ((y & NULL != 0) & (x & (TRUE | NULL) != 0))
    possible = (x & y & TRUE) | ((x | y) & FALSE) | np.where(null, np.uint8(NULL), np.uint8(0))
    either = a.now | b.now
    now = np.where(either & FALSE, FALSE, np.where(either & NULL, NULL, TRUE))
    return Masks(possible.astype(np.uint8), now.astype(np.uint8))


def negated(a: Masks) -> Masks:
    return Masks(_swapped(a.possible), _swapped(a.now))


def _swapped(bits: Array) -> Array:
    return ((bits & TRUE) << 1) | ((bits & FALSE) >> 1) | (bits & NULL)


def filtered(found: Masks) -> Codes:
    """As a restriction sees it: NULL is false."""
    possible = found.possible
    return masks.of((possible & TRUE) != 0, (possible & (FALSE | NULL)) != 0, found.now == TRUE)


def compared(name: Literal["=", "<="], a: Column, b: Column, data: DataType) -> Masks:
    """With NULL for NULL. Where one of them evolves, row by row."""
    if isinstance(a, Values) and isinstance(b, Values):
        holds = a.same(b) if name == "=" else a.data <= b.data
        found = np.where(a.there() & b.there(), np.where(holds, TRUE, FALSE), NULL).astype(np.uint8)
        return Masks(found, found)
    bits = {True: TRUE, False: FALSE, None: NULL}
    possible, now = np.zeros(len(a), np.uint8), np.zeros(len(a), np.uint8)
    for i in range(len(a)):
        x, y = range_of(k.known(a, i, data)), range_of(k.known(b, i, data))
        truths = compare(name, x, y)
        possible[i] = sum(bits[t] for t in truths)
        now[i] = possible[i] if len(truths) == 1 else bits[_holds(name, x.now, y.now)]
    return Masks(possible, now)


def _holds(name: str, a: Any, b: Any) -> bool | None:
    return None if a is None or b is None else bool(a == b if name == "=" else a <= b)


# ── counting ────────────────────────────────────────────────────────────────────────────────────────────────────────


def counted(codes: Codes) -> Array:
    """Of rows or pairs what each adds to the counters; nothing where nobody has heard of it."""
    return np.stack([masks.stays(codes), masks.live(codes), masks.shown(codes)], axis=1).astype(np.int64)


def counted_aware(found: Masks, heard: Bools) -> Array:
    possible, now = found.possible, found.now
    parts = (
        possible == TRUE, possible & TRUE != 0, now == TRUE,
        possible & FALSE == 0, possible & NULL != 0, now == NULL,
    )  # fmt: skip
    return np.stack([p & heard for p in parts], axis=1).astype(np.int64)


def any_of(counts: Array, more: Bools) -> Masks:
    """Whether there is a match; `more`: one nobody has heard of may come."""
    aware = counts.shape[1] == AWARE
    there = counts > 0
    can, must = there[:, CAN] | more, there[:, MUST if aware else SURE]
    possible = np.where(can, TRUE, 0) | np.where(must, 0, FALSE)
    now = np.where(there[:, NOW], TRUE, FALSE)
    if aware:
        possible |= np.where((there[:, CAN_NULL] | more) & ~there[:, SURE], NULL, 0)
        now = np.where(~there[:, NOW] & there[:, NOW_NULL], NULL, now)
    return Masks(possible.astype(np.uint8), now.astype(np.uint8))
