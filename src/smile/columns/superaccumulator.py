"""Superaccumulators: exact sums of floats. A sum is the same in any order, and after adding and then subtracting a
value.

A sum is six limbs of 32 bits, the lowest worth 2^-96. Nearly all floats fit into them. A value that does not fit is
kept beside them, as a Python integer in units of 2^-1074, of which every float is a multiple. After `add`, the limbs
are in 0..2^32-1, except the highest, which carries the sign. The result of `sum_groups` is not normalised until it is
added.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from smile.columns import values as v
from smile.columns.values import Array, Indices, ValueColumn

LIMB_COUNT: Final = 6
LIMB_BITS: Final = 32
LIMBS_EXPONENT: Final = -96
"""The exponent of the lowest bit of the limbs."""
FLOAT_EXPONENT_MIN: Final = -1074
"""The exponent of the lowest bit of any float."""

ARROW_TYPE: Final = pa.binary(8 * LIMB_COUNT)
_DTYPE: Final = np.dtype(f"V{8 * LIMB_COUNT}")
_MASK: Final = np.int64(2**LIMB_BITS - 1)
_TOP_MAX: Final = 2**60
_SHIFT_MAX: Final = LIMB_BITS * (LIMB_COUNT - 2) - 1
_CHUNK: Final = 2**18
_SMALL_COUNT: Final = 12
"""For up to this many sums, Python integers are faster than NumPy calls."""


class ExactSums:
    """`limbs` has LIMB_COUNT integers for each sum. If `wide` is None, every sum is entirely in its limbs."""

    __slots__ = ("limbs", "wide")

    def __init__(self, limbs: Array, wide: list[int] | None) -> None:
        self.limbs, self.wide = limbs, wide

    def __len__(self) -> int:
        return len(self.limbs)

    # ── storage ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def from_columns(limbs: ValueColumn, wide: ValueColumn) -> "ExactSums":
        """From the columns of a table. Where there is no row, the sum is 0."""
        limb_array = limbs.data.view(np.int64).reshape(-1, LIMB_COUNT)
        if wide.valid is None:
            wide_sums = [_decode_int(x) for x in wide.data.to_pylist()]
        elif wide.valid.any():
            pairs = zip(wide.data.to_pylist(), wide.valid.tolist(), strict=True)
            wide_sums = [_decode_int(x) if is_valid else 0 for x, is_valid in pairs]
        else:
            return ExactSums(limb_array, None)
        return ExactSums(limb_array, wide_sums)

    def to_columns(self) -> tuple[ValueColumn, ValueColumn]:
        limbs = ValueColumn(np.ascontiguousarray(self.limbs).view(_DTYPE).reshape(-1))
        if self.wide is None:
            return limbs, v.nulls_like(ValueColumn(pa.array([], pa.binary())), len(self))
        return limbs, v.from_arrow_text(pa.array([_encode_int(x) if x else None for x in self.wide], pa.binary()))

    # ── addition ────────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, other: "ExactSums") -> "ExactSums":
        wide = self.wide or other.wide
        if self.wide is not None and other.wide is not None:
            wide = [a + b for a, b in zip(self.wide, other.wide, strict=True)]
        return _propagate_carries(self.limbs + other.limbs, wide)

    # ── results ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def to_integers(self) -> list[int]:
        """As Python integers, in units of 2^LIMBS_EXPONENT, or of 2^FLOAT_EXPONENT_MIN if `wide` is not None."""
        integers = [_join_limbs(limbs) for limbs in self.limbs.tolist()]
        if self.wide is None:
            return integers
        return [(x << (LIMBS_EXPONENT - FLOAT_EXPONENT_MIN)) + w for x, w in zip(integers, self.wide, strict=True)]

    @property
    def _unit(self) -> int:
        return 1 << -(LIMBS_EXPONENT if self.wide is None else FLOAT_EXPONENT_MIN)

    def to_floats(self) -> ValueColumn:
        """The nearest floats, ties to even. A sum that is too large for a float is NULL."""
        if self.wide is not None or len(self) <= _SMALL_COUNT:
            return _divide_exactly(self.to_integers(), [self._unit] * len(self))
        return ValueColumn(_nearest_floats(self.limbs)[0])

    def means(self, counts: Array) -> ValueColumn:
        """Each sum divided by its count, rounded once. NULL where the count is 0."""
        if self.wide is not None or len(self) <= _SMALL_COUNT:
            return _divide_exactly(self.to_integers(), [n * self._unit for n in counts.tolist()])
        is_nonempty = counts > 0
        quotients, doubtful = _divide(self.limbs, np.maximum(counts, 1).astype(float))
        if len(doubtful):
            doubtful_sums = ExactSums(self.limbs[doubtful], None)
            quotients[doubtful] = _divide_exactly(
                doubtful_sums.to_integers(), [n * self._unit or 1 for n in counts[doubtful].tolist()]
            ).data
        return ValueColumn(quotients, None if is_nonempty.all() else is_nonempty)


def _decode_int(stored: bytes) -> int:
    return int.from_bytes(stored, "little", signed=True)


def _encode_int(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _join_limbs(limbs: list[int]) -> int:
    a, b, c, d, e, f = limbs
    return a + (b << 32) + (c << 64) + (d << 96) + (e << 128) + (f << 160)


def _divide_exactly(numerators: list[int], denominators: list[int]) -> ValueColumn:
    """Python divides integers exactly and rounds once."""
    quotients = []
    for a, b in zip(numerators, denominators, strict=True):
        try:
            quotients.append(a / b if b else None)
        except OverflowError:
            quotients.append(None)
    valid = np.fromiter((x is not None for x in quotients), bool, len(quotients))
    data = np.array([0.0 if x is None else x for x in quotients])
    return ValueColumn(data, None if valid.all() else valid)


def from_floats(data: Array) -> ExactSums:
    """Each float as a sum of one value."""
    return sum_groups(data, np.arange(len(data)), len(data))


def sum_groups(data: Array, groups: Indices, count: int) -> ExactSums:
    """The sums of `count` groups; `groups` is the group of each float. Carries are not propagated yet."""
    fraction, exponent = np.frexp(data)
    mantissa = (fraction * 2.0**53).astype(np.int64)
    shift = exponent.astype(np.int64) - (53 + LIMBS_EXPONENT)
    wide = None
    if len(data) and (int(shift.min()) < 0 or int(shift.max()) > _SHIFT_MAX):
        mantissa, shift, outside = _fit_into_limbs(mantissa, shift)
        if outside is not None:
            wide = [0] * count
            for index in np.flatnonzero(outside).tolist():
                wide[groups[index]] += _to_units(float(data[index]))
    # 53 bits shifted by up to 31 take three limbs at most. Floats hold the sums of fewer than 2^20 limbs exactly.
    # Shifts of negative integers round down, so only the highest piece has the sign.
    first_limb, bit_shift = groups * LIMB_COUNT + (shift >> 5), shift & 31
    low, high = (mantissa & _MASK) << bit_shift, (mantissa >> LIMB_BITS) << bit_shift
    pieces = np.array([low & _MASK, (low >> LIMB_BITS) + (high & _MASK), high >> LIMB_BITS], float)
    limb_indices = np.array([first_limb, first_limb + 1, first_limb + 2])
    limbs = np.zeros(count * LIMB_COUNT, np.int64)
    for start in range(0, len(data), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        chunk_sums = np.bincount(limb_indices[:, chunk].ravel(), pieces[:, chunk].ravel(), len(limbs))
        limbs += chunk_sums.astype(np.int64)
    return ExactSums(limbs.reshape(count, LIMB_COUNT), wide)


def _fit_into_limbs(mantissa: Array, shift: Array) -> tuple[Array, Array, Array | None]:
    """The floats with those that do not fit into limbs replaced by 0, and where these are (None: nowhere)."""
    outside = ((shift < 0) | (shift > _SHIFT_MAX)) & (mantissa != 0)
    # The low bits of a small number may all be zero, and then the rest fits.
    is_small = outside & (shift < 0) & (shift > -53)
    dropped_bits = np.where(is_small, -shift, 0)
    fits = is_small & ((mantissa & ((np.int64(1) << dropped_bits) - 1)) == 0)
    mantissa = np.where(fits, mantissa >> dropped_bits, mantissa)
    shift = np.where(fits, 0, shift)
    outside &= ~fits
    mantissa = np.where(outside, 0, mantissa)
    return mantissa, np.where(mantissa == 0, 0, shift), outside if outside.any() else None


def _to_units(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return (numerator << -FLOAT_EXPONENT_MIN) // denominator


def _propagate_carries(limbs: Array, wide: list[int] | None) -> ExactSums:
    """Propagates carries. A sum that is too large for its limbs moves to `wide`."""
    for limb in range(LIMB_COUNT - 1):
        limbs[:, limb + 1] += limbs[:, limb] >> LIMB_BITS
        limbs[:, limb] &= _MASK
    if wide is not None and not any(wide):
        wide = None
    top = limbs[:, LIMB_COUNT - 1]
    overflows = (top > _TOP_MAX) | (top < -_TOP_MAX)
    if overflows.any():
        wide = wide or [0] * len(limbs)
        for row in np.flatnonzero(overflows).tolist():
            wide[row] += _join_limbs(limbs[row].tolist()) << (LIMBS_EXPONENT - FLOAT_EXPONENT_MIN)
            limbs[row] = 0
    return ExactSums(limbs, wide)


def _divide(limbs: Array, counts: Array) -> tuple[Array, Indices]:
    """Sums divided by counts, and the indices of quotients that may be rounded wrongly: those nearly halfway between
    two floats."""
    sums, residuals = _nearest_floats(limbs)
    quotients = sums / counts
    product = quotients * counts
    high, count_high = _upper_half(quotients), _upper_half(counts)
    low, count_low = quotients - high, counts - count_high
    error = ((high * count_high - product) + high * count_low + low * count_high) + low * count_low
    missing = ((sums - product) - error) + residuals
    magnitudes = np.abs(quotients)
    gap = magnitudes - np.nextafter(magnitudes, 0.0)
    return quotients, np.flatnonzero(np.abs(missing) > 0.49 * gap * counts)


def _upper_half(data: Array) -> Array:
    """The upper half of each float's bits, so that products of halves are exact (Veltkamp splitting)."""
    scaled = data * 134217729.0
    return scaled - (scaled - data)


