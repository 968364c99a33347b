"""Compares the rows of a view with those that a test file expects. Differences are in the notation of the file."""

from collections.abc import Sequence
from dataclasses import dataclass

from smile.knowledge.values.json import Json
from smile.testing.reader import CaseFile, ExpectedRows
from smile.testing.tables import row_key, table_lines

OPTIONAL = ("steps", "stays")
"""Compared only where the expected row has them."""


@dataclass(frozen=True)
class Difference:
    """The rows that a section expects are not those that are shown. `shown` are all of these, without what the section
    does not compare."""

    expected: ExpectedRows
    shown: Sequence[Json]

    def summary(self) -> str:
        """For instance "1 row differs, 2 are missing"."""
        expected, shown = ({row_key(row): row for row in rows} for rows in (self.expected.rows, self.shown))
        differing = sum(key in shown and shown[key] != row for key, row in expected.items())
        counts = [
            (differing, "differs", "differ"),
            (len(expected.keys() - shown.keys()), "is missing", "are missing"),
            (len(shown.keys() - expected.keys()), "is unexpected", "are unexpected"),
        ]
        parts = [f"{count} {one if count == 1 else many}" for count, one, many in counts if count]
        number, _, rest = parts[0].partition(" ")
        return ", ".join([f"{number} row{'s' * (number != '1')} {rest}", *parts[1:]])

    def text(self, case: CaseFile) -> str:
        """Where, how much, and which rows: `-` marks what was expected, with its line, and `+` what is shown."""
        title = f"{case.path}:{self.expected.line}: --- {self.expected.title}: {self.summary()}"
        return "\n".join([f"{title}  (- expected, + shown)", *self._table(case)])

    def _table(self, case: CaseFile) -> list[str]:
        """The rows that differ, each beside the one with the same key."""
        shown_by_key = {row_key(row): row for row in self.shown}
        expected_keys = {row_key(row) for row in self.expected.rows}
        marked: list[tuple[str, Json]] = []
        for line, row in zip(self.expected.row_lines, self.expected.rows, strict=True):
            shown = shown_by_key.get(row_key(row))
            if shown != row:
                marked.append((f"{line:6} - ", row))
                marked += [(" " * 7 + "+ ", shown)] if shown is not None else []
        marked += [(" " * 7 + "+ ", row) for row in self.shown if row_key(row) not in expected_keys]
        return [f"{mark or ' ' * 9}{line}" for mark, line in table_lines(marked, case.types)]


def compare_rows(expected: ExpectedRows, shown: Sequence[Json]) -> Difference | None:
    """None if the rows are those that are expected, in any order."""
    by_key = {row_key(row): row for row in expected.rows}
    compared = [_without_optional(row, by_key.get(row_key(row))) for row in shown]
    is_same = {row_key(row): row for row in compared} == by_key
    return None if is_same else Difference(expected, compared)


def _without_optional(row: Json, expected: Json | None) -> Json:
    """A row that nothing is expected of keeps what an author might want to expect, but for its steps."""
    kept = set(expected) if expected else {"stays"}
    return {name: value for name, value in row.items() if name not in OPTIONAL or name in kept}
