"""Masks of rows, one byte each: whether it can be shown in the end, whether it can be hidden, whether it is shown.

A row nobody has heard of is 0, and no operator here makes or takes one but `heard`.
"""

from typing import Final

import numpy as np

from smile.columns.values import Array, Bools
from smile.knowledge.mask import Mask

CAN: Final = 1
CANNOT: Final = 2
NOW: Final = 4

ABSENT: Final = 0
T: Final = CAN | NOW
F: Final = CANNOT
SHOWN: Final = CAN | CANNOT | NOW
HIDDEN: Final = CAN | CANNOT

Codes = Array  # of uint8


def full(code: int, count: int) -> Codes:
    return np.full(count, code, np.uint8)


def of(can: Bools, cannot: Bools, now: Bools) -> Codes:
    return (
        can.view(np.uint8) * np.uint8(CAN)
        | cannot.view(np.uint8) * np.uint8(CANNOT)
        | now.view(np.uint8) * np.uint8(NOW)
    )


def all_of(a: Codes, b: Codes) -> Codes:
    return (a & b & (CAN | NOW)) | ((a | b) & CANNOT)


def any_of(a: Codes, b: Codes) -> Codes:
    return ((a | b) & (CAN | NOW)) | (a & b & CANNOT)


def none_of(a: Codes) -> Codes:
    return ((a >> 1) & CAN) | ((a << 1) & CANNOT) | ((a & NOW) ^ NOW)


def heard(codes: Codes) -> Bools:
    return codes != ABSENT


def shown(codes: Codes) -> Bools:
    return (codes & NOW) != 0


def stays(codes: Codes) -> Bools:
    return codes == T


def gone(codes: Codes) -> Bools:
    return codes == F


def live(codes: Codes) -> Bools:
    """Heard of, and perhaps shown in the end."""
    return (codes & CAN) != 0


def known(code: int) -> Mask:
    """One mask, as `knowledge` has it."""
    possible = ([True] if code & CAN else []) + ([False] if code & CANNOT else [])
    return Mask.of(possible, bool(code & NOW))


def code(mask: Mask) -> int:
    """Of a mask that is never NULL."""
    return (CAN if True in mask.possible else 0) | (CANNOT if False in mask.possible else 0) | (NOW if mask.now else 0)
