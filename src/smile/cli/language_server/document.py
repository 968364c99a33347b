"""What an editor wants to know of a program that is being written. Positions are offsets of characters in its text.

While the program has errors, types and names are those of the last text that had none.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from smile.analysis.recorded_types import RecordedTypes
from smile.cli.explain import relation_text
from smile.engine.plan import partitioned_stages
from smile.errors import Diagnostic, SmileError
from smile.graph.knowledge_graph import KnowledgeGraph
from smile.kernels.compile import compile_graph
from smile.lang import AGGREGATES, DERIVED_AGGREGATES, PERCENTILES, SQL_WORDS, Lexeme, format_program, read_lexemes
from smile.program import CompiledProgram, compile_program
from smile.source import Source, Span
from smile.translate.function_names import CALLABLE_FUNCTIONS, SYNONYMS

STREAM_FUNCTIONS = ("HOP", "LAST", "MERGE", "SESSION", "TUMBLE")
FUNCTIONS = sorted(
    {name.upper() for name in (*CALLABLE_FUNCTIONS, *SYNONYMS) if name.isidentifier()}
    | {*AGGREGATES, *DERIVED_AGGREGATES, *PERCENTILES, "MEDIAN", "STRING_AGG", "ARRAY_AGG", *STREAM_FUNCTIONS}
)
NAME_KINDS = ("word", "quoted")


class CompletionKind(Enum):
    keyword = "keyword"
    function = "function"
    relation = "relation"
    column = "column"


@dataclass(frozen=True)
class Completion:
    label: str
    kind: CompletionKind
    detail: str = ""


@dataclass(frozen=True)
class HoverText:
    """What to show for the name at `span`."""

    text: str
    span: Span


class ProgramDocument:
    """The text of a program, as it is changed. `name` says its language: MMPL if it ends in .mmpl."""

    def __init__(self, name: str, recorded: RecordedTypes) -> None:
        self.source = Source(name, "")
        self._recorded = recorded
        self._compiled: CompiledProgram | None = None

    def write(self, text: str) -> None:
        """Replaces the text."""
        self.source = Source(self.source.name, text)

    def check(self) -> Sequence[Diagnostic]:
        """The errors of the text, or its warnings."""
        try:
            compiled = compile_program(self.source, self._recorded)
            # What `smile check` finds last: transforms that cannot be made.
            kernels = compile_graph(compiled.graph, compiled.rewritten.log_streams)
            partitioned_stages(compiled.graph, kernels)
        except SmileError as problem:
            return problem.diagnostics
        self._compiled = compiled
        return compiled.warnings

    def formatted(self) -> str | None:
        """The text in the style of `smile fmt`; None if it has syntax errors, or is in MMPL, which has one layout."""
        if self.source.name.lower().endswith(".mmpl"):
            return None
        try:
            return format_program(self.source)
        except SmileError:
            return None

    def hover(self, offset: int) -> HoverText | None:
        """What `smile explain --as types` says of the relation or column whose name is there."""
        lexeme = next((x for x in self._statement_at(offset) if x.start <= offset < x.end), None)
        if lexeme is None or lexeme.kind not in NAME_KINDS or self._compiled is None:
            return None
        graph, name = self._compiled.graph, self._name(lexeme)
        if (relation := _find(name, _named_relations(graph))) is not None:
            text = relation_text(graph, relation)
        else:
            parts = [
                relation_text(graph, relation, {column})
                for relation in self._relations_at(offset, graph)
                if (column := _find(name, graph.relations[relation].type.columns)) is not None
            ]
            text = "\n\n".join(parts)
        return HoverText(text, Span(lexeme.start, lexeme.end)) if text else None

    def completions(self, offset: int) -> list[Completion]:
        """The columns of the relations of the statement, all relations, functions and keywords."""
        found: list[Completion] = []
        if self._compiled is not None:
            graph = self._compiled.graph
            columns: dict[str, list[str]] = {}
            for relation in self._relations_at(offset, graph):
                for name, column in graph.relations[relation].type.columns.items():
                    columns.setdefault(name, []).append(f"{relation}: {column.data}")
            found += [Completion(name, CompletionKind.column, ", ".join(of)) for name, of in columns.items()]
            found += [
                Completion(name, CompletionKind.relation, graph.relations[name].kind)
                for name in _named_relations(graph)
            ]
        found += [Completion(name, CompletionKind.function) for name in FUNCTIONS]
        return found + [Completion(name, CompletionKind.keyword) for name in sorted(SQL_WORDS - set(FUNCTIONS))]

    def _statement_at(self, offset: int) -> list[Lexeme]:
        """The lexemes of the statement that contains this position, or ends there."""
        lexemes: list[Lexeme] = []
        for lexeme in read_lexemes(self.source.text):
            if lexeme.kind == "end" and lexeme.start < offset:
                lexemes = []
            elif lexeme.kind == "end":
                break
            else:
                lexemes.append(lexeme)
        return lexemes

    def _relations_at(self, offset: int, graph: KnowledgeGraph) -> Iterator[str]:
        """The relations that the statement names, each once."""
        names = [self._name(x) for x in self._statement_at(offset) if x.kind in NAME_KINDS]
        found = (_find(name, _named_relations(graph)) for name in names)
        yield from dict.fromkeys(relation for relation in found if relation is not None)

    def _name(self, lexeme: Lexeme) -> str:
        text = self.source.text[lexeme.start : lexeme.end]
        return text.strip('"').replace('""', '"') if lexeme.kind == "quoted" else text


def _named_relations(graph: KnowledgeGraph) -> list[str]:
    return [name for name, relation in graph.relations.items() if relation.is_named]


def _find(name: str, names: Collection[str]) -> str | None:
    """The name itself, or one that differs in the case of its letters only."""
    return name if name in names else next((n for n in names if n.casefold() == name.casefold()), None)
