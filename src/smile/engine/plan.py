"""The execution plan: a program's transforms arranged in stages, and how one partition of a stage processes a batch.

Rows are exchanged between stages only. With one partition there is nothing to exchange, so there is one stage.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from smile.algebra import mmpl
from smile.algebra.heading import ColumnNames
from smile.columns import masks
from smile.columns.hashing import hashes, mix_bits
from smile.columns.values import Array, ValueColumn, true_indices
from smile.graph.knowledge_graph import KnowledgeGraph
from smile.graph.stages import (
    FREE,
    SINGLE_PARTITION,
    Exchange,
    InputRead,
    Partitioning,
    Stage,
    split_into_stages,
)
from smile.kernels.compile import Kernels, compile_graph, materialized_name
from smile.kernels.delta import Delta, RowKnowledge, concat_deltas
from smile.kernels.expiry import ExpiryRule
from smile.kernels.seals import HorizonAdvance
from smile.kernels.transform import State
from smile.state.run import TableSchema
from smile.state.table import StateTable

TransformStates = Mapping[str, State]
"""The state of each transform, by the transform's name."""

ExchangeRoute = tuple[str, ColumnNames | None]
"""A relation, and the columns whose hash selects the target partition of its rows."""

RelationObserver = Callable[[str], None]
"""Is told the name of each relation before it is computed. So after an error it knows which one has failed."""


def ignore_relation(_: str) -> None:
    return


@dataclass(frozen=True)
class StageResult:
    """The result of one batch in one partition of a stage: the new states, and the deltas of the stage's relations."""

    states: TransformStates
    deltas: Mapping[str, Delta]


@dataclass(frozen=True)
class ExecutableStage:
    """A stage's transforms, and where each reads its inputs from.

    `routes` maps a later stage's number to the relations sent to it. `views` are the views produced by this stage.
    `replicated` relations are complete in every partition."""

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
        """The same stage with only the transforms that compute `needed` relations, producing only `views`."""
        return replace(
            self,
            reads={name: reads for name, reads in self.reads.items() if name in needed},
            routes={
                stage_number: tuple(r for r in routes if r[0] in needed) for stage_number, routes in self.routes.items()
            },
            views=tuple(view for view in self.views if view in views),
            expiry_rules=tuple(rule for rule in self.expiry_rules if rule.source in needed),
        )

    @cached_property
    def table_schemas(self) -> dict[str, Mapping[str, TableSchema]]:
        """The schemas of this stage's state tables, by transform."""
        owners = {*self.reads, *(rule.name for rule in self.expiry_rules)}
        return {name: schemas for name, schemas in self.kernels.table_schemas.items() if name in owners}

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """The streams that this stage reads from the log."""
        used = {r.relation for reads in self.reads.values() for r in reads if r.mode != "sent"}
        used |= {route[0] for routes in self.routes.values() for route in routes} | set(self.views)
        return tuple(n for n, source in self.kernels.inputs.items() if source.transform is None and n in used)

    def empty_states(self) -> TransformStates:
        """The states before the first batch."""
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
        observe: RelationObserver = ignore_relation,
    ) -> StageResult:
        """Processes a batch: `stream_deltas` come from the log, `received` from earlier stages.

        In the first batch (`is_first`), transforms may emit rows without any input."""
        deltas = dict(stream_deltas)
        if is_first:
            for name, changes in self.kernels.initial_changes.items():
                layout = self.kernels.inputs[name].layout
                deltas[name] = concat_deltas(layout, [changes, deltas[name]]) if name in deltas else changes
        shares: dict[ExchangeRoute, Delta | None] = {}
        states = dict(states)
        for name, reads in self.reads.items():
            if partition and name in self.single_partition:
                continue
            observe(name)
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
            observe(rule.source)
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
        """The rows of a replicated delta that belong to this partition."""
        if self.partitions == 1:
            return delta
        assert by is not None
        own_rows = true_indices(self._target_partitions(delta, by) == partition)
        if len(own_rows) == len(delta):
            return delta
        return delta.take(own_rows) if len(own_rows) else None

    def _target_partitions(self, delta: Delta, by: ColumnNames) -> Array:
        """The target partition of each row."""
        if not by:
            return np.zeros(len(delta), np.int64)
        return partition_of([delta.fixed[c] for c in by], len(delta), self.partitions)

    def routed_deltas(
        self, partition: int, result: StageResult, later_stage: int
    ) -> Iterator[tuple[int, ExchangeRoute, Delta]]:
        """The deltas to send to a later stage, each with its target partition and route."""
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
        """For each view, the delta of the rows that are or were shown. Of the old knowledge only the mask is kept."""
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
    """The partition of each row. It depends on the values only, not on the names of the columns."""
    hash_values = mix_bits(hashes(columns, count))
    return (hash_values % np.uint64(partitions)).astype(np.int64)


