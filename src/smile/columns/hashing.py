"""Hashes of rows: 64 bits, the same on every machine and in every version. Equal values have equal hashes.

Different values may have equal hashes, so a lookup by hash must compare the values too. The hash of a single column of
integers or Booleans is the value itself, modulo 2^64; all other hashes are mixed.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from smile.columns.values import Array, ValueColumn

_NULL = np.uint64(0x9E3779B97F4A7C15)
_SHIFTS = tuple(np.uint64(n) for n in (30, 27, 31))
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = np.uint64(0x100000001B3)
_BASE = 0x9E3779B97F4A7C55
_BITS = 2**64 - 1


def hashes(columns: Sequence[ValueColumn], count: int) -> Array:
    """One uint64 for each of `count` rows."""
    if len(columns) == 1 and _is_integer(columns[0]):
        return _column_hashes(columns[0])
    row_hashes = np.zeros(count, np.uint64)
    for column in columns:
        row_hashes = mix_bits(row_hashes * _STEP + _column_hashes(column))
    return row_hashes


def is_injective(columns: Sequence[ValueColumn]) -> bool:
    """Whether equal hashes imply equal rows."""
    return len(columns) == 1 and columns[0].valid is None and not columns[0].is_text and columns[0].data.dtype == "i8"


def _is_integer(column: ValueColumn) -> bool:
    """Also of Booleans and of integers beyond 64 bits: the hash of a row must depend only on the types of its columns,
    not on the other rows of the batch."""
    return not column.is_text and column.data.dtype != np.float64


def mix_bits(bits: Array) -> Array:
    """The finalizer of splitmix64: every bit of the result depends on every bit of the input."""
    bits = (bits ^ (bits >> _SHIFTS[0])) * _FACTORS[0]
    bits = (bits ^ (bits >> _SHIFTS[1])) * _FACTORS[1]
    return bits ^ (bits >> _SHIFTS[2])


def _column_hashes(column: ValueColumn) -> Array:
    data = column.data
    if isinstance(data, pa.Array):
        if column.hashed is None:
            column.hashed = _text_hashes(data)
        column_hashes = column.hashed
    elif data.dtype == np.float64:
        column_hashes = (data + 0.0).view(np.uint64)  # minus zero is zero
    elif data.dtype == object:
        column_hashes = np.array([v & (2**64 - 1) for v in data], np.uint64)
    else:
        column_hashes = data.astype(np.int64, copy=False).view(np.uint64)
    return column_hashes if column.valid is None else np.where(column.valid, column_hashes, _NULL)


def _text_hashes(array: pa.Array) -> Array:
    """The hash of a text is a polynomial of its bytes. Computes all texts at once."""
    if not len(array):
        return np.zeros(0, np.uint64)
    if len(array) == 1:
        return _single_text_hash(array[0].as_buffer())
    _, offset_buffer, byte_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    total = int(offsets[-1] - offsets[0])
    if not total:
        return np.zeros(len(array), np.uint64)
    characters = np.frombuffer(byte_buffer, np.uint8)[offsets[0] : offsets[-1]].astype(np.uint64)
    starts = offsets[:-1] - offsets[0]
    positions = np.arange(total) - starts.repeat(lengths)
    sums = np.zeros(total + 1, np.uint64)
    np.cumsum((characters + np.uint64(1)) * _powers(int(lengths.max()).bit_length())[positions], out=sums[1:])
    return mix_bits(sums[starts + lengths] - sums[starts])


def _single_text_hash(text: pa.Buffer) -> Array:
    """The same for a single text, without the overhead of arrays."""
    polynomial = 0
    for character in reversed(text.to_pybytes()):
        polynomial = (polynomial * _BASE + character + 1) & _BITS
    return mix_bits(np.array([polynomial], np.uint64))


@lru_cache(maxsize=32)
def _powers(bits: int) -> Array:
    """Powers of an odd number, for texts shorter than 2 ** bits."""
    factors = np.full(1 << bits, _BASE, np.uint64)
    factors[0] = 1
    return np.multiply.accumulate(factors)
