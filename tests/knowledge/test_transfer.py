"""Every operator, every cast and CASE: fewer possible operands give no more possible results, and the actual result is
always possible."""

from random import Random
from typing import Any

import pytest
from hypothesis import given

from smile.algebra.coercions import can_cast
from smile.algebra.functions.catalogue import SCALAR_FUNCTIONS, evaluate_expr, type_of
from smile.algebra.mmpl import Call, Case, Cast, ColumnRef, Constant, Expr
from smile.algebra.types import (
    BOOL,
    FLOAT,
    INT,
    INTERVAL,
    STRING,
    TICK_MAX,
    TICKS_PER_MICROSECOND,
    TIME,
    TIMESTAMP,
    DataType,
)
from smile.errors import SmileError
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.latest import LatestValue
from smile.knowledge.values.mask import F, Mask, T
from smile.knowledge.values.masked import MaskedValue
from smile.knowledge.values.nested import NestedRelation
from smile.knowledge.values.range import MAYBE, NEVER, Range
from smile.knowledge.values.transfer import expression_knowledge
from tests.knowledge.chains import (
    MONEY,
    POOL,
    RANDOMS,
    Chain,
    Draw,
    chain,
    contains,
    extreme,
    ordinary,
    repeatable,
    signatures_of,
)

X, Y = ColumnRef("x"), ColumnRef("y")
INTS = {"x": INT, "y": INT}
DAY = Constant(86_400_000_000 * TICKS_PER_MICROSECOND, INTERVAL)


def check(expr: Expr, types: dict[str, DataType], row: dict[str, Chain]) -> None:
    before = expression_knowledge(expr, {n: c.before for n, c in row.items()}, types)
    after = expression_knowledge(expr, {n: c.after for n, c in row.items()}, types)
    result = evaluate_expr(expr, {n: c.value for n, c in row.items()}, types)
    assert before.evolves_to(after), (before, after)
    assert contains(before, result), (before, result)
    assert contains(after, result), (after, result)
    assert before.now == evaluate_expr(expr, {n: c.before.now for n, c in row.items()}, types)


@pytest.mark.parametrize(
    ("unbounded", "draw"),
    [(True, ordinary), (False, extreme), (True, extreme)],
    ids=["ordinary", "extreme", "extreme without bounds"],
)
@pytest.mark.parametrize("name", SCALAR_FUNCTIONS)
def test_operator(name: str, unbounded: bool, draw: Draw) -> None:
    signatures = signatures_of(name)
    assert signatures

    @repeatable(50)
    @given(RANDOMS)
    def holds(random: Random) -> None:
        signature = random.choice(signatures)
        names = [f"x{i}" for i in range(len(signature.args))]
        types = dict(zip(names, signature.args, strict=True))
        row = {n: chain(random, t, unbounded, draw) for n, t in types.items()}
        check(Call(name, tuple(map(ColumnRef, names))), types, row)

    holds()


CASTS = [(a, b) for a in POOL for b in POOL if can_cast(a, b)]


@repeatable(1000)
@given(RANDOMS)
def test_cast(random: Random) -> None:
    source, target = random.choice(CASTS)
    unbounded, draw = random.random() < 0.6, random.choice((ordinary, extreme))
    check(Cast(X, target), {"x": source}, {"x": chain(random, source, unbounded, draw)})


@repeatable(500)
@given(RANDOMS)
def test_case(random: Random) -> None:
    type = random.choice(POOL)
    types = {"p": BOOL, "q": BOOL, "x": type, "y": type, "z": type}
    expr = Case(((ColumnRef("p"), ColumnRef("x")), (ColumnRef("q"), ColumnRef("y"))), ColumnRef("z"))
    check(expr, types, {n: chain(random, t) for n, t in types.items()})


def tree(random: Random, depth: int) -> Expr:
    if depth == 0 or random.random() < 0.2:
        return random.choice([ColumnRef("x"), ColumnRef("y"), ColumnRef("z"), Constant(2, INT), Constant(None, INT)])
    function = random.choice(["+", "-", "*", "/", "least", "nullif"])
    return Call(function, (tree(random, depth - 1), tree(random, depth - 1)))


@repeatable(500)
@given(RANDOMS)
def test_expressions_in_expressions(random: Random) -> None:
    expr = tree(random, 3)
    if random.random() < 0.5:
        expr = Call(random.choice(["<", "=", ">=", "<>"]), (expr, tree(random, 2)))
    types, draw = {"x": INT, "y": INT, "z": INT}, random.choice((ordinary, extreme))
    check(expr, types, {n: chain(random, INT, draw=draw) for n in types})


LIMITS = {"x": Range(-(10**6), 10**6), "y": Range(-(10**6), 10**6)}


def shown(expr: Expr, **row: CellKnowledge) -> str:
    return expression_knowledge(expr, row, INTS, LIMITS).show()


def call(name: str, *args: Any) -> Call:
    return Call(name, tuple(Constant(a, INT) if isinstance(a, int) else a for a in args))


