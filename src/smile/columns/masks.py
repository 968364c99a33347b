"""Masks of rows, one byte each: whether the row can be shown in the end, whether it can be hidden, whether it is shown
now.

The mask of an absent row is 0 (ABSENT). The logical operators here are only correct for rows that are present: callers
treat absent rows separately.
"""

from typing import Final

import numpy as np

from smile.columns.values import Array, Bools
from smile.knowledge.values.mask import Mask

MAY_SHOW: Final = 1
MAY_HIDE: Final = 2
SHOWN_NOW: Final = 4

ABSENT: Final = 0
T: Final = MAY_SHOW | SHOWN_NOW
F: Final = MAY_HIDE
SHOWN: Final = MAY_SHOW | MAY_HIDE | SHOWN_NOW
HIDDEN: Final = MAY_SHOW | MAY_HIDE

MaskCodes = Array  # of uint8


def full(code: int, count: int) -> MaskCodes:
    return np.full(count, code, np.uint8)


def pack_codes(may_show: Bools, may_hide: Bools, shown_now: Bools) -> MaskCodes:
    return (
        may_show.view(np.uint8) * np.uint8(MAY_SHOW)
        | may_hide.view(np.uint8) * np.uint8(MAY_HIDE)
        | shown_now.view(np.uint8) * np.uint8(SHOWN_NOW)
    )


def all_of(a: MaskCodes, b: MaskCodes) -> MaskCodes:
    return (a & b & (MAY_SHOW | SHOWN_NOW)) | ((a | b) & MAY_HIDE)


def any_of(a: MaskCodes, b: MaskCodes) -> MaskCodes:
    return ((a | b) & (MAY_SHOW | SHOWN_NOW)) | (a & b & MAY_HIDE)


def negation(a: MaskCodes) -> MaskCodes:
    return ((a >> 1) & MAY_SHOW) | ((a << 1) & MAY_HIDE) | ((a & SHOWN_NOW) ^ SHOWN_NOW)


def is_present(codes: MaskCodes) -> Bools:
    return codes != ABSENT


def is_shown(codes: MaskCodes) -> Bools:
    return (codes & SHOWN_NOW) != 0


def is_permanently_shown(codes: MaskCodes) -> Bools:
    return codes == T


def is_permanently_hidden(codes: MaskCodes) -> Bools:
    return codes == F


def can_be_shown(codes: MaskCodes) -> Bools:
    """Whether the row is present, and may be shown in the end."""
    return (codes & MAY_SHOW) != 0


def decode_mask(code: int) -> Mask:
    """One mask as a `Mask`."""
    possible = ([True] if code & MAY_SHOW else []) + ([False] if code & MAY_HIDE else [])
    return Mask.from_truths(possible, bool(code & SHOWN_NOW))
