"""Arithmetic on columns of integers, compared with Python's own."""

from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

from smile.algebra.types import INT_MAX, INT_MIN
from smile.columns import exact
from smile.columns.values import Array, ints
from tests.random_programs import SEED_ID, seeds

_EDGES = (0, 1, -1, 2, 7, -10, 10, 25, -25, 2**31, 10**18, INT_MAX, INT_MAX - 1, INT_MIN, INT_MIN + 1)


def numbers(random: Random, wide: bool) -> list[int]:
    edges = (*_EDGES, 2**63, -(2**70), 10**37) if wide else _EDGES
    return [random.choice(edges) if random.random() < 0.7 else random.randint(-1000, 1000) for _ in range(12)]


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _round_half_away(value: Fraction) -> int:
    size = int(abs(value) + Fraction(1, 2))
    return size if value >= 0 else -size


BINARY: dict[Callable[[Array, Array], Array], Callable[[int, int], int]] = {
    exact.add: lambda a, b: a + b,
    exact.subtract: lambda a, b: a - b,
    exact.multiply: lambda a, b: a * b,
    exact.quotient: _truncated,
    exact.remainder: lambda a, b: a - b * _truncated(a, b),
    lambda a, b: exact.ratio(a, b, 3): lambda a, b: _round_half_away(Fraction(a, b) * 1000),
}
UNARY: dict[Callable[[Array], Array], Callable[[int], int]] = {
    exact.negate: lambda a: -a,
    exact.absolute: abs,
    lambda a: exact.scale_up(a, 2): lambda a: a * 100,
    lambda a: exact.scale_up(a, 20): lambda a: a * 10**20,
    lambda a: exact.scale_down_half_away(a, 1): lambda a: _round_half_away(Fraction(a, 10)),
    lambda a: exact.scale_down_half_away(a, 20): lambda a: _round_half_away(Fraction(a, 10**20)),
    lambda a: exact.scale_down_floor(a, 1): lambda a: a // 10,
    lambda a: exact.scale_down_ceil(a, 1): lambda a: -(-a // 10),
    lambda a: exact.scale_down_truncate(a, 1): lambda a: _truncated(a, 10),
}


def _is_exact(result: Array, expected: list[int]) -> bool:
    """Whether the result is right, and has Python integers only if they are needed."""
    kinds = {type(n) for n in result.tolist()}
    return bool(result.tolist() == expected and kinds <= {int} and result.dtype == ints(expected).dtype)


@pytest.mark.parametrize("seed", seeds(60), ids=SEED_ID)
def test_every_result_is_the_true_one(seed: int) -> None:
    random = Random(seed)
    wide = seed % 2 == 1
    a, b = numbers(random, wide), [n or 1 for n in numbers(random, wide)]
    for binary, expected_binary in BINARY.items():
        expected = [expected_binary(x, y) for x, y in zip(a, b, strict=True)]
        assert _is_exact(binary(ints(a), ints(b)), expected), expected_binary
    for unary, expected_unary in UNARY.items():
        assert _is_exact(unary(ints(a)), [expected_unary(x) for x in a]), expected_unary


def test_small_numbers_are_never_python_objects() -> None:
    a = np.arange(-5, 5)
    assert all(operation(a, a + 10).dtype == np.int64 for operation in BINARY)


@pytest.mark.parametrize("divide", [exact.quotient, exact.remainder, lambda a, b: exact.ratio(a, b, 2)])
def test_division_by_zero_does_not_fail(divide: Any) -> None:
    assert len(divide(np.array([1, INT_MIN, 0]), np.array([0, 0, 0]))) == 3


def test_what_does_not_fit_is_marked_and_no_longer_wide() -> None:
    data, out = exact.zero_out_of_bounds(ints([5, 2**64, -(2**64)]), INT_MIN, INT_MAX)
    assert data.tolist() == [5, 0, 0]
    assert data.dtype == np.int64
    assert out is not None
    assert out.tolist() == [False, True, True]
    assert exact.zero_out_of_bounds(ints([99, -99]), -99, 99)[1] is None
    assert exact.zero_out_of_bounds(ints([100]), -99, 99)[1] is not None
