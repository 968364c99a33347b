"""Reads the test files of this folder. README.md beside it describes their format."""

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from smile.algebra import mmpl
from smile.analysis.type_analysis import TypeAnalysis
from smile.decoding.event_decoder import EventDecoder
from smile.errors import SmileError, render
from smile.knowledge.types import RelationType
from smile.log.recorded_events import BadEvent, EventReader
from smile.program import CompiledProgram, compile_program
from smile.reference.history import RecordedLine, read_events
from smile.source import Source
from tests.programs.cells import Json, plain_ticks
from tests.programs.tables import TableError, parse_tables
from tests.programs.ticks import TICK, parse_tick

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "programs"

Lines = list[tuple[int, str]]
"""Lines with their numbers in the file."""


class CaseError(ValueError):
    """A test file that is malformed; the message begins with its path and the line."""


@dataclass
class Section:
    line: int
    title: tuple[str, ...]
    lines: Lines = field(default_factory=list)


@dataclass
class Case:
    """A program, its events, and the rows that are expected: `rows` after a number of event lines, or at the end
    (None); `changes` by the event line of a number. `places` has the line of the file where each section begins."""

    path: Path
    language: str
    program: str
    events: list[RecordedLine] = field(default_factory=list)
    rows: dict[int | None, list[Json]] = field(default_factory=dict)
    changes: dict[int, list[Json]] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def written(self) -> mmpl.Program:
        return compile_text(self.name, self.language, self.program).original

    @property
    def rewritten(self) -> mmpl.Program:
        return compile_text(self.name, self.language, self.program).rewritten

    @property
    def types(self) -> Mapping[str, RelationType]:
        """The views that the program subscribes to, in its order."""
        analysis = analyse(self.written)
        return {view: analysis.relations[view] for view in self.written.subscriptions}


@cache
def compile_text(name: str, language: str, text: str) -> CompiledProgram:
    return compile_program(Source(f"{name}.{language}", text))


@cache
def analyse(program: mmpl.Program) -> TypeAnalysis:
    return TypeAnalysis(program)


@cache
def cases() -> tuple[Case, ...]:
    """All test files of this folder."""
    return tuple(read_case(path) for path in sorted(FOLDER.glob("*.test")))


def programs() -> dict[str, mmpl.Program]:
    """Every test program and every example program, as written."""
    by_name = {case.name: case.written for case in cases()}
    for path in sorted((ROOT / "programs").glob("*.smile")):
        by_name[f"programs/{path.stem}"] = compile_text(path.stem, "smile", path.read_text()).original
    return by_name


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_case(path: Path) -> Case:
    """CaseError says which line is wrong, and how."""
    sections = _sections(path)
    first = next(sections, None)
    if first is None or first.title not in (("program",), ("program", "mmpl")):
        raise _error(path, first.line if first else 1, "the first section is not --- program or --- program mmpl")
    # Empty lines before the program give its errors the lines of the file.
    text = "\n" * first.line + "\n".join(line for _, line in first.lines) + "\n"
    case = Case(path, "mmpl" if first.title[1:] else "smile", text)
    try:
        subscriptions = case.written.subscriptions
    except SmileError as problem:
        raise CaseError(render(problem.diagnostics, Source(_shown(path), text))) from None
    if not subscriptions:
        raise _error(path, first.line, "the program subscribes to no view, so no rows can be expected")
    for section in sections:
        _read_section(case, section)
    if not case.rows and not case.changes:
        raise _error(path, first.line, "the file expects nothing; add --- rows after N, --- rows end or --- changes N")
    return case


def _sections(path: Path) -> Iterator[Section]:
    """Comments and blank lines are left out, but for those of the program."""
    section: Section | None = None
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if line.startswith("---"):
            if section is not None:
                yield section
            section = Section(number, tuple(line[3:].split()))
        elif section is not None and section.title[:1] == ("program",):
            section.lines.append((number, line))
        elif line.strip() and not line.startswith("#"):
            if section is None:
                raise _error(path, number, "text before the first section; a comment begins with #")
            section.lines.append((number, line))
    if section is not None:
        yield section


