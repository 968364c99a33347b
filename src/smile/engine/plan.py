"""The plan: a program's transforms arranged in stages, and each stage's part of the work in one partition.

With one partition nothing has to move, so everything is one stage.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from smile.algebra import mmpl
from smile.columns import masks
from smile.columns.hashing import hashes, mix_bits
from smile.columns.values import Array, ValueColumn, true_indices
from smile.graph.knowledge_graph import KnowledgeGraph
from smile.graph.stages import (
    FREE,
    SINGLE_PARTITION,
    ColumnNames,
    Exchange,
    InputRead,
    Partitioning,
    Stage,
    split_into_stages,
)
from smile.kernels.compile import Kernels, compile_graph, materialized_name
from smile.kernels.delta import Delta, RowKnowledge
from smile.kernels.expiry import ExpiryRule
from smile.kernels.seals import HorizonAdvance
from smile.kernels.transform import State
from smile.state.run import TableSchema
from smile.state.table import StateTable

TransformStates = Mapping[str, State]
"""What is remembered, by the transforms that remember it."""

ExchangeRoute = tuple[str, ColumnNames | None]
"""A relation, and the columns that say which partition its rows go to."""


@dataclass(frozen=True)
class StageResult:
    """What a partition of a stage made of a frame: its states, the changes of its relations."""

    states: TransformStates
    deltas: Mapping[str, Delta]


@dataclass(frozen=True)
class ExecutableStage:
    """A stage's transforms, each with how it finds its inputs. `sends` are routes by the stages they lead to. `views`
    are those that are told of from here, `free` the relations that every partition has all of."""

    number: int
    partitions: int
    kernels: Kernels
    reads: Mapping[str, tuple[InputRead, ...]]
    single_partition: frozenset[str]
    routes: Mapping[int, tuple[ExchangeRoute, ...]]
    views: tuple[str, ...]
    replicated: frozenset[str]
    expiry_rules: tuple[ExpiryRule, ...]

    def restrict_to(self, needed: Container[str], views: Sequence[str]) -> "ExecutableStage":
        """What makes these relations, and tells of these views."""
        return replace(
            self,
            reads={name: reads for name, reads in self.reads.items() if name in needed},
            routes={
                stage_number: tuple(r for r in routes if r[0] in needed) for stage_number, routes in self.routes.items()
            },
            views=tuple(view for view in self.views if view in views),
            expiry_rules=tuple(f for f in self.expiry_rules if f.source in needed),
        )

    @cached_property
    def table_schemas(self) -> dict[str, Mapping[str, TableSchema]]:
        """Of what is remembered here."""
        owners = {*self.reads, *(f.name for f in self.expiry_rules)}
        return {name: schemas for name, schemas in self.kernels.table_schemas.items() if name in owners}

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """Those that are read here from the log."""
        used = {r.relation for reads in self.reads.values() for r in reads if r.mode != "sent"}
        used |= {route[0] for routes in self.routes.values() for route in routes} | set(self.views)
        return tuple(n for n, source in self.kernels.inputs.items() if source.transform is None and n in used)

    def empty_states(self) -> TransformStates:
        """Before anything is heard."""
        return {
            name: {table: StateTable(schema) for table, schema in schemas.items()}
            for name, schemas in self.table_schemas.items()
        }

    def step(
        self,
        partition: int,
        states: TransformStates,
        stream_deltas: Mapping[str, Delta],
        received: Mapping[ExchangeRoute, Delta],
        advance: HorizonAdvance,
        is_first: bool,
    ) -> StageResult:
        """What comes of the events `heard` and of what earlier stages have `sent`. `first`: nothing was before."""
        deltas = dict(stream_deltas)
        shares: dict[ExchangeRoute, Delta | None] = {}
        states = dict(states)
        for name, reads in self.reads.items():
            if partition and name in self.single_partition:
                continue
            transform = self.kernels.transforms[name]
            inputs = [self._input_delta(read, partition, deltas, received, shares) for read in reads]
            may_seal_rows = (advance.has_moved or is_first) and transform.has_sealing_rows(advance)
            if not may_seal_rows and all(i is None for i in inputs):
                continue
            state, delta = transform.step(states.get(name, {}), inputs, advance)
            if transform.table_schemas:
                states[name] = state
            if delta is not None and len(delta):
                deltas[name] = delta
        for rule in self.expiry_rules:
            rule.expire(states, deltas)
        return StageResult(states, deltas)

    def _input_delta(
        self,
        read: InputRead,
        partition: int,
        deltas: Mapping[str, Delta],
        received: Mapping[ExchangeRoute, Delta],
        shares: dict[ExchangeRoute, Delta | None],
    ) -> Delta | None:
        route = (read.relation, read.columns)
        if read.mode == "sent":
            return received.get(route)
        delta = deltas.get(read.relation)
        if read.mode == "here" or delta is None:
            return delta
        if route not in shares:
            shares[route] = self._share(delta, read.columns, partition)
        return shares[route]

    def _share(self, delta: Delta, by: ColumnNames | None, partition: int) -> Delta | None:
        """Of what every partition has, what is this one's."""
        if self.partitions == 1:
            return delta
        assert by is not None
        own_rows = true_indices(self._target_partitions(delta, by) == partition)
        if len(own_rows) == len(delta):
            return delta
        return delta.take(own_rows) if len(own_rows) else None

    def _target_partitions(self, delta: Delta, by: ColumnNames) -> Array:
        """The partition that each row goes to."""
        if not by:
            return np.zeros(len(delta), np.int64)
        return partition_of([delta.fixed[c] for c in by], len(delta), self.partitions)

    def routed_deltas(
        self, partition: int, result: StageResult, later_stage: int
    ) -> Iterator[tuple[int, ExchangeRoute, Delta]]:
        """What goes to a later stage: to which partition, by which route, and what."""
        for relation, by in self.routes.get(later_stage, ()):
            delta = result.deltas.get(relation)
            if delta is None:
                continue
            if relation in self.replicated or by is None:
                own_rows = self._share(delta, by, partition) if relation in self.replicated else delta
                if own_rows is not None:
                    yield partition, (relation, by), own_rows
                continue
            targets = self._target_partitions(delta, by)
            for target in range(self.partitions):
                rows = true_indices(targets == target)
                if len(rows):
                    yield target, (relation, by), delta.take(rows)

    def view_deltas(self, partition: int, result: StageResult) -> Iterator[tuple[str, Delta]]:
        """Of each view the rows that are shown, or were: what is known of them, and whether they were."""
        for view in self.views:
            delta = result.deltas.get(view)
            if delta is not None and view in self.replicated:
                delta = self._share(delta, self.kernels.inputs[view].layout.key, partition)
            if delta is None:
                continue
            old_mask = delta.old_mask()
            shown_rows = true_indices(masks.is_shown(delta.new.mask) | masks.is_shown(old_mask))
            if not len(shown_rows):
                continue
            if len(shown_rows) < len(delta):
                delta, old_mask = delta.take(shown_rows), old_mask[shown_rows]
            yield view, Delta(delta.fixed, RowKnowledge({}, old_mask, delta.new.steps), delta.new)