def _nearest_floats(limbs: Array) -> tuple[Array, Array]:
    """The nearest floats, and approximately the rounding errors. The 64 bits from the highest set bit, and whether any
    lower bit is set, decide the rounding."""
    negative = limbs[:, LIMB_COUNT - 1] < 0
    magnitudes = limbs.copy()
    if negative.any():
        magnitudes[negative] = -magnitudes[negative]
        for limb in range(LIMB_COUNT - 1):
            magnitudes[:, limb + 1] += magnitudes[:, limb] >> LIMB_BITS
            magnitudes[:, limb] &= _MASK
    # The highest limb may have more than 32 bits, so it is split in two. Two zero limbs below allow reading three limbs
    # from any position.
    magnitudes = np.concatenate(
        [np.zeros((len(magnitudes), 2), np.int64), magnitudes, magnitudes[:, LIMB_COUNT - 1 :] >> LIMB_BITS], axis=1
    )
    magnitudes[:, LIMB_COUNT + 1] &= _MASK
    rows = np.arange(len(magnitudes))
    top = LIMB_COUNT + 2 - np.argmax(magnitudes[:, ::-1] != 0, axis=1)
    high, mid, low = (magnitudes[rows, top - n].astype(np.uint64) for n in range(3))
    length = np.frexp(high.astype(float))[1].astype(np.int64)
    space = np.uint64(LIMB_BITS) - length.astype(np.uint64)
    bits = (((high << np.uint64(LIMB_BITS)) | mid) << space) | (low >> (np.uint64(LIMB_BITS) - space))
    below_bits = (low << space) & np.uint64(_MASK)
    limb_indices = np.arange(LIMB_COUNT + 3)
    has_lower_bits = ((magnitudes != 0) & (limb_indices[None, :] < (top - 2)[:, None])).any(axis=1) | (below_bits != 0)
    mantissa, dropped = bits >> np.uint64(11), bits & np.uint64(0x7FF)
    half = np.uint64(0x400)
    rounds_up = (dropped > half) | ((dropped == half) & (has_lower_bits | ((mantissa & np.uint64(1)) != 0)))
    exponent = (top - 2) * LIMB_BITS + length - 53 + LIMBS_EXPONENT
    nearest = np.ldexp((mantissa + rounds_up).astype(float), exponent)
    residuals = np.ldexp(dropped.astype(float) - rounds_up * 2048.0, exponent - 11)
    if negative.any():
        return np.where(negative, -nearest, nearest), np.where(negative, -residuals, residuals)
    return nearest, residuals
