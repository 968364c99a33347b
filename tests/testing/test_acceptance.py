"""An accepted file passes, says what the engine shows, and otherwise is as its author wrote it."""

import re
from pathlib import Path

import pytest

from smile.testing.acceptance import accepted_text
from smile.testing.reader import CaseFile, read_case
from smile.testing.runs import LocalCaseEngine, find_differences
from tests.programs.reader import cases
from tests.testing.test_runs import FILE, run


def accepted(path: Path, text: str) -> str:
    case, differences = run(path, text)
    new = accepted_text(case, differences)
    assert run(path, new)[1] == []
    return new


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| 0 ?   |", "| 1 ?   |"),
        ("| bob      | ≥1 |", "| bob      | ≥7 |"),
        ("       | @1h        | ann      | =2 | final\n", "       | @1h        | ann      | =3 | final\n"),
        ("| =13   |", "| =12   |"),
    ],
)
def test_wrong_cells_are_replaced_at_their_places(tmp_path: Path, old: str, new: str) -> None:
    assert accepted(tmp_path / "orders.test", FILE.replace(old, new, 1)) == FILE


def test_rows_go_and_come(tmp_path: Path) -> None:
    """A row that is not shown goes. One that was not expected comes at the end of its table."""
    wrong = FILE.replace("| ann      | =2 |", "| eve      | =2 |")
    end = accepted(tmp_path / "orders.test", wrong).partition("--- rows end\n")[2]
    assert end == (
        "Hourly | window_end | customer | n  |\n"
        "       | @1h        | bob      | =1 | final\n"
        "       | @1h        | ann      | =2 | final\n"
        "Total  | cents |\n"
        "       | =13   | final\n"
    )


def test_empty_sections_are_filled(tmp_path: Path) -> None:
    """So a new test needs only its program and its events."""
    empty = re.sub(r"(--- (?:rows|changes)[^\n]*\n)[^-]*?(?=\n*--- |\Z)", r"\1", FILE)
    assert "| ann" not in empty
    assert accepted(tmp_path / "orders.test", empty).split() == FILE.split()


def test_comments_stay(tmp_path: Path) -> None:
    """Above the table or the row that they were above; those of a row that goes, above the next one."""
    wrong = """\
--- rows after 2
# of the table
Hourly | window_end | customer | n  |
# of ann
       | @1h        | ann      | ≥9 | stays
# of eve
       | @1h        | eve      | ≥1 | stays
# of the total
Total  | cents |
       | 12 ?  | stays
# at the end

# of the next section
--- rows end
# none?
"""
    begin = FILE.partition("--- rows after 0")[0]
    new = accepted(tmp_path / "orders.test", begin + wrong)
    assert (
        new.partition("silence @1h\n\n")[2]
        == """\
--- rows after 2
# of the table
Hourly | window_end | customer | n  |
# of ann
       | @1h        | ann      | ≥1 | stays
       | @1h        | bob      | ≥1 | stays
# of eve
# of the total
Total  | cents |
       | 12 ?  | stays
# at the end

# of the next section
--- rows end
# none?
Hourly | window_end | customer | n  |
       | @1h        | ann      | =2 | final
       | @1h        | bob      | =1 | final
Total  | cents |
       | =13   | final
"""
    )


def test_what_is_not_compared_is_not_added(tmp_path: Path) -> None:
    """A row that does not say that it stays, or its steps, goes on to say neither. A new row says that it stays."""
    less = FILE.replace("| bob      | ≥1 | stays", "| bob      | ≥2 |").replace(
        "| ann      | ≥1 | stays", "| ann      | ≥2 | steps 1"
    )
    new = accepted(tmp_path / "orders.test", less)
    assert "| bob      | ≥1 |\n" in new
    assert "| ann      | ≥1 | steps 1\n" in new


@pytest.mark.parametrize(
    "case", [c for c in cases() if c.name in ("count-per-host", "nested", "origins-order")], ids=lambda c: c.name
)
def test_rows_that_were_taken_out_come_back(case: CaseFile, tmp_path: Path) -> None:
    """Of programs with all kinds of cells."""
    path = tmp_path / case.path.name
    lines = case.text.split("\n")
    expected = [*case.rows.values(), *case.changes.values()]
    gone = {line for section in expected for line in section.row_lines}
    path.write_text("\n".join(line for number, line in enumerate(lines, 1) if number not in gone))
    emptied = read_case(path)
    assert all(not section.rows for section in emptied.rows.values())
    new = accepted(path, path.read_text())
    path.write_text(new)
    again = read_case(path)
    assert find_differences(again, LocalCaseEngine(again)) == []
    assert {cut: len(e.rows) for cut, e in again.rows.items()} == {cut: len(e.rows) for cut, e in case.rows.items()}
