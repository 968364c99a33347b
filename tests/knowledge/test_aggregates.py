"""Aggregates: as members evolve, are decided and appear, and as the group is sealed, the result evolves."""

import sys
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given

from smile.algebra.coercions import EXACT_CONTEXT
from smile.algebra.mmpl import Aggregate, AggregateName
from smile.algebra.percentiles import value_between
from smile.algebra.types import BOOL, FLOAT, INT, INT_MAX, INT_MIN, INTERVAL, STRING, DataType, Value, array_type
from smile.knowledge.values.aggregates import Member, aggregate
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.latest import LatestValue
from smile.knowledge.values.mask import F, Mask, T
from smile.knowledge.values.nested import NestedRelation, NestedRow
from smile.knowledge.values.range import Range
from tests.knowledge.chains import MONEY, RANDOMS, WIDEST, Chain, chain, contains, extreme, mask_chain, repeatable

FUNCTIONS: tuple[AggregateName, ...] = get_args(AggregateName)
TYPES = {name: [INT, FLOAT, MONEY] for name in FUNCTIONS} | {
    "sum": [INT, FLOAT, MONEY, INTERVAL],
    "min": [INT, FLOAT, MONEY, STRING, BOOL],
    "max": [INT, FLOAT, MONEY, STRING, BOOL],
    "count_distinct": [INT, STRING],
    "latest": [INT, STRING],
    "earliest": [INT, STRING],
    "percentile_cont": [FLOAT, INTERVAL],
    "string_agg": [STRING],
    "array_concat_agg": [array_type(INT)],
    "percentile_disc": [INT, FLOAT, MONEY],
}


@dataclass(frozen=True)
class GroupHistory:
    """One group at two moments, and its members in the end: (shown, value, tick)."""

    before: tuple[list[Member], bool]
    after: tuple[list[Member], bool]
    end: list[tuple[bool, Value, tuple[int, int]]]
    lo: Any
    hi: Any


def random_history(random: Random, type: DataType, rows: bool, overflows: bool = False) -> GroupHistory:
    domains: list[tuple[Any, Any]] = [(None, None), (0, None), (None, 0), (-15, 15), (0, 0)]
    lo, hi = random.choice(domains) if type.is_number or type == INTERVAL else (None, None)
    sealed_after = random.random() < 0.5
    sealed_before = sealed_after and random.random() < 0.5
    before, after, end = [], [], []
    for key in range(random.randint(0, 4)):
        mask, tick = mask_chain(random), (random.randint(0, 3) * 10 + key, 1)
        cell = chain(random, type, draw=extreme) if overflows else chain(random, type)
        if not _within(cell.before, lo, hi):
            value: Any = next(v for v in (lo, hi) if v is not None) * (1.0 if type == FLOAT else 1)
            cell = Chain(Range.bottom(lo, hi), Range.exactly(value), value)
        values: tuple[CellKnowledge, CellKnowledge] = (cell.before, cell.after)
        if rows:
            values = (NestedRow({"a": cell.before}), NestedRow({"a": cell.after}))
        # Until its group is sealed, a member may be absent.
        present_before = sealed_before or random.random() < 0.5
        present_after = sealed_after or present_before or random.random() < 0.5
        assert isinstance(mask.before, Mask)
        assert isinstance(mask.after, Mask)
        if present_before:
            before.append(Member(mask.before, values[0], tick, (key,)))
        if present_after:
            after.append(Member(mask.after, values[1], tick, (key,)))
        end.append((mask.value is True, cell.value, tick))
    return GroupHistory((before, sealed_before), (after, sealed_after), end, lo, hi)


def _within(cell: CellKnowledge, lo: Any, hi: Any) -> bool:
    """Members are within the domain of their column; a column without a domain may have any knowledge."""
    if not isinstance(cell, Range):
        return (lo, hi) == (None, None)
    return (lo is None or (cell.lo is not None and cell.lo >= lo)) and (
        hi is None or (cell.hi is not None and cell.hi <= hi)
    )


def plain_sum(total: Fraction, type: DataType) -> Value:
    """NULL if it is not a value of its type."""
    if type == FLOAT:
        greatest = Fraction(sys.float_info.max)
        return float(total) if -greatest <= total <= greatest else None
    if type == INTERVAL:
        return int(total) if INT_MIN <= total <= INT_MAX else None
    scale = 10 ** (type.scale or 0)
    return EXACT_CONTEXT.divide(Decimal(int(total * scale)), Decimal(scale)) if abs(total * scale) < 10**38 else None


