"""Asserts that rows are those that a test file expects."""

from smile.knowledge.values.json import Json
from smile.testing.comparison import compare_rows
from smile.testing.reader import CaseFile, ExpectedRows


def assert_rows(case: CaseFile, cut: int | None, actual: list[Json]) -> None:
    """The rows that are shown after so many event lines, or at the end, are those that the file expects."""
    _assert_same(case, case.rows[cut], actual)


def assert_changes(case: CaseFile, line: int, actual: list[Json]) -> None:
    """The event line changes what the file expects it to change."""
    _assert_same(case, case.changes[line], actual)


def _assert_same(case: CaseFile, expected: ExpectedRows, actual: list[Json]) -> None:
    difference = compare_rows(expected, actual)
    assert difference is None, difference.text(case)
