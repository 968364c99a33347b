"""Test programs: each file of tests/programs is a program, its events, and what is expected of them.

A line that begins with `---` begins a section; `#` begins a comment where a line does, outside the program:

    --- program            SmileSQL; `--- program mmpl` is in MMPL
    --- events             NDJSON, one line an event or a silence
    --- rows after 4       the rows that subscribed views show after four lines, in any order; nothing means none
    --- rows end           and once all streams are finished after the last line
    --- changes 6          what line 6 changes, in any order; a row that vanishes has `"deleted":true`

Rows are compared as JSON values; `steps` and `stays` only where the expected row has them.
"""

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from smile.algebra import mmpl
from smile.knowledge.analysis import TypeAnalysis
from smile.program import compile_program
from smile.reference.history import RecordedLine, read_events
from smile.source import Source

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "programs"
OPTIONAL = ("steps", "stays")

Json = dict[str, Any]


@dataclass
class Case:
    name: str
    program: str = ""
    language: str = "smile"
    events: list[RecordedLine] = field(default_factory=list)
    rows: dict[int | None, list[Json]] = field(default_factory=dict)
    changes: dict[int, list[Json]] = field(default_factory=dict)

    @property
    def written(self) -> mmpl.Program:
        return compiled(self.name, self.language, self.program)


@cache
def compiled(name: str, language: str, text: str) -> mmpl.Program:
    return compile_program(Source(f"{name}.{language}", text)).original


@cache
def analysed(program: mmpl.Program) -> TypeAnalysis:
    return TypeAnalysis(program)


def read_case(path: Path) -> Case:
    case = Case(path.stem)
    for section in ("\n" + path.read_text()).split("\n---")[1:]:
        title, _, body = section.partition("\n")
        words = title.split()
        lines = "\n".join(line for line in body.splitlines() if not line.startswith("#"))
        match words:
            case ["program", *language]:
                case.program, case.language = body, (language or ["smile"])[0]
            case ["events"]:
                case.events = read_events(lines)
            case ["rows", "end"]:
                case.rows[None] = _objects(lines)
            case ["rows", "after", count]:
                case.rows[int(count)] = _objects(lines)
            case ["changes", line]:
                case.changes[int(line)] = _objects(lines)
            case _:
                raise ValueError(f"{path}: no section is called {title!r}")
    return case


def _objects(text: str) -> list[Json]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def cases() -> list[Case]:
    return [read_case(path) for path in sorted(FOLDER.glob("*.test"))]


def programs() -> dict[str, mmpl.Program]:
    """Every test program and every example program, as written."""
    found = {case.name: case.written for case in cases()}
    for path in sorted((ROOT / "programs").glob("*.smile")):
        found[f"programs/{path.stem}"] = compiled(path.stem, "smile", path.read_text())
    return found


def comparable(found: list[Json], expected: list[Json]) -> tuple[list[Json], list[Json]]:
    """Both lists in one order, without what the expected rows do not say."""
    wanted = {_name(e): e for e in expected}
    cut = []
    for row in found:
        match = wanted.get(_name(row), {})
        cut.append({k: v for k, v in row.items() if k not in OPTIONAL or k in match})
    return sorted(cut, key=_name), sorted(expected, key=_name)


def _name(row: Json) -> str:
    return json.dumps([row["view"], row["key"]], sort_keys=True)
