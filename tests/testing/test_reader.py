"""Test files are read as docs/test-files.md says, malformed ones are refused with their line, and rows are printed as they are read."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from smile.algebra.types import BOOL, BYTES, DATE, FLOAT, INT, INT_MAX, INTERVAL, STRING, TIME, DataType, decimal_type
from smile.knowledge.values.json import Json
from smile.reference.evaluate import evaluate
from smile.reference.history import History
from smile.reference.wire import snapshot_messages
from smile.testing.cells import parse_cell, print_cell
from smile.testing.reader import CaseError, CaseFile, ExpectedRows, read_case
from smile.testing.tables import parse_tables, print_tables
from smile.testing.ticks import UNITS, parse_tick, print_tick
from tests.programs.compare import assert_changes, assert_rows
from tests.programs.reader import ROOT, analyse, cases, recorded_lines

PAGE = (ROOT / "docs" / "test-files.md").read_text()

FILE = """\
# A count per host

--- program
CREATE STREAM Errors (t: time -> host: string, code: int);
CREATE VIEW Counts AS SELECT host, COUNT(*) AS n FROM Errors GROUP BY host;
SUBSCRIBE Counts;

--- events
Errors @1m {"host": "a", "code": 500}
Errors @2m {"host": "b"}

--- rows after 1
Counts | host | n  |
       | a    | ≥1 | stays

--- changes 2
Counts | host | n  |
       | b    | ≥1 | stays, steps 1
