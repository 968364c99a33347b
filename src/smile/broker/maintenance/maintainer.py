"""The maintainer keeps views up to date from the log. It has a thread, which drives an executor.

Batches are delivered in order, and the horizons of a view never decrease. After an error the maintainer pauses and
begins again from the executor's state. So it may deliver a batch again, with the same content. If the executor had to
go back to earlier state, the whole view is delivered instead. A permanent error ends it.

Generations that are wanted and that the executor does not have are filled, one after the other: those of `add`, and at
the start those of a program change that was interrupted. A caller of `add` waits until the executor has the generation
and its rows were delivered. A permanent error of a fill, and any error of its first step, ends the fill and goes to its
caller. Without a caller a permanent error ends the maintainer, because a view of the program cannot be computed.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeGuard

from smile import limits
from smile.broker.maintenance.command_queue import CommandQueue
from smile.broker.maintenance.executor import Executor
from smile.broker.maintenance.listener import Horizons, MaintainerListener
from smile.broker.maintenance.ordered_delivery import OrderedDelivery
from smile.engine.generation import Generation, remaining_generations
from smile.errors import SmileError, error
from smile.log.position import Log

_PERMANENT_CODES = {"E051", "E060", "E062", "E065", "E067", "E085", "E086", "E087", "E089", "E097"}
"""Errors that do not go away by themselves: state or a log that is damaged, newer, truncated or of another program; no
Java; events from which a view cannot be computed."""


class Maintainer:
    """Thread-safe. Commands of other threads run in the maintainer's thread."""

    def __init__(
        self, executor: Executor, log: Log, generations: Sequence[Generation], listener: MaintainerListener
    ) -> None:
        self._executor, self._log, self._generations = executor, log, tuple(generations)
        self._delivery = OrderedDelivery(listener)
        self._callers: dict[str, Future[None]] = {}
        """Those that wait for a generation, by its name."""
        self._begun_fill: str | None = None
        """The name of the generation that is being filled, after the first step."""
        self._pause_s = 0.0
        """The last pause after an error; 0 since there was a batch."""
        self._commands = CommandQueue()
        self._thread = Thread(target=self._run, name="maintainer", daemon=True)
        self.state = "starting"
        """starting, running, recovering, failed or stopped"""

    def start(self) -> None:
        """Restores each view from its last state, then continues from there. Returns when all views are restored; slow
        work, such as starting Spark, continues in the maintainer's thread."""
        self._executor.open(self._generations, self._log, self._delivery)
        self._restore_views()
        self._update_state()
        self._thread.start()

    def wake(self) -> None:
        """Called when there may be news in the log."""
        if not self._executor.polls_log:
            self._commands.notify()

    def add(self, generation: Generation, log: Log) -> None:
        """Adds these views, and reads from this log, which may have more streams. Returns when the views have caught
        up; their batches are delivered meanwhile."""
        self._commands.call(lambda: self._add(generation, log)).result()

    def drop(self, views: Sequence[str]) -> None:
        """Removes these views."""
        self._commands.call(lambda: self._drop(views))

    def checkpoint(self) -> Horizons | None:
        """Takes a hard checkpoint: the state of all views at the returned horizons is flushed to the disk and was read
        back. The log may be truncated up to there. Returns None if there is no such state yet."""
        finish = self._commands.call(self._begin_hard_checkpoint) if self.state == "running" else None
        return None if finish is None else finish()

    def status(self) -> Mapping[str, Any]:
        """Values for `/status` and `/metrics`."""
        return {"state": self.state, **self._executor.status()}

    def stop(self) -> None:
        """Stops after the current batch. The listener is not called afterwards."""
        self._commands.close(error("E098", "the maintainer is stopping"))
        for is_overdue in (False, True):
            if self._thread.is_alive():
                self._executor.interrupt(is_overdue)
                self._thread.join(limits.maintainer_stop_s_max)
        self._delivery.close()
        if self.state != "failed":
            self.state = "stopped"

    # ── the maintainer's thread ─────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while not self._commands.is_closed:
            try:
                self._executor.open(self._generations, self._log, self._delivery)
                self._executor.start()
                # Before the views are restored: if a view cannot be read, it may still be dropped.
                self._commands.run_pending()
                self._restore_views()
                while not self._commands.is_closed:
                    if not self._advance():
                        self._commands.wait(limits.maintainer_poll_s)
                    self._commands.run_pending()
            except Exception as problem:  # noqa: BLE001  # any error: the next attempt may succeed
                self._handle_error(self._executor.explain(problem))
            self._executor.suspend()
            self._pause_s = min(max(2 * self._pause_s, limits.maintainer_pause_s_min), limits.maintainer_pause_s_max)
            self._commands.pause(self._pause_s)
        self._refuse_callers()
        self._executor.close()

    def _handle_error(self, problem: Exception) -> None:
        if is_permanent(problem):
            self.state = "failed"
            self._commands.close(problem)
            self._refuse_callers()
            self._delivery.fail(problem)
        elif not self._commands.is_closed:
            self.state = "recovering"
            self._delivery.warn(str(problem) or repr(problem))

    def _refuse_callers(self) -> None:
        """Fails the commands that were not run, and the fills that were not finished."""
        self._commands.refuse_pending()
        for future in self._callers.values():
            future.set_exception(self._commands.refusal)
        self._callers.clear()

    def _advance(self) -> bool:
        """Returns whether anything has advanced."""
        advanced = self._executor.advance()
        if advanced:
            self._pause_s = 0.0
        missing = self._missing_generations()
        if missing and self._fill(missing[0]):
            advanced, self._pause_s = True, 0.0
        self._update_state()
        return advanced

    def _update_state(self) -> None:
        if self.state != "running" and self._executor.is_running:
            self.state = "running"

    def _restore_views(self) -> None:
        """Delivers the rows of views that were not delivered yet: at the start, after an error, and after a fill. Then
        the callers that wait for these views continue."""
        self._executor.restore_views()
        for generation in self._executor.generations:
            if generation.name in self._callers:
                self._callers.pop(generation.name).set_result(None)

    # ── adding and dropping views ───────────────────────────────────────────────────────────────────────────────────

    def _missing_generations(self) -> list[Generation]:
        names = {generation.name for generation in self._executor.generations}
        return [generation for generation in self._generations if generation.name not in names]

    def _add(self, generation: Generation, log: Log) -> "Future[None]":
        duplicates = sorted({view for g in self._generations for view in g.views} & set(generation.views))
        if duplicates or generation.name in {g.name for g in self._generations}:
            raise error("E020", f"{', '.join(duplicates) or generation.name} exists already")
        self._log = log
        self._generations += (generation,)
        self._callers[generation.name] = Future()
        return self._callers[generation.name]

    def _fill(self, generation: Generation) -> bool:
        try:
            advanced = self._executor.fill(generation, self._log)
        except SmileError as problem:
            is_refused = is_permanent(problem) or self._begun_fill != generation.name
            if generation.name not in self._callers or not is_refused:
                raise
            self._remove_views(generation.views)
            self._abandon_fill(generation, problem)
            return True
        self._begun_fill = generation.name
        if generation not in self._missing_generations():
            self._restore_views()
        return advanced

    def _abandon_fill(self, generation: Generation, reason: SmileError) -> None:
        self._executor.abandon_fill(generation)
        self._begun_fill = None
        if generation.name in self._callers:
            self._callers.pop(generation.name).set_exception(reason)

    def _drop(self, views: Sequence[str]) -> None:
        """A fill of one of these views is abandoned. What remains of its generation is filled again."""
        unknown = sorted({*views} - {view for generation in self._generations for view in generation.views})
        if unknown:
            raise error("E021", f"there is no view {', '.join(unknown)}")
        for generation in self._missing_generations():
            if {*views} & {*generation.views}:
                self._abandon_fill(generation, error("E021", f"{', '.join(views)} was dropped"))
        present = [view for generation in self._executor.generations for view in generation.views if view in views]
        if present:
            self._executor.drop(present)
        self._remove_views(views)

    def _remove_views(self, views: Sequence[str]) -> None:
        self._generations = remaining_generations(self._generations, views)
        self._delivery.remove_views(views)

    def _begin_hard_checkpoint(self) -> Callable[[], Horizons] | None:
        """Returns None while views are filled, because these read the log from the beginning."""
        return None if self._missing_generations() else self._executor.begin_hard_checkpoint()


def is_permanent(problem: BaseException) -> TypeGuard[SmileError]:
    return isinstance(problem, SmileError) and bool(
        _PERMANENT_CODES & {diagnostic.code for diagnostic in problem.diagnostics}
    )
