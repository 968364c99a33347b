"""Reads test files. docs/test-files.md describes their format.

What is read can be run: the program compiles, and publishing would accept all events.
"""

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from smile.algebra import mmpl
from smile.decoding.event_decoder import EventDecoder
from smile.errors import Diagnostic, SmileError, did_you_mean, error, render
from smile.knowledge.types import RelationType
from smile.knowledge.values.json import Json
from smile.log.input_batch import InputBatch
from smile.log.recorded_events import EventError, EventReader, refuse_imported_views
from smile.program import CompiledProgram, compile_program, read_program
from smile.source import Source
from smile.testing.cells import plain_ticks
from smile.testing.tables import TableError, parse_tables
from smile.testing.ticks import TICK, parse_tick

Lines = list[tuple[int, str]]
"""Lines with their numbers in the file."""

Compile = Callable[[Source], CompiledProgram]

SECTIONS = "--- views NAMES right below it, --- events, --- rows after N, --- rows end and --- changes N"


class CaseError(SmileError):
    """A test file that is malformed, or whose program or events are wrong. The spans refer to `source`."""

    def __init__(self, diagnostics: Diagnostic | list[Diagnostic], source: Source) -> None:
        super().__init__(diagnostics)
        self.source = source

    def __str__(self) -> str:
        """Each diagnostic with `file:line:col`."""
        return render(self.diagnostics, self.source)


@dataclass
class Section:
    line: int
    title: str
    lines: Lines = field(default_factory=list)


@dataclass(frozen=True)
class ExpectedRows:
    """What a section expects. `title` is what follows `---`, `line` the line of that title, and `row_lines` those of
    the rows."""

    title: str
    line: int
    rows: list[Json]
    row_lines: list[int]


