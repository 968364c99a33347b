"""The descriptions of what a broker imports: fetched when a program is applied, and recorded in the broker's directory,
so that it restarts while its neighbours are away.

A description from a broker has two more fields than `analysis.export_description` says. `history` identifies the logs
that the relation goes back to. `sources` has the imports that it is computed from, as edges between relations.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from smile.algebra import mmpl
from smile.algebra.dependencies import subprogram
from smile.algebra.printer import print_expression
from smile.analysis.export_description import definition_digest
from smile.analysis.recorded_types import RecordedTypes
from smile.errors import Diagnostic, SmileError, error
from smile.program import CompiledProgram, compile_program, imported_relations
from smile.source import Source, Span

FetchDescription = Callable[[str, str], str]
"""Gets the description of a broker's relation, as JSON text. Raises E103 if the broker cannot be reached, and other
errors if it refuses."""

RelationName = tuple[str, str]
"""A broker, and a relation there."""


def fetch_nothing(broker: str, relation: str) -> str:
    """For a broker without a network."""
    hint = f"Add the broker to the settings: [brokers.{broker}] url."
    raise error("E103", f"{broker} cannot be reached, so the type of {relation} is not known", hint=hint)


@dataclass(frozen=True)
class ImportRecords:
    """`types` has the descriptions by broker and relation. `editions` has for each name of an import the identities
    that it has had, the first edition first."""

    types: RecordedTypes = field(default_factory=dict)
    editions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def descriptions(self, import_: mmpl.ImportDef) -> list[Mapping[str, Any]]:
        """One for each of its brokers that is known. None for an import whose definition is part of the program."""
        described = (self.types.get(broker, {}).get(import_.relation) for broker in import_.brokers)
        return [description for description in described if description is not None]

    def history(self, import_: mmpl.ImportDef) -> str:
        return next((h for d in self.descriptions(import_) if (h := str(d.get("history", "")))), "")

    def sources(self, import_: mmpl.ImportDef) -> Iterator[tuple[RelationName, RelationName]]:
        """The edges behind an import: each relation with one that it is computed from."""
        for description in self.descriptions(import_):
            for edge in description.get("sources", ()):
                reader_broker, reader, broker, relation = edge
                yield (str(reader_broker), str(reader)), (str(broker), str(relation))

    def compile(self, source: Source) -> tuple[CompiledProgram, "ImportRecords"]:
        """Compiles a program with these descriptions. Imports with another definition or history begin anew: they have
        new editions, which the returned records have."""
        editions = dict(self.editions)

        def edition_of(import_: mmpl.ImportDef) -> int:
            identity, known = self._identity(import_), editions.get(import_.name, ())
            if identity not in known:
                editions[import_.name] = known = (*known, identity)
            return known.index(identity) + 1

        compiled = compile_program(source, self.types, edition_of)
        for import_ in compiled.original.imports:
            self._refuse_other_histories(import_)
        return compiled, replace(self, editions=editions)

    def _refuse_other_histories(self, import_: mmpl.ImportDef) -> None:
        """Raises E124 if the brokers of an import have different streams of one name."""
        histories: dict[str, str] = {}
        for broker in import_.brokers:
            history = str(self.types.get(broker, {}).get(import_.relation, {}).get("history", ""))
            if history:
                histories.setdefault(history, broker)
        if len(histories) > 1:
            first, second, *_ = histories.values()
            message = f"{import_.relation} at {first} and at {second} are different streams: they have other origins"
            hint = f"Create it at {second} WITH (ORIGINS = MANY, HOME = {first}), or import it under two names."
            raise error("E124", message, import_.span, hint)

    def _identity(self, import_: mmpl.ImportDef) -> str:
        """A stream with a known history is the same one wherever it comes from."""
        assert import_.definition is not None
        condition = "" if import_.condition is None else print_expression(import_.condition)
        digest, history = definition_digest(import_.definition), self.history(import_)
        broker = "" if import_.stream is not None and history else import_.broker
        identity = repr((broker, import_.relation, condition, digest, history))
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def fetched(self, source: Source, fetch: FetchDescription) -> "ImportRecords":
        """The records with new descriptions of everything that a program imports. A broker that cannot be reached is
        described as it was. Of several brokers with the same stream, one must be known."""
        types = {broker: dict(relations) for broker, relations in self.types.items()}
        problems, away = list[Diagnostic](), list[tuple[str, Span | None, Diagnostic]]()
        for broker, relation, span in imported_relations(source):
            try:
                description = _parse_description(fetch(broker, relation), broker, relation)
            except SmileError as problem:
                first = replace(problem.diagnostics[0], span=span)
                if first.code != "E103":
                    problems += [replace(d, span=span) for d in problem.diagnostics]
                elif relation not in types.get(broker, {}):
                    away.append((relation, span, first))
                continue
            types.setdefault(broker, {})[relation] = description
        brokers_of = defaultdict[tuple[str, Span | None], list[str]](list)
        for broker, relation, span in imported_relations(source):
            brokers_of[relation, span].append(broker)
        for relation, span, first in away:
            if not any(relation in types.get(broker, {}) for broker in brokers_of[relation, span]):
                problems.append(first)
        if problems:
            raise SmileError(problems)
        return replace(self, types=types)


def _parse_description(text: str, broker: str, relation: str) -> dict[str, Any]:
    try:
        description = json.loads(text)
    except (ValueError, RecursionError):
        description = None
    if not isinstance(description, dict):
        raise error("E027", f"{broker} has sent no description of {relation}")
    edges = description.get("sources", [])
    is_list = isinstance(edges, list) and all(map(_is_edge, edges))
    if not is_list or not isinstance(description.get("history", ""), str):
        raise error("E027", f"{broker} has sent a wrong description of {relation}")
    return description


def _is_edge(edge: object) -> bool:
    return isinstance(edge, list) and len(edge) == 4 and all(isinstance(name, str) for name in edge)


def source_edges(
    broker: str, program: mmpl.Program, relation: str, records: ImportRecords
) -> list[tuple[RelationName, RelationName]]:
    """The imports that a relation of this broker is computed from, directly or through other brokers."""
    edges: dict[tuple[RelationName, RelationName], None] = {}
    for import_ in subprogram(program, relation).imports:
        for source_broker in import_.brokers:
            edges[(broker, relation), (source_broker, import_.relation)] = None
        edges.update(dict.fromkeys(records.sources(import_)))
    return list(edges)


def refuse_circles(broker: str, program: mmpl.Program, records: ImportRecords) -> None:
    """Raises E127 if a relation of this program is computed from itself, through other brokers."""
    for relation in (*(v.name for v in program.views), *(i.name for i in program.imports)):
        for import_ in subprogram(program, relation).imports:
            edges = list(records.sources(import_))
            for source_broker in import_.brokers:
                path = _find_path((source_broker, import_.relation), (broker, relation), edges)
                if path is not None:
                    names = " → ".join(f"{r} at {b}" for b, r in ((broker, relation), *path))
                    hint = "Import a relation that is not computed from this one."
                    raise error("E127", f"the imports go in a circle: {names}", import_.span, hint)


def _find_path(
    start: RelationName, end: RelationName, edges: Iterable[tuple[RelationName, RelationName]]
) -> list[RelationName] | None:
    reads: dict[RelationName, list[RelationName]] = {}
    for reader, source in edges:
        reads.setdefault(reader, []).append(source)
    paths = {start: [start]}
    pending = [start]
    while pending:
        name = pending.pop(0)
        if name == end:
            return paths[name]
        for source in reads.get(name, ()):
            if source not in paths:
                paths[source] = [*paths[name], source]
                pending.append(source)
    return None
