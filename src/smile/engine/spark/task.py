"""A task: processes a batch in one partition of one stage. It runs in one of Spark's Python workers.

A task writes the new state version to a file before it answers. If the task is repeated, in this worker or another, it
reads the same version and writes the same next one. A worker caches the states of its partitions in memory: for the
next batch of the same partition it reads nothing, and if it has missed batches it reads only the new files.
"""

import gc
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from smile.engine.background_merges import BackgroundMerges
from smile.engine.exchange import ExchangeMessage, ExchangeMessageBuilder, merge_deltas
from smile.engine.local import input_delta
from smile.engine.plan import ExchangeRoute, ExecutableStage, RelationObserver, StageResult, TransformStates
from smile.engine.spark.job import Job
from smile.engine.spark.pickled_job import evict_old_runs
from smile.engine.spark.planning import Offset
from smile.engine.view_error import attribute_to_views
from smile.kernels.delta import Delta
from smile.kernels.seals import HorizonAdvance
from smile.state.run import TableSchema
from smile.state.store import StateStore, Tables, VersionId
from smile.state.table import StateTable

MESSAGE_SCHEMA = pa.schema([("target", pa.int32()), ("stage", pa.int32()), ("message", pa.binary())])
DRIVER_STAGE = 0
"""The stage number of messages to the driver."""

MessageRow = tuple[int, int, bytes | pa.Buffer]


@dataclass
class PartitionCache:
    """The newest state of a partition that this worker has seen, by generation."""

    stages: Mapping[str, ExecutableStage]
    schemas: Mapping[str, TableSchema]
    store: StateStore
    version: VersionId | None = None
    states: Mapping[str, TransformStates] = field(default_factory=dict)
    merges: dict[str, BackgroundMerges] = field(default_factory=dict)

    def states_at(self, offset: Offset, computed: "ComputedRelation") -> Mapping[str, TransformStates]:
        """The states at the start of a batch, with finished background merges applied."""
        version = VersionId.from_horizons(offset.number, offset.horizons)
        if version != self.version:
            self.states = (
                self._read(version) if offset.number else {g: stage.empty_states() for g, stage in self.stages.items()}
            )
            self.version = version
        self.states = {
            g: self.merges[g].apply_finished(transform_states, computed.observer(g))
            if g in self.merges
            else transform_states
            for g, transform_states in self.states.items()
        }
        return self.states

    def _read(self, version: VersionId) -> Mapping[str, TransformStates]:
        tables = self.store.read(version, self.schemas, whole=False, known_tables=tables_of_states(self.states)).tables
        return states_of_tables(self.stages, tables)

    def save(self, offset: Offset, states: Mapping[str, TransformStates], computed: "ComputedRelation") -> int:
        """Writes the next version and caches it. Returns the number of bytes written."""
        tables = tables_of_states(states)
        written = self.store.save(offset.number, offset.horizons, tables, computed.observe_table)
        self.version, self.states = VersionId.from_horizons(offset.number, offset.horizons), states
        for generation, transform_states in states.items():
            self.merges.setdefault(generation, BackgroundMerges()).start_due(transform_states)
        return written

    @property
    def bytes(self) -> int:
        return sum(table.nbytes for table in tables_of_states(self.states).values())


def tables_of_states(states: Mapping[str, TransformStates]) -> dict[str, StateTable]:
    """All state tables of a partition, by their names in the store."""
    return {
        f"{generation}/{name}/{table}": table_data
        for generation, transform_states in states.items()
        for name, state in transform_states.items()
        for table, table_data in state.items()
    }


def states_of_tables(stages: Mapping[str, ExecutableStage], tables: Tables) -> dict[str, TransformStates]:
    return {
        generation: {
            name: {table: tables[f"{generation}/{name}/{table}"] for table in schemas}
            for name, schemas in stage.table_schemas.items()
        }
        for generation, stage in stages.items()
    }


_caches: dict[str, dict[tuple[int, int], PartitionCache]] = {}
"""By run, stage and partition."""


def _partition_cache(job: Job, stage: int, partition: int) -> PartitionCache:
    if job.run_id not in _caches:
        _caches[job.run_id] = {}
        evict_old_runs(_caches)
        _ = job.layouts
        # Spark collects garbage after every task. Frozen objects are not traversed each time.
        gc.collect()
        gc.freeze()
    caches = _caches[job.run_id]
    if (stage, partition) not in caches:
        caches[stage, partition] = PartitionCache(
            job.stages_by_generation(stage), job.table_schemas(stage), job.store(stage, partition)
        )
    return caches[stage, partition]


def run_first_stage(job: Job, partition: int, start: Offset, end: Offset) -> Iterator[MessageRow]:
    """Reads the log between two offsets and processes the events."""
    started_at = time.perf_counter()
    cache = _partition_cache(job, 1, partition)
    stream_deltas = {}
    kernels_by_stream = {s: stage.kernels for stage in cache.stages.values() for s in stage.streams}
    for stream, kernels in kernels_by_stream.items():
        events = job.log.read(stream, start.position, end.position)
        if events.num_rows:
            stream_deltas[stream] = input_delta(kernels, stream, events, start.horizons[stream])
    yield from _run_batch(job, cache, TaskBatch(1, partition, start, end, started_at), stream_deltas, {})


