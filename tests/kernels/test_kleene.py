"""Three-valued logic on columns, compared with the truth values it stands for: every set of possible truth values."""

from itertools import product

import numpy as np
import pytest

from smile.columns.knowledge import MaskColumn
from smile.kernels.joins import kleene
from smile.knowledge.values.mask import Mask, Truth, image, kleene_and, negation

BITS: dict[Truth, int] = {True: kleene.TRUE, False: kleene.FALSE, None: kleene.NULL}
MASKS = [
    Mask.from_truths([t for t, bit in BITS.items() if possible & bit], now)
    for possible in range(1, 8)
    for now, bit in BITS.items()
    if possible & bit
]


def column(masks: list[Mask]) -> MaskColumn:
    possible = np.array([sum(BITS[t] for t in mask.possible) for mask in masks], np.uint8)
    return MaskColumn(possible, np.array([BITS[mask.now] for mask in masks], np.uint8))


def points(masks: MaskColumn) -> list[tuple[int, int]]:
    return list(zip(masks.possible.tolist(), masks.now.tolist(), strict=True))


def test_conjunction() -> None:
    pairs = list(product(MASKS, repeat=2))
    expected = [image(kleene_and, a, b) for a, b in pairs]
    result = kleene.conjunction(column([a for a, _ in pairs]), column([b for _, b in pairs]))
    assert points(result) == points(column(expected))


def test_negation() -> None:
    assert points(kleene.negation(column(MASKS))) == points(column([negation(m) for m in MASKS]))


@pytest.mark.parametrize("can_gain_match", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_match_that_may_be_null(count: int, can_gain_match: bool) -> None:
    """IN is true if a comparison is, else NULL if one is, else false. A row that may come may match, or be NULL."""
    for pairs in product(MASKS, repeat=count):
        absent = [Mask.from_truths((True, False, None), False)] if can_gain_match else []
        expected = Mask(
            frozenset(map(_any_of, product(*(m.possible for m in (*pairs, *absent))))), _any_of([m.now for m in pairs])
        )
        increments = kleene.null_aware_increments(column(list(pairs)), np.ones(count, bool))
        result = kleene.has_match(increments.sum(axis=0, keepdims=True), np.array([can_gain_match]))
        assert points(result) == points(column([expected])), pairs


def _any_of(truths: object) -> Truth:
    values = list(truths)  # type: ignore[call-overload]  # an iterable of truth values
    return True if True in values else None if None in values else False
