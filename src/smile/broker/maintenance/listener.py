"""What a maintainer passes to its listener, the broker: batches, snapshots of views, pauses, warnings and failures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from smile.engine.generation import Generation
from smile.errors import SmileError, error
from smile.kernels.delta import Delta

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


@dataclass(frozen=True)
class ViewPause:
    """Why views are paused, and since when, in seconds since 1970. If it `is_temporary`, the maintainer resumes them by
    itself after some time; otherwise somebody has to."""

    code: str
    message: str
    hint: str | None
    since: float
    is_temporary: bool

    def to_error(self, view: str) -> SmileError:
        hint = "It is resumed automatically." if self.is_temporary else f"An administrator can run: smile resume {view}"
        return error("E109", f"the view {view} is paused: {self.message}", hint=hint)


class MaintainerListener(Protocol):
    """Receives the results of a maintainer. It is called in the maintainer's threads, during `start` also in the
    caller's thread, but never in two threads at once. The maintainer waits for it."""

    def deliver(self, delivery: BatchDelivery) -> None: ...

    def restore(self, snapshot: ViewSnapshot) -> None:
        """Replaces the rows of the view. Subscribers receive the difference, or a reset."""

    def pause_views(self, generation: str, separated: Generation, pause: ViewPause) -> None:
        """The views of `separated`, which were in the named generation, are paused: they become a generation of their
        own. This is recorded on the disk before the method returns."""

    def resume_views(self, generation: Generation) -> None:
        """The views of this generation are maintained again."""

    def warn(self, message: str) -> None:
        """An error has occurred from which the maintainer recovers by itself."""

    def fail(self, problem: SmileError) -> None:
        """The maintainer has stopped because of a permanent error."""
