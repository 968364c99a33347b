"""Hulls of columns are those of single cells."""

from random import Random

import numpy as np
import pytest

from smile.algebra.types import BOOL, INT, STRING, DataType
from smile.columns import knowledge as k
from smile.kernels.joins.column_hulls import Alternatives, hull_column
from smile.knowledge.values.cells import cell_hull
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.range import MAYBE, NEVER, ONLY, Range
from smile.knowledge.values.transfer import to_operand
from tests.random_programs import SEED_ID, seeds


def random_range(random: Random, data: DataType) -> Range:
    nulls = random.choice((NEVER, NEVER, MAYBE, ONLY))
    a, b = sorted(random.randrange(6) for _ in range(2))
    ends = [None if random.random() < 0.2 else x if data == INT else "abcdef"[x] for x in (a, b)]
    return Range(ends[0], ends[1], nulls, random.choice([*ends, None]) if nulls is MAYBE else ends[0])


def random_mask(random: Random) -> Mask:
    truths = random.sample((True, False, None), random.randint(1, 3))
    return Mask.from_truths(truths, truths[0])


@pytest.mark.parametrize(
    ("data", "kind"), [(INT, "range"), (STRING, "range"), (BOOL, "mask"), (INT, "latest"), (BOOL, "latest")]
)
@pytest.mark.parametrize("seed", seeds(5), ids=SEED_ID)
def test_hulls(seed: int, data: DataType, kind: k.ColumnKind) -> None:
    random = Random(seed)
    cells = [random_mask(random) if data == BOOL else random_range(random, data) for _ in range(8)]
    column = k.from_points(cells, kind, data)
    rows = [random.sample(range(8), random.choice((1, 2, 3))) for _ in range(12)]
    current = [random.choice((-1, *row)) for row in rows]
    pairs = [(row, alternative) for row, alternatives in enumerate(rows) for alternative in alternatives]
    random.shuffle(pairs)
    row_numbers, alternatives = (np.array(numbers) for numbers in zip(*pairs, strict=True))
    hulls = hull_column(column, Alternatives(row_numbers, alternatives, np.array(current), len(rows)), data)
    for number, (row, shown) in enumerate(zip(rows, current, strict=True)):
        expected = cell_hull([cells[i] for i in row], None if shown < 0 else cells[shown].now, data)
        hull = to_operand(k.knowledge_at(hulls, number, data), data)
        assert (hull, hull.now) == (expected, expected.now), row
