"""The plans of all global imports of one global stream. They follow the registrations by the propositions of the paper,
so that a change touches only the plans that it concerns."""

from collections.abc import Mapping, Sequence, Set as AbstractSet
from typing import Final, NamedTuple

from smile.algebra import mmpl
from smile.analysis.global_streams import ALWAYS, describe_columns, has_same_columns
from smile.broker.global_streams.known_publishers import KnownPublisher, Registrations
from smile.broker.global_streams.producer_hosts import ProducerHosts
from smile.broker.network.producer_registry import PRODUCER
from smile.errors import SmileError, error
from smile.registry.conditions import Condition, every_row, make_condition, parse_condition
from smile.registry.maintenance import PlanMaintenance
from smile.registry.planner import MetaPlan, Query, QueryPlan, choose_plan
from smile.registry.publishers import PublisherKind, StreamPublisher, check_publisher
from smile.registry.schema import global_schema

_FORMER: Final = "former producers"


class PlannedSource(NamedTuple):
    """What a plan says of a source: see `RunningSource`."""

    host: str
    stream: str
    condition: str
    view: str
    history: str


class RelationPlanning:
    """`definition` is the global stream as this broker declares it."""

    def __init__(self, definition: mmpl.StreamDef) -> None:
        self.definition, self.stream = definition, global_schema(definition)
        self._maintenance = PlanMaintenance()
        self._known: dict[str, KnownPublisher] = {}
        self._plans: dict[str, tuple[Query, QueryPlan]] = {}
        """The plan of each import, by name."""
        self.problems: Mapping[str, SmileError] = {}
        """Publishers that cannot be used, with the reason."""
        self._input: tuple[Registrations, AbstractSet[str]] | None = None
        self._sources: dict[str, Sequence[PlannedSource]] = {}
        """Those that follow from the input, by the name of the import."""
        self._hosts = ProducerHosts(self.stream)

    def update(self, registrations: Registrations, withdrawn: AbstractSet[str]) -> None:
        """Takes in who has come and gone. `withdrawn` are hosts whose former producers still count: they are planned
        with as one producer of anything. Without work if nothing has changed."""
        if self._input is not None and self._input[0] is registrations and self._input[1] == withdrawn:
            return
        self._input, self._sources = (registrations, frozenset(withdrawn)), {}
        relation, self.problems = self.stream.name, dict(self.problems)
        former = (KnownPublisher(_FORMER, host, PRODUCER, relation, str(every_row(self.stream))) for host in withdrawn)
        publishers = {p.key: p for p in (*registrations.publishers, *former)}
        gone = [publisher for key, publisher in self._known.items() if publishers.get(key) != publisher]
        for publisher in gone:
            del self._known[publisher.key]
            if self.problems.pop(publisher.key, None) is None:
                self._maintenance.remove_publisher(publisher.key)
        new = [publisher for key, publisher in publishers.items() if key not in self._known]
        for publisher in new:
            self._known[publisher.key] = publisher
            self._add(publisher, self.problems)
        present = self._maintenance.publishers
        self._hosts.change(
            [p.key for p in gone if _is_producer(p)],
            [present[p.key] for p in new if _is_producer(p) and p.key in present],
        )

    def _add(self, known: KnownPublisher, problems: dict[str, SmileError]) -> None:
        kind: PublisherKind = "producer" if known.role == PRODUCER else "republisher"
        try:
            if known.declared is not None and not has_same_columns(known.declared, self.definition):
                columns = describe_columns(known.declared)
                hint = f"Declare it alike everywhere. Here it is {describe_columns(self.definition)}."
                raise error("E189", f"{self.stream.name} at {known.host} is declared as {columns}", hint=hint)
            condition = parse_condition(self.stream, known.condition)
            publisher = StreamPublisher(known.key, kind, known.host, condition, known.cost, known.load)
            check_publisher(publisher)
        except SmileError as problem:
            problems[known.key] = problem
            return
        self._maintenance.add_publisher(publisher)

    def plan(self, import_name: str, query: Query) -> Sequence[PlannedSource]:
        """The plan of an import. It stays the same while its meta plan allows it. Raises E176 if there is none for such
        a condition."""
        present = self._plans.get(import_name)
        if present is not None and present[0] == query and import_name in self._sources:
            return self._sources[import_name]
        if present is None or present[0] != query:
            self.forget(import_name)
            self._maintenance.add_query(query)
        running = None if present is None or present[0] != query else present[1]
        meta = self._maintenance.meta_plan(query)
        plan = choose_plan(query, meta, self._maintenance.publishers, running)
        self._plans[import_name] = query, plan
        sources = dict.fromkeys(self._planned(source.publisher, source.condition) for source in plan.sources)
        self._sources[import_name] = list(sources)
        return self._sources[import_name]

    def has_producer(self, host: str, *conditions: str) -> bool:
        """Whether a producer at the host may publish something that satisfies each of these conditions."""
        return self._hosts.has_producer(host, *conditions)

    @property
    def publishers(self) -> Mapping[str, StreamPublisher]:
        """Those that are planned with, by name."""
        return self._maintenance.publishers

    def chosen(self, import_name: str) -> tuple[Query, MetaPlan, QueryPlan] | None:
        """The query of an import, its meta plan and its plan; None if it has none yet."""
        present = self._plans.get(import_name)
        return None if present is None else (present[0], self._maintenance.meta_plan(present[0]), present[1])

    def meta_plan(self, import_name: str) -> MetaPlan:
        """The meta plan of an import that has a plan; an empty one if it has none yet."""
        present = self._plans.get(import_name)
        return MetaPlan((), ()) if present is None else self._maintenance.meta_plan(present[0])

    def query_of(self, import_: mmpl.ImportDef) -> Query:
        """What a global import of this stream asks for."""
        return Query(make_condition(self.stream, import_.condition or ALWAYS), not mmpl.is_consumer_name(import_.name))

    def forget(self, import_name: str) -> None:
        """The import is not in the program any more."""
        present = self._plans.pop(import_name, None)
        self._sources.pop(import_name, None)
        if present is not None:
            self._maintenance.remove_query(present[0])

    def _planned(self, name: str, condition: Condition) -> PlannedSource:
        """Producers of one host are one source: they have the same condition, and one log."""
        publisher, text = self._known[name], condition_text(condition)
        if publisher.role == PRODUCER:
            return PlannedSource(publisher.host, self.stream.name, text, "", "")
        return PlannedSource(publisher.host, publisher.name, text, publisher.condition, publisher.history)


def _is_producer(publisher: KnownPublisher) -> bool:
    """Whether it may publish something from now on."""
    return publisher.role == PRODUCER and publisher.name != _FORMER


def condition_text(condition: Condition) -> str:
    return "" if condition == every_row(condition.stream) else str(condition)
