"""The maintainer keeps views up to date from the log. It has a thread, which drives an executor.

Batches are delivered in order, and the horizons of a view never decrease. After an error the maintainer pauses and
begins again from the executor's state. So it may deliver a batch again, with the same content. If the executor had to
go back to earlier state, the whole view is delivered instead. A permanent error ends it.

Generations that are wanted and that the executor does not have are filled, one after the other: those of `add`, and at
the start those of a program change that was interrupted. A caller of `add` waits until the executor has the generation
and its rows were delivered. A permanent error of a fill, and any error of its first step, ends the fill and goes to its
caller. Without a caller a permanent error ends the maintainer, because a view of the program cannot be computed.

If only some views cannot be computed, these are paused, and the others continue. Paused views become a generation of
their own, whose state the executor stores. To resume them is to fill this generation from its state. If the cause may
pass, the maintainer does so by itself, after longer and longer times.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from types import MappingProxyType
from typing import Any, TypeGuard, TypeVar

from smile import limits
from smile.broker.maintenance.command_queue import CommandQueue
from smile.broker.maintenance.executor import Executor
from smile.broker.maintenance.listener import Horizons, MaintainerListener, ViewPause
from smile.broker.maintenance.ordered_delivery import OrderedDelivery
from smile.engine.generation import Generation, remaining_generations
from smile.engine.view_error import ViewError
from smile.errors import Diagnostic, SmileError, error, message_of
from smile.log.position import Log

_PERMANENT_CODES = {"E051", "E060", "E062", "E065", "E067", "E085", "E086", "E087", "E089", "E097"}
"""Errors that do not go away by themselves: state or a log that is damaged, newer, truncated or of another program; no
Java; events from which a view cannot be computed."""


T = TypeVar("T")


@dataclass
class PausedGeneration:
    """A generation that is paused, or is being resumed: then it is filled. It is resumed automatically after `pause_s`
    seconds, at the monotonic time `retry_at`, if the cause is temporary."""

    pause: ViewPause
    pause_s: float
    retry_at: float
    is_resuming: bool = False


class Maintainer:
    """Thread-safe. Commands of other threads run in the maintainer's thread.

    Either `start` starts the thread, or the caller itself calls `step` again and again: then everything runs in the
    caller's thread."""

    def __init__(
        self,
        executor: Executor,
        log: Log,
        generations: Sequence[Generation],
        listener: MaintainerListener,
        paused: Mapping[str, ViewPause] = MappingProxyType({}),
        view_bytes_max: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`paused` has the generations that were paused when the last maintainer ended, by name. A view whose state is
        larger than `view_bytes_max` is paused. `clock` returns monotonic seconds."""
        self._executor, self._log, self._generations = executor, log, tuple(generations)
        self._clock = clock
        self._delivery = OrderedDelivery(listener)
        self._callers: dict[str, Future[None]] = {}
        """Those that wait for a generation, by its name."""
        self._begun_fill: str | None = None
        """The name of the generation that is being filled, after the first step."""
        self._paused: dict[str, PausedGeneration] = {}
        """The generations that are paused or being resumed, by name."""
        for name, pause in paused.items():
            self._paused[name] = self._paused_generation(pause, limits.view_pause_s_min)
        self._view_bytes_max = view_bytes_max
        self._sizes_checked_at = -math.inf
        self._pause_s = 0.0
        """The last pause after an error; 0 since there was a batch."""
        self.filling_views: Sequence[str] = ()
        """Views that are being added or resumed."""
        self._responded_at = self._clock()
        self.batch_s = 0.0
        """How long the last step took that has advanced; 0 without a thread."""
        self._commands = CommandQueue()
        self._thread = Thread(target=self._run, name="maintainer", daemon=True)
        self._has_thread = True
        self._is_prepared = False
        """Whether the executor is started and its views are restored."""
        self.state = "starting"
        """starting, running, recovering, failed or stopped"""

    def start(self, has_thread: bool = True) -> None:
        """Restores each view from its last state, then continues from there. Returns when all views are restored; slow
        work, such as starting Spark, continues in the maintainer's thread."""
        self._open_executor()
        self._restore_views()
        self._update_state()
        self._has_thread = has_thread
        if has_thread:
            self._thread.start()

    def wake(self) -> None:
        """Called when there may be news in the log."""
        if not self._executor.polls_log:
            self._commands.notify()

    def add(self, generation: Generation, log: Log) -> None:
        """Adds these views, and reads from this log, which may have more streams. Returns when the views have caught
        up; their batches are delivered meanwhile."""
        filled = self._call(lambda: self._add(generation, log))
        while not self._has_thread and not filled.done():
            self.step()
        filled.result()

    def drop(self, views: Sequence[str]) -> None:
        """Removes these views."""
        self._call(lambda: self._drop(views))

    def resume(self, view: str) -> None:
        """Resumes a paused view, and those that were paused with it. Has no effect on other views."""
        self._call(lambda: self._resume(view))

    def checkpoint(self) -> Horizons | None:
        """Takes a hard checkpoint: the state of all views at the returned horizons is flushed to the disk and was read
        back. The log may be truncated up to there. Returns None if there is no such state yet."""
        finish = self._call(self._begin_hard_checkpoint) if self.state == "running" else None
        return None if finish is None else finish()

    def _call(self, command: Callable[[], T]) -> T:
        if self._has_thread:
            return self._commands.call(command)
        if self._commands.refusal is not None:
            raise self._commands.refusal
        return command()

    def state_bytes_by_view(self) -> Mapping[str, int]:
        return self._executor.state_bytes_by_view()

    @property
    def start_phase(self) -> str:
        """What the engine is doing before it runs; empty if it runs."""
        return self._executor.start_phase

    @property
    def process_problem(self) -> str | None:
        return self._executor.process_problem()

    @property
    def process_memory_bytes(self) -> int | None:
        return self._executor.process_memory_bytes()

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    @property
    def silent_s(self) -> float:
        """For how long its thread has been busy with one step."""
        return self._clock() - self._responded_at

    def status(self) -> Mapping[str, Any]:
        """Values for `/status` and `/metrics`."""
        return {"state": self.state, **self._executor.status()}

    def stop(self) -> None:
        """Stops after the current batch, or without it if it takes too long. The listener is not called afterwards."""
        self._commands.close(error("E098", "the maintainer is stopping"))
        for is_overdue, seconds in ((False, limits.maintainer_stop_s_max), (True, limits.maintainer_stop_s_max / 2)):
            if self._thread.is_alive():
                self._executor.interrupt(is_overdue)
                self._thread.join(seconds)
        if not self._has_thread:
            self._end()
        self._delivery.close()
        if self.state != "failed":
            self.state = "stopped"

    # ── steps, in the maintainer's thread ───────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while not self._commands.is_closed:
            start_s = self._clock()
            if self.step():
                self.batch_s = self._clock() - start_s
            elif self._is_prepared:
                self._commands.wait(limits.maintainer_poll_s)
            else:
                self._commands.pause(self._pause_s)
        self._end()

    def _end(self) -> None:
        if self._is_prepared:
            self._executor.suspend()
        self._refuse_callers()
        self._executor.close()

    def step(self) -> bool:
        """Runs the commands that wait, then a batch if there is one. Returns whether anything has advanced. After an
        error the next step begins again from the executor's state."""
        try:
            if not self._is_prepared:
                self._open_executor()
                self._executor.start()
                # Before the views are restored: if a view cannot be read, it may still be dropped.
                self._commands.run_pending()
                self._restore_views()
                self._is_prepared = True
            self._commands.run_pending()
            return self._advance()
        except Exception as problem:  # noqa: BLE001  # any error: the next attempt may succeed
            self._handle_error(self._executor.explain(problem))
        self._is_prepared = False
        self._executor.suspend()
        self._responded_at = self._clock()
        self._pause_s = min(max(2 * self._pause_s, limits.maintainer_pause_s_min), limits.maintainer_pause_s_max)
        return False

    def _open_executor(self) -> None:
        running, paused = list[Generation](), list[Generation]()
        for generation in self._generations:
            (paused if self._is_paused(generation) else running).append(generation)
        self._executor.open(running, paused, self._log, self._delivery)

    def _handle_error(self, problem: Exception) -> None:
        if is_permanent(problem):
            self.state = "failed"
            self._commands.close(problem)
            self._refuse_callers()
            self._delivery.fail(problem)
        elif not self._commands.is_closed:
            self.state = "recovering"
            self._delivery.warn(message_of(problem) or repr(problem))

    def _refuse_callers(self) -> None:
        """Fails the commands that were not run, and the fills that were not finished."""
        self._commands.refuse_pending()
        for future in self._callers.values():
            future.set_exception(self._commands.refusal)
        self._callers.clear()

    def _advance(self) -> bool:
        """Returns whether anything has advanced."""
        self._responded_at = self._clock()
        try:
            advanced = self._executor.advance()
        except ViewError as failure:
            self._pause_views(failure)
            advanced = True
        if (failure_to_deliver := self._delivery.first_failure) is not None:
            self._pause_views(failure_to_deliver)
        self._pause_large_views()
        self._resume_due()
        missing = self._missing_generations()
        self.filling_views = tuple(view for generation in missing for view in generation.views)
        advanced |= bool(missing) and self._fill(missing[0])
        if advanced:
            self._pause_s = 0.0
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
        """Those to fill."""
        names = {generation.name for generation in self._executor.generations}
        return [g for g in self._generations if g.name not in names and not self._is_paused(g)]

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
        except ViewError as failure:
            self._pause_views(failure)
            return True
        except SmileError as problem:
            is_refused = is_permanent(problem) or self._begun_fill != generation.name
            if generation.name not in self._callers or not is_refused:
                raise
            self._refuse_fill(generation, problem)
            return True
        self._begun_fill = generation.name
        if generation not in self._missing_generations():
            if self._paused.pop(generation.name, None) is not None:
                self._delivery.resume_views(generation)
            self._restore_views()
        return advanced

    def _refuse_fill(self, generation: Generation, problem: SmileError) -> None:
        self._remove_views(generation.views)
        self._abandon_fill(generation, problem)

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
                if generation.name in self._paused:
                    self._executor.pause_fill(generation)  # what remains of it continues from its state
                else:
                    self._abandon_fill(generation, error("E021", f"{', '.join(views)} was dropped"))
        stored = [*self._executor.generations, *(g for g in self._generations if g.name in self._paused)]
        present = [view for generation in stored for view in generation.views if view in views]
        if present:
            self._executor.drop(present)
        self._remove_views(views)

    def _remove_views(self, views: Sequence[str]) -> None:
        self._generations = remaining_generations(self._generations, views)
        names = {generation.name for generation in self._generations}
        self._paused = {name: paused for name, paused in self._paused.items() if name in names}
        self._delivery.remove_views(views)

    def _begin_hard_checkpoint(self) -> Callable[[], Horizons] | None:
        """Returns None while views are filled or paused, because these still need earlier parts of the log."""
        has_all = not self._missing_generations() and not self._paused
        return self._executor.begin_hard_checkpoint() if has_all else None

    # ── pausing and resuming views ──────────────────────────────────────────────────────────────────────────────────

    def _is_paused(self, generation: Generation) -> bool:
        return generation.name in self._paused and not self._paused[generation.name].is_resuming

    def _pause_views(self, failure: ViewError) -> None:
        """Continues without these views. A generation that is being filled is paused as a whole, or refused if somebody
        waits for it."""
        first = failure.diagnostics[0]
        pause = ViewPause(first.code, first.message, first.hint, time.time(), failure.is_temporary)
        for generation in self._generations:
            views = [view for view in generation.views if view in failure.views]
            if not views or self._is_paused(generation):
                continue
            if generation.name in self._callers and generation in self._missing_generations():
                self._refuse_fill(generation, failure)
            elif generation in self._missing_generations():
                self._delivery.pause_views(generation.name, generation, pause)
                self._executor.pause_fill(generation)
                self._record_pause(generation, generation, pause)
            else:
                separated = generation.separate(views)
                self._delivery.pause_views(generation.name, separated, pause)
                self._executor.separate(views, separated)
                self._record_pause(generation, separated, pause)

    def _pause_large_views(self) -> None:
        bytes_max, now = self._view_bytes_max, self._clock()
        if bytes_max is None or now - self._sizes_checked_at < limits.view_size_check_s:
            return
        self._sizes_checked_at = now
        for view, size in self._executor.state_bytes_by_view().items():
            if size > bytes_max:
                message = f"the state of {view} has {size:,} bytes; the setting view_memory_max allows {bytes_max:,}"
                hint = "Increase view_memory_max, or change the view so that it stores less."
                self._pause_views(ViewError([view], [Diagnostic("E053", message, hint=hint)], is_temporary=False))

    def _record_pause(self, generation: Generation, separated: Generation, pause: ViewPause) -> None:
        remaining = remaining_generations([generation], separated.views)
        self._generations = tuple(
            part for g in self._generations for part in ([*remaining, separated] if g == generation else [g])
        )
        before = self._paused.get(separated.name)
        pause_s = limits.view_pause_s_min if before is None else min(2 * before.pause_s, limits.view_pause_s_max)
        self._paused[separated.name] = self._paused_generation(pause, pause_s)

    def _paused_generation(self, pause: ViewPause, pause_s: float) -> PausedGeneration:
        return PausedGeneration(pause, pause_s, self._clock() + pause_s if pause.is_temporary else math.inf)

    def _resume_due(self) -> None:
        for paused in self._paused.values():
            if self._clock() >= paused.retry_at:
                paused.is_resuming = True

    def _resume(self, view: str) -> None:
        for generation in self._generations:
            if view in generation.views and generation.name in self._paused:
                self._paused[generation.name].is_resuming = True


def is_permanent(problem: BaseException) -> TypeGuard[SmileError]:
    return isinstance(problem, SmileError) and bool(
        _PERMANENT_CODES & {diagnostic.code for diagnostic in problem.diagnostics}
    )
