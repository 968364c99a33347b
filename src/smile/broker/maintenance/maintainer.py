"""Maintainers keep views up to date from the log, in this process or on Spark.

A maintainer delivers batches in order, and the horizons of a view never decrease. After a failure it may deliver a
batch again, with the same content. If it had to go back to earlier state, it delivers the whole view instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from smile.engine.generation import Generation
from smile.errors import SmileError
from smile.kernels.delta import Delta
from smile.kernels.transform import InputRelation
from smile.log.position import Log

Horizons = Mapping[str, int]


@dataclass(frozen=True)
class BatchDelivery:
    """The result of a batch for `views`: the horizons that they have reached, and the deltas of those that changed."""

    views: Sequence[str]
    deltas: Mapping[str, Delta]
    horizons: Horizons


@dataclass(frozen=True)
class ViewSnapshot:
    """All rows that a view shows at these horizons, as a delta in which every row is new."""

    view: str
    rows: Delta
    horizons: Horizons


class MaintainerListener(Protocol):
    """Receives the results of a maintainer. It is called in the maintainer's threads, during `start` also in the
    caller's thread, but never in two threads at once. The maintainer waits for it."""

    def deliver(self, delivery: BatchDelivery) -> None: ...

    def restore(self, snapshot: ViewSnapshot) -> None:
        """Replaces the rows of the view. Subscribers receive the difference, or a reset."""

    def warn(self, message: str) -> None:
        """An error has occurred from which the maintainer recovers by itself."""

    def fail(self, problem: SmileError) -> None:
        """The maintainer has stopped because of a permanent error."""


class Maintainer(Protocol):
    """Created for a directory, a log, generations of views and a listener. It stores the rows of all views, so that a
    restart shows them at once. It deletes generations and views in its directory that are no longer wanted. Generations
    that are missing, because a program change was interrupted, are added as `add` does."""

    def view_input(self, view: str) -> InputRelation:
        """The type and layout of a view."""

    def start(self) -> None:
        """Restores each view from its last state (`restore`), then continues from there. Returns when all views are
        restored; slow work, such as starting Spark, continues in another thread."""

    def add(self, generation: Generation, log: Log) -> None:
        """Adds these views, and reads from this log, which may have more streams. Returns when the views have caught
        up; their batches are delivered meanwhile."""

    def drop(self, views: Sequence[str]) -> None:
        """Removes these views."""

    def checkpoint(self) -> Horizons | None:
        """Takes a hard checkpoint: the state of all views at the returned horizons is flushed to the disk and was read
        back. The log may be truncated up to there. Returns None if there is no such state yet."""

    def wake(self) -> None:
        """Called when there may be news in the log."""

    @property
    def state(self) -> str:
        """starting, running, recovering, failed or stopped"""

    def status(self) -> Mapping[str, Any]:
        """Values for `/status` and `/metrics`: its state, and those of `engine.spark.pipeline.pipeline_status` that
        apply."""

    def stop(self) -> None:
        """Stops after the current batch. The listener is not called afterwards."""
