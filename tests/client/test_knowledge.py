"""What a client knows of a value agrees with what the broker knows of it, on random points of every domain."""

from datetime import date, datetime
from decimal import Decimal
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given

from smile.algebra.types import (
    BOOL,
    BYTES,
    DATE,
    FLOAT,
    INT,
    INTERVAL,
    JSON,
    STRING,
    TIME,
    TIMESTAMP,
    DataType,
    relation_type,
)
from smile.client import Knowledge, NotYetKnown
from smile.client.values import ViewColumn
from smile.knowledge.values.comparison import comparison_truths
from smile.knowledge.values.json import knowledge_json, plain_json
from smile.knowledge.values.latest import LatestValue
from smile.knowledge.values.range import NEVER, Range
from tests.knowledge.chains import MONEY, POOL, RANDOMS, WIDEST, chain, repeatable

NUMBERS = (INT, FLOAT, MONEY, WIDEST, TIME, INTERVAL)
PLAIN = tuple(data for data in POOL if data != JSON)
"""The types whose values are sent as values of Python. JSON is sent as its text: see tests/client/test_json.py."""


def column_of(data: DataType) -> ViewColumn:
    return ViewColumn.from_type("x", str(data))


def told(cell: Any, data: DataType) -> Knowledge:
    column = column_of(data)
    now = plain_json(cell.now, data)
    return Knowledge.from_json(knowledge_json(cell, data), None if now is None else column.decode(now), column)


@repeatable(500)
@given(RANDOMS)
def test_evolves_as_the_broker_says(random: Random) -> None:
    data = random.choice(PLAIN)
    steps = chain(random, data)
    assert told(steps.before, data).evolves_to(told(steps.after, data)), steps


@repeatable(500)
@given(RANDOMS)
def test_of_ranges_nothing_else_evolves(random: Random) -> None:
    data = random.choice(NUMBERS)
    a, b = chain(random, data).before, chain(random, data).after
    ranges = [r for r in (a, b) if isinstance(r, Range) and r.nulls is NEVER and not r.is_unknown]
    if len(ranges) == 2:
        assert told(a, data).evolves_to(told(b, data)) == a.evolves_to(b), (a, b)
        assert (told(a, data) == told(b, data)) == (a == b)


@repeatable(500)
@given(RANDOMS)
def test_there_and_back(random: Random) -> None:
    data = random.choice(PLAIN)
    cell = chain(random, data, unbounded=random.random() < 0.5).before
    wire = knowledge_json(cell, data)
    known = told(cell, data)
    assert known.to_json(column_of(data)) == wire
    assert known.is_final == cell.is_final
    assert known == told(cell, data)
    assert hash(known) == hash(told(cell, data))


@repeatable(500)
@given(RANDOMS)
def test_shown_as_the_broker_shows_it(random: Random) -> None:
    """A current value that what is known does not say comes first, with a mark unless it is a bound."""
    cell = chain(random, INT).before
    known = f"={cell.now}" if cell.is_final and cell.now is not None else "=NULL" if cell.is_final else cell.show()
    implied = cell.is_final or cell.now in (None, *(cell.wire().get(k) for k in ("at_least", "at_most", "latest")))
    mark = "" if cell.now in cell.wire().get("between", ()) else "~"
    expected = known if implied else f"{cell.now}~" if known == "?" else f"{cell.now}{mark} {known}"
    assert str(told(cell, INT)) == expected


QUESTIONS = {">=": "at_least", ">": "more_than", "<=": "at_most", "<": "less_than", "=": "equals"}


@repeatable(500)
@given(RANDOMS)
def test_questions_are_answered_as_the_language_does(random: Random) -> None:
    cell = chain(random, INT).before
    if not isinstance(cell, Range) or cell.is_unknown:
        return
    bound, known = random.randint(-20, 20), told(cell, INT)
    for sign, question in QUESTIONS.items():
        possible = comparison_truths(sign, cell, Range.exactly(bound))
        expected = next(iter(possible)) if len(possible) == 1 else None
        expected = False if cell.is_final and cell.now is None else expected
        assert getattr(known, question)(bound) is expected, (cell, sign, bound)


@repeatable(500)
@given(RANDOMS)
def test_an_answer_is_for_good(random: Random) -> None:
    data = random.choice(NUMBERS)
    steps, bound = chain(random, data), column_of(data).decode(plain_json(chain(random, data).value or 0, data))
    before, after = told(steps.before, data), told(steps.after, data)
    for question in QUESTIONS.values():
        answer = getattr(before, question)(bound)
        assert answer is None or getattr(after, question)(bound) is answer, (steps, question, bound)


