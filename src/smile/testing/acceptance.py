"""Writes the rows that are shown into a test file. The other lines stay: rows keep their places, comments theirs."""

from collections.abc import Iterable, Mapping, Sequence

from smile.knowledge.types import RelationType
from smile.knowledge.values.json import Json
from smile.testing.comparison import Difference
from smile.testing.reader import CaseFile
from smile.testing.tables import row_key, split_cells, table_lines


def accepted_text(case: CaseFile, differences: Iterable[Difference]) -> str:
    """The text of the test file, with the rows that are shown in each section that differs."""
    lines = case.text.split("\n")
    begins = [number for number, line in enumerate(lines) if line.startswith("---")] + [len(lines)]
    # From the end, so that the numbers of the lines above stay right.
    for difference in sorted(differences, key=lambda d: -d.expected.line):
        begin = difference.expected.line
        end = min(number for number in begins if number >= begin)
        lines[begin:end] = _rewritten(lines[begin:end], difference, case.types)
    return "\n".join(lines)


def _rewritten(lines: Sequence[str], difference: Difference, types: Mapping[str, RelationType]) -> list[str]:
    """The lines of a section. Comments stay above the table or the row that they are above, and at the end."""
    first_line = difference.expected.line + 1
    row_by_line = dict(zip(difference.expected.row_lines, difference.expected.rows, strict=True))
    rows = [(row_key(row), row) for row in _in_order(difference)]
    kept = {name for key, row in rows for name in (key, row["view"])}
    comments: dict[str, list[str]] = {}
    waiting: list[str] = []
    for number, line in enumerate(lines, first_line):
        if line.startswith("#") or not line.strip():
            waiting.append(line)
            continue
        row = row_by_line.get(number)
        anchor = split_cells(line)[0] if row is None else row_key(row)
        if anchor in kept:
            comments.setdefault(anchor, []).extend(waiting)
            waiting = []
    written: list[str] = []
    for mark, line in table_lines(rows, types):
        written += [*comments.get(split_cells(line)[0] if mark is None else mark, ()), line]
    if not row_by_line:
        # Comments right below the title are of this section, those after a blank line are of the next one.
        below = next((index for index, line in enumerate(waiting) if not line.strip()), len(waiting))
        return [*waiting[:below], *written, *waiting[below:]]
    return written + waiting


def _in_order(difference: Difference) -> list[Json]:
    """The rows that are shown: first those that are expected, in their order."""
    places = {row_key(row): place for place, row in enumerate(difference.expected.rows)}
    return sorted(difference.shown, key=lambda row: places.get(row_key(row), len(places)))
