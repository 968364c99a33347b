"""With hashes cut to two bits, where nearly all keys share theirs with others, rows are still told apart by their keys."""

from random import Random

import numpy as np
import pytest

from smile.algebra.types import INT, STRING, Value
from smile.columns import values as v
from smile.columns.hashing import hashes
from smile.kernels.delta import RowGroups
from tests.engine.colliding_hashes import colliding_hashes
from tests.engine.invariants import broken, draw, report
from tests.random_programs import SEED_ID, seeds


def test_hashes_collide() -> None:
    column = v.from_python(list(range(100)), INT)
    with colliding_hashes():
        assert len(np.unique(hashes([column], 100))) <= 4
        assert len(np.unique(hashes([column, column], 100))) <= 4
    assert len(np.unique(hashes([column, column], 100))) == 100


@pytest.mark.parametrize("seed", seeds(40), ids=SEED_ID)
def test_rows_are_grouped_by_their_keys(seed: int) -> None:
    """Groups have the rows of one key, in their order; their first and last rows and their sums are right."""
    random = Random(seed)
    count = random.choice((1, 2, 3, 10, 40))
    words: list[Value] = [random.choice(("a", "b", "c", None)) for _ in range(count)]
    numbers: list[Value] = [random.choice((1, 2, 3, 2**62, None)) for _ in range(count)]
    keys = list(zip(words, numbers, strict=True))
    with colliding_hashes():
        groups = RowGroups([v.from_python(words, STRING), v.from_python(numbers, INT)], count)
    rows_by_key: dict[tuple[Value, Value], list[int]] = {}
    for row, key in enumerate(keys):
        rows_by_key.setdefault(key, []).append(row)
    assert groups.count == len(rows_by_key)
    ends = [*groups.starts[1:].tolist(), count]
    grouped = [groups.order[start:end].tolist() for start, end in zip(groups.starts.tolist(), ends, strict=True)]
    assert sorted(grouped) == sorted(rows_by_key.values())
    assert groups.first.tolist() == [rows[0] for rows in grouped]
    assert groups.last.tolist() == [rows[-1] for rows in grouped]
    assert [groups.group_numbers[rows].tolist() for rows in grouped] == [[n] * len(r) for n, r in enumerate(grouped)]
    assert groups.sums(np.arange(count)).tolist() == [sum(rows) for rows in grouped]


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(40), ids=SEED_ID)
def test_promises_hold(seed: int) -> None:
    run = draw(seed)
    for promise in ("same_as_reference", "same_after_a_crash"):
        try:
            with colliding_hashes():
                problems_found = broken(promise, run, seed)
        except NotImplementedError:
            return
        assert not problems_found, report(run, [f"{promise}, with hashes of two bits:", *problems_found], seed)
