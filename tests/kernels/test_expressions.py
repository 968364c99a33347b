"""Compiled expressions compared with their specification, `expression_knowledge`, row by row."""

from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pytest

from smile.algebra import mmpl, trees
from smile.algebra.coercions import DATE_MAX, DATE_MIN, MICROSECONDS_PER_DAY
from smile.algebra.functions.catalogue import SCALAR_FUNCTIONS
from smile.algebra.periods import UNITS
from smile.algebra.types import INT, INT_MAX, INT_MIN, STRING, SUM_OF_INTS, TIMESTAMP, DataType
from smile.columns import knowledge as k, values as v
from smile.columns.knowledge import KnowledgeColumn, LatestColumn, MaskColumn, ObjectColumn, RangeColumn
from smile.columns.values import ValueColumn
from smile.kernels.expressions import compile_expression
from smile.kernels.layout import EvolvingColumnLayout, Layout
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.range import MAYBE, Range
from smile.knowledge.values.transfer import expression_knowledge
from tests.kernels.random_expressions import TYPES, Expressions, Table, table
from tests.knowledge.chains import signatures_of
from tests.knowledge.predicates import bounding_predicate
from tests.random_programs import SEED_ID, seeds


def expected_points(expr: mmpl.Expr, rows: Table) -> list[CellKnowledge]:
    """The result of the specification for every row."""
    types = rows.layout.types
    points = []
    for i in range(rows.count):
        row = {}
        for c in trees.columns_in(expr):
            column = rows.fixed[c] if c in rows.layout.fixed else rows.columns[c]
            row[c] = k.knowledge_at(column, i, types[c])
        points.append(expression_knowledge(expr, row, types, rows.limits))
    return points


def _text(value: Any) -> str:
    """Distinguishes -0.0 from 0.0, and 1 from 1.0 and True."""
    return f"{type(value).__name__} {value!r}"


def problems(expr: mmpl.Expr, rows: Table) -> list[str]:
    compiled = compile_expression(expr, rows.layout, rows.limits)
    column = compiled(rows.fixed, rows.columns, rows.count)
    differences = []
    if len(column) != rows.count:
        return [f"{len(column)} rows, not {rows.count}"]
    for i, expected in enumerate(expected_points(expr, rows)):
        point = k.knowledge_at(column, i, compiled.data)
        same = point == expected and point.now == expected.now and _is_canonical(column, i)
        if compiled.kind == "exact":
            same = same and _text(point.now) == _text(expected.now)
        if not same:
            inputs = {
                c: k.knowledge_at(rows.fixed[c] if c in rows.fixed else rows.columns[c], i, rows.layout.types[c])
                for c in trees.columns_in(expr)
            }
            differences.append(f"row {i} of {inputs}:\n  actual   {point}\n  expected {expected}")
    return differences


def _is_canonical(column: KnowledgeColumn, i: int) -> bool:
    """The column must have the canonical representation of the point."""
    if isinstance(column, MaskColumn):
        possible = int(column.possible[i])
        return possible.bit_count() > 1 or int(column.now[i]) == possible
    if not isinstance(column, RangeColumn):
        return True
    lo, hi, now = column.lo, column.hi, column.now
    if column.null_codes()[i] == 2:
        return not any(end is not None and end.is_valid()[i] for end in (lo, hi, now))
    if column.is_final()[i]:
        assert lo is not None
        return bool(now.is_valid()[i]) and bool(now.take(np.array([i])).same(lo.take(np.array([i])))[0])
    return True


def random_case(seed: int, count: int) -> tuple[Table, Expressions]:
    random = Random(seed)
    rows = table(random, random.sample(TYPES, 3), count)
    return rows, Expressions(random, rows.layout.types)


@pytest.mark.parametrize("name", SCALAR_FUNCTIONS)
def test_every_function_of_the_catalogue(name: str) -> None:
    """Each scalar function, over columns of every kind that its arguments can have."""
    for number, seed in enumerate(seeds(6)):
        random = Random(f"{seed} {name}")
        signature = random.choice(signatures_of(name))
        rows = table(random, sorted(set(signature.args), key=str), 6 if number else 24)
        call = Expressions(random, rows.layout.types).call_with(name, signature)
        differences = problems(call, rows)
        assert not differences, f"{SEED_ID(seed)} {call}\n{differences[0]}"


@pytest.mark.parametrize("seed", seeds(60), ids=SEED_ID)
def test_random_expressions(seed: int) -> None:
    rows, expressions = random_case(seed, (0, 1, 2, 5, 8, 20)[seed % 6])
    for depth in (1, 2, 2, 3):
        expr, _ = expressions.draw(depth)
        differences = problems(expr, rows)
        assert not differences, f"{expr}\n{differences[0]}"


