"""Compiles a program: all steps from its text to its knowledge graph. A `CompiledProgram` has no errors, only
warnings."""

import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from smile import lang, limits
from smile.algebra import mmpl
from smile.algebra.parser import parse_program
from smile.analysis.check import check_program
from smile.analysis.type_analysis import TypeAnalysis
from smile.analysis.warnings import program_warnings
from smile.errors import Diagnostic, SmileError, error
from smile.graph.build import build_graph
from smile.graph.knowledge_graph import KnowledgeGraph
from smile.rules import rewrite
from smile.source import Source
from smile.translate import translate


@dataclass(frozen=True)
class CompiledProgram:
    """`original` is the program as it was written, `rewritten` as it will run."""

    source: Source
    original: mmpl.Program
    rewritten: mmpl.Program
    analysis: TypeAnalysis
    warnings: tuple[Diagnostic, ...]

    @cached_property
    def graph(self) -> KnowledgeGraph:
        return build_graph(self.rewritten, self.analysis)


def read_source(path: str) -> Source:
    """The text of a program file, or of standard input for `-`."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as problem:
        raise error("E001", f"{path} cannot be read: {problem.strerror or problem}") from None
    if len(data) > limits.program_bytes_max:
        raise error("E003", f"{path} has {len(data):,} bytes, the limit is {limits.program_bytes_max:,}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        message = f"{path} is not UTF-8 text: byte {data[problem.start]:#04x} at offset {problem.start}"
        raise error("E002", message) from None
    return Source(path, text)


def compile_program(source: Source) -> CompiledProgram:
    """Raises all syntax and translation errors together; rewriting and type analysis raise only the first error.

    `lang` raises Python's recursion limit, so that trees of the greatest depth it accepts can be processed recursively.
    """
    try:
        original = _parse_source(source)
        rewritten = rewrite(original)
        analysis = TypeAnalysis(rewritten)
        return CompiledProgram(source, original, rewritten, analysis, program_warnings(rewritten, analysis))
    except RecursionError:
        raise error("E012", "the program is nested too deeply") from None


def _parse_source(source: Source) -> mmpl.Program:
    if source.name.lower().endswith(".mmpl"):
        program = check_program(parse_program(source))
        if not program.streams:
            raise error("E004", "the program is empty")
        return program
    statements, parse_problems = lang.parse(source)
    program, translation_problems = translate(statements, lang.unparsed_names(source) if parse_problems else ())
    if parse_problems or translation_problems:
        raise SmileError([*parse_problems, *translation_problems])
    return program
