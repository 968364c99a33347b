"""The maintainer that needs no Spark: all views in this process, one engine for each generation, one thread for all.

The directory has a folder for each generation, with its definition and the soft checkpoints of its state. Other folders
are left over from abandoned changes, and are deleted.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import Condition, Thread
from typing import Any

from smile import limits
from smile.broker.maintenance.command_queue import CommandQueue, is_permanent
from smile.broker.maintenance.generation_directories import GenerationDirectories
from smile.broker.maintenance.local_generation import LocalGeneration
from smile.broker.maintenance.maintainer import Horizons, MaintainerListener
from smile.broker.maintenance.ordered_delivery import OrderedDelivery
from smile.engine.generation import Generation
from smile.engine.spark.metrics import PipelineMetrics
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN
from smile.kernels.transform import InputRelation
from smile.log.input_batch import InputBatch
from smile.log.position import BatchLimit, Log, Position
from smile.state.store import VersionId


class LocalMaintainer:
    """Implements `Maintainer`. Commands of other threads run in its own thread; only `checkpoint` flushes state in the
    caller's thread."""

    def __init__(
        self, directory: Path, log: Log, generations: Sequence[Generation], listener: MaintainerListener
    ) -> None:
        self._directories = GenerationDirectories(directory / "in-process")
        self._log = log
        self._generations = tuple(generations)
        self._inputs = {view: source for g in generations for view, source in g.inputs().items()}
        self._delivery = OrderedDelivery(listener)
        self._active: list[LocalGeneration] = []
        self._backfills: dict[str, Future[None]] = {}
        self._metrics = PipelineMetrics()
        self._wakeup = Condition()
        self._wake_requested = False
        self._commands = CommandQueue(self.wake)
        self._thread = Thread(target=self._run, name="maintainer", daemon=True)
        self.state = "starting"
        self._written_bytes = 0

    # ── the Maintainer protocol ─────────────────────────────────────────────────────────────────────────────────────

    def view_input(self, view: str) -> InputRelation:
        if view not in self._inputs:
            raise error("E021", f"there is no view {view}")
        return self._inputs[view]

    def start(self) -> None:
        for generation in self._generations:
            self._active.append(self._directories.open_generation(generation, self._log, self._delivery.warn))
        self._directories.delete_others([local.generation for local in self._active])
        self._restore_views()
        self.state = "running"
        self._thread.start()

    def wake(self) -> None:
        with self._wakeup:
            self._wake_requested = True
            self._wakeup.notify_all()

    def add(self, generation: Generation, log: Log) -> None:
        self._commands.call(lambda: self._add_generation(generation, log)).result()

    def drop(self, views: Sequence[str]) -> None:
        self._commands.call(lambda: self._drop_views(views))

    def checkpoint(self) -> Horizons | None:
        versions = self._commands.call(self._begin_hard_checkpoints)
        if versions is None:
            return None
        checkpoints = [
            self._directories.finish_hard_checkpoint(generation, version_id) for generation, version_id in versions
        ]
        return (
            {stream: min(horizons.get(stream, HORIZON_MIN) for horizons in checkpoints) for stream in self._log.streams}
            if checkpoints
            else None
        )

    def status(self) -> Mapping[str, Any]:
        active = list(self._active)
        oldest = min((local.position for local in active), key=lambda position: position.commit, default=None)
        backlog_events, backlog_bytes = (0, 0) if oldest is None else self._log.backlog(oldest)
        return {
            "state": self.state,
            "at": time.time(),
            "views": [view for local in active for view in local.generation.views],
            "partitions": 1,
            "number": max((local.version for local in active), default=0),
            "horizons": {} if oldest is None else oldest.stream_horizons(),
            "waiting_events": backlog_events,
            "waiting_bytes": backlog_bytes,
            "ui": None,
            **self._metrics.status({}),
            "state_bytes": sum(local.state_bytes for local in active),
        }

    def stop(self) -> None:
        self._commands.close(error("E098", "the maintainer is stopping"))
        self.wake()
        if self._thread.is_alive():
            self._thread.join()
        self._delivery.close()
        if self.state != "failed":
            self.state = "stopped"

    # ── the maintainer's thread ─────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        pause_s = 0.0
        while not self._commands.is_closed:
            try:
                self._commands.run_pending()
                if pause_s:
                    self._restore_views()
                advanced = self._advance_all()
                self._save_checkpoints(save_all=False)
                pause_s, self.state = 0.0, "running"
            except Exception as problem:  # noqa: BLE001  # any error: the next attempt may succeed
                if is_permanent(problem):
                    self._fail(problem)
                    return
                self._delivery.warn(str(problem) or repr(problem))
                pause_s = min(max(2 * pause_s, limits.maintainer_pause_s_min), limits.maintainer_pause_s_max)
                advanced, self.state = False, "recovering"
            if not advanced:
                self._wait(pause_s)
        self._commands.refuse_pending(error("E098", "the maintainer is stopping"), self._backfills)
        self._save_checkpoints(save_all=True)

    def _restore_views(self) -> None:
        """Delivers the current rows of all views that were not delivered yet: at the start, and after an error."""
        for local in self._active:
            if local.version:
                self._delivery.restore(local.generation.views, local.horizons, local.rows)

    def _wait(self, pause_s: float) -> None:
        """Waits for news in the log; after an error, at least for the pause."""
        until = time.monotonic() + pause_s
        with self._wakeup:
            while not self._commands.is_closed and (remaining_s := until - time.monotonic()) > 0:
                self._wakeup.wait(remaining_s)
            if not self._wake_requested:
                self._wakeup.wait(limits.maintainer_poll_s)
            self._wake_requested = False

    def _fail(self, problem: SmileError) -> None:
        self.state = "failed"
        self._commands.close(problem)
        self._commands.refuse_pending(problem, self._backfills)
        self._delivery.fail(problem)

    def _advance_all(self) -> bool:
        """Advances each generation by at most one batch, and returns whether any advanced. Backfills take turns with
        the others."""
        advanced = False
        caught_up = [local for local in self._active if local.generation.name not in self._backfills]
        for position in _distinct_positions([local.position for local in caught_up]):
            advanced |= self._advance_generations(
                [local for local in caught_up if local.position == position], position
            )
        for local in [local for local in self._active if local.generation.name in self._backfills]:
            advanced |= self._advance_backfill(local, max((other.position.commit for other in caught_up), default=0))
        return advanced

    def _advance_generations(self, generations: Sequence[LocalGeneration], position: Position) -> bool:
        """Advances generations at the same position by one batch."""
        start_s = time.perf_counter()
        new = [local for local in generations if not local.version]
        for local in new:
            # The first delivery has the rows that exist before any event.
            self._deliver(local, local.advance(InputBatch({}, {}), position))
        end = self._log.after(position, BatchLimit(limits.batch_rows_max, limits.batch_bytes_max))
        if end == position:
            return bool(new)
        batches = {
            stream: self._log.read(stream, position, end)
            for stream in dict.fromkeys(stream for local in generations for stream in local.streams)
        }
        events = {stream: batch for stream, batch in batches.items() if batch.num_rows}
        input_batch = InputBatch(events, end.stream_horizons())
        read_s = time.perf_counter()
        changed_rows = 0
        for local in generations:
            changed_rows += self._deliver(local, local.advance(input_batch, end))
        self._record_metrics(sum(batch.num_rows for batch in events.values()), changed_rows, start_s, read_s)
        return True

    def _deliver(self, local: LocalGeneration, start: Horizons) -> int:
        views = local.generation.views
        self._delivery.deliver(views, start, local.horizons, local.deltas, local.rows)
        return sum(map(len, local.deltas.values()))

    def _record_metrics(self, events: int, changed_rows: int, start_s: float, read_s: float) -> None:
        end_s = time.perf_counter()
        metrics = {"read": read_s - start_s, "kernels": end_s - read_s, "save": 0.0, "pack": 0.0}
        metrics |= {"events": events, "written": self._written_bytes, "state": 0}
        self._metrics.record_batch([{"stage": 1, "partition": 0, "figures": metrics}], changed_rows)
        self._written_bytes = 0

    def _save_checkpoints(self, save_all: bool) -> None:
        """Writes the soft checkpoints that are due, or all."""
        now = time.monotonic()
        for local in self._active:
            if local.is_checkpoint_due(now) or (save_all and local.has_unsaved_changes):
                try:
                    self._written_bytes += local.save_checkpoint(now)
                except SmileError as problem:
                    self._delivery.warn(str(problem))

    # ── adding and dropping views ───────────────────────────────────────────────────────────────────────────────────

    def _add_generation(self, generation: Generation, log: Log) -> "Future[None]":
        maintained = {view for local in self._active for view in local.generation.views}
        duplicates = sorted(maintained & set(generation.views))
        if duplicates or any(local.generation.name == generation.name for local in self._active):
            raise error("E020", f"{', '.join(duplicates) or generation.name} exists already")
        new = self._directories.open_generation(generation, log, self._delivery.warn)
        self._log = log
        for local in self._active:
            local.replace_log(log)
        self._inputs |= new.inputs
        if new.version:
            self._delivery.restore(generation.views, new.horizons, new.rows)
        self._active.append(new)
        future: Future[None] = Future()
        self._backfills[generation.name] = future
        return future

    def _advance_backfill(self, local: LocalGeneration, target_commit: int) -> bool:
        """Advances a backfill by one batch. It is finished when it reaches the position of the others, or the log's
        end."""
        name = local.generation.name
        try:
            advanced = self._advance_generations([local], local.position)
        except SmileError as problem:
            if not is_permanent(problem):
                raise
            self._active.remove(local)
            self._remove_generation(local.generation, problem)
            return True
        if not advanced or (target_commit and local.position.commit >= target_commit):
            local.save_checkpoint(time.monotonic())
            self._backfills.pop(name).set_result(None)
        return advanced

    def _drop_views(self, views: Sequence[str]) -> None:
        for view in views:
            self.view_input(view)
        # Delete nothing before everything that remains is on the disk.
        replacements = [
            (local, self._with_fewer_views(local, views))
            for local in self._active
            if {*views} & {*local.generation.views}
        ]
        for local, reduced in replacements:
            self._active.remove(local)
            if reduced is None:
                self._remove_generation(
                    local.generation, error("E021", f"{', '.join(local.generation.views)} was dropped")
                )
            else:
                self._active.append(reduced)
                self._directories.delete(local.generation)
        self._delivery.remove_views(views)
        self._inputs = {view: source for view, source in self._inputs.items() if view not in views}

    def _with_fewer_views(self, local: LocalGeneration, views: Sequence[str]) -> LocalGeneration | None:
        """The generation without these views; None if no view remains."""
        generation = local.generation
        names, stored_names = (
            tuple(v for v in original if v not in views)
            for original in (generation.views, generation.materialized_views)
        )
        return (
            self._directories.with_fewer_views(local, replace(generation, views=names, materialized_views=stored_names))
            if names
            else None
        )

    def _remove_generation(self, generation: Generation, reason: SmileError) -> None:
        self._delivery.remove_views(generation.views)
        self._inputs = {view: source for view, source in self._inputs.items() if view not in generation.views}
        self._directories.delete(generation)
        future = self._backfills.pop(generation.name, None)
        if future is not None:
            future.set_exception(reason)

    def _begin_hard_checkpoints(self) -> list[tuple[Generation, VersionId]] | None:
        """Pins a version of every generation. Returns None if one has no state yet."""
        if not all(local.version for local in self._active):
            return None
        return [(local.generation, self._directories.begin_hard_checkpoint(local)) for local in self._active]


def _distinct_positions(positions: Sequence[Position]) -> list[Position]:
    distinct: list[Position] = []
    for position in positions:
        if position not in distinct:
            distinct.append(position)
    return distinct