@pytest.mark.parametrize("seed", seeds(60), ids=SEED_ID)
def test_case_under_conditions_on_its_columns(seed: int) -> None:
    """In a branch, ranges are clipped to the values for which it is chosen; without such values it is excluded."""
    random = Random(seed)
    number = random.choice([t for t in TYPES if t.is_number or t.name in ("time", "timestamp", "date", "interval")])
    rows = table(random, [number, number], 12)
    types = rows.layout.types
    names = list(types)
    for _ in range(4):
        named = {n: types[n] for n in random.sample(names, 3)}
        chosen = [mmpl.ColumnRef(random.choice(list(named))) for _ in range(5)]
        one, two, three = (bounding_predicate(random, named, 1) for _ in range(3))
        inner = mmpl.Case(((three, chosen[0]),), chosen[1])
        expr = mmpl.Case(
            ((one, chosen[2]), (two, random.choice((chosen[3], inner)))), random.choice((chosen[4], inner))
        )
        differences = problems(expr, rows)
        assert not differences, f"{expr}\n{differences[0]}"


def _garbage(random: Random, column: KnowledgeColumn) -> KnowledgeColumn:
    """Contents that absent rows can have: not points of any domain."""
    count = len(column)
    if isinstance(column, ValueColumn):
        data = column.data
        if not column.is_text and data.dtype == np.float64:
            data = np.full(count, random.choice((np.nan, np.inf, -1.0)))
        elif not column.is_text and data.dtype == np.int64:
            data = np.full(count, random.choice((-(2**63), 2**63 - 1, 0)))
        return ValueColumn(data, None if random.random() < 0.5 else np.zeros(count, bool))
    if isinstance(column, MaskColumn):
        return MaskColumn(np.full(count, random.choice((0, 255)), np.uint8), np.zeros(count, np.uint8))
    if isinstance(column, RangeColumn):
        now, lo, hi = (end if end is None else _garbage(random, end) for end in (column.now, column.hi, column.lo))
        return RangeColumn(now, lo, hi, np.full(count, random.choice((0, 1, 2)), np.uint8))  # type: ignore[arg-type]
    if isinstance(column, LatestColumn):
        bounds, value = _garbage(random, column.bounds), _garbage(random, column.value)
        return LatestColumn(bounds, value, column.tick, column.source)  # type: ignore[arg-type]
    return ObjectColumn(np.full(count, None, object))


@pytest.mark.parametrize("seed", seeds(40), ids=SEED_ID)
def test_garbage_in_absent_rows_does_no_harm(seed: int) -> None:
    rows, expressions = random_case(seed, 3)
    random = Random(seed)
    fixed = {name: _garbage(random, column) for name, column in rows.fixed.items()}
    columns = {name: _garbage(random, column) for name, column in rows.columns.items()}
    for depth in (1, 1, 2, 3):
        expr, _ = expressions.draw(depth)
        compiled = compile_expression(expr, rows.layout, rows.limits)
        assert len(compiled(fixed, columns, rows.count)) == rows.count, expr  # type: ignore[arg-type]


# ── requirements of callers ─────────────────────────────────────────────────────────────────────────────────────────

TOTAL = mmpl.ColumnRef("total")
BID = mmpl.Cast(mmpl.ColumnRef("bid"), SUM_OF_INTS)
LAYOUT = Layout(
    (), {"bid": INT}, {"total": EvolvingColumnLayout("range", SUM_OF_INTS), "low": EvolvingColumnLayout("range", INT)}
)
LIMITS = {"total": Range(Decimal(-(2**116)), Decimal(2**116)), "low": Range(0, 2**53)}


def evaluate(expr: mmpl.Expr, total: RangeColumn, bid: list[int]) -> KnowledgeColumn:
    fixed = {"bid": ValueColumn(np.array(bid))}
    return compile_expression(expr, LAYOUT, LIMITS)(fixed, {"total": total, "low": total}, len(bid))


def test_fast_representations_stay_fast() -> None:
    """A missing bound stays None, and a bound that is the same object as `now` stays so."""
    now = ValueColumn(np.array([3, 4]))
    difference = evaluate(mmpl.Call("-", (BID, TOTAL)), RangeColumn(now, now, None), [10, 2])
    assert isinstance(difference, RangeColumn)
    assert difference.lo is None
    assert difference.hi is difference.now
    assert difference.nulls is None
    assert difference.now.data.tolist() == [7, -2]
    cast = evaluate(mmpl.Cast(mmpl.ColumnRef("low"), SUM_OF_INTS), RangeColumn(now, now, None), [10, 2])
    assert isinstance(cast, RangeColumn)
    assert cast.lo is cast.now
    assert cast.hi is None