def partition_of(columns: Sequence[ValueColumn], count: int, partitions: int) -> Array:
    """Follows from the values alone, whatever their columns are called."""
    hash_values = mix_bits(hashes(columns, count))
    return (hash_values % np.uint64(partitions)).astype(np.int64)


@dataclass(frozen=True)
class Plan:
    """All stages, in order. `views` are those that are told of."""

    kernels: Kernels
    stages: tuple[ExecutableStage, ...]
    partitions: int
    views: tuple[str, ...]

    def restrict_to(self, views: Sequence[str]) -> "Plan":
        """The same plan for fewer views: without the work that no other is for. What remains is compiled as before, so
        that it goes on from what it remembers."""
        if set(views) == set(self.views):
            return self
        needed = {*views, *map(materialized_name, views)}
        for name, reads in reversed(list(self.kernels.reads.items())):
            if name in needed:
                needed.update(reads)
        return replace(
            self, stages=tuple(stage.restrict_to(needed, views) for stage in self.stages), views=tuple(views)
        )

    def storing_stage(self, view: str) -> ExecutableStage:
        """The stage that keeps a view's rows."""
        return next(stage for stage in self.stages if materialized_name(view) in stage.reads)


def build_plan(
    graph: KnowledgeGraph, streams: tuple[mmpl.StreamDef, ...], partitions: int = 1, stored_views: Sequence[str] = ()
) -> Plan:
    kernels = compile_graph(graph, streams).with_materialized_views(stored_views)
    views = tuple(graph.subscriptions)
    if partitions == 1:
        return Plan(kernels, (fused_stage(kernels, views),), 1, views)
    stages = plan_stages(graph, kernels)
    partitionings = {name: FREE for name, source in kernels.inputs.items() if source.transform is None}
    for stage in stages:
        partitionings |= stage.partitionings
    for view in stored_views:
        _store_view(view, kernels.inputs[view].layout.key, stages, partitionings[view])
    executable_stages = [
        _executable_stage(stage, kernels, partitions, stages, partitionings, views) for stage in stages
    ]
    return Plan(kernels, tuple(executable_stages), partitions, views)