@dataclass(frozen=True)
class Plan:
    """All stages, in order, and the views that they produce."""

    kernels: Kernels
    stages: tuple[ExecutableStage, ...]
    partitions: int
    views: tuple[str, ...]

    def restrict_to(self, views: Sequence[str]) -> "Plan":
        """The same plan for fewer views, without the transforms that only the others need. The remaining transforms are
        compiled as before, so they can continue from their state."""
        if set(views) == set(self.views):
            return self
        needed = self._relations_for(views)
        return replace(
            self, stages=tuple(stage.restrict_to(needed, views) for stage in self.stages), views=tuple(views)
        )

    def _relations_for(self, views: Sequence[str]) -> set[str]:
        """These views, and all relations that they are computed from."""
        needed = {*views, *map(materialized_name, views)}
        for name, reads in reversed(list(self.kernels.reads.items())):
            if name in needed:
                needed.update(reads)
        return needed

    @cached_property
    def _relations_by_view(self) -> dict[str, set[str]]:
        return {view: self._relations_for([view]) for view in self.views}

    def state_bytes_by_view(self, states: TransformStates) -> dict[str, int]:
        """The size of the state that each view needs. State that several views need counts for each of them."""
        sizes = {name: sum(table.nbytes for table in state.values()) for name, state in states.items()}
        return {
            view: sum(size for name, size in sizes.items() if name in relations)
            for view, relations in self._relations_by_view.items()
        }

    def views_from(self, relation: str) -> tuple[str, ...]:
        """The views that are computed from this relation, directly or not."""
        derived = {relation}
        for name, reads in self.kernels.reads.items():
            if not derived.isdisjoint(reads):
                derived.add(name)
        return tuple(view for view in self.views if view in derived or materialized_name(view) in derived)

    def materializing_stage(self, view: str) -> ExecutableStage:
        """The stage that stores a view's rows."""
        return next(stage for stage in self.stages if materialized_name(view) in stage.reads)


def build_plan(
    graph: KnowledgeGraph,
    streams: tuple[mmpl.StreamDef, ...],
    partitions: int = 1,
    materialized_views: Sequence[str] = (),
) -> Plan:
    kernels = compile_graph(graph, streams).with_materialized_views(materialized_views)
    views = tuple(graph.subscriptions)
    if partitions == 1:
        return Plan(kernels, (fused_stage(kernels, views),), 1, views)
    stages = partitioned_stages(graph, kernels)
    partitionings = {name: FREE for name, source in kernels.inputs.items() if source.transform is None}
    for stage in stages:
        partitionings |= stage.partitionings
    for view in materialized_views:
        _materialize_view(view, kernels.inputs[view].layout.key, stages, partitionings[view])
    executable_stages = [
        _executable_stage(stage, kernels, partitions, stages, partitionings, views) for stage in stages
    ]
    return Plan(kernels, tuple(executable_stages), partitions, views)


def partitioned_stages(graph: KnowledgeGraph, kernels: Kernels) -> list[Stage]:
    return split_into_stages(graph, {name: source.layout.fixed for name, source in kernels.inputs.items()})


def fused_stage(kernels: Kernels, views: Sequence[str]) -> ExecutableStage:
    """One stage with all transforms, for one partition."""
    reads = {name: tuple(InputRead(r, None, "here") for r in sources) for name, sources in kernels.reads.items()}
    return ExecutableStage(1, 1, kernels, reads, frozenset(), {}, tuple(views), frozenset(), kernels.expiry_rules)


def _materialize_view(view: str, key: ColumnNames, stages: list[Stage], partitioning: Partitioning) -> None:
    """Adds the transform that stores a view's rows. It runs in the stage that produces them if the rows still have the
    columns that they are partitioned by; otherwise in the next stage, partitioned by key."""
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
        replace(rule, targets=targets)
        for rule in kernels.expiry_rules
        if rule.source in own_relations and (targets := tuple(t for t in rule.targets if t.transform in own_relations))
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
