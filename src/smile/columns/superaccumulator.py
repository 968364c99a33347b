"""Superaccumulators: sums of floats that are exact, so that they are the same in any order, and after taking away what
was added.

A sum is six limbs of 32 bits, the lowest worth 2^-96, in which nearly all floats fit. What does not is beside them, as
a Python integer of units of 2^-1074, of which every float is a multiple. After each operation the limbs are in
0..2^32-1, but for the highest, which has the sign.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from smile.columns import values as v
from smile.columns.values import Array, Indices, Values

LIMBS: Final = 6
BITS: Final = 32
LOWEST: Final = -96
"""The exponent of the lowest bit of the limbs."""
UNIT: Final = -1074
"""The exponent of the lowest bit of any float."""

ARROW: Final = pa.binary(8 * LIMBS)
_DTYPE: Final = np.dtype(f"V{8 * LIMBS}")
_MASK: Final = np.int64(2**BITS - 1)
_TOP_MAX: Final = 2**60
_SHIFT_MAX: Final = BITS * (LIMBS - 2) - 1
_CHUNK: Final = 2**18
_FEW: Final = 12
"""Below so many sums Python's integers are faster than many NumPy calls."""


class Sums:
    """`limbs` is an array of LIMBS integers a sum; `wide` None: all of every sum is in its limbs."""

    __slots__ = ("limbs", "wide")

    def __init__(self, limbs: Array, wide: list[int] | None) -> None:
        self.limbs, self.wide = limbs, wide

    def __len__(self) -> int:
        return len(self.limbs)

    # ── stored ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def read(limbs: Values, wide: Values) -> "Sums":
        """From columns of a table; where there was no row, the sum is 0."""
        found = limbs.data.view(np.int64).reshape(-1, LIMBS)
        if wide.valid is None:
            rest = [_int(x) for x in wide.data.to_pylist()]
        elif wide.valid.any():
            pairs = zip(wide.data.to_pylist(), wide.valid.tolist(), strict=True)
            rest = [_int(x) if there else 0 for x, there in pairs]
        else:
            return Sums(found, None)
        return Sums(found, rest)

    def stored(self) -> tuple[Values, Values]:
        limbs = Values(np.ascontiguousarray(self.limbs).view(_DTYPE).reshape(-1))
        if self.wide is None:
            return limbs, v.empty_like(Values(pa.array([], pa.binary())), len(self))
        return limbs, v.text(pa.array([_bytes(x) if x else None for x in self.wide], pa.binary()))

    # ── summed ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def plus(self, other: "Sums") -> "Sums":
        wide = self.wide or other.wide
        if self.wide is not None and other.wide is not None:
            wide = [a + b for a, b in zip(self.wide, other.wide, strict=True)]
        return _settled(self.limbs + other.limbs, wide)

    # ── shown ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def whole(self) -> list[int]:
        """As Python's integers, in units of 2^LOWEST, or of 2^UNIT if there is anything wide."""
        found = [_joined(limbs) for limbs in self.limbs.tolist()]
        if self.wide is None:
            return found
        return [(x << (LOWEST - UNIT)) + w for x, w in zip(found, self.wide, strict=True)]

    @property
    def _unit(self) -> int:
        return 1 << -(LOWEST if self.wide is None else UNIT)

    def rounded(self) -> Values:
        """The nearest floats, of two as near the even one; NULL beyond all floats."""
        if self.wide is not None or len(self) <= _FEW:
            return _quotients(self.whole(), [self._unit] * len(self))
        return Values(_nearest(self.limbs)[0])

    def means(self, counts: Array) -> Values:
        """Each divided by a count, rounded once; NULL where that is 0."""
        if self.wide is not None or len(self) <= _FEW:
            return _quotients(self.whole(), [n * self._unit for n in counts.tolist()])
        there = counts > 0
        found, doubtful = _divided(self.limbs, np.maximum(counts, 1).astype(float))
        if len(doubtful):
            some = Sums(self.limbs[doubtful], None)
            found[doubtful] = _quotients(some.whole(), [n * self._unit or 1 for n in counts[doubtful].tolist()]).data
        return Values(found, None if there.all() else there)


def _int(stored: bytes) -> int:
    return int.from_bytes(stored, "little", signed=True)


def _bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _joined(limbs: list[int]) -> int:
    a, b, c, d, e, f = limbs
    return a + (b << 32) + (c << 64) + (d << 96) + (e << 128) + (f << 160)


def _quotients(above: list[int], below: list[int]) -> Values:
    """Python divides integers exactly and rounds once."""
    found = []
    for a, b in zip(above, below, strict=True):
        try:
            found.append(a / b if b else None)
        except OverflowError:
            found.append(None)
    valid = np.fromiter((x is not None for x in found), bool, len(found))
    data = np.array([0.0 if x is None else x for x in found])
    return Values(data, None if valid.all() else valid)


def of_floats(data: Array) -> Sums:
    """Each float as a sum of itself."""
    return summed(data, np.arange(len(data)), len(data))


