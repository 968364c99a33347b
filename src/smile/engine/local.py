"""The in-process engine: runs all transforms of a program in this process, in one partition.

Its state is a sequence of immutable versions. Each input batch creates the next version from the previous one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from smile.columns import masks
from smile.columns.values import ValueColumn, from_arrow
from smile.engine.background_merges import BackgroundMerges
from smile.engine.plan import ExecutableStage, RelationObserver, TransformStates, fused_stage
from smile.errors import message_of
from smile.horizons import HORIZON_MIN, split_name
from smile.kernels.compile import Kernels, materialized_name
from smile.kernels.delta import Delta, RowKnowledge, concat_deltas
from smile.kernels.materialized_view import MaterializedView
from smile.kernels.seals import HorizonAdvance, Horizons
from smile.log.input_batch import InputBatch
from smile.state.run import TableSchema
from smile.state.store import StateStore
from smile.state.table import StateTable


@dataclass(frozen=True)
class EngineState:
    """All state after `version` batches: the tables of every transform, and the horizons of all streams."""

    version: int
    horizons: Mapping[str, int]
    states: TransformStates


@dataclass(frozen=True)
class BatchResult:
    """The deltas of all relations that a batch changed, and the horizons after it."""

    deltas: Mapping[str, Delta]
    horizons: Mapping[str, int]


def advance_state(
    stage: ExecutableStage, state: EngineState, input_batch: InputBatch, observe: RelationObserver
) -> tuple[EngineState, BatchResult]:
    """The next version and its deltas. `state` itself is not modified. Events that are already known are ignored."""
    advance = advance_horizons(state.horizons, input_batch)
    stream_deltas = input_deltas(stage.kernels, input_batch, state.horizons)
    result = stage.step(0, state.states, stream_deltas, {}, advance, not state.version, observe)
    return EngineState(state.version + 1, advance.after, result.states), BatchResult(result.deltas, advance.after)


def advance_horizons(before: Horizons, input_batch: InputBatch) -> HorizonAdvance:
    """The advance of the horizons `before` by a batch. Streams that they do not have are left out; origins of a stream
    with many origins are added as they come."""
    horizons = input_batch.horizons
    after = {name: max(h, horizons.get(name, h)) for name, h in before.items()}
    added = {name: h for name, h in horizons.items() if name not in before and split_name(name, ())[0] in before}
    return HorizonAdvance(before, {**after, **added})


def input_deltas(kernels: Kernels, input_batch: InputBatch, horizons: Horizons) -> dict[str, Delta]:
    """The deltas of all inputs that have something new above these horizons."""
    deltas_by_stream: dict[str, list[Delta]] = {}
    for name, events in input_batch.events.items():
        stream, _ = split_name(name, kernels.inputs)
        delta = input_delta(kernels, stream, events, horizons.get(name, horizons[stream]))
        if len(delta):
            deltas_by_stream.setdefault(stream, []).append(delta)
    return {s: concat_deltas(kernels.inputs[s].layout, deltas) for s, deltas in deltas_by_stream.items()}


def input_delta(kernels: Kernels, stream: str, events: pa.RecordBatch, horizon: int) -> Delta:
    """The delta of an input: the events of a stream above `horizon`, or the row changes of an import."""
    imported = kernels.imports.get(stream)
    return events_delta(events, horizon) if imported is None else imported.decode_changes(events, horizon)


def events_delta(events: pa.RecordBatch, horizon: int) -> Delta:
    """The delta of a stream: each event above `horizon` is a new row that is permanently shown.

    The tick is the first column, and ascends."""
    fixed = {name: _event_column(events.column(name)) for name in events.schema.names}
    ticks = fixed[events.schema.names[0]].data
    count = len(ticks)
    delta = Delta(fixed, None, RowKnowledge({}, masks.full(masks.T, count), np.ones(count, np.int64)))
    if count and ticks[0] <= horizon:
        return delta.take(np.flatnonzero(ticks > horizon))
    return delta


def _event_column(column: pa.Array) -> ValueColumn:
    """Converts -0.0 to 0.0: the two are equal, so they must not become different keys."""
    values = from_arrow(column)
    return ValueColumn(values.data + 0.0, values.valid) if pa.types.is_floating(column.type) else values


@dataclass
class LocalEngine:
    """Advanced by input batches. With a store, `checkpoint` writes the current version, and `resume` restores one.
    `stage` has the transforms to run; None means all of them."""

    kernels: Kernels
    store: StateStore | None = None
    stage: ExecutableStage | None = None
    state: EngineState = field(init=False)
    relation: str = ""
    """The relation that is being computed; after an error, the one that has failed."""
    _merges: BackgroundMerges = field(default_factory=BackgroundMerges)
    _stage: ExecutableStage = field(init=False)

    def __post_init__(self) -> None:
        self._stage = self.stage or fused_stage(self.kernels, ())
        streams = [name for name, source in self.kernels.inputs.items() if source.transform is None]
        self.state = EngineState(0, dict.fromkeys(streams, HORIZON_MIN), self._stage.empty_states())

    def advance(self, input_batch: InputBatch) -> BatchResult:
        self.relation = ""
        states = self._merges.apply_finished(self.state.states, self._observe)
        self.state, result = advance_state(self._stage, replace(self.state, states=states), input_batch, self._observe)
        self._merges.start_due(self.state.states)
        return result

    def _observe(self, relation: str) -> None:
        self.relation = relation

    def checkpoint(self) -> int:
        """Writes what the store does not have yet. Returns the number of bytes written."""
        assert self.store is not None
        self.relation = ""
        return self.store.save(
            self.state.version,
            self.state.horizons,
            self.tables,
            lambda table: self._observe(table.rpartition("/")[0]),
        )

    def resume(self) -> list[str]:
        """Restores the newest complete version in the store. Returns the errors of newer, damaged versions."""
        assert self.store is not None
        saved, problems = self.store.read_newest(self.table_schemas)
        if saved is not None:
            states = {
                name: {table: saved.tables[f"{name}/{table}"] for table in schemas}
                for name, schemas in self._stage.table_schemas.items()
            }
            self.state = EngineState(saved.number, saved.horizons, states)
        return [message_of(problem) for problem in problems]

    @property
    def tables(self) -> dict[str, StateTable]:
        """All state tables, by `transform/table`."""
        states = self.state.states
        return {f"{name}/{table}": table_data for name, state in states.items() for table, table_data in state.items()}

    @property
    def table_schemas(self) -> dict[str, TableSchema]:
        by_transform = self._stage.table_schemas
        return {
            f"{name}/{table}": schema for name, schemas in by_transform.items() for table, schema in schemas.items()
        }

    def snapshot(self, view: str) -> Delta:
        """All rows that a stored view currently shows, as a delta in which all rows are new."""
        materialized = self.kernels.transforms[materialized_name(view)]
        assert isinstance(materialized, MaterializedView)
        return materialized.read_rows(self.state.states[materialized_name(view)])
