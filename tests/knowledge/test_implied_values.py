"""A predicate implies what it says of the values of its columns, and is understood in the forms that people write."""

from decimal import Decimal
from random import Random

import pytest
from hypothesis import given

from smile.algebra.functions.catalogue import evaluate_expr, type_of
from smile.algebra.mmpl import Case, ColumnRef, Expr
from smile.algebra.parser import parse_expression
from smile.algebra.types import BOOL, DATE, FLOAT, INT, STRING, TIME, TIMESTAMP, DataType, Value
from smile.knowledge.column_values import column_values, narrow_columns
from smile.knowledge.expression_types import expression_type
from smile.knowledge.implied_values import implied_sets, narrow_sets
from smile.knowledge.types import ColumnType
from smile.knowledge.value_set import ONLY_NULL, ValueSet
from tests.knowledge.chains import MONEY, POOL, RANDOMS, chain, extreme, ordinary, repeatable
from tests.knowledge.predicates import bounding_predicate
from tests.knowledge.test_transfer import check

TYPES = {"x": INT, "y": INT, "a": MONEY, "f": FLOAT, "s": STRING, "b": BOOL, "t": TIME, "d": DATE, "m": TIMESTAMP}


def values_near(random: Random, data: DataType, predicate: Expr) -> Value:
    if random.random() < 0.15:
        return None
    if data == BOOL:
        return random.random() < 0.5
    return (extreme if random.random() < 0.3 else ordinary)(random, data)  # type: ignore[no-any-return]


@repeatable(1000)
@given(RANDOMS)
def test_rows_for_which_a_predicate_holds_have_implied_values(random: Random) -> None:
    types = {name: random.choice(POOL) for name in ("x", "y")}
    types["z"] = types["x"]
    predicate = bounding_predicate(random, types)
    for _ in range(10):
        row = {name: values_near(random, data, predicate) for name, data in types.items()}
        truth = evaluate_expr(predicate, row, types)
        for holds in (True, False):
            for or_null in (True, False):
                if truth is not holds and not (truth is None and or_null):
                    continue
                sets = implied_sets(predicate, types, None, holds, or_null)
                assert sets is not None, row
                assert [n for n, s in sets.items() if not s.contains(row[n])] == [], row


@repeatable(1000)
@given(RANDOMS)
def test_what_is_known_of_other_columns_bounds_a_column(random: Random) -> None:
    """Whatever sets are known, a row in them for which the predicate holds is in the narrower ones too."""
    types = {"x": random.choice(POOL)}
    types |= {"y": types["x"], "z": types["x"]}
    predicate = bounding_predicate(random, types)
    row = {name: values_near(random, data, predicate) for name, data in types.items()}
    known = {name: _around(random, value, types[name]) for name, value in row.items()}
    for holds in (True, False):
        if evaluate_expr(predicate, row, types) is holds:
            sets = narrow_sets(known, predicate, types, holds)
            assert sets is not None
            assert [n for n, s in sets.items() if not s.contains(row[n])] == []
            columns = {n: ColumnType(t, "once") for n, t in types.items()}
            narrow = narrow_columns(columns, predicate, holds, in_every_row=True)
            assert [n for n, c in narrow.items() if not column_values(c, shown=True).contains(row[n])] == []


def _around(random: Random, value: Value, data: DataType) -> ValueSet:
    if data == BOOL or value is None:
        return ValueSet()
    others = [o for _ in range(2) if (o := values_near(random, data, ColumnRef("x"))) is not None]
    return random.choice((ValueSet(), ValueSet.of((value, *others), random.random() < 0.5)))


@repeatable(800)
@given(RANDOMS)
def test_case_under_conditions_on_its_columns(random: Random) -> None:
    """In a branch, columns have values for which it is chosen: the knowledge and the type of the result stay sound."""
    types = {name: random.choice((INT, FLOAT, MONEY, TIME)) for name in ("x", "y")}
    types["z"] = types["x"]
    results = [ColumnRef("x"), ColumnRef("z")]
    inner = Case(((bounding_predicate(random, types, 1), random.choice(results)),), random.choice(results))
    expr = Case(
        (
            (bounding_predicate(random, types, 1), random.choice((*results, inner))),
            (bounding_predicate(random, types, 1), random.choice((*results, inner))),
        ),
        random.choice((*results, inner)),
    )
    row = {name: chain(random, data, random.random() < 0.7) for name, data in types.items()}
    check(expr, types, row)
    columns = {n: ColumnType(t, "range", evolves=True) for n, t in types.items()}
    value = evaluate_expr(expr, {n: c.value for n, c in row.items()}, types)
    assert type_of(expr, types) == types["x"]
    assert column_values(expression_type(expr, columns), shown=True).contains(value)


