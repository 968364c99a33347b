"""The test files of this folder, and the example programs."""

from functools import cache
from pathlib import Path

from smile.algebra import mmpl
from smile.analysis.type_analysis import TypeAnalysis
from smile.program import CompiledProgram, compile_program
from smile.reference.history import RecordedLine, read_events
from smile.source import Source
from smile.testing.reader import CaseFile, read_case

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "programs"


@cache
def compile_text(name: str, language: str, text: str) -> CompiledProgram:
    return compile_program(Source(f"{name}.{language}", text))


@cache
def analyse(program: mmpl.Program) -> TypeAnalysis:
    return TypeAnalysis(program)


@cache
def cases() -> tuple[CaseFile, ...]:
    """All test files of this folder."""
    return tuple(read_case(path) for path in sorted(FOLDER.glob("*.test")))


def recorded_lines(case: CaseFile) -> list[RecordedLine]:
    """The events of a case, for the reference."""
    return read_events("\n".join(case.events))


def programs() -> dict[str, mmpl.Program]:
    """Every test program and every example program, as written."""
    by_name = {case.name: case.written for case in cases()}
    for path in sorted((ROOT / "programs").glob("*.smile")):
        by_name[f"programs/{path.stem}"] = compile_text(path.stem, "smile", path.read_text()).original
    return by_name
