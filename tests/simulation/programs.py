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
    are pairs of brokers; there may be several between two. `hosts` publish to streams with many origins; the first one
    is the home of these."""

    name: str
    parents: tuple[tuple[int, ...], ...]
    links: tuple[tuple[int, int], ...]
    hosts: tuple[int, ...] = ()

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
    Topology("ring", ((), (0,), (0, 1)), ((0, 1), (1, 2), (2, 0)), (0, 1)),
    Topology("two hosts", ((), (), (0, 1)), ((0, 1), (0, 2), (1, 2)), (0, 1)),
    Topology("three hosts", ((), (), (), (0, 1, 2)), ((0, 1), (0, 2), (0, 3), (1, 3), (2, 3)), (0, 1, 2)),
    Topology("hosts and relay", ((), (), (0, 1), (2,)), ((0, 1), (0, 2), (1, 2), (2, 3)), (0, 1)),
    Topology(
        "hosts and two relays",
        ((), (), (0, 1), (0, 1), (2, 3)),
        ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 4), (3, 4)),
        (0, 1),
    ),
)

TOPOLOGY_WEIGHTS = (3, 3, 3, 2, 2, 1, 3, 5, 1, 2, 1)
"""How often each is drawn: large ones take long."""
MANY_HOSTS = 0.8
"""How many of the streams have many origins where there are several hosts, if they can."""
REDUNDANT = 0.5
"""How many imports of streams name all brokers that have them."""


def broker_name(number: int) -> str:
    return f"b{number}"


def broker_number(name: str) -> int:
    return int(name.removeprefix("b"))


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
        self._hosts: dict[str, tuple[int, ...]] = {}
        """The hosts of streams that have several."""

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
        can_have_many = not stream.unique and stream.name != "B" and self._publisher_timed < 1
        if can_have_many and self.topology.hosts and self.random.random() < MANY_HOSTS:
            home, *others = self._hosts[stream.name] = self.topology.hosts
            stream = replace(stream, many_origins=True)
            for host in others:
                self._drafts[host].streams.append(replace(stream, home=broker_name(home)))
        has_many = stream.many_origins and can_have_many
        drawn = replace(stream, publisher_timed=is_publisher_timed and not has_many, many_origins=has_many)
        self._drafts[home].streams.append(drawn)
        self._place[stream.name] = home

    def _add_view(self, view: mmpl.ViewDef, is_last: bool) -> None:
        """A view of a stream with several hosts is at one of them, or below all of them."""
        read = names_read(view.body)
        places = [n for n in range(len(self._drafts)) if all(self._can_read(n, name) for name in read)]
        if not places:
            raise error("E123", f"no broker can have {view.name}")
        # Views that others may read are near the streams, so that they are imported.
        end = places[0] if self.random.random() < 0.6 and not is_last else places[-1]
        place = self._place[view.name] = end if self.random.random() < 0.7 else self.random.choice(places)
        body = trees.rebuild_relation(view.body, lambda rel: self._redirect(rel, place))
        self._drafts[place].views.append(replace(view, body=body))

    def _brokers_of(self, name: str) -> tuple[int, ...]:
        """The brokers that have a relation without importing it."""
        return self._hosts.get(name, (self._place[name],))

    def _can_read(self, number: int, name: str) -> bool:
        brokers = self._brokers_of(name)
        return number in brokers or self.topology.above(number).issuperset(brokers)

    def _pass_on(self) -> None:
        """Brokers that would import no view import one, and those that would have nothing to do import a stream."""
        for number, draft in enumerate(self._drafts):
            above = self.topology.above(number)
            reachable = sorted(name for name in self._place if above.issuperset(self._brokers_of(name)))
            away = [name for name in reachable if number not in self._brokers_of(name)]
            views = [name for name in away if name.startswith("V")]
            if views and not any(name in draft.imports for name in views) and self.random.random() < 0.8:
                self._import(number, self.random.choice(views), None)
            elif away and self.topology.parents[number] and not draft.imports:
                self._import(number, self.random.choice(away), None)

    def _redirect(self, rel: mmpl.Rel, place: int) -> mmpl.Rel:
        if not isinstance(rel, mmpl.RelationRef) or place in self._brokers_of(rel.name):
            return rel
        alias = None if self.random.random() < 0.7 else f"{rel.name}_again"
        return mmpl.RelationRef(self._import(place, rel.name, alias))

    def _import(self, place: int, relation: str, alias: str | None) -> str:
        """Imports a relation from a broker above, which imports it itself if it does not have it. A stream with several
        hosts is imported from all of them, and a stream is sometimes imported from all brokers that pass it on."""
        name = alias or relation
        if name not in self._drafts[place].imports:
            brokers, parents = self._brokers_of(relation), self.topology.parents[place]
            sources = [p for p in parents if p not in brokers and self.topology.above(p).issuperset(brokers)]
            self.random.shuffle(sources)
            if set(brokers) <= set(parents):
                chosen = [*brokers, *(sources if self._is_redundant(relation) else ())]
            else:
                chosen = sources if self._is_redundant(relation) else sources[:1]
            for source in chosen:
                if source not in brokers:
                    self._import(source, relation, None)
            first, *others = map(broker_name, chosen)
            self._drafts[place].imports[name] = mmpl.ImportDef(name, first, relation, other_brokers=tuple(others))
        return name

    def _is_redundant(self, relation: str) -> bool:
        return not relation.startswith("V") and self.random.random() < REDUNDANT

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
        """Brokers that pass on only a part of a stream, with a condition, are left out: theirs is another stream."""
        definition, *others = (self._definition(name, import_.relation, programs) for name in import_.brokers)
        alike = tuple(b for b, d in zip(import_.other_brokers, others, strict=True) if d == definition)
        condition = draw_condition(self.random, definition, import_.relation, whole=0.85)
        resolved = replace(import_, definition=definition, condition=condition, other_brokers=alike)
        check_import(resolved)
        return resolved

    def _definition(self, broker: str, relation: str, programs: Sequence[mmpl.Program]) -> mmpl.Program:
        return read_definition(describe_export(programs[broker_number(broker)], relation), relation)


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
    return {s.name: (n, s) for n, program in enumerate(programs) for s in program.streams if s.home is None}


def hosts_of(programs: Sequence[mmpl.Program], stream: str) -> tuple[int, ...]:
    """The brokers that publish to a stream."""
    return tuple(n for n, program in enumerate(programs) if any(s.name == stream for s in program.streams))


def own_streams_read(program: mmpl.Program) -> frozenset[str]:
    """The streams with many origins that a broker publishes to, and that its views or its subscribers read."""
    names = {name for view in program.views for name in names_read(view.body)} | {*program.subscriptions}
    return frozenset(s.name for s in program.streams if s.many_origins and s.name in names)


def reading_hosts(programs: Sequence[mmpl.Program], stream: str) -> frozenset[int]:
    """Those hosts of a stream with many origins that receive the origins of the others: each that reads it or exports it
    to a broker that is no host, and the home, which passes everything on, if any other one does."""
    hosts, exporters = hosts_of(programs, stream), set[str]()
    for program in programs:
        exporters.update(name for i in program.imports if i.relation == stream for name in i.brokers)
    readers = {n for n in hosts if stream in own_streams_read(programs[n]) or broker_name(n) in exporters}
    homes = {n for n in hosts if any(s.name == stream and s.home is None for s in programs[n].streams)}
    return frozenset(readers | homes if readers else ())


@dataclass(frozen=True)
class Coverage:
    """Which brokers' events others have in the end. Nothing comes from brokers that are dead."""

    programs: Sequence[mmpl.Program]
    dead: frozenset[int] = frozenset()

    def of_program(self, number: int, program: mmpl.Program) -> dict[str, frozenset[int]]:
        """For each stream of the history of a broker's program, as `reference.history` names them: the brokers whose
        events it has."""
        covered = {stream.name: frozenset({number}) for stream in program.streams}
        for import_ in program.imports:
            if import_.stream is not None:
                covered[import_.stream.name] = self._of_import(import_)
            else:
                exporter = broker_number(import_.broker)
                exported = self.of_program(exporter, import_.exporting_program)
                is_dead = exporter in self.dead
                covered |= {
                    import_.horizon_name(s): frozenset() if is_dead else exported[s] for s in import_.base_streams
                }
        return covered

    def _of_import(self, import_: mmpl.ImportDef) -> frozenset[int]:
        """A dead broker counts if there are others: what it has had may have come over them."""
        exporters = [broker_number(name) for name in import_.brokers]
        if self.dead.issuperset(exporters):
            return frozenset()
        return frozenset[int]().union(*(self._of_stream(exporter, import_.relation) for exporter in exporters))

    def _of_stream(self, number: int, stream: str) -> frozenset[int]:
        for import_ in self.programs[number].imports:
            if import_.name == stream:
                return self._of_import(import_)
        return frozenset({number})