@dataclass
class CaseFile:
    """A program, its events, and the rows that are expected of `views`: `rows` after a number of event lines, or at
    the end (None); `changes` by the event line of a number. `events` are lines of JSON, as recorded events have them.
    `path` is written as the user wrote it, and `text` is what the file contains."""

    path: Path
    text: str
    compiled: CompiledProgram
    views: tuple[str, ...]
    events: list[str] = field(default_factory=list)
    rows: dict[int | None, ExpectedRows] = field(default_factory=dict)
    changes: dict[int, ExpectedRows] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def written(self) -> mmpl.Program:
        return self.compiled.original

    @property
    def rewritten(self) -> mmpl.Program:
        return self.compiled.rewritten

    @property
    def types(self) -> Mapping[str, RelationType]:
        """The types of the views of which rows are expected."""
        return {view: self.compiled.analysis.relations[view] for view in self.views}

    def batches(self) -> Iterator[tuple[int, InputBatch]]:
        """The number of each event line, and its content. Lines that say nothing new are left out."""
        reader = EventReader(
            EventDecoder(self.rewritten.input_streams), io.BytesIO("\n".join(self.events).encode()), str(self.path)
        )
        for batch in reader.batches(lines_max=1):
            yield reader.lines, batch


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_case(path: Path, compile_source: Compile = compile_program) -> CaseFile:
    """CaseError says which line is wrong, and how."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as problem:
        raise error("E169", f"{path} cannot be read: {problem.strerror or problem}") from None
    except UnicodeDecodeError as problem:
        raise error("E169", f"{path} is not UTF-8 text: {problem.reason} at offset {problem.start}") from None
    return _CaseReader(path, text).read(compile_source)


class _CaseReader:
    def __init__(self, path: Path, text: str) -> None:
        self._path, self._text = path, text
        self._source = Source(str(path), text)

    def read(self, compile_source: Compile) -> CaseFile:
        sections = self._sections()
        first = next(sections, None)
        if first is None or first.title.split(" ")[0] != "program":
            message = "the first section is not --- program, --- program mmpl or --- program FILE"
            raise self._error(first.line if first else 1, message)
        compiled = self._compile(first, compile_source)
        others = list(sections)
        named = others and others[0].title.startswith("views ")
        views = self._named_views(others.pop(0), compiled) if named else compiled.rewritten.subscriptions
        if not views:
            hint = "Add SUBSCRIBE to the program, or --- views NAME below it."
            raise self._error(first.line, "the program subscribes to no view, so no rows can be expected", hint)
        case = CaseFile(self._path, self._text, compiled, views)
        titles: dict[str, int] = {}
        for section in others:
            if section.title in titles:
                message = f"--- {section.title} is there twice, first in line {titles[section.title]}"
                raise self._error(section.line, message)
            titles[section.title] = section.line
            self._read_section(case, section)
        if not case.rows and not case.changes:
            hint = "Add --- rows after N, --- rows end or --- changes N."
            raise self._error(first.line, "the file expects nothing", hint)
        return case

    def _sections(self) -> Iterator[Section]:
        """Comments and blank lines are left out, but for those of the program."""
        section: Section | None = None
        for number, line in enumerate(self._text.split("\n"), 1):
            if line.startswith("---"):
                if section is not None:
                    yield section
                section = Section(number, " ".join(line[3:].split()))
            elif section is not None and section.title in ("program", "program mmpl"):
                section.lines.append((number, line))
            elif line.strip() and not line.startswith("#"):
                if section is None:
                    raise self._error(number, "text before the first section", "A comment begins with #.")
                section.lines.append((number, line))
        if section is not None:
            yield section

    def _compile(self, section: Section, compile_source: Compile) -> CompiledProgram:
        """The program of the first section: its lines, or the file that it names."""
        file = section.title.partition(" ")[2]
        if file in ("", "mmpl"):
            # Empty lines before the program give its errors the lines of the file.
            text = "\n" * section.line + "\n".join(line for _, line in section.lines) + "\n"
            source = Source(f"{self._path.stem}.{file or 'smile'}", text)
            shown = Source(str(self._path), text)
        elif section.lines:
            raise self._error(section.lines[0][0], f"the program is in {file}, so no text may follow here")
        else:
            try:
                source = shown = read_program(str(self._path.parent / file))
            except SmileError as problem:
                hint = "The path is relative to the folder of the test file."
                raise self._error(section.line, problem.message, problem.hint or hint) from None
        try:
            compiled = compile_source(source)
            refuse_imported_views(compiled.rewritten)
        except SmileError as problem:
            raise CaseError(problem.diagnostics, shown) from None
        return compiled

    def _named_views(self, section: Section, compiled: CompiledProgram) -> tuple[str, ...]:
        if section.lines:
            raise self._error(section.lines[0][0], "the views are named in the line above; no text may follow it")
        names = [name.strip() for name in section.title.removeprefix("views ").split(",")]
        known = [name for name, relation in compiled.graph.relations.items() if relation.is_named]
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known) or f"There are {', '.join(known)}."
                raise self._error(section.line, f"the program has no view {name}", hint)
        return tuple(dict.fromkeys(names))

    def _read_section(self, case: CaseFile, section: Section) -> None:
        match section.title.split(" "):
            case ["events"]:
                self._read_events(case, section.lines)
            case ["rows", "end"]:
                case.rows[None] = self._read_rows(case, section)
            case ["rows", "after", count] if count.isdecimal():
                case.rows[self._number(case, section, count, 0)] = self._read_rows(case, section)
            case ["changes", line] if line.isdecimal():
                case.changes[self._number(case, section, line, 1)] = self._read_rows(case, section)
            case _:
                message = f"there is no section --- {section.title}"
                raise self._error(section.line, message, f"After the program there are {SECTIONS}.")

    def _number(self, case: CaseFile, section: Section, digits: str, least: int) -> int:
        if not least <= int(digits) <= len(case.events):
            message = f"there is no event line {digits} above; the number of event lines is {len(case.events)}"
            raise self._error(section.line, message)
        return int(digits)

    def _read_rows(self, case: CaseFile, section: Section) -> ExpectedRows:
        try:
            rows = parse_tables(section.lines, case.types, changes=section.title.startswith("changes"))
        except TableError as problem:
            raise self._error(problem.line, str(problem)) from None
        return ExpectedRows(section.title, section.line, list(rows.values()), list(rows))

    def _read_events(self, case: CaseFile, lines: Lines) -> None:
        """The events, each of which publishing would accept."""
        for number, line in lines:
            try:
                case.events.append(_event_json(line))
            except ValueError as problem:
                raise self._error(number, str(problem)) from None
        try:
            for _ in case.batches():
                pass
        except EventError as refused:
            number, found = lines[refused.bad.number - 1][0], refused.diagnostics[0]
            in_file = self._diagnostic(number, found.code, found.message, found.hint)
            raise CaseError(in_file, self._source) from None

    def _error(self, line: int, message: str, hint: str | None = None) -> CaseError:
        return CaseError(self._diagnostic(line, "E169", message, hint), self._source)

    def _diagnostic(self, line: int, code: str, message: str, hint: str | None) -> Diagnostic:
        return Diagnostic(code, message, self._source.span_at(line, 1, len(self._source.line(line))), hint)


# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────────

EVENT = re.compile(rf"(?P<stream>[^\s{{:]+)(?::(?P<origin>\d+))?(?:\s+(?P<tick>{TICK}))?\s*(?P<values>\{{.*\}})\s*")
SILENCE = re.compile(rf"(?:(?P<stream>[^\s:]+)(?::(?P<origin>\d+))?\s+)?silence\s+(?P<tick>{TICK})\s*")


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
