"""Compiles a program: all steps from its text to its knowledge graph. A `CompiledProgram` has no errors, only
warnings."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from smile import lang, limits
from smile.algebra import mmpl
from smile.algebra.parser import parse_program
from smile.analysis.check import check_program
from smile.analysis.recorded_types import (
    RecordedTypes,
    merge_recorded_types,
    parse_recorded_types,
    resolve_imports,
)
from smile.analysis.type_analysis import TypeAnalysis
from smile.analysis.warnings import program_warnings
from smile.errors import Diagnostic, SmileError, error
from smile.graph.build import build_graph
from smile.graph.knowledge_graph import KnowledgeGraph
from smile.rules import rewrite
from smile.source import Source, Span
from smile.translate import translate


@dataclass(frozen=True)
class CompiledProgram:
    """`original` is the program as it was written, `rewritten` as it will run. `recorded` has the types of what it
    imports."""

    source: Source
    original: mmpl.Program
    rewritten: mmpl.Program
    analysis: TypeAnalysis
    warnings: tuple[Diagnostic, ...]
    recorded: RecordedTypes = field(default_factory=dict)

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


def read_recorded_types(paths: Iterable[str]) -> RecordedTypes:
    """The recorded types in files, as `smile explain --as exports` prints them."""
    sources = [read_source(path) for path in paths]
    return merge_recorded_types(parse_recorded_types(source.text, source.name) for source in sources)


def compile_program(
    source: Source,
    recorded: RecordedTypes = MappingProxyType({}),
    edition_of: Callable[[mmpl.ImportDef], int] = lambda import_: import_.edition,
) -> CompiledProgram:
    """`recorded` has the types of the relations that the program imports, and `edition_of` numbers the editions of
    imports. Raises all syntax and translation errors together; rewriting and type analysis raise only the first
    error."""
    try:
        original = _parse_source(source, recorded)
        imports = tuple(replace(i, edition=edition_of(i)) for i in original.imports)
        original = replace(original, imports=imports)
        rewritten = rewrite(original)
        analysis = TypeAnalysis(rewritten)
        warnings = program_warnings(rewritten, analysis)
        return CompiledProgram(source, original, rewritten, analysis, warnings, dict(recorded))
    except RecursionError:
        raise error("E012", "the program is nested too deeply") from None


def imported_relations(source: Source) -> list[tuple[str, str, Span | None]]:
    """The broker, the relation and the position of every import that has no definition in the program; of an import
    from several brokers, one for each."""
    if source.name.lower().endswith(".mmpl"):
        imports = (i for i in parse_program(source).imports if i.definition is None)
        return [(broker, i.relation, i.span) for i in imports for broker in i.brokers]
    statements, _ = lang.parse(source)
    imported = [s for s in statements if isinstance(s, lang.ImportRelation)]
    return [(broker.text, s.relation.text, s.span) for s in imported for broker in (s.broker, *s.other_brokers)]


def _parse_source(source: Source, recorded: RecordedTypes) -> mmpl.Program:
    if source.name.lower().endswith(".mmpl"):
        program = check_program(resolve_imports(parse_program(source), recorded))
        if not program.definitions:
            raise error("E004", "the program is empty")
        return program
    statements, parse_problems = lang.parse(source)
    unparsed = lang.unparsed_names(source) if parse_problems else ()
    program, translation_problems = translate(statements, unparsed, recorded)
    if parse_problems or translation_problems:
        raise SmileError([*parse_problems, *translation_problems])
    return program