def test_the_signs() -> None:
    shown: dict[str, dict[str, Any]] = {
        "≥3": {"at_least": 3}, "≤7": {"at_most": 7}, "[2..5]": {"between": [2, 5]}, "=4": {"exactly": 4},
        "80@17": {"latest": 80, "at": 17}, "80@17/2": {"latest": 80, "at": 17, "source": 2}, "?": {"unknown": True},
        "=NULL": {"exactly": None}, "=true": {"exactly": True},
    }  # fmt: skip
    for text, wire in shown.items():
        known = Knowledge.from_json(wire, None)
        assert (str(known), f"{known}", known.to_json()) == (text, text, wire)


def test_a_current_value_that_may_rise_and_fall_is_marked() -> None:
    shown: dict[str, tuple[Any, dict[str, Any]]] = {
        "7~": (7, {"unknown": True}), "≥3": (3, {"at_least": 3}), "5~ ≥3": (5, {"at_least": 3}), "≤7": (7, {"at_most": 7}),
        "5~ ≤7": (5, {"at_most": 7}), "2 [2..5]": (2, {"between": [2, 5]}), "5 [2..5]": (5, {"between": [2, 5]}), "3~ [2..5]": (3, {"between": [2, 5]}), "80@17": (80, {"latest": 80, "at": 17}),
        "5~ 80@17": (5, {"latest": 80, "at": 17}), "a~": ("a", {"unknown": True}), "true~": (True, {"unknown": True}),
    }  # fmt: skip
    for text, (value, wire) in shown.items():
        assert str(Knowledge.from_json(wire, value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (5.0, "5"), (3.5, "3.5"), (2 / 3, "0.666667"), (1e300, "1e+300"), (-1234567.89, "-1234568"),
     (1.25e-9, "1.25e-09"), (0.1 + 0.2, "0.3"), (123456789012345.0, "123456789012345"), (-0.00012345678, "-0.000123457")],
)  # fmt: skip
def test_floats_are_rounded_for_people(value: float, text: str) -> None:
    known = Knowledge.exactly(value)
    assert (str(known), known.value, known.to_json()) == (f"={text}", value, {"exactly": value})


def test_a_rounded_bound_still_holds() -> None:
    assert str(Knowledge.from_json({"at_least": 2 / 3}, 2 / 3)) == "≥0.666666"
    assert str(Knowledge.from_json({"at_most": 1 / 3}, 1 / 3)) == "≤0.333334"
    assert str(Knowledge.from_json({"between": [-2 / 3, 2 / 3]}, 0.5)) == "0.5~ [-0.666667..0.666667]"


@pytest.mark.parametrize("text", ["10.1", "0.1", "99.9", "-10.1", "1234.56", "0.00001", "1.1e+20"])
def test_a_bound_of_few_digits_is_shown_as_it_was_written(text: str) -> None:
    """Although the number in binary is not exactly that."""
    bound = float(text)
    assert str(Knowledge.from_json({"at_least": bound}, bound)) == f"≥{text}"
    assert str(Knowledge.from_json({"at_most": bound}, bound)) == f"≤{text}"


def test_operators_answer_only_for_good() -> None:
    three = Knowledge.from_json({"at_least": 3}, 3)
    assert three >= 3
    assert three > 2
    assert not three < 3
    assert three.value == 3
    with pytest.raises(NotYetKnown, match=r"≥3 >= 4 is not decided yet"):
        _ = three >= 4
    with pytest.raises(NotYetKnown):
        bool(three)
    with pytest.raises(TypeError):
        _ = three >= three
    assert three.at_least(4) is None
    assert three.equals(2) is False
    assert three.equals(3) is None


def test_final_knowledge_is_its_value() -> None:
    four = Knowledge.exactly(4)
    assert four == 4
    assert {four: "x"}[4] == "x"  # type: ignore[index]  # a plain value stands for final knowledge of itself
    assert four != Knowledge.from_json({"at_least": 4}, 4)
    assert Knowledge.from_json({"at_least": 4}, 4) != 4
    assert Knowledge.from_json({"at_least": 4}, 4) == Knowledge.from_json({"at_least": 4}, 5)
    assert bool(Knowledge.exactly(True))
    assert not Knowledge.exactly(0)
    assert Knowledge.exactly(None).at_least(3) is False


