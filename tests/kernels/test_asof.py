"""ASOF joins compared with the reference, and their state."""

import pytest

from smile.algebra.printer import print_program
from smile.reference.history import RecordedLine
from smile.testing.reader import CaseFile
from tests.kernels.harness import EngineAndReference, differences
from tests.kernels.joined import compile_text, join_differences, state_row_counts
from tests.programs.reader import cases, recorded_lines
from tests.random_programs import SEED_ID, seeds

STREAMS = """
CREATE STREAM Trades (t: time -> issue: string);
CREATE STREAM Quotes (q: time -> issue: string, price: int);
"""
PRICED = "SELECT t, price FROM Trades ASOF JOIN Quotes ON Trades.issue = Quotes.issue AND t >= q"


@pytest.mark.parametrize("seed", seeds(60), ids=SEED_ID)
def test_random_programs(seed: int) -> None:
    program, problems = join_differences(seed, ["asof"])
    assert not problems, "\n".join([print_program(program), *problems])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400), ids=SEED_ID)
def test_more_random_programs(seed: int) -> None:
    program, problems = join_differences(seed, ["asof"])
    assert not problems, "\n".join([print_program(program), *problems])


@pytest.mark.parametrize("case", [c for c in cases() if c.name == "as-of"], ids=lambda c: c.name)
def test_written_programs(case: CaseFile) -> None:
    lines = recorded_lines(case)
    assert not differences(compile_text(case.compiled.source.text), lines, range(1, len(lines) + 1))


def trade(at: int, issue: str | None) -> RecordedLine:
    return {"stream": "Trades", "at": at, "event": {"issue": issue}}


def quote(at: int, issue: str | None, price: int) -> RecordedLine:
    return {"stream": "Quotes", "at": at, "event": {"issue": issue, "price": price}}


def test_the_latest_right_row_is_kept_and_those_after_it() -> None:
    both = EngineAndReference(compile_text(f"{STREAMS} CREATE VIEW V AS {PRICED}; SUBSCRIBE V;"))
    assert not both.advance([quote(at, "ab"[at % 2], at) for at in range(1, 21)])
    assert state_row_counts(both) == {"left": 0, "right": 20}, "the next trade can be at any tick"
    assert not both.advance([{"stream": "Trades", "silence_to": 10}])
    assert state_row_counts(both) == {"left": 0, "right": 12}, (
        "the last quote of each issue at or before 10, and the ten quotes after it"
    )
    assert not both.advance([trade(15, "a"), trade(16, "c"), trade(30, "b")])
    assert [m["row"]["price"] for m in both.messages] == [14, 19]
    assert state_row_counts(both) == {"left": 1, "right": 2}


def test_a_trade_that_waits_keeps_the_quotes_it_may_need() -> None:
    both = EngineAndReference(compile_text(f"{STREAMS} CREATE VIEW V AS {PRICED}; SUBSCRIBE V;"))
    assert not both.advance([quote(1, "a", 1), quote(2, "a", 2), trade(5, "a"), {"stream": "Trades", "silence_to": 9}])
    assert state_row_counts(both) == {"left": 1, "right": 1}
    assert not both.advance([quote(4, "a", 4)])
    assert [m["row"]["price"] for m in both.messages] == [4]
    assert not both.advance([quote(7, "a", 7)])
    assert [m["final"] for m in both.messages] == [True]
    assert state_row_counts(both) == {"left": 0, "right": 1}


def test_quotes_that_come_late_are_not_kept() -> None:
    both = EngineAndReference(compile_text(f"{STREAMS} CREATE VIEW V AS {PRICED}; SUBSCRIBE V;"))
    assert not both.advance([{"stream": "Trades", "silence_to": 99}])
    for at in range(1, 9):
        assert not both.advance([quote(at, "a", at)])
    assert state_row_counts(both) == {"left": 0, "right": 1}


def test_quotes_that_leave() -> None:
    view = "SELECT t, price FROM Trades ASOF LEFT JOIN LAST(Quotes, q, INTERVAL '4' TICK) AS l ON Trades.issue = l.issue AND t >= q"
    program = compile_text(f"{STREAMS} CREATE VIEW V AS {view}; SUBSCRIBE V;")
    lines: list[RecordedLine] = [
        quote(1, "a", 1),
        quote(3, "a", 3),
        trade(4, "a"),
        {"silence_to": 5},
        {"silence_to": 7},
        trade(8, "a"),
        quote(9, "a", 9),
    ]
    assert not differences(program, lines, range(1, len(lines) + 1))
    assert not differences(program, lines, [3, 7])
