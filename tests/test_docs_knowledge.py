"""The table of docs/knowledge.md is true: each line names a test program that has the shape and shows the cells."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECTION = "## What is shown, by query shape\n"


@dataclass(frozen=True)
class Line:
    shapes: list[str]
    cells: list[str]
    program: str


def lines() -> list[Line]:
    section = (ROOT / "docs/knowledge.md").read_text().partition(SECTION)[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in section.splitlines() if row[:1] == "|"]
    return [
        Line(_code(shape), [*_code(shown), *_code(closes)], *_code(program))
        for shape, shown, closes, program in rows[2:]
    ]


def _code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_table_has_lines() -> None:
    assert len(lines()) >= 8


def test_no_line_is_outside_of_the_table() -> None:
    """A line that names a test program, but stands elsewhere, would be checked by nobody."""
    programs = {path.stem for path in (ROOT / "tests/programs").glob("*.test")}
    text = (ROOT / "docs/knowledge.md").read_text()
    cells = [row.rstrip("| ").rpartition("|")[2].strip() for row in text.splitlines() if row[:1] == "|"]
    assert sum(cell in {f"`{program}`" for program in programs} for cell in cells) == len(lines())


@pytest.mark.parametrize("line", lines(), ids=lambda line: f"{line.program} {line.shapes}")
def test_a_line_is_what_its_test_program_shows(line: Line) -> None:
    path = ROOT / "tests/programs" / f"{line.program}.test"
    program, _, expected = path.read_text().partition("--- program")[2].partition("--- events")
    assert line.shapes
    assert [shape for shape in line.shapes if _squeezed(shape) not in _squeezed(program)] == []
    cells = {cell.strip() for row in expected.splitlines() for cell in row.split("|")}
    assert line.cells
    assert [cell for cell in line.cells if cell not in cells] == []


def _squeezed(text: str) -> str:
    return " ".join(text.split())