@pytest.mark.parametrize(
    ("predicate", "column", "expected"),
    [
        ("x >= 0", "x", ValueSet(0, None, None, False)),
        ("0 < x", "x", ValueSet(1, None, None, False)),
        ("x >= 1 * 2", "x", ValueSet(2, None, None, False)),
        ("NOT x < 0", "x", ValueSet(0, None, None, False)),
        ("x >= 0 OR x IS NULL", "x", ValueSet(0, None, None, True)),
        ("x >= 2 - 1 AND x <= 10 / 2", "x", ValueSet(1, 5, None, False)),
        ("x = 1 OR x = 3 OR x = 2", "x", ValueSet(1, 3, frozenset((1, 2, 3)), False)),
        ("x < 0 OR x > 3", "x", ValueSet(None, None, None, False)),
        ("x <> 0", "x", ValueSet(None, None, None, False)),
        ("x + 1 > 0", "x", ValueSet(0, None, None, False)),
        ("2 * x > 5", "x", ValueSet(3, None, None, False)),
        ("-2 * x > 5", "x", ValueSet(None, -3, None, False)),
        ("abs(x) < 5", "x", ValueSet(-4, 4, None, False)),
        ("10 - x > 3", "x", ValueSet(None, 6, None, False)),
        ("CAST(x AS decimal(20, 1)) < DECIMAL(20, 1) '3.5'", "x", ValueSet(None, 3, None, False)),
        ("CAST(x AS float) > FLOAT '2.5'", "x", ValueSet(3, None, None, False)),
        ("x > y AND y > 3", "x", ValueSet(5, None, None, False)),
        ("CAST(a AS decimal(21, 2)) > CAST(0 AS decimal(21, 2))", "a", ValueSet(Decimal("0.01"), None, None, False)),
        ("f > CAST(0 AS float)", "f", ValueSet(0.0, None, None, False)),
        ("s = 'a' OR s = 'b'", "s", ValueSet("a", "b", frozenset("ab"), False)),
        ("b", "b", ValueSet(True, True, frozenset((True,)), False)),
        ("NOT b", "b", ValueSet(False, False, frozenset((False,)), False)),
        ("b IS NOT DISTINCT FROM TRUE", "b", ValueSet(True, True, frozenset((True,)), False)),
        ("CAST(d AS timestamp) >= TIMESTAMP '1970-01-02 12:00:00'", "d", ValueSet(2, None, None, False)),
        ("x IS NULL", "x", ONLY_NULL),
        ("x IS NOT NULL", "x", ValueSet(nullable=False)),
    ],
)
def test_forms(predicate: str, column: str, expected: ValueSet) -> None:
    sets = narrow_sets({}, parse_expression(predicate), TYPES)
    assert sets is not None
    assert sets[column] == expected


@pytest.mark.parametrize(
    ("check_", "expected"),
    [
        ("x >= 0", ValueSet(0)),
        ("x + 1 > 0", ValueSet(0)),
        ("x + 1 < 5", ValueSet()),  # where x + 1 overflows, the check is NULL, and so it is satisfied
        ("abs(x) < 5", ValueSet(None, 4)),  # the absolute value of the least int overflows
        ("x BETWEEN_", ValueSet(-4, 4)),
        ("x IS NOT NULL", ValueSet(nullable=False)),
        ("x > y", ValueSet()),
        ("x IS NOT DISTINCT FROM 3", ValueSet.of((3,), nullable=False)),
    ],
)
def test_a_check_holds_if_it_is_null(check_: str, expected: ValueSet) -> None:
    text = check_.replace("x BETWEEN_", "x >= -100 AND x <= 100 AND abs(x) < 5")
    known: dict[str, ValueSet] = {}
    for _ in range(2):
        sets = narrow_sets(known, parse_expression(text), TYPES, or_null=True)
        assert sets is not None
        known = sets
    assert known.get("x", ValueSet()) == expected


def test_nothing_satisfies_a_contradiction() -> None:
    assert narrow_sets({}, parse_expression("x > 3 AND x < 2"), TYPES) is None
    assert narrow_sets({"x": ValueSet(0)}, parse_expression("x < 0"), TYPES) is None
    assert narrow_sets({"x": ValueSet(0)}, parse_expression("x < 0"), TYPES, or_null=True) == {"x": ONLY_NULL}


def test_only_a_short_list_is_kept() -> None:
    long = ValueSet.of(range(2000), nullable=False)
    assert long == ValueSet(0, 1999, None, False)