def summed(data: Array, of: Indices, count: int) -> Sums:
    """The sums of `count` groups; `of` is the group of each float. The limbs are not settled yet."""
    fraction, exponent = np.frexp(data)
    mantissa = (fraction * 2.0**53).astype(np.int64)
    shift = exponent.astype(np.int64) - (53 + LOWEST)
    wide = None
    if len(data) and (int(shift.min()) < 0 or int(shift.max()) > _SHIFT_MAX):
        mantissa, shift, outside = _fitted(mantissa, shift)
        if outside is not None:
            wide = [0] * count
            for at in np.flatnonzero(outside).tolist():
                wide[of[at]] += _units(float(data[at]))
    # 53 bits moved by up to 31 are three limbs at most. Floats hold the sums of fewer than 2^20 of them exactly.
    # Shifts of negative integers round down, so only the highest piece has the sign.
    place, within = of * LIMBS + (shift >> 5), shift & 31
    low, high = (mantissa & _MASK) << within, (mantissa >> BITS) << within
    pieces = np.array([low & _MASK, (low >> BITS) + (high & _MASK), high >> BITS], float)
    places = np.array([place, place + 1, place + 2])
    limbs = np.zeros(count * LIMBS, np.int64)
    for start in range(0, len(data), _CHUNK):
        part = slice(start, start + _CHUNK)
        found = np.bincount(places[:, part].ravel(), pieces[:, part].ravel(), len(limbs))
        limbs += found.astype(np.int64)
    return Sums(limbs.reshape(count, LIMBS), wide)


def _fitted(mantissa: Array, shift: Array) -> tuple[Array, Array, Array | None]:
    """With 0 in the place of what does not fit into limbs, and where that is, if anywhere."""
    outside = ((shift < 0) | (shift > _SHIFT_MAX)) & (mantissa != 0)
    # Few bits of a small number may be used, and those may fit.
    low = outside & (shift < 0) & (shift > -53)
    cut = np.where(low, -shift, 0)
    fits = low & ((mantissa & ((np.int64(1) << cut) - 1)) == 0)
    mantissa = np.where(fits, mantissa >> cut, mantissa)
    shift = np.where(fits, 0, shift)
    outside &= ~fits
    mantissa = np.where(outside, 0, mantissa)
    return mantissa, np.where(mantissa == 0, 0, shift), outside if outside.any() else None


def _units(value: float) -> int:
    above, below = value.as_integer_ratio()
    return (above << -UNIT) // below


def _settled(limbs: Array, wide: list[int] | None) -> Sums:
    """With carries in their places; a sum too great for its limbs is wide."""
    for place in range(LIMBS - 1):
        limbs[:, place + 1] += limbs[:, place] >> BITS
        limbs[:, place] &= _MASK
    if wide is not None and not any(wide):
        wide = None
    top = limbs[:, LIMBS - 1]
    great = (top > _TOP_MAX) | (top < -_TOP_MAX)
    if great.any():
        wide = wide or [0] * len(limbs)
        for row in np.flatnonzero(great).tolist():
            wide[row] += _joined(limbs[row].tolist()) << (LOWEST - UNIT)
            limbs[row] = 0
    return Sums(limbs, wide)


def _divided(limbs: Array, counts: Array) -> tuple[Array, Indices]:
    """Sums divided by counts, and which of them may be rounded wrongly: those nearly half way between two floats."""
    total, rest = _nearest(limbs)
    found = total / counts
    product = found * counts
    high, count_high = _upper(found), _upper(counts)
    low, count_low = found - high, counts - count_high
    error = ((high * count_high - product) + high * count_low + low * count_high) + low * count_low
    missing = ((total - product) - error) + rest
    size = np.abs(found)
    gap = size - np.nextafter(size, 0.0)
    return found, np.flatnonzero(np.abs(missing) > 0.49 * gap * counts)


def _upper(data: Array) -> Array:
    """The upper half of each float's bits, so that products of halves are exact."""
    moved = data * 134217729.0
    return moved - (moved - data)


def _nearest(limbs: Array) -> tuple[Array, Array]:
    """The nearest floats, all at once, and about what they lack: 64 bits from the highest that is set, and whether
    anything is below them, decide it."""
    negative = limbs[:, LIMBS - 1] < 0
    size = limbs.copy()
    if negative.any():
        size[negative] = -size[negative]
        for place in range(LIMBS - 1):
            size[:, place + 1] += size[:, place] >> BITS
            size[:, place] &= _MASK
    # The highest limb may have more than 32 bits, so it becomes two; and there are always two below the highest.
    size = np.concatenate([np.zeros((len(size), 2), np.int64), size, size[:, LIMBS - 1 :] >> BITS], axis=1)
    size[:, LIMBS + 1] &= _MASK
    rows = np.arange(len(size))
    top = LIMBS + 2 - np.argmax(size[:, ::-1] != 0, axis=1)
    high, mid, low = (size[rows, top - n].astype(np.uint64) for n in range(3))
    length = np.frexp(high.astype(float))[1].astype(np.int64)
    space = np.uint64(BITS) - length.astype(np.uint64)
    bits = (((high << np.uint64(BITS)) | mid) << space) | (low >> (np.uint64(BITS) - space))
    below = (low << space) & np.uint64(_MASK)
    places = np.arange(LIMBS + 3)
    rest = ((size != 0) & (places[None, :] < (top - 2)[:, None])).any(axis=1) | (below != 0)
    kept, cut = bits >> np.uint64(11), bits & np.uint64(0x7FF)
    half = np.uint64(0x400)
    up = (cut > half) | ((cut == half) & (rest | ((kept & np.uint64(1)) != 0)))
    exponent = (top - 2) * BITS + length - 53 + LOWEST
    found = np.ldexp((kept + up).astype(float), exponent)
    lacking = np.ldexp(cut.astype(float) - up * 2048.0, exponent - 11)
    if negative.any():
        return np.where(negative, -found, found), np.where(negative, -lacking, lacking)
    return found, lacking
