"""BEST gives the same output as the reference, and stores only rows that can be among the best."""

import pytest

from smile.program import compile_program
from smile.reference.history import RecordedLine
from smile.source import Source
from tests.kernels.drawing import random_differences
from tests.kernels.harness import EngineAndReference, differences
from tests.random_programs import SEED_ID, Programs, seeds

LAPS = "CREATE STREAM Laps (t: time -> track: string, ms: int);\n"
STREAMS = "STREAM S (t: time -> k: string, v: int) CHECK v >= 0;\n"


def compare(text: str, language: str = "mmpl") -> EngineAndReference:
    return EngineAndReference(compile_program(Source(f"test.{language}", text)).rewritten)


def event(at: int, stream: str = "S", **values: object) -> RecordedLine:
    return {"stream": stream, "at": at, "event": values}


def stored_row_count(both: EngineAndReference, view: str, table: str = "rows") -> int:
    return both.engine.state.states[view][table].row_count


@pytest.mark.parametrize("seed", seeds(32), ids=SEED_ID)
def test_random_programs(seed: int) -> None:
    program, problems = random_differences(seed, Programs.best)
    assert not problems, f"{program}\n" + "\n".join(problems)


def test_certain_rows_are_stored_only_while_they_are_among_the_best() -> None:
    both = compare(STREAMS + "VIEW V := S BEST 2 BY v DESC PER {k}; SUBSCRIBE V;")
    for t in range(40):
        assert not both.advance([event(t + 1, k="ab"[t % 2], v=t * 7 % 40)])
    assert stored_row_count(both, "V") == 4
    assert not both.advance([], end=True)
    assert stored_row_count(both, "V") == 0


def test_a_sealed_group_expires() -> None:
    windows = "VIEW V := S TUMBLE t SIZE INTERVAL '10' TICK BEST 1 BY v PER {window_end}; SUBSCRIBE V;"
    both = compare(STREAMS + windows)
    assert not both.advance([event(t, v=t % 4) for t in range(1, 35)])
    assert stored_row_count(both, "V") == 1
    assert not both.advance([{"silence_to": 39}])
    assert stored_row_count(both, "V") == 0


def test_a_leaderboard_follows_totals_up_and_down() -> None:
    text = "STREAM S (t: time -> k: string, v: int);\n"
    text += "VIEW G := S SUMMARIZE PER {k} ADD {n := SUM(v)};\nVIEW V := G BEST 2 BY n DESC PER {}; SUBSCRIBE V;"
    program = compile_program(Source("test.mmpl", text)).rewritten
    lines = [event(t + 1, k="abcd"[t * 5 % 4], v=(t * 11 % 9) - 4) for t in range(24)]
    for size in (1, 5, 24):
        assert not differences(program, lines, [*range(size, 24, size), 24])


def test_nulls_come_last_and_first_when_descending() -> None:
    both = compare(STREAMS + "VIEW A := S BEST 1 BY v PER {}; VIEW D := S BEST 1 BY v DESC PER {}; SUBSCRIBE A, D;")
    assert not both.advance([event(1), event(2, v=3), event(3), event(4, v=3)])
    assert [*both.shown["A"]] == [(2,)]
    assert [*both.shown["D"]] == [(1,)]