def plan_stages(graph: KnowledgeGraph, kernels: Kernels) -> list[Stage]:
    return split_into_stages(graph, {name: source.layout.fixed for name, source in kernels.inputs.items()})


def fused_stage(kernels: Kernels, views: Sequence[str]) -> ExecutableStage:
    """Everything in one partition."""
    reads = {name: tuple(InputRead(r, None, "here") for r in sources) for name, sources in kernels.reads.items()}
    return ExecutableStage(1, 1, kernels, reads, frozenset(), {}, tuple(views), frozenset(), kernels.expiry_rules)


def _store_view(view: str, key: ColumnNames, stages: list[Stage], partitioning: Partitioning) -> None:
    """A view's rows are remembered where columns of theirs say: where they are made, if they still have those that
    decided it; else by their key, a stage later."""
    producer_number = next((stage.number for stage in stages if view in stage.partitionings), 1)
    if partitioning.is_lost:
        if producer_number == len(stages):
            stages.append(Stage(producer_number + 1))
        next_stage = stages[producer_number]
        next_stage.exchanges.append(Exchange(view, key, materialized_name(view)))
        next_stage.reads[materialized_name(view)] = (InputRead(view, key, "sent"),)
    elif partitioning.is_free:
        stages[producer_number - 1].reads[materialized_name(view)] = (InputRead(view, key, "share"),)
    else:
        by = tuple(min(column) for column in partitioning.columns)
        stages[producer_number - 1].reads[materialized_name(view)] = (InputRead(view, by, "here"),)


def _executable_stage(
    stage: Stage,
    kernels: Kernels,
    partitions: int,
    stages: Sequence[Stage],
    partitionings: Mapping[str, Partitioning],
    views: Sequence[str],
) -> ExecutableStage:
    own_relations = {t.output for t in stage.transforms}
    if stage.number == 1:
        own_relations |= {name for name, source in kernels.inputs.items() if source.transform is None}
    replicated = frozenset(name for name, p in partitionings.items() if p.is_free)
    routes_by_stage: dict[int, tuple[ExchangeRoute, ...]] = {}
    for later in stages:
        routes = [(e.relation, e.columns) for e in later.exchanges if e.relation in own_relations]
        if routes:
            routes_by_stage[later.number] = tuple(dict.fromkeys(routes))
    single_partition = frozenset(name for name in own_relations if partitionings[name] == SINGLE_PARTITION)
    expiry_rules = tuple(
        replace(f, targets=spent)
        for f in kernels.expiry_rules
        if f.source in own_relations and (spent := tuple(s for s in f.targets if s.transform in own_relations))
    )
    own_views = tuple(v for v in views if v in own_relations)
    return ExecutableStage(
        stage.number,
        partitions,
        kernels,
        stage.reads,
        single_partition,
        routes_by_stage,
        own_views,
        replicated & own_relations,
        expiry_rules,
    )
