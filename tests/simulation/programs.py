"""Random programs on the brokers of a topology: each view is at some broker, which imports what it reads from the brokers
above it. What is not next to it passes through brokers in between."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from smile.algebra import mmpl, trees
from smile.algebra.printer import print_program
from smile.analysis.export_description import describe_export, read_definition
from smile.analysis.imports import check_import
from smile.analysis.type_analysis import TypeAnalysis
from smile.errors import SmileError, error
from tests.engine.network_programs import draw_condition
from tests.random_programs import random_program
from tests.reference.histories import names_read


@dataclass(frozen=True)
class Topology:
    """`parents` has for each broker those that it imports from. The brokers without parents have the streams. `links`
    are pairs of brokers; there may be several between two."""

    name: str
    parents: tuple[tuple[int, ...], ...]
    links: tuple[tuple[int, int], ...]

    @property
    def homes(self) -> tuple[int, ...]:
        return tuple(n for n, parents in enumerate(self.parents) if not parents)

    def above(self, broker: int) -> frozenset[int]:
        """The broker itself, and all that it can import from through others."""
        return frozenset({broker}).union(*(self.above(parent) for parent in self.parents[broker]))


TOPOLOGIES = (
    Topology("pair", ((), (0,)), ((0, 1),)),
    Topology("two links", ((), (0,)), ((0, 1), (0, 1))),
    Topology("chain", ((), (0,), (1,)), ((0, 1), (1, 2))),
    Topology("star", ((), (), (0, 1)), ((0, 2), (1, 2))),
    Topology("tree", ((), (0,), (0,)), ((0, 1), (0, 2))),
    Topology("diamond", ((), (0,), (0,), (1, 2)), ((0, 1), (0, 2), (1, 3), (2, 3))),
    Topology("ring", ((), (0,), (0, 1)), ((0, 1), (1, 2), (2, 0))),
)


def broker_name(number: int) -> str:
    return f"b{number}"


@dataclass
class _BrokerDraft:
    streams: list[mmpl.StreamDef] = field(default_factory=list)
    views: list[mmpl.ViewDef] = field(default_factory=list)
    imports: dict[str, mmpl.ImportDef] = field(default_factory=dict)


class NetworkPrograms:
    """Draws the programs of all brokers. `publisher_timed` is the share of streams whose publishers give the ticks."""

    def __init__(self, topology: Topology, random: Random, publisher_timed: float) -> None:
        self.topology, self.random, self._publisher_timed = topology, random, publisher_timed
        self._drafts = [_BrokerDraft() for _ in topology.parents]
        self._place: dict[str, int] = {}
        """The broker of each stream and view."""

    def draw(self, views_max: int) -> list[mmpl.Program]:
        """Raises an error if something cannot be imported."""
        program = random_program(self.random, views_max)
        read = {name for view in program.views for name in names_read(view.body)}
        for stream in program.streams:
            if stream.name in read:
                self._add_stream(stream)
        for view in program.views:
            self._add_view(view, view is program.views[-1] and len(program.views) > 1)
        self._pass_on()
        return self._build()

    def _add_stream(self, stream: mmpl.StreamDef) -> None:
        """The checks of B bind a column to the tick, so its events must have ticks of their publisher."""
        is_publisher_timed = stream.name == "B" or self.random.random() < self._publisher_timed
        home = self.random.choice(self.topology.homes)
        self._drafts[home].streams.append(replace(stream, publisher_timed=is_publisher_timed))
        self._place[stream.name] = home

    def _add_view(self, view: mmpl.ViewDef, is_last: bool) -> None:
        needed = {self._place[name] for name in names_read(view.body)}
        places = [n for n in range(len(self._drafts)) if needed <= self.topology.above(n)]
        if not places:
            raise error("E123", f"no broker can have {view.name}")
        # Views that others may read are near the streams, so that they are imported.
        end = places[0] if self.random.random() < 0.6 and not is_last else places[-1]
        place = self._place[view.name] = end if self.random.random() < 0.7 else self.random.choice(places)
        body = trees.rebuild_relation(view.body, lambda rel: self._redirect(rel, place))
        self._drafts[place].views.append(replace(view, body=body))

    def _pass_on(self) -> None:
        """Brokers that would import no view import one, and those that would have nothing to do import a stream."""
        for number, draft in enumerate(self._drafts):
            reachable = sorted(name for name, place in self._place.items() if place in self.topology.above(number))
            away = [name for name in reachable if self._place[name] != number]
            views = [name for name in away if name.startswith("V")]
            if views and not any(name in draft.imports for name in views) and self.random.random() < 0.8:
                self._import(number, self.random.choice(views), None)
            elif away and self.topology.parents[number] and not draft.imports:
                self._import(number, self.random.choice(away), None)

    def _redirect(self, rel: mmpl.Rel, place: int) -> mmpl.Rel:
        if not isinstance(rel, mmpl.RelationRef) or self._place[rel.name] == place:
            return rel
        alias = None if self.random.random() < 0.7 else f"{rel.name}_again"
        return mmpl.RelationRef(self._import(place, rel.name, alias))

    def _import(self, place: int, relation: str, alias: str | None) -> str:
        """Imports a relation from a broker above, which imports it itself if it does not have it."""
        name = alias or relation
        if name not in self._drafts[place].imports:
            parents = [p for p in self.topology.parents[place] if self._place[relation] in self.topology.above(p)]
            parent = self.random.choice(parents)
            if self._place[relation] != parent:
                self._import(parent, relation, None)
            self._drafts[place].imports[name] = mmpl.ImportDef(name, broker_name(parent), relation)
        return name

    def _build(self) -> list[mmpl.Program]:
        """Resolves the imports, the brokers above first, and draws their conditions."""
        programs = list[mmpl.Program]()
        for draft in self._drafts:
            imports = tuple(self._resolve(i, programs) for i in draft.imports.values())
            names = (*(v.name for v in draft.views), *(i.name for i in imports))
            programs.append(mmpl.Program(tuple(draft.streams), tuple(draft.views), names, imports))
            TypeAnalysis(programs[-1])
        return programs

    def _resolve(self, import_: mmpl.ImportDef, programs: Sequence[mmpl.Program]) -> mmpl.ImportDef:
        exporting = programs[int(import_.broker[1:])]
        definition = read_definition(describe_export(exporting, import_.relation), import_.relation)
        condition = draw_condition(self.random, definition, import_.relation, whole=0.85)
        resolved = replace(import_, definition=definition, condition=condition)
        check_import(resolved)
        return resolved


def draw_programs(topology: Topology, random: Random, views_max: int, publisher_timed: float) -> list[mmpl.Program]:
    """Draws until everything can be imported and something is."""
    while True:
        try:
            programs = NetworkPrograms(topology, random, publisher_timed).draw(views_max)
        except SmileError:
            continue
        if all(program.definitions for program in programs):
            return programs


def program_text(program: mmpl.Program) -> str:
    """As a user would write it: without the definitions of imports."""
    imports = tuple(replace(i, definition=None) for i in program.imports)
    return print_program(replace(program, imports=imports))


def base_streams(program: mmpl.Program) -> dict[str, str]:
    """For each stream of a program's history, as `reference.history` names them: the published stream that it is."""
    bases = {stream.name: stream.name for stream in program.streams}
    for import_ in program.imports:
        exported = base_streams(import_.exporting_program)
        if import_.stream is not None:
            bases[import_.stream.name] = exported[import_.relation]
        else:
            bases.update({import_.horizon_name(s): exported[s] for s in import_.base_streams})
    return bases


def published_streams(programs: Sequence[mmpl.Program]) -> Mapping[str, tuple[int, mmpl.StreamDef]]:
    """The home and the definition of each published stream."""
    return {s.name: (number, s) for number, program in enumerate(programs) for s in program.streams}
