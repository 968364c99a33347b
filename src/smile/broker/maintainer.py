"""Keepers: what keeps views up to date from the log, in this process or on Spark.

A keeper delivers batches in order, each view's horizons never falling. A batch may come again after a failure, and then
tells the same. Where it had to go back, it says what a view shows as a whole instead.
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
    """What a batch tells of `views`: how far everything is known that they are made from, and the rows of those that
    changed."""

    views: Sequence[str]
    deltas: Mapping[str, Delta]
    horizons: Horizons


@dataclass(frozen=True)
class ViewSnapshot:
    """All rows that a view shows at these horizons, as if all of them were new."""

    view: str
    rows: Delta
    horizons: Horizons


class MaintainerListener(Protocol):
    """Whom a keeper tells. It is called in the keeper's own threads, never in two at once; the keeper waits for it."""

    def deliver(self, delivery: BatchDelivery) -> None: ...

    def restore(self, snapshot: ViewSnapshot) -> None:
        """The view is this now: what was told of it before goes on from here, or is told anew."""

    def warn(self, message: str) -> None:
        """Something went wrong that the keeper gets over by itself."""

    def fail(self, problem: SmileError) -> None:
        """The keeper has given up."""


class Maintainer(Protocol):
    """Made for a directory, a log, generations of views and a listener. All of their views are kept (their rows are
    remembered), so that it can tell at once what they showed when it was last stopped. Of generations, or of views of
    them, that its directory has besides, it lets go; those that it lacks, after a change that was cut short, it fills
    as `add` does."""

    def view_input(self, view: str) -> InputRelation:
        """What a view looks like: its type and its layout."""

    def start(self) -> None:
        """First tells of each view what it showed last (`restore`), then goes on from there. Returns once all is
        restored; what takes longer, such as Spark, starts in a thread of its own."""

    def add(self, generation: Generation, log: Log) -> None:
        """Goes on with these views too, from a log that may have more streams now. Returns once they have caught up.
        What they come to is delivered meanwhile."""

    def drop(self, views: Sequence[str]) -> None:
        """Goes on without these views."""

    def checkpoint(self) -> Horizons | None:
        """A hard checkpoint: of all views the state at these horizons is flushed to the disk and was read back. The
        log may be cut up to there. None if there is no such state yet."""

    def wake(self) -> None:
        """There may be news in the log."""

    @property
    def state(self) -> str:
        """starting, running, recovering, failed or stopped"""

    def status(self) -> Mapping[str, Any]:
        """How it fares, for `/status` and `/metrics`: what `engine.spark.pipeline.Pipeline.status` has, as far as it
        applies, and its state."""

    def stop(self) -> None:
        """After the batch under way. Nothing is told of afterwards."""