@pytest.mark.parametrize(
    ("expr", "x", "y", "expected"),
    [
        (call("+", X, Y), Range.at_least(3), Range.exactly(4), "≥7"),
        (call("-", X, Y), Range.exactly(300), Range.at_least(100), "≤200"),
        (call("-", X, Y), Range.at_least(1), Range.at_least(1), "?"),
        (call("*", X, Y), Range.between(-2, 3), Range.between(4, 5), "[-10..15]"),
        (call("*", X, Y), Range.at_least(0), Range.exactly(5), "≥0"),
        (call("*", X, Y), Range.at_least(0), Range.exactly(-5), "≤0"),
        (call("/", X, Y), Range.between(10, 20), Range.between(2, 5), "[2..10]"),
        (call("/", X, Y), Range.at_least(10), Range.exactly(2), "≥5"),
        (call("/", X, Y), Range.exactly(10), Range.between(-1, 1), "?"),
        (call("abs", X), Range.between(-3, 2), Range.exactly(0), "[0..3]"),
        (call("neg", X), Range.at_least(3), Range.exactly(0), "≤-3"),
        (call("greatest", X, Y), Range.at_least(3), Range.between(5, 7), "≥5"),
        (call("least", X, Y), Range.at_least(3), Range.between(5, 7), "[3..7]"),
        (call("coalesce", X, Y), Range.bottom(0, 3), Range.exactly(5), "[0..5]"),
        (call("coalesce", X, Y), Range.exactly(None), Range.between(5, 7), "[5..7]"),
        (call("nullif", X, Y), Range.between(1, 3), Range.exactly(9), "[1..3]"),
        (call("sign", X), Range.at_least(1), Range.exactly(0), "=1"),
        (call("+", X, Y), Range.between(0, 2**63 - 1), Range.exactly(1), "?"),
        (call("+", X, Y), LatestValue.at(80, 5), Range.exactly(1), "?"),
        (call("+", X, Y), LatestValue.exactly(80), Range.exactly(1), "=81"),
        (call(">", X, 0), Range.at_most(5, 5), Range.exactly(0), "t"),
        (call(">", X, 0), Range.at_most(0, 0), Range.exactly(0), "F"),
        (call(">=", X, 3), Range.at_least(3), Range.exactly(0), "T"),
        (call("<", X, Y), Range.between(1, 4, 1), Range.between(4, 9, 9), "t"),
        (call("<", X, Y), Range.between(1, 3), Range.between(4, 9), "T"),
        (call("<", X, Y), Range.between(4, 6), Range.between(1, 4), "F"),
        (call("=", X, Y), Range.between(1, 3), Range.between(4, 9), "F"),
        (call("=", X, Y), Range.exactly(4), Range.exactly(4), "T"),
        (call("=", X, Y), Range.exactly(None), Range.at_least(4), "F"),
        (call("=", X, Y), Range.bottom(), Range.exactly(4), "f"),
        (call("is null", X), Range.between(1, 3), Range.exactly(0), "F"),
        (call("is null", X), Range.bottom(), Range.exactly(0), "t"),
        (call("is distinct from", X, Y), Range.exactly(None), Range.between(1, 2), "T"),
        (Cast(X, STRING), Range.exactly(4), Range.exactly(0), "=4"),
        (Case(((call(">", X, 0), X),), Constant(0, INT)), Range.at_least(2), Range.exactly(0), "≥2"),
        (Case(((call(">", X, 5), X),), Constant(0, INT)), Range.between(2, 9, 4), Range.exactly(0), "[0..9]"),
    ],
)
def test_examples(expr: Expr, x: CellKnowledge, y: CellKnowledge, expected: str) -> None:
    assert shown(expr, x=x, y=y) == expected


def test_current_branch() -> None:
    expr = Case(((call(">", X, 5), X),), Constant(0, INT))
    assert expression_knowledge(expr, {"x": Range.between(2, 9, 4)}, INTS).now == 0
    assert expression_knowledge(expr, {"x": Range.between(2, 9, 6)}, INTS).now == 6


TRUTHS: dict[str, Mask] = {
    "f": Mask.from_truths((True, False), False),
    "t": Mask.from_truths((True, False), True),
    "F": F,
    "T": T,
}


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("f and t", "f"),
        ("t and t", "t"),
        ("F and t", "F"),
        ("T and T", "T"),
        ("T and t", "t"),
        ("T or f", "T"),
        ("F or f", "f"),
        ("F or F", "F"),
        ("t or f", "t"),
    ],
)
def test_kleene(expr: str, expected: str) -> None:
    a, name, b = expr.split()
    row = {"x": TRUTHS[a], "y": TRUTHS[b]}
    assert expression_knowledge(Call(name, (X, Y)), row, {"x": BOOL, "y": BOOL}).show() == expected


def test_null_is_neither_true_nor_false_under_not() -> None:
    null = Mask.exactly(None)
    bools = {"x": BOOL, "y": BOOL}
    assert expression_knowledge(Call("not", (X,)), {"x": null}, bools) == null
    assert expression_knowledge(Call("or", (X, Y)), {"x": null, "y": T}, bools) == T
    assert expression_knowledge(Call("and", (X, Y)), {"x": null, "y": F}, bools) == F
    assert null.show() == "F"


