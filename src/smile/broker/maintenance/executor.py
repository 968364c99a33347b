"""Executors run the views of a maintainer: in this process, on Spark, or elsewhere.

A maintainer decides what happens and when; an executor only does it. All methods are called by one thread at a time,
except `interrupt`, `status`, `state_bytes_by_view`, `process_problem` and what `begin_hard_checkpoint` returns. An
executor may raise any error from any method: the maintainer then calls `suspend`, waits, and begins again with `open`.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from smile.broker.maintenance.listener import Horizons
from smile.broker.maintenance.ordered_delivery import OrderedDelivery
from smile.engine.generation import Generation, Json
from smile.log.position import Log


class Executor(Protocol):
    """Created for a directory, in which it stores the state of its views and their rows. The methods that are not
    abstract are for executors that depend on other processes."""

    polls_log: bool = False
    """Whether it notices new commits without being called."""

    start_phase: str = ""
    """What `start` and the processes that it started are doing; empty if they are ready."""

    # ── the lifecycle ───────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def open(
        self, generations: Sequence[Generation], paused: Sequence[Generation], log: Log, delivery: OrderedDelivery
    ) -> None:
        """Resumes these generations from the state on the disk. Stores those that are `paused`, without running them,
        and deletes the state of all others. Generations that it cannot resume are missing in `generations`. Does
        nothing if it is open."""

    def start(self) -> None:
        """Starts other processes, if it needs any. May take long."""
        return

    @property
    def is_running(self) -> bool:
        """Whether everything that `start` started is ready."""
        return True

    def suspend(self) -> None:
        """Stops what may still be running after an error. Raises no error."""
        return

    @abstractmethod
    def close(self) -> None:
        """Ends. Raises no error."""

    def interrupt(self, is_overdue: bool) -> None:
        """Called by another thread when the maintainer stops: ends what `start` waits for; if the stop is overdue, ends
        everything that any method may wait for."""
        return

    def explain(self, problem: Exception) -> Exception:
        """The cause of an error, if it is known."""
        return problem

    def process_problem(self) -> str | None:
        """What is wrong with a process that it depends on. Called by any thread; does not wait for the process."""
        return None

    def process_memory_bytes(self) -> int | None:
        """The memory of a process that it depends on."""
        return None

    # ── running ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    @abstractmethod
    def generations(self) -> Sequence[Generation]:
        """What it maintains, without paused generations and one that is still being filled."""

    @abstractmethod
    def restore_views(self) -> None:
        """Offers the current rows of all its views to `delivery.restore`; when it was opened, also the last rows of
        paused views."""

    @abstractmethod
    def advance(self) -> bool:
        """Runs a batch, or sees that batches are running, and passes the results to `delivery.deliver`. Returns whether
        there was a new batch. A batch that needs too much memory is repeated with fewer events. A ViewError names views
        that cannot be computed. It changes nothing of their generation, and `advance` raises it again until they are
        separated."""

    @abstractmethod
    def separate(self, views: Sequence[str], separated: Generation) -> None:
        """Continues without these views of one generation. They become the generation `separated`, which is paused:
        their state is stored, and `fill` continues from there."""

    @abstractmethod
    def fill(self, generation: Generation, log: Log) -> bool:
        """Runs a step of the backfill of a generation. The first step begins it, or resumes it from its state if it was
        interrupted or paused, and from then on everything reads this log, which may have more streams. Returns whether
        it advanced. After the last step, `generations` has the generation."""

    @abstractmethod
    def pause_fill(self, generation: Generation) -> None:
        """Ends the backfill of this generation, if one has begun, and stores its state: it is paused."""

    @abstractmethod
    def abandon_fill(self, generation: Generation) -> None:
        """Ends the backfill of this generation, if one has begun, and deletes its state."""

    @abstractmethod
    def drop(self, views: Sequence[str]) -> None:
        """Continues without these views, which it has or has paused. Deletes nothing before all that remains is on the
        disk."""

    @abstractmethod
    def begin_hard_checkpoint(self) -> Callable[[], Horizons] | None:
        """Pins the current versions of all views. Returns a function that flushes and checks them, and that returns the
        horizons up to which the log may be truncated; another thread may call it at any time. Returns None if some
        views have no version yet."""

    @abstractmethod
    def state_bytes_by_view(self) -> Mapping[str, int]:
        """The estimated size of the state of each view. State that several views need counts for each of them."""

    @abstractmethod
    def status(self) -> Json:
        """The values of `engine.metrics.pipeline_status` that apply."""
