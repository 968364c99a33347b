"""Compiles a program: all steps from its text to its knowledge graph. A `CompiledProgram` has no errors, only
warnings."""

import sys
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from smile import lang, limits
from smile.algebra import mmpl, trees
from smile.algebra.heading import Heading, stream_heading
from smile.algebra.parser import parse_program
from smile.analysis.check import check_program
from smile.analysis.global_streams import bind_global_streams
from smile.analysis.recorded_types import (
    BrokenRelation,
    MissingImport,
    RecordedTypes,
    leave_out_missing,
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
from smile.translate import broken_relations, left_out_relations, translate, unmatched_rows_warnings, unrecorded_imports
from smile.translate.filters import FILTERED, table_name, translate_condition, translate_filter


@dataclass(frozen=True)
class CompiledProgram:
    """`original` is the program as it was written, `rewritten` as it will run. `recorded` has the types of what it
    imports. `tables` has the rows of each table with a primary key. `left_out` are the relations that are not part of
    it, each with the imports that it needs whose types are not recorded. Those that need none need `broken` ones, or
    are broken themselves."""

    source: Source
    original: mmpl.Program
    rewritten: mmpl.Program
    analysis: TypeAnalysis
    warnings: tuple[Diagnostic, ...]
    recorded: RecordedTypes = field(default_factory=dict)
    left_out: Mapping[str, tuple[MissingImport, ...]] = field(default_factory=dict)
    tables: Mapping[str, mmpl.Rel] = field(default_factory=dict)
    broken: Mapping[str, BrokenRelation] = field(default_factory=dict)

    @property
    def missing_imports(self) -> tuple[MissingImport, ...]:
        return tuple(dict.fromkeys(import_ for imports in self.left_out.values() for import_ in imports))

    def statement_text(self, relation: str) -> str | None:
        """The statement that defines a view or an import, as its author wrote it; None if it is not SmileSQL."""
        if self.source.name.lower().endswith(".mmpl"):
            return None
        for statement in lang.parse(self.source)[0]:
            if isinstance(statement, lang.CreateView | lang.ImportRelation) and statement.name.text == relation:
                return self.source.text[statement.span.start : statement.span.end]
        return None

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


def read_program(path: str) -> Source:
    """The text of a program file, with the rows of tables that are in files beside it."""
    return lang.with_rows_of_files(read_source(path), lambda name: _read_table_file(path, name))


def _read_table_file(program: str, name: str) -> str:
    relative = PurePosixPath(name)
    if program == "-" or relative.is_absolute() or ".." in relative.parts:
        hint = "Its name is that of a file in the folder of the program's file, or below it."
        raise error("E214", f"the file {name} cannot be read", hint=hint)
    path = Path(program).parent / relative
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise error("E214", f"{path} cannot be read: {problem.strerror or problem}") from None
    if len(data) > limits.table_file_bytes_max:
        message = f"{path} has {len(data):,} bytes, the limit is {limits.table_file_bytes_max:,}"
        raise error("E214", message, hint="Publish the rows: smile publish TABLE FILE.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error("E214", f"{path} is not UTF-8 text: offset {problem.start}") from None


def read_recorded_types(paths: Iterable[str]) -> RecordedTypes:
    """The recorded types in files, as `smile explain --as exports` prints them."""
    sources = [read_source(path) for path in paths]
    return merge_recorded_types(parse_recorded_types(source.text, source.name) for source in sources)


def compile_program(
    source: Source,
    recorded: RecordedTypes = MappingProxyType({}),
    edition_of: Callable[[mmpl.ImportDef], int] = lambda import_: import_.edition,
    leaves_out_missing: bool = False,
    routed: Iterable[mmpl.ImportDef] = (),
    is_networked: bool = False,
    leaves_out_broken: bool = False,
) -> CompiledProgram:
    """`recorded` has the types of the relations that the program imports, and `edition_of` numbers the editions of
    imports. If it `is_networked`, views receive the events of global streams from all producers; otherwise these are
    streams like others, as in a recording. If it `leaves_out_missing`, imports without recorded types are no errors:
    they are left out, with all that depends on them. If it `leaves_out_broken`, so are imports that have errors, and
    views that need imports and have errors. `routed` are imports that the broker adds, unless the program has
    relations with their names. Raises all syntax and translation errors together; rewriting and type analysis raise
    only the first error."""
    broken: dict[str, BrokenRelation] = {}
    while True:
        try:
            return _compile_program(source, recorded, edition_of, leaves_out_missing, routed, is_networked, broken)
        except SmileError as problem:
            is_sql = not source.name.lower().endswith(".mmpl")
            found = broken_relations(lang.parse(source)[0], problem) if leaves_out_broken and is_sql else {}
            if not found.keys() - broken.keys():
                raise
            broken |= found
        except RecursionError:
            raise error("E012", "the program is nested too deeply") from None


def _compile_program(
    source: Source,
    recorded: RecordedTypes,
    edition_of: Callable[[mmpl.ImportDef], int],
    leaves_out_missing: bool,
    routed: Iterable[mmpl.ImportDef],
    is_networked: bool,
    broken: Mapping[str, BrokenRelation],
) -> CompiledProgram:
    original, left_out, written, tables = _parse_source(source, recorded, leaves_out_missing, broken)
    names = {definition.name for definition in original.definitions}
    added = [import_ for import_ in routed if import_.name not in names]
    imports = tuple(replace(i, edition=edition_of(i)) for i in (*original.imports, *added))
    original = replace(original, imports=imports)
    rewritten = rewrite(original)
    if is_networked:
        rewritten = bind_global_streams(rewritten)
        imports = tuple(replace(i, edition=edition_of(i)) for i in rewritten.imports)
        rewritten = replace(rewritten, imports=imports)
    analysis = TypeAnalysis(rewritten)
    warnings = (*written, *program_warnings(rewritten, analysis))
    return CompiledProgram(
        source, original, rewritten, analysis, warnings, dict(recorded), left_out, tables, dict(broken)
    )


@dataclass(frozen=True)
class CompiledFilter:
    """The rows of the relation `filtered` for which a filter is true. `tables` has the table behind each other relation
    that `rel` reads."""

    rel: mmpl.Rel
    filtered: str
    tables: Mapping[str, str]


def compile_filter(
    source: Source, relation: str, heading: Heading, tables: Mapping[str, Heading], others: Iterable[str] = ()
) -> CompiledFilter:
    """The filter of a subscription to a relation with this heading. Subqueries read `tables`, and cannot read the
    `others`. Raises the errors of its text, with positions."""
    if len(source.text) > limits.filter_chars_max:
        message = f"the filter has {len(source.text):,} characters, the limit is {limits.filter_chars_max:,}"
        raise error("E145", message, hint="Define a view with it, and subscribe to the view.")
    try:
        rel = translate_filter(lang.parse_filter(source), relation, heading, tables, others)
    except RecursionError:
        raise error("E012", "the filter is nested too deeply") from None
    return CompiledFilter(rel, FILTERED, {table_name(name): name for name in tables})


def compile_condition(text: str, stream: mmpl.StreamDef) -> mmpl.Expr:
    """The condition of an advertisement, as ADVERTISE has it in a program. Raises the errors of its text, without
    positions."""
    if len(text) > limits.filter_chars_max:
        message = f"the condition has {len(text):,} characters, the limit is {limits.filter_chars_max:,}"
        raise error("E175", message, hint="Describe the events by comparisons of fewer values.")
    try:
        parsed = lang.parse_condition(Source("condition", text))
        return trees.conjunction(translate_condition(parsed, stream_heading(stream).columns))
    except RecursionError:
        raise error("E012", "the condition is nested too deeply") from None
    except SmileError as problem:
        raise SmileError([replace(d, span=None) for d in problem.diagnostics]) from None


def imported_relations(source: Source) -> list[tuple[str, str, Span | None]]:
    """The broker, the relation and the position of every import that has no definition in the program; of an import
    from several brokers, one for each."""
    if source.name.lower().endswith(".mmpl"):
        imports = (i for i in parse_program(source).imports if i.definition is None)
        return [(broker, i.relation, i.span) for i in imports for broker in i.brokers]
    statements, _ = lang.parse(source)
    imported = [s for s in statements if isinstance(s, lang.ImportRelation)]
    return [(broker.text, s.relation.text, s.span) for s in imported for broker in (s.broker, *s.other_brokers)]


def _is_left_out(statement: lang.Statement, left_out: Container[str]) -> bool:
    return isinstance(statement, lang.ImportRelation | lang.CreateView) and statement.name.text in left_out


class _ParsedProgram(NamedTuple):
    """`warnings` are those about what is written."""

    program: mmpl.Program
    left_out: Mapping[str, tuple[MissingImport, ...]]
    warnings: list[Diagnostic]
    tables: Mapping[str, mmpl.Rel]


def _parse_source(
    source: Source, recorded: RecordedTypes, leaves_out_missing: bool, broken: Iterable[str]
) -> _ParsedProgram:
    left_out: Mapping[str, tuple[MissingImport, ...]] = {}
    if source.name.lower().endswith(".mmpl"):
        parsed = parse_program(source)
        if not parsed.definitions:
            raise error("E004", "the program is empty")
        if leaves_out_missing:
            parsed, left_out = leave_out_missing(parsed, recorded)
        return _ParsedProgram(check_program(resolve_imports(parsed, recorded)), left_out, [], {})
    statements, parse_problems = lang.parse(source)
    unparsed = lang.unparsed_names(source) if parse_problems else ()
    missing = unrecorded_imports(statements, recorded) if leaves_out_missing else []
    left_out = left_out_relations(statements, missing, broken)
    known_statements = [s for s in statements if not _is_left_out(s, left_out)]
    program, translation_problems, tables = translate(known_statements, [*unparsed, *left_out], recorded)
    if parse_problems or translation_problems:
        raise SmileError([*parse_problems, *translation_problems])
    has_subscriptions = any(isinstance(statement, lang.Subscribe) for statement in statements)
    if left_out and has_subscriptions and not program.subscriptions:
        # Without subscriptions, all views would be maintained.
        program = replace(program, views=())
    return _ParsedProgram(program, left_out, unmatched_rows_warnings(known_statements, program), tables)
