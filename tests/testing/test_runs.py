"""Test files run as their users run them: those of SMILE pass, on both engines, and a wrong row is found at its place."""

import re
from pathlib import Path

import pytest

from smile.testing.comparison import Difference
from smile.testing.reader import CaseFile, read_case
from smile.testing.runs import LocalCaseEngine, find_differences
from tests.programs.reader import FOLDER, cases

FILE = """\
--- program
CREATE STREAM Orders (t: time -> customer: string NOT NULL, cents: int);
CREATE VIEW Hourly AS
  SELECT window_end, customer, COUNT(*) AS n FROM TUMBLE(Orders, t, INTERVAL '1' HOUR) GROUP BY window_end, customer;
CREATE VIEW Total AS SELECT SUM(cents) AS cents FROM Orders;
SUBSCRIBE Hourly, Total;

--- events
Orders @1m {"customer": "ann", "cents": 5}
Orders @2m {"customer": "bob", "cents": 7}
silence @2m+5
Orders @3m {"customer": "ann", "cents": 1}
silence @1h

--- rows after 0
Total | cents |
      | 0 ?   | stays

--- rows after 2
Hourly | window_end | customer | n  |
       | @1h        | ann      | ≥1 | stays
       | @1h        | bob      | ≥1 | stays
Total  | cents |
       | 12 ?  | stays

--- changes 3

--- changes 4
Hourly | window_end | customer | n  |
       | @1h        | ann      | ≥2 | stays
Total  | cents |
       | 13 ?  | stays

--- rows end
Hourly | window_end | customer | n  |
       | @1h        | ann      | =2 | final
       | @1h        | bob      | =1 | final
Total  | cents |
       | =13   | final
"""


def run(path: Path, text: str) -> tuple[CaseFile, list[Difference]]:
    path.write_text(text)
    case = read_case(path)
    return case, find_differences(case, LocalCaseEngine(case))


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_the_test_programs_pass(case: CaseFile) -> None:
    assert [d.text(case) for d in find_differences(case, LocalCaseEngine(case))] == []


def test_all_sections_are_compared(tmp_path: Path) -> None:
    """Rows before any event, changes of a line that says nothing new for a view, and rows at the end."""
    assert run(tmp_path / "orders.test", FILE)[1] == []


@pytest.mark.parametrize(
    ("old", "new", "title"),
    [
        ("| 0 ?   |", "| 1 ?   |", "rows after 0"),
        ("| bob      | ≥1 | stays", "| bob      | ≥2 | stays", "rows after 2"),
        ("| bob      | ≥1 | stays", "| bob      | ≥1 | final", "rows after 2"),
        ("--- changes 3\n", "--- changes 3\nTotal | cents |\n      | 12 ?  | stays\n", "changes 3"),
        ("| 13 ?  | stays", "| 12 ?  | stays", "changes 4"),
        ("       | @1h        | bob      | =1 | final\n", "", "rows end"),
        ("| =13   |", "| =12   |", "rows end"),
    ],
)
def test_a_wrong_row_is_found(tmp_path: Path, old: str, new: str, title: str) -> None:
    assert old in FILE
    wrong = FILE.replace(old, new, 1)
    case, differences = run(tmp_path / "orders.test", wrong)
    line = wrong.split("\n").index(f"--- {title}") + 1
    assert [(d.expected.title, d.expected.line) for d in differences] == [(title, line)]
    assert differences[0].text(case).startswith(f"{tmp_path}/orders.test:{line}: --- {title}: 1 row ")


def test_a_difference_is_readable(tmp_path: Path) -> None:
    """A row that differs is above the one that is shown, in one table for each view; rows that agree are not repeated."""
    wrong = FILE.replace("| @1h        | bob      | =1 | final", "| @1h        | eve      | =1 | final").replace(
        "| =13   |", "| =1000 |"
    )
    case, (difference,) = run(tmp_path / "orders.test", wrong)
    assert difference.text(case).splitlines() == [
        f"{tmp_path}/orders.test:34: --- rows end: 1 row differs, 1 is missing, 1 is unexpected  (- expected, + shown)",
        "         Hourly | window_end | customer | n  |",
        "    37 -        | @1h        | eve      | =1 | final",
        "       +        | @1h        | bob      | =1 | final",
        "         Total  | cents |",
        "    39 -        | =1000 | final",
        "       +        | =13   | final",
    ]


def test_events_are_not_needed(tmp_path: Path) -> None:
    without = re.sub(r"--- events.*?--- rows after 0", "--- rows after 0", FILE, flags=re.DOTALL)
    text = without.partition("--- rows after 2")[0] + "--- rows end\nTotal | cents |\n      | =0    | final\n"
    assert run(tmp_path / "orders.test", text)[1] == []


def test_changes_are_those_of_one_line(tmp_path: Path) -> None:
    """Also if nothing is expected of the lines above it."""
    begin, end = FILE.index("--- rows after 0"), FILE.index("--- changes 4")
    assert run(tmp_path / "orders.test", FILE[:begin] + FILE[end:])[1] == []


def test_a_program_in_a_file_of_its_own(tmp_path: Path) -> None:
    """The path is relative to the test file. Both run the same."""
    (tmp_path / "tests").mkdir()
    program, _, rest = FILE.removeprefix("--- program\n").partition("--- events")
    (tmp_path / "orders.smile").write_text(program)
    path = tmp_path / "tests" / "orders.test"
    assert run(path, f"--- program ../orders.smile\n\n--- events{rest}")[1] == []
    assert run(path, f"--- program ../orders.smile\n\n--- events{rest.replace('=13', '=12')}")[1] != []


def test_some_views_of_a_program(tmp_path: Path) -> None:
    """Only their rows are expected. They need no subscription."""
    text = FILE.replace("SUBSCRIBE Hourly, Total;\n", "").replace("--- events", "--- views Total\n\n--- events")
    only = re.sub(r"Hourly \|.*?(?=Total )", "", text, flags=re.DOTALL)
    assert run(tmp_path / "orders.test", only)[1] == []
    assert run(tmp_path / "orders.test", only.replace("| =13   |", "| =12   |"))[1] != []


def test_a_program_in_mmpl(tmp_path: Path) -> None:
    inline = next(case for case in cases() if case.text.partition("--- program")[2].startswith(" mmpl\n"))
    program, events, rest = inline.text.partition("--- program mmpl\n")[2].partition("--- events")
    (tmp_path / "p.mmpl").write_text(program)
    assert run(tmp_path / "p.test", f"--- program p.mmpl\n{events}{rest}")[1] == []


def test_the_folder_of_the_test_programs_is_not_empty() -> None:
    assert len(list(FOLDER.glob("*.test"))) == len(cases()) > 150
