"""The laws of a monotonic domain, checked for every domain. The checks are exhaustive over a small set of points that
is closed under merging."""

from itertools import product
from typing import Any

import pytest

from smile.knowledge.values.cell_knowledge import Contradiction
from smile.knowledge.values.latest import LatestValue
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.masked import MaskedValue
from smile.knowledge.values.nested import NestedRelation, NestedRow
from smile.knowledge.values.once import OnceValue
from smile.knowledge.values.range import MAYBE, NEVER, Range

ENDS = (None, 0, 1, 2)
EVENTS = ((0, (1, 1)), (1, (1, 2)), (0, (2, 1)), (None, (2, 2)), (1, (3, 1)))  # no two share a tick and a source
RANGES = [Range.exactly(None)] + [
    Range(lo, hi, nulls, now=1)
    for lo, hi in product(ENDS, ENDS)
    if lo is None or hi is None or lo <= hi
    for nulls in (NEVER, MAYBE)
]
FEW_RANGES = [Range.bottom(), Range.bottom(0, 1), Range(0, 1), *map(Range.exactly, (0, 1, None))]
MASKS = [
    Mask.from_truths(p)
    for p in ({True}, {False}, {None}, {True, False}, {True, None}, {False, None}, {True, False, None})
]
MASKED = [MaskedValue.permanently_hidden()] + [
    MaskedValue(Mask.from_truths(m, True), value) for m in ({True}, {True, False}) for value in FEW_RANGES
]
ROWS = [NestedRow({"a": a, "b": b}) for a, b in product(FEW_RANGES[:4], FEW_RANGES[:4])]
CELLS = [
    None,
    MaskedValue.permanently_hidden(),
    MaskedValue.exactly(Range.exactly(0)),
    MaskedValue.exactly(Range.bottom()),
    MaskedValue.bottom(Range.exactly(0)),
    MaskedValue.bottom(Range.bottom()),
]
NESTED: list[NestedRelation] = []
for first, second, sealed in product(CELLS, CELLS, (False, True)):
    nested = NestedRelation({(k,): c for k, c in ((1, first), (2, second)) if c is not None}, sealed)
    if nested not in NESTED:
        NESTED.append(nested)

DOMAINS: dict[str, tuple[Any, list[Any]]] = {
    "range": (Range.bottom(), RANGES),
    "once": (
        OnceValue.bottom(0, 3),
        [OnceValue.bottom(0, 3), OnceValue.silence(), *map(OnceValue.exactly, (0, 1, 2, 3, None))],
    ),
    "latest": (
        LatestValue.bottom(),
        [*map(LatestValue.exactly, (None, 0, 1, 2))]
        + [
            LatestValue(v, time, bounds)
            for (v, time), bounds in product(((None, None), *EVENTS), (Range.bottom(), Range.bottom(0, 2), Range(0, 2)))
            if v is None or bounds.contains(v)
        ],
    ),
    "mask": (Mask.bottom(), MASKS),
    "masked": (MaskedValue.bottom(Range.bottom()), MASKED),
    "row": (NestedRow({"a": Range.bottom(), "b": Range.bottom()}), ROWS),
    "nested": (NestedRelation.bottom(), NESTED),
}
with_bottom = pytest.mark.parametrize(("bottom", "points"), DOMAINS.values(), ids=DOMAINS)
each_domain = pytest.mark.parametrize("points", [points for _, points in DOMAINS.values()], ids=DOMAINS)


def merged(*points: Any) -> Any:
    result = points[0]
    try:
        for p in points[1:]:
            result = result.merge(p)
    except Contradiction:
        return None
    return result


@with_bottom
def test_order(bottom: Any, points: list[Any]) -> None:
    above = [[p.evolves_to(q) for q in points] for p in points]
    size = range(len(points))
    assert all(above[i][i] for i in size)
    assert all(points[i] == points[j] for i in size for j in size if above[i][j] and above[j][i])
    assert all(above[i][k] for i in size for j in size if above[i][j] for k in size if above[j][k])
    assert bottom in points
    assert all(bottom.evolves_to(p) for p in points)
    assert [p for p in points if all(p.evolves_to(q) for q in points)] == [bottom]


@each_domain
def test_final_means_nothing_further(points: list[Any]) -> None:
    assert any(p.is_final for p in points)
    for p in points:
        assert p.is_final == all(q == p for q in points if p.evolves_to(q)), p
        if not isinstance(p, MaskedValue):  # on the wire a cell may be exact although its row's mask is not decided
            assert p.is_final == ("exactly" in p.wire()), p


@each_domain
def test_merge_is_the_least_upper_bound(points: list[Any]) -> None:
    for a, b in product(points, points):
        upper = [c for c in points if a.evolves_to(c) and b.evolves_to(c)]
        both = merged(a, b)
        assert (both is None) == (not upper), (a, b)
        if both is not None:
            assert both in upper
            assert all(both.evolves_to(c) for c in upper), (a, b)