def test_sums_beyond_64_bits_stay_exact_and_ints_become_null() -> None:
    most = ValueColumn(np.array([INT_MAX, 1]))
    wide = evaluate(mmpl.Call("+", (BID, TOTAL)), RangeColumn(most, most, most), [INT_MAX, 1])
    assert isinstance(wide, RangeColumn)
    assert wide.now.data.tolist() == [2 * INT_MAX, 2]
    narrow = evaluate(
        mmpl.Call("+", (mmpl.ColumnRef("bid"), mmpl.ColumnRef("low"))), RangeColumn(most, most, None), [INT_MAX, 1]
    )
    assert [k.knowledge_at(narrow, i, INT) for i in range(2)] == [Range.bottom(), Range.at_least(2)]
    assert narrow.knowledge_at(0, INT).now is None  # type: ignore[union-attr]


def test_a_long_chain_is_compiled_and_run() -> None:
    expr: mmpl.Expr = mmpl.ColumnRef("low")
    for _ in range(200):
        expr = mmpl.Call("+", (expr, mmpl.Constant(1, INT)))
    now = ValueColumn(np.array([3]))
    column = evaluate(expr, RangeColumn(now, now, None), [0])
    assert isinstance(column, RangeColumn)
    assert column.now.data.tolist() == [203]


def test_the_kind_follows_from_the_columns() -> None:
    kinds = [
        (mmpl.Call("+", (mmpl.ColumnRef("bid"), mmpl.Constant(1, INT))), "exact"),
        (mmpl.Call("-", (BID, TOTAL)), "range"),
        (mmpl.Call("<", (BID, TOTAL)), "mask"),
        (mmpl.Constant(None, INT), "exact"),
    ]
    assert [compile_expression(expr, LAYOUT).kind for expr, _ in kinds] == [kind for _, kind in kinds]


def _range_case(points: list[Range], data: DataType) -> tuple[Layout, RangeColumn]:
    column = k.from_points(points, "range", data)
    assert isinstance(column, RangeColumn)
    return Layout((), {"x": data}, {"r": EvolvingColumnLayout("range", data)}), column


def test_nullif_of_a_value_that_can_be_null_can_return_it() -> None:
    layout, column = _range_case([Range(3, 3, MAYBE, 3), Range(3, 3, MAYBE), Range(3, 4, MAYBE, 3)], INT)
    for other in ([3, 3, 3], [None, 3, 4]):
        fixed = {"x": v.from_python(other, INT)}
        for args in (("r", "r"), ("r", "x"), ("x", "r")):
            expr = mmpl.Call("nullif", tuple(map(mmpl.ColumnRef, args)))
            assert not problems(expr, Table(layout, fixed, {"r": column}, 3))


def test_a_partial_function_of_an_unbounded_range_can_be_null() -> None:
    layout, column = _range_case([Range(None, 5), Range(5, None), Range(5, 6)], TIMESTAMP)
    fixed = {"x": v.nulls(TIMESTAMP, 3)}
    expr = mmpl.Call("date_trunc", (mmpl.Constant("day", STRING), mmpl.ColumnRef("r")))
    assert not problems(expr, Table(layout, fixed, {"r": column}, 3))


@pytest.mark.parametrize("zone", [(), ("Europe/Berlin",), ("America/St_Johns",), ("Pacific/Apia",), ("Nowhere/City",)])
@pytest.mark.parametrize("function", ["date_trunc", "period_end"])
@pytest.mark.parametrize("unit", [*UNITS, "QUARTER", "months", "7 months", "10 days", "90 minutes", "eon"])
def test_periods_of_a_column(unit: str, function: str, zone: tuple[str, ...]) -> None:
    """Near the beginning of periods, before and after 1970, and where clocks are set back and forward."""
    days = [0, 31, 59, 90, 365, 19_722, 19_782, -1, -3, -365, DATE_MIN + 1, DATE_MAX]
    starts = [day * MICROSECONDS_PER_DAY for day in days]
    starts += [1_774_746_000_000_000, 1_792_890_000_000_000, 1_130_639_460_000_000, 1_325_239_200_000_000]
    values = [n + d for n in starts for d in (-1, 0, 1, 3_600_000_000, 86_399_999_999)] + [None]
    layout = Layout((), {"x": TIMESTAMP})
    rows = Table(layout, {"x": v.from_python(values, TIMESTAMP)}, {}, len(values))
    zones = (mmpl.Constant(name, STRING) for name in zone)
    assert not problems(mmpl.Call(function, (mmpl.Constant(unit, STRING), mmpl.ColumnRef("x"), *zones)), rows)


@pytest.mark.parametrize("name", ["*", "/", "+", "-"])
def test_an_overflow_is_detected_in_a_bound_that_is_now(name: str) -> None:
    layout, column = _range_case([Range.at_least(INT_MAX), Range.at_least(INT_MIN), Range.at_least(3)], INT)
    fixed = {"x": ValueColumn(np.array([2, -1, 5]))}
    same = RangeColumn(column.now, column.now, None)
    for args in (("r", "x"), ("x", "r")):
        expr = mmpl.Call(name, tuple(map(mmpl.ColumnRef, args)))
        assert not problems(expr, Table(layout, fixed, {"r": same}, 3))
