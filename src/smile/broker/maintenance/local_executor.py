"""The executor that needs no Spark: all views in this process, one engine for each generation.

The directory has a folder for each generation, with its definition and the checkpoints of its state. After an error it
continues from the state in memory. A paused generation has only its folder.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from smile.broker.maintenance.executor import Executor
from smile.broker.maintenance.generation_directories import GenerationDirectories
from smile.broker.maintenance.listener import Horizons
from smile.broker.maintenance.local_batches import BatchFigures, advance_each, advance_together
from smile.broker.maintenance.local_generation import LocalGeneration
from smile.broker.maintenance.ordered_delivery import OrderedDelivery
from smile.engine.generation import Generation, Json, remaining_generations
from smile.engine.metrics import PipelineMetrics, pipeline_status
from smile.engine.view_error import ViewError
from smile.errors import SmileError
from smile.horizons import HORIZON_MIN
from smile.log.position import Log


class LocalExecutor(Executor):
    _delivery: OrderedDelivery
    _log: Log

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns monotonic seconds."""
        self._directories = GenerationDirectories(directory / "in-process", clock)
        self._is_open = False
        self._active: list[LocalGeneration] = []
        self._filling: LocalGeneration | None = None
        self._paused: list[Generation] = []
        self._unrestored: list[LocalGeneration] = []
        """Paused generations whose rows were not offered yet."""
        self._metrics = PipelineMetrics()
        self._written_bytes = 0

    def open(
        self, generations: Sequence[Generation], paused: Sequence[Generation], log: Log, delivery: OrderedDelivery
    ) -> None:
        """A generation that has no state begins with the log, at a position of its own."""
        if self._is_open:
            return
        self._log, self._delivery = log, delivery
        self._active, self._unrestored = (
            [self._directories.open_generation(g, log, delivery.warn) for g in group] for group in (generations, paused)
        )
        self._paused = list(paused)
        self._directories.delete_others([*generations, *paused])
        self._is_open = True

    def close(self) -> None:
        self._save_checkpoints(lambda local: local.has_unsaved_changes)

    @property
    def generations(self) -> Sequence[Generation]:
        return [local.generation for local in self._active]

    def restore_views(self) -> None:
        for local in [*self._active, *self._unrestored]:
            if local.version:
                self._delivery.restore(local.generation.views, local.horizons, local.engine.snapshot)
        self._unrestored = []

    # ── advancing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def advance(self) -> bool:
        failures = list[ViewError]()
        advanced = advance_each(self._active, self._log, self._delivery, failures, self._record_batch)
        self._save_checkpoints(lambda local: local.is_checkpoint_due)
        for failure in failures[:1]:
            raise failure
        return advanced

    def _record_batch(self, batch: BatchFigures) -> None:
        figures = {"read": batch.read_s, "kernels": batch.kernels_s, "save": 0.0, "pack": 0.0}
        figures |= {"events": batch.events, "written": self._written_bytes, "state": 0}
        self._metrics.record_batch([{"stage": 1, "partition": 0, "figures": figures}], batch.changed_rows)
        self._written_bytes = 0

    def _save_checkpoints(self, is_due: Callable[[LocalGeneration], bool]) -> None:
        """Writes soft checkpoints."""
        for local in [*self._active, *([self._filling] if self._filling else [])]:
            if is_due(local):
                try:
                    self._written_bytes += local.save_checkpoint()
                except SmileError as problem:
                    self._delivery.warn(problem.message)

    # ── adding and dropping views ───────────────────────────────────────────────────────────────────────────────────

    def fill(self, generation: Generation, log: Log) -> bool:
        """Finished when it reaches the position of the others, or the end of the log."""
        if self._filling is None:
            self._log = log
            for local in self._active:
                local.replace_log(log)
            self._filling = self._directories.open_generation(generation, log, self._delivery.warn)
            self._paused = [paused for paused in self._paused if paused.name != generation.name]
        failures = list[ViewError]()
        advanced = advance_together([self._filling], log, self._delivery, failures, self._record_batch)
        for failure in failures[:1]:
            raise failure
        target_commit = max((local.position.commit for local in self._active), default=0)
        if not advanced or (target_commit and self._filling.position.commit >= target_commit):
            self._filling.save_checkpoint()
            self._active.append(self._filling)
            self._filling = None
        return advanced

    def pause_fill(self, generation: Generation) -> None:
        """If its state cannot be written now, its last checkpoint remains."""
        if self._filling is not None and self._filling.generation.name == generation.name:
            with suppress(SmileError):
                self._filling.save_checkpoint()
            self._filling = None
            self._paused.append(generation)

    def abandon_fill(self, generation: Generation) -> None:
        if self._filling is not None and self._filling.generation.name == generation.name:
            self._filling = None
            self._directories.delete(generation)

    def separate(self, views: Sequence[str], separated: Generation) -> None:
        (local,) = [local for local in self._active if {*views} & {*local.generation.views}]
        remaining = local.generation.without_views(views)
        if remaining is not None:
            self._active.append(self._directories.with_fewer_views(local, remaining))
        try:
            if remaining is not None:
                self._directories.with_fewer_views(local, separated)
                self._directories.delete(local.generation)
            elif local.has_unsaved_changes:
                local.save_checkpoint()
        except SmileError as problem:
            # There may be no memory for it. Its last checkpoint in the directory of the original is sufficient.
            self._delivery.warn(problem.message)
        self._active.remove(local)
        self._paused.append(separated)

    def drop(self, views: Sequence[str]) -> None:
        affected = [local for local in self._active if {*views} & {*local.generation.views}]
        reduced = [
            self._directories.with_fewer_views(local, generation)
            for local in affected
            if (generation := local.generation.without_views(views)) is not None
        ]
        names = {local.generation.name for local in affected}
        self._active = [*(local for local in self._active if local.generation.name not in names), *reduced]
        affected_paused = [generation for generation in self._paused if {*views} & {*generation.views}]
        self._paused = list(remaining_generations(self._paused, views))
        for generation in self._paused:
            self._directories.open_generation(generation, self._log, self._delivery.warn)
        for generation in [*(local.generation for local in affected), *affected_paused]:
            self._directories.delete(generation)

    # ── checkpoints and status ──────────────────────────────────────────────────────────────────────────────────────

    def begin_hard_checkpoint(self) -> Callable[[], Horizons] | None:
        if not self._active or not all(local.version for local in self._active):
            return None
        finishers = [local.begin_hard_checkpoint() for local in self._active]
        streams = self._log.streams

        def finish() -> Horizons:
            """No generation needs events below the lowest horizons."""
            checkpoints = [finish_one() for finish_one in finishers]
            names = dict.fromkeys([*streams, *(name for horizons in checkpoints for name in horizons)])
            return {name: min(horizons.get(name, HORIZON_MIN) for horizons in checkpoints) for name in names}

        return finish

    def state_bytes_by_view(self) -> Mapping[str, int]:
        active = [*self._active, *([self._filling] if self._filling else [])]
        return {view: size for local in active for view, size in local.state_bytes_by_view().items()}

    def status(self) -> Json:
        active = list(self._active)
        oldest = min((local.position for local in active), key=lambda position: position.commit, default=None)
        return {
            **pipeline_status(
                self._log,
                self._log.newest() if oldest is None else oldest,
                [view for local in active for view in local.generation.views],
                partitions=1,
                number=max((local.version for local in active), default=0),
                ui=None,
                metrics=self._metrics.status({}),
            ),
            "state_bytes": sum(local.state_bytes for local in active),
        }