def test_many_truths_are_not_multiplied_out() -> None:
    names = [f"x{i}" for i in range(60)]
    row: dict[str, CellKnowledge] = dict.fromkeys(names, Mask.bottom())
    types = dict.fromkeys(names, BOOL)
    for function in ("and", "or", "coalesce"):
        assert expression_knowledge(Call(function, tuple(map(ColumnRef, names))), row, types) == Mask.bottom()


def test_masked_columns_mask_the_result() -> None:
    hidden = MaskedValue(Mask.from_truths((True, False), False), Range.at_least(3))
    result = expression_knowledge(call("+", X, 1), {"x": hidden}, INTS, LIMITS)
    assert isinstance(result, MaskedValue)
    assert (result.show(), result.value.show()) == ("?", "≥4")
    assert (
        expression_knowledge(call("+", X, Y), {"x": MaskedValue.permanently_hidden(), "y": hidden}, INTS)
        == MaskedValue.permanently_hidden()
    )
    later = expression_knowledge(call("+", X, 1), {"x": MaskedValue.permanently_hidden()}, INTS)
    assert result.evolves_to(later)


def test_a_relation_is_not_null() -> None:
    assert expression_knowledge(Call("is null", (X,)), {"x": NestedRelation.bottom()}, {"x": DataType("relation")}) == F


@pytest.mark.parametrize(
    ("expr", "type", "cell", "limits", "expected"),
    [
        (call("+", X, 1), INT, Range.at_least(3), None, "?"),
        (call("+", X, 1), INT, Range.at_least(3), Range(0, 2**63 - 1), "?"),
        (call("+", X, 1), INT, Range.at_least(3), Range(0, 2**63 - 2), "≥4"),
        (call("+", X, 1), INT, Range.between(3, 2**63 - 1), None, "?"),
        (call("+", X, 1), INT, Range.between(3, 2**63 - 2), None, f"[4..{2**63 - 1}]"),
        (call("*", X, 2), INT, Range.at_least(3), Range(0, 2**53), "≥6"),
        (call("*", X, 2**62), INT, Range.at_least(1), Range(0, 2**53), "?"),
        (call("/", X, 2), INT, Range.at_least(6), None, "≥3"),
        (call("/", X, -1), INT, Range.at_most(6), None, "?"),
        (call("/", X, -1), INT, Range.at_least(6), None, "≤-6"),
        (call("neg", X), INT, Range.at_most(6), None, "?"),
        (call("abs", X), INT, Range.at_most(6), Range(-5, 9), "≥0"),
        (call("-", 10, X), INT, Range.at_least(3), None, "≤7"),
        (call("-", -2, X), INT, Range.at_least(3), None, "?"),
        (Cast(X, MONEY), INT, Range.at_least(3), None, "?"),
        (Cast(X, MONEY), INT, Range.at_least(3), Range(0, 9999), "≥3.00"),
        (Cast(X, INT), FLOAT, Range.at_least(3.0), None, "?"),
        (Cast(X, INT), FLOAT, Range.at_least(3.0), Range(0.0, 1e6), "≥3"),
        (Call("+", (X, X)), FLOAT, Range.at_least(3.0), None, "?"),
        (Call("+", (X, X)), FLOAT, Range.at_least(3.0), Range(0.0, 1e6), "≥6.0"),
        (Call("exp", (X,)), FLOAT, Range.at_most(0.0), None, "[0.0..1.0]"),
        (Call("exp", (X,)), FLOAT, Range.at_least(0.0), None, "?"),
        (Call("exp", (X,)), FLOAT, Range.at_least(0.0), Range(0.0, 9.0), "≥1.0"),
        (Call("+", (X, DAY)), TIMESTAMP, Range.at_least(0), None, "?"),
        (Call("+", (X, DAY)), TIMESTAMP, Range.at_least(0), Range(0, 10**15), "≥86400000000"),
        (Call("+", (X, DAY)), TIME, Range.at_least(0), Range(0, TICK_MAX), "≥88473600000000"),
    ],
)
def test_limits_decide_whether_an_absent_end_overflows(
    expr: Expr, type: DataType, cell: CellKnowledge, limits: Range | None, expected: str
) -> None:
    result = expression_knowledge(expr, {"x": cell}, {"x": type}, {} if limits is None else {"x": limits})
    assert result.show() == expected
    assert isinstance(result, Range)
    assert result.nulls is (MAYBE if expected == "?" else NEVER)


def test_type_errors_are_refused() -> None:
    with pytest.raises(SmileError):
        expression_knowledge(Call("+", (X, Y)), {"x": Range.bottom(), "y": Range.bottom()}, {"x": INT, "y": TIMESTAMP})
    with pytest.raises(SmileError):
        type_of(Case(((X, X),), Constant("a", STRING)), {"x": INT})
