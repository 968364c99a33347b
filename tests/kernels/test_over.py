"""OVER gives the same output as the reference. It stores rows for as long as their range, or running totals if there is
no range."""

import pytest

from smile.program import compile_program
from smile.source import Source
from tests.kernels.drawing import random_differences
from tests.kernels.harness import differences
from tests.kernels.test_best import STREAMS, compare, event, stored_row_count
from tests.random_programs import SEED_ID, Programs, seeds

ALL = "{n := COUNT(), c := COUNT(v), s := SUM(v), a := AVG(v), lo := MIN(v), hi := MAX(v), l := LATEST(v)}"
FLOATS = "STREAM S (t: time -> k: string, v: float);\n"


@pytest.mark.parametrize("seed", seeds(32), ids=SEED_ID)
def test_random_programs(seed: int) -> None:
    program, problems = random_differences(seed, Programs.over)
    assert not problems, f"{program}\n" + "\n".join(problems)


def test_rows_are_stored_as_long_as_the_range() -> None:
    both = compare(STREAMS + f"VIEW V := S OVER PER {{k}} BY t RANGE INTERVAL '5' TICK ADD {ALL}; SUBSCRIBE V;")
    for start in range(1, 40, 4):
        assert not both.advance([event(t, k="ab"[t % 2], v=t % 7) for t in range(start, start + 4)])
    assert stored_row_count(both, "V") == 5
    assert not both.advance([{"silence_to": 60}])
    assert stored_row_count(both, "V") == 0


def test_without_a_range_there_are_running_totals() -> None:
    both = compare(STREAMS + f"VIEW V := S OVER PER {{k}} BY t RANGE UNBOUNDED ADD {ALL}; SUBSCRIBE V;")
    for start in range(1, 40, 4):
        assert not both.advance([event(t, k="ab"[t % 2], v=None if t < 5 else t % 7) for t in range(start, start + 4)])
    assert stored_row_count(both, "V") == 0
    assert stored_row_count(both, "V", "totals") == 2


@pytest.mark.parametrize("span", ["RANGE INTERVAL '6' TICK", "RANGE UNBOUNDED"])
def test_rows_of_merged_streams_come_out_of_order(span: str) -> None:
    text = STREAMS + "STREAM R (t: time -> k: string, v: int) CHECK v >= 0;\n"
    both = compare(text + f"VIEW M := MERGE {{S, R}};\nVIEW V := M OVER PER {{k}} BY t {span} ADD {ALL}; SUBSCRIBE V;")
    assert not both.advance([event(t, v=t % 5) for t in (1, 4, 5, 9)])
    assert not both.advance([event(t, "R", v=t % 3) for t in (2, 4)])
    assert not both.advance([event(12, v=2)])
    assert not both.advance([event(t, "R", v=t % 4) for t in (9, 12)])
    assert not both.advance([{"silence_to": 30}])
    assert stored_row_count(both, "V") == 0


@pytest.mark.parametrize("span", ["RANGE INTERVAL '3' TICK", "RANGE UNBOUNDED"])
def test_sums_of_floats_are_exact(span: str) -> None:
    text = FLOATS + f"VIEW V := S OVER PER {{}} BY t {span} ADD {{s := SUM(v), a := AVG(v)}}; SUBSCRIBE V;"
    program = compile_program(Source("test.mmpl", text)).rewritten
    values = [1e300, 0.1, -1e300, 0.2, 0.3, 1e-320, None, -0.6, 1e308, 1e308, -1e308]
    lines = [event(t + 1, v=value) for t, value in enumerate(values)]
    for size in (1, 3, len(lines)):
        assert not differences(program, lines, [*range(size, len(lines), size), len(lines)])


def test_sums_of_integers_do_not_wrap() -> None:
    both = compare(STREAMS + f"VIEW V := S OVER PER {{}} BY t RANGE UNBOUNDED ADD {ALL}; SUBSCRIBE V;")
    assert not both.advance([event(t, v=2**62) for t in range(1, 5)])
    assert not both.advance([event(5, v=2**62)])
