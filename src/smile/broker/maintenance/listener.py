"""What a maintainer passes to its listener, the broker: batches, snapshots of views, warnings and failures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from smile.errors import SmileError
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