def test_latest_is_ordered_by_tick() -> None:
    points = [LatestValue.at(v, t, s) for v, (t, s) in product((1, 2), ((3, 1), (3, 2), (4, 1), (4, 0)))]
    for a, b in product(points, points):
        assert told(a, INT).evolves_to(told(b, INT)) == a.evolves_to(b), (a, b)
        assert told(a, INT).evolves_to(told(LatestValue.exactly(b.value), INT))


TYPED = [
    (INT, 2**60, 2**60), (TIME, 2**60, 2**60), (INTERVAL, -(2**60), -(2**60)), (FLOAT, 1.5, 1.5), (STRING, "é", "é"),
    (BOOL, True, True), (BYTES, b"\x00\xff", b"\x00\xff"), (MONEY, Decimal("12.50"), Decimal("12.5")),
    (WIDEST, Decimal(10**37), 10**37), (DATE, 19874, date(2024, 5, 31)), (DATE, -719162, date(1, 1, 1)),
    (TIMESTAMP, 1717156800500000, datetime(2024, 5, 31, 12, 0, 0, 500000)), (TIMESTAMP, 0, datetime(1970, 1, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("data", "value", "expected"), TYPED, ids=str)
def test_values_have_pythons_types(data: DataType, value: Any, expected: Any) -> None:
    wire = plain_json(value, data)
    decoded = column_of(data).decode(wire)
    assert (decoded, type(decoded)) == (expected, type(expected))
    assert column_of(data).encode(decoded) == wire


def test_nested_relations_have_typed_columns() -> None:
    data = relation_type((("a", MONEY), ("b", relation_type((("c", DATE),)))))
    column = column_of(data)
    assert [inner.name for inner in column.columns] == ["a", "b"]
    wire = [{"a": 1.25, "b": [{"c": "2024-05-31"}]}, {"a": None, "b": []}]
    decoded = column.decode(wire)
    assert decoded == [{"a": Decimal("1.25"), "b": [{"c": date(2024, 5, 31)}]}, {"a": None, "b": []}]
    assert column.encode(decoded) == wire


def test_a_name_that_looks_like_a_type_is_no_obstacle() -> None:
    column = column_of(relation_type((("a: int, b", INT), ("c", DATE))))
    wire = [{"a: int, b": 3, "c": "2024-05-31"}]
    assert column.encode(column.decode(wire)) == wire


@repeatable(500)
@given(RANDOMS)
def test_every_value_comes_back(random: Random) -> None:
    data = random.choice(PLAIN)
    value = chain(random, data, unbounded=random.random() < 0.5).value
    if value is not None:
        wire = plain_json(value, data)
        assert column_of(data).encode(column_of(data).decode(wire)) == wire


def test_rows_of_a_nested_relation() -> None:
    column = column_of(relation_type((("t", TIME), ("n", INT))))

    def known(rows: list[dict[str, int]], states: list[str], is_open: bool = True) -> Knowledge:
        return Knowledge.from_json({"rows": states, "open": is_open}, rows, column)

    one, two = {"t": 1, "n": 5}, {"t": 2, "n": 7}
    both = known([one, two], ["final", "shown"])
    assert both.to_json(column) == {"rows": ["final", "shown"], "open": True}
    assert (both.rows_for_good, both.is_open, both.is_final) == ([one], True, False)
    assert str(both) == "{t 1, n 5; t 2, n 7~; …}"
    assert str(known([one], ["stays"], is_open=False)) == "{t 1, n 5~}"
    assert str(Knowledge.exactly([one])) == "={t 1, n 5}"
    assert Knowledge.exactly([one]).rows_for_good == [one]
    evolves = [known([one], ["final"]), known([one, two], ["final", "final"], is_open=False), Knowledge.exactly([one])]
    assert all(both.evolves_to(later) for later in evolves)
    does_not = [
        known([two], ["final"]),
        known([], []),
        Knowledge.exactly([two]),
        Knowledge.from_json({"unknown": True}, None),
    ]
    assert not any(both.evolves_to(later) for later in does_not)
    closed = known([one, two], ["stays", "stays"], is_open=False)
    assert closed.evolves_to(Knowledge.exactly([one, {"t": 2, "n": 8}]))
    assert not closed.evolves_to(known([one, two], ["stays", "stays"]))
    assert not closed.evolves_to(Knowledge.exactly([one]))
    assert both == known([one, two], ["final", "shown"])
    assert hash(both) == hash(known([one, two], ["final", "shown"]))
