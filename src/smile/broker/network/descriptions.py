"""The descriptions of what a broker imports: fetched when a program is applied, and recorded in the broker's directory,
so that it restarts while its neighbours are away.

A description from a broker has two more fields than `analysis.export_description` says. `history` identifies the logs
that the relation goes back to. `sources` has the imports that it is computed from, as edges between relations.

A broker that waits for descriptions itself has no type of the relations that need them. Its answer then has only
`waiting`, which is true, and `sources`.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from smile.algebra import mmpl
from smile.algebra.dependencies import subprogram
from smile.algebra.printer import print_expression
from smile.analysis.export_description import definition_digest
from smile.analysis.recorded_types import MissingImport, RecordedTypes
from smile.broker.network.routed_stream import RoutedImport
from smile.errors import Diagnostic, SmileError, error
from smile.program import CompiledProgram, compile_program, imported_relations
from smile.source import Source, Span

FetchDescription = Callable[[str, str], str]
"""Gets the description of a broker's relation, as JSON text. Raises E103 if the broker cannot be reached, E100 if the
settings do not say where it is, and other errors if it refuses."""

RelationName = tuple[str, str]
"""A broker, and a relation there."""

SourceEdge = tuple[RelationName, RelationName]
"""A relation, and one that it is computed from."""


def fetch_nothing(broker: str, relation: str) -> str:
    """For a broker without a network."""
    hint = f"Add the broker to the settings: [brokers.{broker}] url."
    raise error("E103", f"{broker} cannot be reached, so the type of {relation} is not known", hint=hint)


@dataclass(frozen=True)
class ImportRecords:
    """`types` has the descriptions by broker and relation. `editions` has for each name of an import the identities
    that it has had, the first edition first. `routed` has the imports that global subscriptions need, by name: they are
    not in the program's text."""

    types: RecordedTypes = field(default_factory=dict)
    editions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    routed: Mapping[str, RoutedImport] = field(default_factory=dict)

    def descriptions(self, import_: mmpl.ImportDef) -> list[Mapping[str, Any]]:
        """One for each of its brokers that is known. None for an import whose definition is part of the program."""
        described = (self.types.get(broker, {}).get(import_.relation) for broker in import_.brokers)
        return [description for description in described if description is not None]

    def history(self, import_: mmpl.ImportDef) -> str:
        if import_.name in self.routed:
            return self.routed[import_.name].history
        return next((h for d in self.descriptions(import_) if (h := str(d.get("history", "")))), "")

    def sources(self, import_: mmpl.ImportDef) -> Iterator[SourceEdge]:
        """The edges behind an import."""
        for description in self.descriptions(import_):
            yield from _read_edges(description)

    def compile(
        self, source: Source, leaves_out_missing: bool = False, leaves_out_broken: bool = False
    ) -> tuple[CompiledProgram, "ImportRecords"]:
        """Compiles a program with these descriptions. Imports with another definition or history begin anew: they have
        new editions, which the returned records have; these lack routed imports whose names the program has taken.
        If it `leaves_out_missing`, imports without descriptions are left out, with all that depends on them; and if it
        `leaves_out_broken`, relations that do not fit the descriptions."""
        editions = dict(self.editions)

        def edition_of(import_: mmpl.ImportDef) -> int:
            identity, known = self._identity(import_, self.history(import_)), editions.get(import_.name, ())
            if identity not in known:
                editions[import_.name] = known = (*known, identity)
            return known.index(identity) + 1

        compiled = compile_program(
            source,
            self.types,
            edition_of,
            leaves_out_missing,
            [r.import_ for r in self.routed.values()],
            is_networked=True,
            leaves_out_broken=leaves_out_broken,
        )
        for import_ in compiled.original.imports:
            self._refuse_other_histories(import_)
        added = {import_.name for import_ in compiled.original.imports}
        routed = {name: entry for name, entry in self.routed.items() if name in added}
        return compiled, replace(self, editions=editions, routed=routed)

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

    def has_history(self, import_: mmpl.ImportDef, history: str) -> bool:
        """Whether this edition of an import has this history. It need not be the latest one."""
        identity = self._identity(import_, history)
        return identity in self.editions.get(import_.name, ())[import_.edition - 1 : import_.edition]

    def _identity(self, import_: mmpl.ImportDef, history: str) -> str:
        """A stream with a known history is the same one wherever it comes from."""
        assert import_.definition is not None
        condition = "" if import_.condition is None else print_expression(import_.condition)
        digest = definition_digest(import_.definition)
        broker = "" if import_.stream is not None and history else import_.broker
        identity = repr((broker, import_.relation, condition, digest, history))
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def fetch(
        self, source: Source, fetch: FetchDescription, only: Collection[MissingImport] | None = None
    ) -> "FetchedDescriptions":
        """Asks for descriptions of everything that a program imports, or only of some of it. A broker
        that cannot be reached is described as it was. Of several brokers with the same stream, one must be known."""
        types = {broker: dict(relations) for broker, relations in self.types.items()}
        refusals, away, edges = list[Diagnostic](), list[tuple[str, Span | None, Diagnostic]](), list[SourceEdge]()
        refused: dict[RelationName, Diagnostic] = {}
        for broker, relation, span in imported_relations(source):
            if only is not None and not any(i.relation == relation and broker in i.brokers for i in only):
                continue
            try:
                description = _parse_description(fetch(broker, relation), broker, relation)
            except SmileError as problem:
                first = replace(problem.diagnostics[0], span=span)
                if first.code not in ("E100", "E103"):
                    refusals += [replace(d, span=span) for d in problem.diagnostics]
                    refused[broker, relation] = first
                elif relation not in types.get(broker, {}):
                    away.append((relation, span, first))
                continue
            if not description.get("waiting"):
                types.setdefault(broker, {})[relation] = description
            elif relation not in types.get(broker, {}):
                edges += _read_edges(description)
                sources = ", ".join(f"{r} from {b}" for (_, b_relation), (b, r) in edges if b_relation == relation)
                message = f"{broker} does not know the type of {relation} yet: it waits for {sources or 'others'}"
                away.append((relation, span, Diagnostic("E138", message, span)))
        brokers_of = defaultdict[tuple[str, Span | None], list[str]](list)
        for broker, relation, span in imported_relations(source):
            brokers_of[relation, span].append(broker)
        missing = {
            MissingImport(relation, tuple(brokers_of[relation, span])): problem
            for relation, span, problem in away
            if not any(relation in types.get(broker, {}) for broker in brokers_of[relation, span])
        }
        # To wait for a broker without an address makes no sense.
        refusals += [problem for problem in missing.values() if problem.code == "E100"]
        records, has_news = replace(self, types=types), types != self.types
        return FetchedDescriptions(records, tuple(refusals), missing, tuple(edges), refused, has_news)


