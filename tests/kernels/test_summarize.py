"""Incremental SUMMARIZE and DISTINCT compared with the reference."""

from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from smile.algebra import mmpl
from smile.algebra.types import INT_MAX
from smile.kernels.groups.evolving_groups import EvolvingGroups
from smile.kernels.groups.single_member_groups import SingleMemberGroups
from smile.kernels.groups.summarize import GROUPS, MultiMemberGroups
from smile.program import compile_program
from smile.reference.history import RecordedLine
from smile.source import Source
from tests.kernels.harness import EngineAndReference, cuts, differences
from tests.kernels.summaries import random_summary
from tests.random_programs import SEED_ID, seeds
from tests.reference.histories import Histories, random_lines

STREAM = "CREATE STREAM S (t: time -> k: string, v: int, p: shares, x: float, d: decimal(6, 2));\n"


def program(body: str) -> mmpl.Program:
    return compile_program(Source("test.smile", f"{STREAM}CREATE VIEW V AS {body};\nSUBSCRIBE V;")).rewritten


def event(at: int, **columns: Any) -> RecordedLine:
    return {"stream": "S", "at": at, "event": columns}


def assert_same_output(body: str, lines: Sequence[RecordedLine]) -> EngineAndReference:
    """Checks that both send the same changes after every line and at the end. Returns them before the end."""
    both = EngineAndReference(program(body))
    for line in lines:
        assert both.advance([line]) == []
    assert differences(program(body), lines, [len(lines)]) == []
    return both


def shown(both: EngineAndReference) -> list[Any]:
    return [row["row"] for row in both.shown["V"].values()]


@pytest.mark.parametrize("seed", seeds(30), ids=SEED_ID)
def test_random_programs(seed: int) -> None:
    random = Random(seed)
    drawn = random_summary(random)
    lines = random_lines(drawn, random)
    assert differences(drawn, lines, cuts(random, len(lines))) == []


@pytest.mark.parametrize("seed", seeds(8), ids=SEED_ID)
def test_random_programs_over_longer_histories(seed: int) -> None:
    random = Random(1000 + seed)
    drawn = random_summary(random, 2)
    histories = Histories(drawn, random)
    lines = [histories.line() for _ in range(random.randint(12, 24))]
    assert differences(drawn, lines, cuts(random, len(lines))) == []


# ── sums ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["", "WHERE x > 0.0", "HAVING COUNT(*) >= 0"])
def test_a_sum_of_ints_does_not_wrap(where: str) -> None:
    lines = [event(n, k="a", v=INT_MAX, x=1.0) for n in range(1, 5)] + [event(9, k="a", v=-INT_MAX, x=1.0)]
    clause = f"{where} GROUP BY k" if "WHERE" in where else f"GROUP BY k {where}"
    both = assert_same_output(f"SELECT k, SUM(v) AS s, AVG(v) AS a FROM S {clause}", lines)
    assert shown(both)[0]["s"] == 3 * INT_MAX
    single_batch = EngineAndReference(program("SELECT k, SUM(v) AS s FROM S GROUP BY k"))
    assert single_batch.advance(lines) == []
    assert shown(single_batch)[0]["s"] == 3 * INT_MAX


def test_members_that_leave_take_back_ints_beyond_64_bits() -> None:
    body = "SELECT k, SUM(v) AS s FROM LAST(S, t, INTERVAL '5' TICK) GROUP BY k"
    lines = [event(n, k="a", v=INT_MAX) for n in (1, 2, 3)] + [event(n, k="a", v=n) for n in (7, 9, 20)]
    assert shown(assert_same_output(body, lines)) == [{"s": 20}]


@pytest.mark.parametrize("function", ["SUM", "AVG"])
def test_floats_are_the_same_in_any_order_and_after_leaving(function: str) -> None:
    values = [0.1, 0.2, 0.3, 1e16, -1e16, 1e-300, 3.3, 1e300, -1e300, 7.7]
    results = set()
    for seed in range(4):
        random = Random(seed)
        random.shuffle(values)
        both = EngineAndReference(program(f"SELECT k, {function}(x) AS s FROM S GROUP BY k"))
        lines = [event(n, k="a", x=x) for n, x in enumerate(values, 1)]
        ends = cuts(random, len(lines))
        for start, stop in zip([0, *ends], ends, strict=False):
            assert both.advance(lines[start:stop]) == []
        results.add(shown(both)[0]["s"].hex())
    assert len(results) == 1
    body = f"SELECT k, {function}(x) AS s FROM LAST(S, t, INTERVAL '20' TICK) GROUP BY k"
    lines = [event(n, k="a", x=x) for n, x in enumerate([0.1, 1e300, *values], 1)]
    both = assert_same_output(body, [*lines, event(28, k="a", x=0.1)])
    assert len(shown(both)) == 1


def test_a_sum_of_floats_that_overflows_is_null() -> None:
    lines = [event(n, k="a", x=1.7e308) for n in (1, 2)]
    assert shown(assert_same_output("SELECT k, SUM(x) AS s, AVG(x) AS a FROM S GROUP BY k", lines)) == [
        {"s": None, "a": 1.7e308}
    ]
    body = "SELECT k, SUM(x) AS s FROM TUMBLE(S, t, INTERVAL '5' TICK) GROUP BY k, window_start"
    assert_same_output(body, [*lines, event(9, k="b", x=1.0)])


