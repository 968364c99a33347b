"""Exact sums of floats, compared with fractions."""

from fractions import Fraction
from random import Random

import numpy as np
import pytest

from smile.columns import superaccumulator as s, values as v
from smile.columns.values import ValueColumn
from smile.kernels.delta import RowGroups
from tests.repeatable import scaled

EDGES = [0.0, -0.0, 5e-324, -5e-324, 1.7e308, -1.7e308, 2.0**-96, 2.0**-97, 2.0**95, -(2.0**95), 2.0**96, 2.0**127]


def common(random: Random) -> float:
    return random.uniform(-1, 1) * 2.0 ** random.randint(-40, 60)


def any_float(random: Random) -> float:
    choice = random.random()
    if choice < 0.3:
        return round(random.uniform(-100, 100), 2)
    if choice < 0.5:
        return random.uniform(-1, 1) * 2.0 ** random.randint(-110, 130)
    if choice < 0.7:
        return random.choice(EDGES)
    return random.uniform(-1, 1) * 2.0 ** random.randint(-1070, 1023)


def zero(count: int) -> s.ExactSums:
    return s.ExactSums(np.zeros((count, s.LIMB_COUNT), np.int64), None)


def nearest(values: list[float]) -> float | None:
    exact = sum(map(Fraction, values), Fraction(0))
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return None


def listed(values: ValueColumn) -> list[float | None]:
    return [
        x if is_valid else None for x, is_valid in zip(values.data.tolist(), values.is_valid().tolist(), strict=True)
    ]


@pytest.mark.parametrize("seed", range(scaled(60)))
def test_sums_are_exact_and_rounded_once(seed: int) -> None:
    random = Random(seed)
    draw = random.choice([common, any_float])
    data = [draw(random) for _ in range(random.choice([1, 5, 40, 300]))]
    groups = RowGroups([ValueColumn(np.array([random.randrange(30) for _ in data]))], len(data))
    sums = zero(groups.count).add(s.sum_groups(np.array(data), groups.group_numbers, groups.count))
    expected = [
        nearest([x for x, g in zip(data, groups.group_numbers, strict=True) if g == n]) for n in range(groups.count)
    ]
    assert listed(sums.to_floats()) == expected
    difference = sums.add(s.sum_groups(-np.array(data), groups.group_numbers, groups.count))
    assert difference.wide is None
    assert not difference.limbs.any()


def test_all_at_once_rounds_as_one_by_one() -> None:
    random = Random(3)
    data = np.array([common(random) for _ in range(2000)])
    groups = RowGroups([ValueColumn(np.arange(2000) // 7)], 2000)
    sums = zero(groups.count).add(s.sum_groups(data, groups.group_numbers, groups.count))
    assert sums.wide is None
    exact = [x / 2**96 for x in sums.to_integers()]
    assert sums.to_floats().data.tolist() == exact


@pytest.mark.parametrize("seed", range(scaled(8)))
def test_means_are_rounded_once(seed: int) -> None:
    random = Random(seed)
    count = random.choice([5, 400])
    integers = random.random() < 0.5
    data = np.array([float(random.randrange(1000)) if integers else common(random) for _ in range(count * 4)])
    groups = RowGroups([ValueColumn(np.array([random.randrange(count) for _ in data]))], len(data))
    sums = zero(groups.count).add(s.sum_groups(data, groups.group_numbers, groups.count))
    counts = np.bincount(groups.group_numbers) * random.choice([1, 3, 49])
    exact = [x / (n << 96) for x, n in zip(sums.to_integers(), counts.tolist(), strict=True)]
    assert listed(sums.means(counts)) == exact
    counts[0] = 0
    assert listed(sums.means(counts)) == [None, *exact[1:]]


def test_halves_go_to_the_even_neighbour() -> None:
    for low, expected in ((2.0**-53, 1.0), (3 * 2.0**-53, 1.0 + 2.0**-51), (2.0**-53 + 2.0**-90, 1.0 + 2.0**-52)):
        data = np.array([1.0, low] * 20)
        groups = RowGroups([ValueColumn(np.repeat(np.arange(20), 2))], 40)
        assert set(zero(20).add(s.sum_groups(data, groups.group_numbers, groups.count)).to_floats().data.tolist()) == {
            expected
        }


def test_any_order_has_the_same_bits() -> None:
    random = Random(5)
    data = [any_float(random) for _ in range(200)]
    representations = set()
    for _ in range(5):
        random.shuffle(data)
        sums = zero(1).add(s.sum_groups(np.array(data), np.zeros(len(data), np.int64), 1))
        limbs, wide = sums.to_columns()
        representations.add((limbs.data.tobytes(), tuple(sums.to_integers()), str(wide.data)))
    assert len(representations) == 1


def test_what_is_stored_is_read_back() -> None:
    sums = zero(4).add(s.from_floats(np.array([0.1, 1e300, -5e-324, 0.0])))
    limbs, wide = sums.to_columns()
    stored = [v.from_arrow(v.to_arrow(limbs, s.ARROW_TYPE)), v.from_arrow(v.to_arrow(wide, wide.data.type))]
    assert s.ExactSums.from_columns(*stored).to_integers() == sums.to_integers()
    assert s.ExactSums.from_columns(*stored).to_floats().data.tolist() == [0.1, 1e300, -5e-324, 0.0]


def test_what_is_too_great_for_limbs_is_not_lost() -> None:
    sums = zero(1).add(s.from_floats(np.array([2.0**83])))
    assert sums.wide is None
    for _ in range(95):
        sums = sums.add(sums)
    assert sums.wide is not None
    assert sums.to_floats().data.tolist() == [2.0**178]


def test_beyond_all_floats_is_null() -> None:
    data = np.array([1.7e308, 1.7e308])
    sums = zero(1).add(s.sum_groups(data, np.zeros(2, np.int64), 1))
    assert listed(sums.to_floats()) == [None]
    assert listed(sums.add(s.from_floats(-data[:1])).to_floats()) == [1.7e308]