@with_bottom
def test_merge_laws(bottom: Any, points: list[Any]) -> None:
    sample = points[:: max(1, len(points) // 22)]
    for a, b in product(points, points):
        assert merged(a, b) == merged(b, a)
    for a, b, c in product(sample, sample, sample):
        left, right = merged(a, b, c), merged(b, c)
        assert left == (None if right is None else merged(a, right))
    for a in points:
        assert merged(a, a) == a
        assert merged(a, bottom) == a


@each_domain
def test_another_domain_is_never_reached(points: list[Any]) -> None:
    assert not any(p.evolves_to("x") for p in points)


def test_merge_keeps_the_current_value_until_it_is_exact() -> None:
    assert Range.at_least(3, 5).merge(Range.at_most(9, 7)).now == 5
    assert Range.at_least(3, 5).merge(Range.at_most(3, 7)).now == 3
    assert Mask.from_truths((True, False), True).merge(Mask.bottom()).now is True
    leaving = LatestValue(1, (1, 1), Range.bottom(now=7))
    assert leaving.merge(LatestValue.at(2, 2, 1)).now == 7
    assert leaving.merge(LatestValue.exactly(2)).now == 2


def test_contradictions_have_a_code() -> None:
    for a, b in ((Range.exactly(1), Range.exactly(2)), (Mask.exactly(True), Mask.exactly(None))):
        with pytest.raises(Contradiction) as caught:
            a.merge(b)  # type: ignore[arg-type]
        assert caught.value.diagnostics[0].code == "E050"
    with pytest.raises(Contradiction):
        LatestValue.at(0, 1, 1).merge(LatestValue.at(1, 1, 1))
    with pytest.raises(Contradiction):
        Range(3, 2)
    with pytest.raises(Contradiction):
        Mask.from_truths(())
    with pytest.raises(Contradiction):
        OnceValue.bottom(0, 1).merge(OnceValue.bottom(2, 3))


@pytest.mark.parametrize(
    ("cell", "shown", "wire"),
    [
        (Range.bottom(), "?", {"unknown": True}),
        (Range.bottom(0, 3), "?", {"unknown": True}),
        (Range.at_least(3), "≥3", {"at_least": 3}),
        (Range.at_most(7), "≤7", {"at_most": 7}),
        (Range.between(2, 5), "[2..5]", {"between": [2, 5]}),
        (Range.exactly(4), "=4", {"exactly": 4}),
        (Range.exactly(None), "=NULL", {"exactly": None}),
        (OnceValue.bottom(), "?", {"unknown": True}),
        (OnceValue.exactly("IBM"), "IBM", {"exactly": "IBM"}),
        (OnceValue.silence(), "S", {"exactly": None}),
        (LatestValue.bottom(), "?", {"unknown": True}),
        (LatestValue.at(80, 17), "80@17", {"latest": 80, "at": 17}),
        (LatestValue.at(80, 17, 2), "80@17/2", {"latest": 80, "at": 17, "source": 2}),
        (LatestValue.exactly(80), "=80", {"exactly": 80}),
        (LatestValue(bounds=Range.at_least(3)), "≥3", {"at_least": 3}),
        (LatestValue(bounds=Range(False, True)), "[false..true]", {"unknown": True}),
        (Mask.from_truths((True, False), True), "t", {"unknown": True}),
        (Mask.from_truths((True, None), None), "f", {"unknown": True}),
        (Mask.from_truths((False, None), None), "F", {"unknown": True}),
        (Mask.exactly(True), "T", {"exactly": True}),
        (MaskedValue.bottom(Range.at_least(3)), "?", {"unknown": True}),
        (MaskedValue.exactly(Range.at_least(3)), "≥3", {"at_least": 3}),
        (MaskedValue.permanently_hidden(), "?", {"exactly": None}),
        (
            NestedRelation.exactly({(1,): NestedRow({"a": Range.exactly(2)})}),
            "={(1,): {a: =2}}",
            {"exactly": [((1,), {"a": 2})]},
        ),
        (NestedRelation.bottom(), "≥{}", {"rows": [], "open": True}),
    ],
)
def test_show_and_wire(cell: Any, shown: str, wire: dict[str, Any]) -> None:
    assert (cell.show(), cell.wire()) == (shown, wire)


def test_hidden_columns_keep_their_knowledge() -> None:
    hidden = MaskedValue(Mask.from_truths((True, False), False), Range.at_least(3))
    assert hidden.now is None
    assert MaskedValue(Mask.from_truths((True, False), True), hidden.value).now == 3
    assert hidden.merge(MaskedValue.exactly(Range.at_most(9))).value == Range.between(3, 9)
