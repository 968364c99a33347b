"""Semi, anti and match joins compared with the reference, and their state."""

import pytest

from smile.algebra.printer import print_program
from smile.reference.history import RecordedLine
from smile.testing.reader import CaseFile
from tests.kernels.harness import EngineAndReference, differences
from tests.kernels.joined import compile_text, join_differences, state_row_counts
from tests.programs.reader import cases, recorded_lines
from tests.random_programs import SEED_ID, seeds

KINDS = ("semi", "anti", "match")

STREAMS = """
CREATE STREAM Orders (o: time -> customer: string);
CREATE STREAM Payments (p: time -> orderid: time, payer: string);
"""


@pytest.mark.parametrize("seed", seeds(60), ids=SEED_ID)
def test_random_programs(seed: int) -> None:
    program, problems = join_differences(seed, KINDS)
    assert not problems, "\n".join([print_program(program), *problems])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400), ids=SEED_ID)
def test_more_random_programs(seed: int) -> None:
    program, problems = join_differences(seed, KINDS)
    assert not problems, "\n".join([print_program(program), *problems])


@pytest.mark.parametrize("case", [c for c in cases() if c.name in ("not-in", "unpaid-orders")], ids=lambda c: c.name)
def test_written_programs(case: CaseFile) -> None:
    lines = recorded_lines(case)
    assert not differences(compile_text(case.compiled.source.text), lines, range(1, len(lines) + 1))


def order(at: int, customer: str | None) -> RecordedLine:
    return {"stream": "Orders", "at": at, "event": {"customer": customer}}


def payment(at: int, orderid: int | None, payer: str | None = None) -> RecordedLine:
    return {"stream": "Payments", "at": at, "event": {"orderid": orderid, "payer": payer}}


def test_decided_rows_expire() -> None:
    both = EngineAndReference(
        compile_text(
            f"{STREAMS} CREATE VIEW V AS SELECT o FROM Orders WHERE o IN (SELECT orderid FROM Payments); SUBSCRIBE V;"
        )
    )
    assert not both.advance([order(1, "a"), order(2, "b"), order(3, "c")])
    assert state_row_counts(both) == {"left rows": 3, "values": 0}
    assert not both.advance([payment(4, 2)])
    assert state_row_counts(both) == {"left rows": 2, "values": 0}
    assert not both.advance([payment(5, 9)])
    assert state_row_counts(both) == {"left rows": 2, "values": 1}, "a later order can look it up"
    assert not both.advance([order(10, "d")])
    assert state_row_counts(both) == {"left rows": 3, "values": 0}, "no later order can look it up"


def test_a_bounded_absence_is_decided_by_the_horizon_alone() -> None:
    view = "SELECT o FROM Orders WHERE NOT EXISTS (SELECT * FROM Payments WHERE orderid = o AND p <= o + INTERVAL '5' TICK)"
    both = EngineAndReference(compile_text(f"{STREAMS} CREATE VIEW V AS {view}; SUBSCRIBE V;"))
    assert not both.advance([order(1, "a"), payment(5, 1), order(6, "b"), order(8, "c")])
    assert state_row_counts(both)["left rows"] == 2
    assert not both.advance([{"stream": "Payments", "silence_to": 10}])
    assert state_row_counts(both)["left rows"] == 2
    assert not both.advance([{"stream": "Payments", "silence_to": 11}])
    assert [m["final"] for m in both.messages] == [True]
    assert state_row_counts(both)["left rows"] == 1


def test_payments_that_no_order_can_match_are_not_stored() -> None:
    view = "SELECT o FROM Orders WHERE NOT EXISTS (SELECT * FROM Payments WHERE orderid = o AND payer <> customer)"
    both = EngineAndReference(compile_text(f"{STREAMS} CREATE VIEW V AS {view}; SUBSCRIBE V;"))
    assert not both.advance([order(1, "ann"), order(5, "bob"), payment(6, 1, "ann"), payment(7, 9, "cy")])
    assert state_row_counts(both) == {"left rows": 2, "right rows that match": 1}
    assert not both.advance([payment(8, 5, "ann")])
    assert state_row_counts(both) == {"left rows": 1, "right rows that match": 1}


def test_matches_are_counted_not_stored() -> None:
    view = "SELECT o, customer FROM Orders WHERE customer IN (SELECT payer FROM Payments)"
    both = EngineAndReference(compile_text(f"{STREAMS} CREATE VIEW V AS {view}; SUBSCRIBE V;"))
    assert not both.advance([payment(at, None, "ann") for at in range(1, 50)])
    assert not both.advance([order(50, "ann"), order(51, "bob"), order(52, None)])
    assert state_row_counts(both) == {"left rows": 1, "values": 1}


def test_a_match_that_leaves_is_retracted() -> None:
    view = "SELECT o FROM Orders WHERE customer NOT IN (SELECT payer FROM LAST(Payments, p, INTERVAL '3' TICK) WHERE payer IS NOT NULL)"
    program = compile_text(f"{STREAMS} CREATE VIEW V AS {view}; SUBSCRIBE V;")
    lines: list[RecordedLine] = [
        order(1, "ann"),
        payment(2, None, "ann"),
        payment(3, None, "ann"),
        {"silence_to": 5},
        {"silence_to": 6},
    ]
    both = EngineAndReference(program)
    shown_flags = []
    for line in lines:
        assert not both.advance([line])
        shown_flags.append([("deleted" not in m) for m in both.messages])
    assert shown_flags == [[True], [False], [], [], [True]]


def test_null_leaves_the_answer_unknown() -> None:
    program = compile_text(
        f"{STREAMS} CREATE VIEW V AS SELECT o, customer IN (SELECT payer FROM Payments) AS paid FROM Orders; SUBSCRIBE V;"
    )
    lines: list[RecordedLine] = [
        order(1, "ann"),
        order(2, None),
        payment(3, 1, "bob"),
        payment(4, 1, None),
        order(5, "cy"),
        payment(6, 1, "ann"),
    ]
    assert not differences(program, lines, range(1, len(lines) + 1))
    assert not differences(program, lines, [3, 6])