def _read_section(case: Case, section: Section) -> None:
    title = " ".join(section.title)
    if title in case.places:
        raise _error(case.path, section.line, f"--- {title} is there twice, first in line {case.places[title]}")
    case.places[title] = section.line
    match section.title:
        case ["events"]:
            case.events = _read_events(case, section.lines)
        case ["rows", "end"]:
            case.rows[None] = _read_rows(case, section)
        case ["rows", "after", count] if count.isdigit():
            case.rows[_number(case, section, count, 0)] = _read_rows(case, section)
        case ["changes", line] if line.isdigit():
            case.changes[_number(case, section, line, 1)] = _read_rows(case, section)
        case _:
            known = "--- events, --- rows after N, --- rows end and --- changes N"
            raise _error(
                case.path, section.line, f"there is no section --- {title}; after the program there are {known}"
            )


def _number(case: Case, section: Section, digits: str, least: int) -> int:
    if not least <= int(digits) <= len(case.events):
        message = f"there is no event line {digits} above; the number of event lines is {len(case.events)}"
        raise _error(case.path, section.line, message)
    return int(digits)


def _read_rows(case: Case, section: Section) -> list[Json]:
    try:
        return parse_tables(section.lines, case.types, changes=section.title[0] == "changes")
    except TableError as problem:
        raise _error(case.path, problem.line, str(problem)) from None


EVENT = re.compile(rf"(?P<stream>[^\s{{:]+)(?::(?P<origin>\d+))?(?:\s+(?P<tick>{TICK}))?\s*(?P<values>\{{.*\}})\s*")
SILENCE = re.compile(rf"(?:(?P<stream>[^\s:]+)(?::(?P<origin>\d+))?\s+)?silence\s+(?P<tick>{TICK})\s*")


def _read_events(case: Case, lines: Lines) -> list[RecordedLine]:
    """The events, each of which publishing would accept."""
    texts = []
    for number, line in lines:
        try:
            texts.append(_event_json(line))
        except ValueError as problem:
            raise _error(case.path, number, str(problem)) from None
    _check_events(case, lines, texts)
    return read_events("\n".join(texts))


def _event_json(line: str) -> str:
    """A line as recorded events have it."""
    if silence := SILENCE.fullmatch(line):
        stream = f'"stream":{json.dumps(silence["stream"])},{_origin_json(silence)}' if silence["stream"] else ""
        return f'{{{stream}"silence_to":{parse_tick(silence["tick"])}}}'
    event = EVENT.fullmatch(line)
    if event is None:
        examples = 'Beats @1m {"host": "a"}, Beats silence @7m, or silence @7m'
        raise ValueError(f"{line!r} is neither an event nor a silence; write for example {examples}")
    at = f'"at":{parse_tick(event["tick"])},' if event["tick"] else ""
    return f'{{"stream":{json.dumps(event["stream"])},{_origin_json(event)}{at}"event":{plain_ticks(event["values"])}}}'


def _origin_json(line: re.Match[str]) -> str:
    return f'"origin":{line["origin"]},' if line["origin"] else ""


def _check_events(case: Case, lines: Lines, texts: Iterable[str]) -> None:
    def refuse(bad: BadEvent) -> None:
        hint = f" ({bad.diagnostic.hint})" if bad.diagnostic.hint else ""
        raise _error(case.path, lines[bad.number - 1][0], bad.diagnostic.message + hint)

    file = io.BytesIO("\n".join(texts).encode())
    for _ in EventReader(EventDecoder(case.written.streams), file, case.path.name, refuse).batches(lines_max=1):
        pass


def _error(path: Path, line: int, message: str) -> CaseError:
    return CaseError(f"{_shown(path)}:{line}: {message}")


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
