"""Compares rows with those that a test file expects; a difference is shown in the notation of the file."""

import json

from tests.programs.cells import Json
from tests.programs.reader import Case
from tests.programs.tables import print_tables

OPTIONAL = ("steps", "stays")
"""Compared only where the expected row has them."""


def assert_rows(case: Case, cut: int | None, actual: list[Json]) -> None:
    """The rows that are shown after so many event lines, or at the end, are those that the file expects."""
    _assert_same(case, "rows end" if cut is None else f"rows after {cut}", case.rows[cut], actual)


def assert_changes(case: Case, line: int, actual: list[Json]) -> None:
    """The event line changes what the file expects it to change."""
    _assert_same(case, f"changes {line}", case.changes[line], actual)


def _assert_same(case: Case, section: str, expected: list[Json], actual: list[Json]) -> None:
    by_key = {_key(row): row for row in expected}
    compared = [_without_optional(row, by_key.get(_key(row))) for row in actual]
    missing = [row for row in expected if row not in compared]
    unexpected = [row for row in compared if row not in expected]
    if missing or unexpected or len(compared) != len(expected):
        raise AssertionError(
            f"{case.path.name}:{case.places[section]}: --- {section}\n"
            f"expected, but not there:\n{_indented(case, missing)}\n"
            f"there, but not expected:\n{_indented(case, unexpected)}"
        )


def _without_optional(row: Json, expected: Json | None) -> Json:
    """A row that nothing is expected of keeps what an author might want to expect, but for its steps."""
    kept = set(expected) if expected else {"stays"}
    return {name: value for name, value in row.items() if name not in OPTIONAL or name in kept}


def _key(row: Json) -> str:
    return json.dumps([row["view"], row["key"]], sort_keys=True)


def _indented(case: Case, rows: list[Json]) -> str:
    text = print_tables(rows, case.types) or "nothing"
    return "\n".join(f"  {line}" for line in text.splitlines())