@dataclass(frozen=True)
class FetchedDescriptions:
    """`refusals` are the errors with which brokers have answered. `missing` says why there is no description of an
    import, because its brokers cannot be reached or do not know it yet. `edges` are those behind what they do not know
    yet. `refused` has the refusal of each relation. With `has_news`, some descriptions were not recorded before. If the
    program `has_run`, what does not fit the descriptions does not prevent it from running."""

    records: ImportRecords = field(default_factory=ImportRecords)
    refusals: tuple[Diagnostic, ...] = ()
    missing: Mapping[MissingImport, Diagnostic] = field(default_factory=lambda: MappingProxyType({}))
    edges: tuple[SourceEdge, ...] = ()
    refused: Mapping[RelationName, Diagnostic] = field(default_factory=lambda: MappingProxyType({}))
    has_news: bool = False
    has_run: bool = False

    def require_all(self) -> ImportRecords:
        """Raises all errors."""
        if problems := dict.fromkeys([*self.refusals, *self.missing.values()]):
            raise SmileError(list(problems))
        return self.records


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


def _read_edges(description: Mapping[str, Any]) -> Iterator[SourceEdge]:
    for reader_broker, reader, broker, relation in description.get("sources", ()):
        yield (str(reader_broker), str(reader)), (str(broker), str(relation))


def source_edges(broker: str, program: mmpl.Program, relation: str, records: ImportRecords) -> list[SourceEdge]:
    """The imports that a relation of this broker is computed from, directly or through other brokers."""
    edges: dict[SourceEdge, None] = {}
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
                _refuse_circle((broker, relation), (source_broker, import_.relation), edges, import_.span)


def find_waiting_circles(
    broker: str, left_out: Mapping[str, tuple[MissingImport, ...]], edges: Iterable[SourceEdge]
) -> dict[MissingImport, Diagnostic]:
    """Why imports never get a description, because brokers wait for each other: a relation of this one that was left
    out needs itself."""
    edges, found = list(edges), dict[MissingImport, Diagnostic]()
    for relation, imports in left_out.items():
        for source_broker, import_ in ((b, i) for i in imports for b in i.brokers):
            try:
                _refuse_circle((broker, relation), (source_broker, import_.relation), edges, None)
            except SmileError as problem:
                found[import_] = problem.diagnostics[0]
    return found


def waiting_edges(broker: str, relation: str, imports: Iterable[MissingImport]) -> list[SourceEdge]:
    """The edges of a relation of this broker that was left out."""
    return [((broker, relation), (source_broker, i.relation)) for i in imports for source_broker in i.brokers]


def _refuse_circle(
    relation: RelationName, source: RelationName, edges: Iterable[SourceEdge], span: Span | None
) -> None:
    """Raises E127 if a relation is one of those that its source is computed from."""
    path = _find_path(source, relation, edges)
    if path is not None:
        names = " → ".join(f"{r} at {b}" for b, r in (relation, *path))
        hint = "Import a relation that is not computed from this one."
        raise error("E127", f"the imports go in a circle: {names}", span, hint)


def _find_path(start: RelationName, end: RelationName, edges: Iterable[SourceEdge]) -> list[RelationName] | None:
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