def plain(function: str, end: list[tuple[bool, Value, tuple[int, int]]], type: DataType) -> Value:
    """The result of plain SQL over the final members."""
    shown = sorted(((tick, v) for is_shown, v, tick in end if is_shown), key=lambda pair: pair[0])
    values: list[Any] = [v for _, v in shown if v is not None]
    match function:
        case "count":
            return len(values)
        case "count_distinct":
            return len(set(values))
        case "min" | "max":
            return {"min": min, "max": max}[function](values, default=None)
        case "latest":
            return shown[-1][1] if shown else None
        case "earliest":
            return shown[0][1] if shown else None
        case "sum":
            return plain_sum(sum(map(Fraction, values), Fraction(0)), type)
        case "avg":
            return float(sum(map(Fraction, values), Fraction(0)) / len(values)) if values else None
        case "percentile_cont":
            middle = [sorted(values)[i] for i in ((len(values) - 1) // 2, len(values) // 2)] if values else []
            return value_between(middle[0], middle[1], (len(values) - 1) / 2 % 1, type) if values else None
        case "string_agg":
            texts: list[Any] = [v for is_shown, v, _ in end if is_shown and v is not None]  # in the order of the key
            return "".join(texts) if texts else None
        case "array_concat_agg":
            arrays: list[Any] = [v for is_shown, v, _ in end if is_shown and v is not None]
            return b"".join(arrays) if arrays else None
        case "percentile_disc":
            return sorted(values)[(len(values) - 1) // 2] if values else None
    raise AssertionError(f"write here what {function} is in plain SQL, and in TYPES what it can be applied to")


@pytest.mark.parametrize("overflows", [False, True], ids=["ordinary", "extreme"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_aggregate(function: AggregateName, overflows: bool) -> None:
    """A sum of extreme values may overflow."""

    @repeatable(400)
    @given(RANDOMS)
    def holds(random: Random) -> None:
        type = random.choice([*TYPES[function], *([WIDEST] if overflows and function in ("sum", "avg") else [])])
        history = random_history(random, type, function == "group", overflows)
        before = aggregate(function, *history.before, history.lo, history.hi, type, can_overflow=overflows)
        after = aggregate(function, *history.after, history.lo, history.hi, type, can_overflow=overflows)
        assert before.evolves_to(after), (before, after)
        if function == "group":
            assert isinstance(after, NestedRelation)
            for key, (is_shown, _, _) in enumerate(history.end):
                row = after.rows.get((key,))
                assert row is None or (is_shown in row.mask.possible)
                assert not (is_shown and history.after[1] and row is None)
            return
        result = plain(function, history.end, type)
        assert contains(before, result), (before, result)
        assert contains(after, result), (after, result)
        current = [(m.mask.now is True, m.value.now, m.tick) for m in history.after[0] if m.value and m.tick]
        assert after.now == plain(function, current, type)

    holds()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_all_decided_and_sealed_is_final(function: AggregateName) -> None:
    type = TYPES[function][0]
    cell, lo, hi = (Range.exactly(True), None, None) if type == BOOL else (Range.exactly(3), 0, 9)
    if type == STRING:
        cell, lo, hi = Range.exactly("a"), None, None
    elif type.name == "array":
        cell, lo, hi = Range.exactly(b"\x02"), None, None
    value = NestedRow({"a": cell}) if function == "group" else cell
    members = [Member(T, value, (1, 1), (1,)), Member(F, value, (2, 1), (2,)), Member(T, value, (3, 1), (3,))]
    assert aggregate(function, members, True, lo, hi, type).is_final
    assert aggregate(function, [], True, lo, hi, type).is_final
    assert not aggregate(function, members, False, lo, hi, type).is_final


MAYBE_SHOWN, MAYBE_HIDDEN = Mask.from_truths((True, False), True), Mask.from_truths((True, False), False)


def exact(*values: int, mask: Mask = T) -> list[Member]:
    """Members with these values."""
    return [Member(mask, Range.exactly(v), (i, 1), (i,)) for i, v in enumerate(values)]


@pytest.mark.parametrize(
    ("function", "members", "sealed", "domain", "expected", "now"),
    [
        ("count", [], False, (None, None), "≥0", 0),
        ("count", exact(1, 1, 1), False, (None, None), "≥3", 3),
        ("count", exact(1) + exact(1, mask=MAYBE_SHOWN) + exact(1, mask=MAYBE_HIDDEN), True, (None, None), "[1..3]", 2),
        ("count_distinct", exact(1, 1, 2), False, (None, None), "≥2", 2),
        ("count_distinct", exact(1, 2) + exact(2, 3, mask=MAYBE_SHOWN), True, (None, None), "[2..3]", 3),
        ("sum", [], False, (0, None), "≥0", 0),
        ("sum", exact(100, 200), False, (0, None), "≥300", 300),
        ("sum", exact(100, 200), False, (None, None), "?", 300),
        ("sum", exact(-1), False, (None, 0), "≤-1", -1),
        ("sum", exact(5) + exact(3, mask=MAYBE_SHOWN) + exact(-2, mask=MAYBE_HIDDEN), True, (None, None), "[3..8]", 8),
        ("max", [], False, (0, 3), "?", None),
        ("max", exact(80, 70), False, (None, None), "≥80", 80),
        ("max", exact(3), False, (0, 3), "=3", 3),
        ("max", exact(7) + exact(9, mask=MAYBE_SHOWN), True, (None, None), "[7..9]", 9),
        ("max", exact(9, mask=MAYBE_SHOWN), True, (None, None), "?", 9),
        ("min", exact(80, 70), False, (None, None), "≤70", 70),
        ("min", exact(70), True, (None, None), "=70", 70),
        ("avg", exact(1, 2), True, (None, None), "=1.5", 1.5),
        ("avg", exact(1, 2), False, (0, 10), "[0.0..10.0]", 1.5),
        ("avg", exact(1, 2) + exact(9, mask=MAYBE_HIDDEN), True, (0, 10), "[1.0..9.0]", 1.5),
        ("percentile_disc", exact(4, 1, 9), False, (None, None), "?", 4),
        ("percentile_disc", exact(4, 1, 9, 5), False, (0, 10), "[0..10]", 4),
        ("percentile_disc", exact(4, 1, 9), True, (0, 10), "=4", 4),
        ("percentile_disc", exact(4, 1, 9) + exact(7, mask=MAYBE_HIDDEN), True, (0, 10), "[1..9]", 4),
        ("percentile_disc", exact(4, mask=MAYBE_SHOWN), True, (0, 10), "?", 4),
        ("latest", exact(80, 85), False, (None, None), "85@1/1", 85),
        ("latest", exact(80, 85), True, (None, None), "=85", 85),
        ("latest", [], True, (None, None), "=NULL", None),
    ],
)
def test_examples(
    function: AggregateName, members: list[Member], sealed: bool, domain: tuple[Any, Any], expected: str, now: Any
) -> None:
    result = aggregate(function, members, sealed, *domain, INT)
    assert (result.show(), result.now) == (expected, now)


def test_sum_of_ints_is_exact_beyond_64_bits() -> None:
    result = aggregate("sum", exact(*[2**63 - 1] * 5), True, None, None, INT)
    assert result.now == Decimal(5 * (2**63 - 1))
    assert isinstance(result.now, Decimal)


def words(*texts: str | None, order: list[Range] | None = None) -> list[Member]:
    order = order or [Range.exactly(0)] * len(texts)
    return [Member(T, Range.exactly(x), None, (i,), (order[i],)) for i, x in enumerate(texts)]


@pytest.mark.parametrize(
    ("members", "call", "expected", "now"),
    [
        (words("b", None, "a"), {}, "=b-a", "b-a"),
        (words("b", None, "a", "b"), {"distinct": True}, "=a-b", "a-b"),
        (words("b", "a", "b"), {"distinct": True, "descending": True}, "=b-a", "b-a"),
        (
            words("a", "b", "c", order=[Range.exactly(x) for x in (2, None, 1)]),
            {"directions": (False,)},
            "=c-a-b",
            "c-a-b",
        ),
        (
            words("a", "b", "c", order=[Range.exactly(x) for x in (2, None, 2)]),
            {"directions": (True,)},
            "=b-a-c",
            "b-a-c",
        ),
        (words("a", "b", order=[Range.bottom(0, 9, now=5), Range.exactly(2)]), {"directions": (False,)}, "?", "b-a"),
        (words(None), {}, "=NULL", None),
    ],
)
def test_texts_in_one_string(members: list[Member], call: dict[str, Any], expected: str, now: str) -> None:
    result = aggregate(
        "string_agg", members, True, None, None, STRING, call=Aggregate("string_agg", separator="-", **call)
    )
    assert (result.show(), result.now) == (expected, now)
    assert not aggregate("string_agg", members, False, None, None, STRING).is_final


@repeatable(200)
@given(RANDOMS)
def test_sums_of_floats_do_not_depend_on_order(random: Random) -> None:
    values = [random.choice([1e16, -1e16, 1.0, 0.1, -0.3]) * random.random() for _ in range(8)]
    shuffled = random.sample(values, len(values))
    for function in ("sum", "avg"):
        results = [
            aggregate(function, [Member(T, Range.exactly(v)) for v in order], True, None, None, FLOAT).now
            for order in (values, shuffled)
        ]
        assert repr(results[0]) == repr(results[1])


def test_a_sum_beyond_all_floats_is_null() -> None:
    huge = [Member(T, Range.exactly(1.7e308))] * 2
    assert aggregate("sum", huge, True, None, None, FLOAT, can_overflow=True) == Range.exactly(None)
    assert aggregate("sum", huge[:1], False, 0.0, None, FLOAT, can_overflow=True) == Range.bottom()
    assert aggregate("avg", huge, True, None, None, FLOAT) == Range.exactly(1.7e308)


def test_latest_is_bounded_by_what_stays() -> None:
    may_leave = Member(MAYBE_SHOWN, Range.exactly(90), (7, 1))
    result = aggregate("latest", [Member(T, Range.exactly(80), (5, 1)), may_leave], False, None, None, INT)
    assert result == LatestValue.at(80, 5, 1)
    assert result.now == 90
    with pytest.raises(ValueError, match="tick"):
        aggregate("latest", [Member(T, Range.exactly(1))], False, None, None, INT)