def run_later_stage(job: Job, stage: int, rows: Iterator[MessageRow]) -> Iterator[MessageRow]:
    """Processes the messages of earlier stages, and forwards messages to later stages unchanged."""
    started_at: float | None = None
    messages: list[ExchangeMessage] = []
    partition = 0
    for target, target_stage, message in rows:
        started_at = started_at or time.perf_counter()
        if target_stage == stage:
            partition = target
            messages.append(ExchangeMessage(message))
        else:
            yield target, target_stage, message
    if started_at is None or not messages:
        return
    cache = _partition_cache(job, stage, partition)
    deltas: list[tuple[Any, Delta]] = []
    for exchange_message in messages:
        for (relation, by), delta in exchange_message.deltas(job.layouts):
            deltas.append(((relation, None if by is None else tuple(by)), delta))
    header = messages[0].header
    batch = TaskBatch(stage, partition, Offset.from_json(header["start"]), Offset.from_json(header["end"]), started_at)
    yield from _run_batch(job, cache, batch, {}, merge_deltas(job.layouts, deltas))


@dataclass(frozen=True)
class TaskBatch:
    """The batch of a task, and when the task began."""

    stage: int
    partition: int
    start: Offset
    end: Offset
    started_at: float

    @property
    def header(self) -> dict[str, Any]:
        return {"start": self.start.to_json(), "end": self.end.to_json()}


@dataclass
class ComputedRelation:
    """The relation that a task is computing, if it is at one. So an error can be attributed to views."""

    generation: str = ""
    relation: str = ""

    def observer(self, generation: str) -> RelationObserver:
        def observe(relation: str) -> None:
            self.generation, self.relation = generation, relation

        return observe

    def observe_table(self, table: str) -> None:
        """`table` is a name of `tables_of_states`."""
        self.generation, _, rest = table.partition("/")
        self.relation = rest.rpartition("/")[0]

    def clear(self) -> None:
        self.generation = self.relation = ""

    def attribute(self, problem: Exception, job: Job) -> Exception:
        if not self.relation:
            return problem
        views = job.plans[self.generation].views_from(self.relation)
        return attribute_to_views(problem, views, self.relation)


def _run_batch(
    job: Job,
    cache: PartitionCache,
    batch: TaskBatch,
    stream_deltas: Mapping[str, Delta],
    received: Mapping[ExchangeRoute, Delta],
) -> Iterator[MessageRow]:
    computed = ComputedRelation()
    try:
        yield from _compute_batch(job, cache, batch, stream_deltas, received, computed)
    except Exception as problem:
        raise computed.attribute(problem, job) from problem


def _compute_batch(
    job: Job,
    cache: PartitionCache,
    batch: TaskBatch,
    stream_deltas: Mapping[str, Delta],
    received: Mapping[ExchangeRoute, Delta],
    computed: ComputedRelation,
) -> Iterator[MessageRow]:
    start, end = batch.start, batch.end
    states = cache.states_at(start, computed)
    read_at = time.perf_counter()
    advance = HorizonAdvance(start.horizons, end.horizons)
    results = {}
    for generation, stage in cache.stages.items():
        own_deltas = {
            (name.partition("/")[2], by): delta
            for (name, by), delta in received.items()
            if name.startswith(f"{generation}/")
        }
        observe, is_first = computed.observer(generation), not start.number
        results[generation] = stage.step(
            batch.partition, states[generation], stream_deltas, own_deltas, advance, is_first, observe
        )
    stepped_at = time.perf_counter()
    written = cache.save(end, {generation: result.states for generation, result in results.items()}, computed)
    saved_at = time.perf_counter()
    yield from _exchange_messages(job, cache.stages, batch, results, computed)
    outgoing = ExchangeMessageBuilder()
    for generation, stage in cache.stages.items():
        for view, delta in stage.view_deltas(batch.partition, results[generation]):
            computed.observer(generation)(view)
            outgoing.add([f"{generation}/{view}"], job.layouts[f"{generation}/{view}"], delta)
    computed.clear()
    figures = {
        "read": read_at - batch.started_at,
        "kernels": stepped_at - read_at,
        "save": saved_at - stepped_at,
        "pack": time.perf_counter() - saved_at,
        "events": sum(map(len, stream_deltas.values())),
        "written": written,
        "state": cache.bytes,
        "views": {
            view: size
            for generation, result in results.items()
            for view, size in job.plans[generation].state_bytes_by_view(result.states).items()
        },
    }
    header = {**batch.header, "stage": batch.stage, "partition": batch.partition, "figures": figures}
    yield batch.partition, DRIVER_STAGE, outgoing.finish(header)


def _exchange_messages(
    job: Job,
    stages: Mapping[str, ExecutableStage],
    batch: TaskBatch,
    results: Mapping[str, StageResult],
    computed: ComputedRelation,
) -> Iterator[MessageRow]:
    """Every partition of the next stage gets at least one message, because messages carry the horizons."""
    for later_stage in range(batch.stage + 1, job.stage_count + 1):
        outgoing = (
            {p: ExchangeMessageBuilder() for p in range(job.partitions)} if later_stage == batch.stage + 1 else {}
        )
        for generation, stage in stages.items():
            for target, (relation, by), delta in stage.routed_deltas(batch.partition, results[generation], later_stage):
                computed.observer(generation)(relation)
                name = f"{generation}/{relation}"
                outgoing.setdefault(target, ExchangeMessageBuilder()).add([name, by], job.layouts[name], delta)
        computed.clear()
        for target, message in outgoing.items():
            yield target, later_stage, message.finish(batch.header)


def record_batches(rows: Iterable[MessageRow]) -> Iterator[pa.RecordBatch]:
    """One Arrow batch per row, so that messages are not copied."""
    for target, stage, message in rows:
        value_offsets = pa.py_buffer(np.array([0, len(message)], np.int32))
        message_array = pa.Array.from_buffers(pa.binary(), 1, [None, value_offsets, pa.py_buffer(message)])
        yield pa.RecordBatch.from_arrays(
            [_int32_array(target), _int32_array(stage), message_array], schema=MESSAGE_SCHEMA
        )


def _int32_array(number: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(np.array([number], np.int32))])