def test_decimals() -> None:
    lines = [event(n, k="a", d=Decimal(n) / 4) for n in range(1, 8)]
    assert_same_output("SELECT k, SUM(d) AS s, AVG(d) AS a, MIN(d) AS least FROM S GROUP BY k", lines)


def test_the_mean_of_intervals_is_a_whole_number_of_ticks() -> None:
    text = "CREATE STREAM S (t: time -> i: interval);\nCREATE VIEW V AS SELECT AVG(i) AS a FROM S;\nSUBSCRIBE V;"
    both = EngineAndReference(compile_program(Source("test.smile", text)).rewritten)
    both.advance([event(n, i=i) for n, i in enumerate((1, 2, 5), 1)])
    assert [message["row"] for message in both.messages] == [{"a": 3}]
    both.advance([event(9, i=5)], end=True)
    assert [message["knowledge"] for message in both.messages] == [{"a": {"exactly": 3}}]


# ── groups ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_grouping_the_row_is_present_from_the_first_batch() -> None:
    both = EngineAndReference(program("SELECT COUNT(*) AS n, MAX(v) AS m FROM S"))
    assert both.advance([]) == []
    assert both.advance([{"silence_to": 3}]) == []
    assert shown(both) == [{"n": 0, "m": None}]
    assert both.advance([event(4, k="a", v=1)]) == []
    assert both.advance([], end=True) == []


def test_nulls_are_a_group() -> None:
    body = "SELECT k, COUNT(DISTINCT v) AS n, MAX(v) AS m FROM LAST(S, t, INTERVAL '4' TICK) GROUP BY k"
    lines = [event(n, k=None if n % 2 else "a", v=n % 3) for n in range(1, 14)]
    assert_same_output(body, [*lines, {"silence_to": 15}, {"silence_to": 40}])


def test_sealed_groups_expire() -> None:
    body = """SELECT window_start, COUNT(DISTINCT k) AS n, MAX(v) AS m, SUM(x) AS s
        FROM TUMBLE(S, t, INTERVAL '4' TICK) GROUP BY window_start"""
    both = assert_same_output(body, [event(n, k="ab"[n % 2], v=n % 5, x=0.5) for n in range(1, 30)])
    (state,) = both.engine.state.states.values()
    assert state[GROUPS].row_count == 1
    assert all(table.row_count <= 2 for table in state.values())


def test_a_horizon_alone_seals_a_group() -> None:
    body = "SELECT window_start, COUNT(*) AS n FROM TUMBLE(S, t, INTERVAL '4' TICK) GROUP BY window_start"
    both = assert_same_output(body, [event(1, v=1), event(2, v=1)])
    assert both.advance([{"silence_to": 3}]) == []
    assert both.messages[0]["final"] is True
    assert both.advance([{"silence_to": 9}]) == []
    assert both.messages == []


def test_the_extreme_of_the_remaining_members_is_found_again() -> None:
    body = "SELECT k, MAX(v) AS m, MIN(v) AS least, LATEST(v) AS l FROM LAST(S, t, INTERVAL '4' TICK) GROUP BY k"
    values = [9, 1, 5, 5, 2, 7, 7, 0, 3, 3, 8, 1, 1, 1, 4]
    assert_same_output(body, [event(n, k="ab"[n % 3 == 0], v=x) for n, x in enumerate(values, 1)])


def test_the_latest_of_the_remaining_members_is_found_again() -> None:
    text = """STREAM S (t: time -> k: string, v: int);
        VIEW V := S BEST 3 BY v PER {} SUMMARIZE PER {k} ADD {l := LATEST(v), m := MAX(v)};
        SUBSCRIBE V;"""
    compiled = compile_program(Source("test.mmpl", text)).rewritten
    lines = [event(n, k="ab"[n == 4], v=v) for n, v in enumerate((5, 6, 7, 2, 3, 9, 1), 1)]
    assert differences(compiled, lines, list(range(1, len(lines) + 1))) == []


def test_groups_that_every_member_left() -> None:
    text = f"""{STREAM}
        CREATE VIEW PerUser AS SELECT k, COUNT(*) AS n, SUM(p) AS s FROM S GROUP BY k;
        CREATE VIEW V AS SELECT n, COUNT(*) AS users, MAX(s) AS m, AVG(s) AS a FROM PerUser GROUP BY n;
        SUBSCRIBE V;"""
    compiled = compile_program(Source("test.smile", text)).rewritten
    random = Random(1)
    lines = [event(n, k=random.choice("abc"), p=random.randrange(4)) for n in range(1, 14)]
    assert differences(compiled, lines, list(range(1, len(lines) + 1))) == []
    assert differences(compiled, lines, [3, 7, len(lines)]) == []


def test_the_choice_of_the_transform() -> None:
    def kinds(body: str) -> set[type]:
        return {type(t) for t in EngineAndReference(program(body)).engine.kernels.transforms.values()}

    assert MultiMemberGroups in kinds("SELECT k, SUM(v) AS s FROM S GROUP BY k")
    assert SingleMemberGroups in kinds("SELECT t, SUM(v) AS s FROM S GROUP BY t")
    assert EvolvingGroups in kinds(
        "SELECT n, COUNT(*) AS m FROM (SELECT k, COUNT(*) AS n FROM S GROUP BY k) AS q GROUP BY n"
    )
