"""A generation that the local executor runs: its engine, its position in the log, and its checkpoints. The time and the
number of events between two soft checkpoints are bounded.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from smile import limits
from smile.broker.maintenance.listener import Horizons
from smile.broker.maintenance.ordered_delivery import OrderedDelivery
from smile.engine.generation import Generation
from smile.engine.local import EngineState, LocalEngine
from smile.engine.plan import ExecutableStage, Plan, StageResult
from smile.engine.view_error import attribute_to_views
from smile.horizons import HORIZON_MIN, split_name
from smile.log.input_batch import InputBatch
from smile.log.position import Log, Position
from smile.state.hard_checkpoint import finish_hard_checkpoint
from smile.state.store import StateStore, VersionId


@dataclass
class LocalGeneration:
    generation: Generation
    plan: Plan
    engine: LocalEngine
    position: Position
    clock: Callable[[], float]
    """Returns monotonic seconds."""
    rows_max: int = limits.batch_rows_max
    """The number of events of its next batch: fewer after a batch that needed too much memory."""
    _unsaved_events: int = 0
    """Events since the last checkpoint."""
    _saved_version: int = 0
    _saved_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._saved_at = self.clock()

    @staticmethod
    def open(
        generation: Generation, store: StateStore, log: Log, clock: Callable[[], float]
    ) -> tuple["LocalGeneration", list[str]]:
        """Resumes from the newest complete checkpoint, or starts empty. Also returns what is wrong with newer
        checkpoints."""
        plan = generation.plan(1)
        engine = LocalEngine(plan.kernels, store, plan.stages[0])
        engine.state = replace(engine.state, horizons={})
        problems = engine.resume()
        version, horizons = engine.state.version, engine.state.horizons
        position = log.resume_position(horizons) if version else log.start()
        local = LocalGeneration(generation, plan, engine, position, clock, _saved_version=version)
        local._add_missing_horizons(log)
        return local, problems

    @staticmethod
    def in_memory(
        generation: Generation, plan: Plan, state: EngineState | None, log: Log, clock: Callable[[], float]
    ) -> "LocalGeneration":
        """Continues from this state, or starts empty, and writes no checkpoints. The plan has one partition."""
        engine = LocalEngine(plan.kernels, None, plan.stages[0])
        engine.state = state or replace(engine.state, horizons={})
        position = log.resume_position(engine.state.horizons) if engine.state.version else log.start()
        local = LocalGeneration(generation, plan, engine, position, clock)
        local._add_missing_horizons(log)
        return local

    def replace_log(self, log: Log) -> None:
        """Continues with this log, which may have more streams."""
        streams = self.position.horizons
        horizons = {name: tick for name, tick in self.horizons.items() if split_name(name, streams)[0] in streams}
        self.position = log.resume_position(horizons) if self.version else log.start()
        self._add_missing_horizons(log)

    def _add_missing_horizons(self, log: Log) -> None:
        """Horizons include all streams of the log, also unused ones, so that these are not read again."""
        horizons = {**dict.fromkeys(log.streams, HORIZON_MIN), **self.horizons}
        self.engine.state = replace(self.engine.state, horizons=horizons)

    def with_fewer_views(self, generation: Generation, store: StateStore) -> "LocalGeneration":
        """The same generation with fewer views, at the same position."""
        plan, state = generation.plan(1), self.engine.state
        stage = plan.stages[0]
        engine = LocalEngine(plan.kernels, store, stage)
        engine.state = EngineState(
            state.version, state.horizons, {name: state.states[name] for name in stage.table_schemas}
        )
        return LocalGeneration(generation, plan, engine, self.position, self.clock, _saved_version=-1)

    # ── advancing ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def stage(self) -> ExecutableStage:
        return self.plan.stages[0]

    @property
    def version(self) -> int:
        return self.engine.state.version

    @property
    def horizons(self) -> Horizons:
        return self.engine.state.horizons

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """The streams whose events it needs."""
        return self.stage.streams

    def advance(self, input_batch: InputBatch, position: Position, delivery: OrderedDelivery) -> int:
        """Processes and delivers a batch that ends at this position. Returns the number of changed rows. After a
        ViewError, the generation is as it was before."""
        previous = self.horizons
        own_events = {stream: batch for stream, batch in input_batch.events.items() if stream in self.streams}
        with self._attributed_errors():
            batch = self.engine.advance(InputBatch(own_events, input_batch.horizons))
        deltas = dict(self.stage.view_deltas(0, StageResult(self.engine.state.states, batch.deltas)))
        self.position = position
        self._unsaved_events += sum(events.num_rows for events in own_events.values())
        delivery.deliver(self.generation.views, previous, self.horizons, deltas, self.engine.snapshot)
        return sum(map(len, deltas.values()))

    @contextmanager
    def _attributed_errors(self) -> Iterator[None]:
        """Raises an error of a transform as the error of the views that need it."""
        try:
            yield
        except Exception as problem:
            relation = self.engine.relation
            raise attribute_to_views(problem, self.plan.views_from(relation), relation) from problem

    def shrink_batches(self, failed_rows: int) -> bool:
        """After a batch with so many events that needed too much memory: tries fewer. Returns whether that is
        possible."""
        self.rows_max = max(1, failed_rows // limits.batch_shrink_factor)
        return failed_rows > 1

    def grow_batches(self) -> None:
        self.rows_max = min(limits.batch_rows_max, 2 * self.rows_max)

    def state_bytes_by_view(self) -> dict[str, int]:
        return self.plan.state_bytes_by_view(self.engine.state.states)

    @property
    def state_bytes(self) -> int:
        return sum(table.nbytes for table in self.engine.tables.values())

    # ── checkpoints ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def has_unsaved_changes(self) -> bool:
        """Whether the state has changed since the last checkpoint."""
        return self.version != self._saved_version

    @property
    def is_checkpoint_due(self) -> bool:
        is_late = self.clock() - self._saved_at >= limits.checkpoint_s_max
        return self.has_unsaved_changes and (is_late or self._unsaved_events >= limits.checkpoint_events_max)

    def save_checkpoint(self) -> int:
        """Writes a soft checkpoint and returns its size in bytes. If it fails, it is not retried at once."""
        self._saved_at, self._unsaved_events = self.clock(), 0
        with self._attributed_errors():
            written_bytes = self.engine.checkpoint()
        self._saved_version = self.version
        return written_bytes

    def begin_hard_checkpoint(self) -> Callable[[], Horizons]:
        """Pins the current version. Returns a function that flushes it to the disk, and returns the horizons of the
        oldest version that is still needed. Another thread may call it."""
        if self.has_unsaved_changes:
            self.save_checkpoint()
        store, schemas = self.engine.store, self.engine.table_schemas
        assert store is not None
        version_id = VersionId.from_horizons(self.version, self.horizons)
        store.pin(version_id)
        own_store = StateStore(store.filesystem, store.root, store.program)
        return lambda: finish_hard_checkpoint([(own_store, schemas)], version_id)