"""


def read(tmp_path: Path, text: str) -> CaseFile:
    path = tmp_path / "counts.test"
    path.write_text(text)
    return read_case(path)


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_is_read(tmp_path: Path) -> None:
    case = read(tmp_path, FILE)
    assert case.name == "counts"
    assert recorded_lines(case) == [
        {"stream": "Errors", "at": 61440000000, "event": {"host": "a", "code": 500}},
        {"stream": "Errors", "at": 122880000000, "event": {"host": "b"}},
    ]
    row = {"view": "Counts", "row": {"n": 1}, "knowledge": {"n": {"at_least": 1}}, "final": False, "stays": True}
    assert case.rows == {1: ExpectedRows("rows after 1", 12, [{**row, "key": {"host": "a"}}], [14])}
    assert case.changes == {2: ExpectedRows("changes 2", 16, [{**row, "key": {"host": "b"}, "steps": 1}], [18])}


def test_the_example_of_the_page_holds(tmp_path: Path) -> None:
    example = re.search(r"```test file=(\S+)\n(.*?)```", PAGE, re.DOTALL)
    assert example
    path = tmp_path / example[1]
    path.write_text(example[2])
    case = read_case(path)
    assert (list(case.rows), list(case.changes)) == ([3, None], [4])
    assert_rows(case, 3, shown(case, History.from_lines(case.written, recorded_lines(case)[:3])))
    assert_rows(case, None, shown(case, History.from_lines(case.written, recorded_lines(case)).with_finished_streams()))
    assert_changes(case, 4, shown(case, History.from_lines(case.written, recorded_lines(case))))


def shown(case: CaseFile, history: History) -> list[Json]:
    relations = evaluate(case.written, analyse(case.written), history)
    return [
        row for view, type_ in case.types.items() for row in snapshot_messages(view, type_, relations[view]).values()
    ]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_rows_of_all_files_are_read_back_from_their_print(case: CaseFile) -> None:
    for section in [*case.rows.values(), *case.changes.values()]:
        rows = section.rows
        lines = list(enumerate(print_tables(rows, case.types).split("\n") if rows else []))
        by_view = sorted(rows, key=lambda row: list(dict.fromkeys(r["view"] for r in rows)).index(row["view"]))
        assert list(parse_tables(lines, case.types, changes=True).values()) == by_view, section.title


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("# A count", "A count", 1, "text before the first section"),
        ("--- program\n", "--- programme\n", 3, "the first section is not --- program"),
        ("COUNT(*) AS n", "COUNT(*) n n", 5, "error E010: unexpected n"),
        ("SUBSCRIBE Counts;", "", 3, "subscribes to no view"),
        ("--- events", "--- views Count\n\n--- events", 8, "the program has no view Count"),
        ("--- events", "--- views Counts\nCounts\n--- events", 9, "no text may follow it"),
        ("--- events", "--- events\n--- views Counts", 9, "there is no section --- views Counts"),
        ("--- program", "--- program other.smile", 4, "the program is in other.smile, so no text may follow here"),
        ("--- changes 2", "--- change 2", 16, "there is no section --- change 2"),
        ("--- changes 2", "--- changes 3", 16, "no event line 3"),
        ("--- changes 2", "--- changes 0", 16, "no event line 0"),
        ("--- changes 2", "--- rows after 1", 16, "is there twice, first in line 12"),
        ("Errors @2m", "Errors 2m", 10, "neither an event nor a silence"),
        ("Errors @2m", "Errors @2x", 10, "neither an event nor a silence"),
        ("Errors @2m", "Mistakes @2m", 10, "Mistakes"),
        ("Errors @2m", "Errors @1m-1", 10, "Errors has no event at tick"),
        ('{"host": "b"}', '{"hots": "b"}', 10, "hots"),
        ('{"host": "b"}', '{"code": "b"}', 10, "is not an int"),
        ('{"host": "b"}', '{"host": }', 10, "JSON"),
        ("Counts | host | n  |\n       | a", "       | a", 13, "a row has no table"),
        (
            "Counts | host | n  |\n       | a",
            "Count | host | n  |\n       | a",
            13,
            "'Count' is none of the views of this test: Counts",
        ),
        ("Counts | host | n  |\n       | a", "Counts | n | host |\n       | a", 13, "begins with: Counts | host | n"),
        ("| a    | ≥1 | stays", "| a    ", 14, "has 2 cells, and may have another with flags; this one has 1"),
        ("| a    | ≥1 | stays", "| a    | ≥1 | stays | final", 14, "this one has 4"),
        ("| a    | ≥1 | stays", "| a    | ≥1 | stay", 14, "'stay' is not a flag"),
        ("| a    | ≥1 | stays", "| a    | ≥1 | final, final", 14, "given twice"),
        ("| a    | ≥1 | stays", "| a    |    | deleted", 14, "deleted rows are listed in sections of changes only"),
        ("| a    | ≥1 | stays", "| a    | ≥1 |\n       | a    | ≥1 |", 15, "line 14 has a row with this key already"),
        ("| b    | ≥1 | stays", "| b    | ≥1 | deleted", 18, "a deleted row has values"),
        ("| a    | ≥1 | stays", "| a    | 1  | stays", 14, "n: '1' does not say what is known"),
        ("| a    | ≥1 | stays", "| a    | ≥x | stays", 14, "n: 'x' is not of type int"),
        ("| a    | ≥1 | stays", "| a    | 1 =1 | stays", 14, "a current value beside an exact one"),
        ("| a    | ≥1 | stays", "| a    | [1..3] | stays", 14, "has no current value"),
        ("| a    | ≥1 | stays", "|      | ≥1 | stays", 14, "host: a cell is empty"),
        ("| a    | ≥1 | stays", "| a b  | ≥1 | stays", 14, "host: 'a b' has to be in double quotes"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    assert old in FILE
    with pytest.raises(CaseError) as refusal:
        read(tmp_path, FILE.replace(old, new, 1))
    assert str(refusal.value).startswith(f"{tmp_path}/counts.test:{line}:")
    assert message in str(refusal.value)


def test_a_file_has_to_expect_something(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=r"counts\.test:3:1: error E169: the file expects nothing"):
        read(tmp_path, FILE[: FILE.index("--- rows")])


def test_a_difference_is_shown_as_the_file_would_have_it(tmp_path: Path) -> None:
    case = read(tmp_path, FILE)
    actual = shown(case, History.from_lines(case.written, recorded_lines(case)))
    with pytest.raises(AssertionError) as difference:
        assert_rows(case, 1, actual)
    assert str(difference.value).splitlines()[:3] == [
        f"{tmp_path}/counts.test:12: --- rows after 1: 1 row is unexpected  (- expected, + shown)",
        "         Counts | host | n  |",
        "       +        | b    | ≥1 | stays",
    ]
    assert_rows(case, 1, actual[:1])
    with pytest.raises(AssertionError):
        assert_rows(case, 1, [])


# ── ticks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "tick"),
    [
        ("@17", 17),
        ("@-5", -5),
        ("@2s", 2_048_000_000),
        ("@500ms", 512_000_000),
        ("@1h30m", 90 * 61_440_000_000),
        ("@7m-1", 7 * 61_440_000_000 - 1),
        ("@7m+1", 7 * 61_440_000_000 + 1),
        ("@end", INT_MAX),
        ("@end-1", INT_MAX - 1),
    ],
)
def test_ticks(text: str, tick: int) -> None:
    assert parse_tick(text) == tick
    assert print_tick(tick) == text


@given(
    st.integers(-(2**63), INT_MAX)
    | st.builds(lambda n, d: n * UNITS["s"] + d, st.integers(0, 9999), st.integers(-9, 9))
)
def test_a_printed_tick_is_read_back(tick: int) -> None:
    assert parse_tick(print_tick(tick)) == tick


@pytest.mark.parametrize("text", ["17", "@", "@1x", "@1h 30m", "@7m-", "@m", "@1.5s"])
def test_what_is_no_tick_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a tick"):
        parse_tick(text)


# ── cells ───────────────────────────────────────────────────────────────────────────────────────────────────────────

VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    INT: st.integers(-(2**63), INT_MAX),
    FLOAT: st.floats(allow_nan=False, allow_infinity=False),
    decimal_type(38, 2): st.integers(-999, 999) | st.sampled_from([7.25, -0.01, "1234567890123456789.01"]),
    BOOL: st.booleans(),
    STRING: st.text()
    | st.sampled_from(["", "NULL", "a b", "a|b", "x@y", "a..b", "..", "[1]", "≥3", '"', "\\", "true"]),
    TIME: st.integers(0, 2**53),
    INTERVAL: st.integers(-(2**53), 2**53),
    DATE: st.just("2024-02-29"),
    BYTES: st.just("\\x00ff"),
}


@given(st.data())
def test_a_printed_cell_is_read_back(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from(list(VALUES)))
    value = VALUES[type_] | st.none()
    knowledge = data.draw(
        st.none()
        | st.just({"unknown": True})
        | st.fixed_dictionaries({"exactly": value})
        | st.fixed_dictionaries({"at_least": VALUES[type_]})
        | st.fixed_dictionaries({"at_most": VALUES[type_]})
        | st.fixed_dictionaries({"between": st.lists(VALUES[type_], min_size=2, max_size=2)})
        | st.fixed_dictionaries({"latest": value, "at": st.integers(0, 2**53)}, optional={"source": st.integers(1, 9)})
    )
    now = knowledge["exactly"] if knowledge and "exactly" in knowledge else data.draw(value)
    evolves = knowledge is not None
    assert parse_cell(print_cell(now, knowledge, type_), type_, evolves) == (now, knowledge)
