"""Delivers a maintainer's batches in order: the horizons of a view never decrease, and no change is left out.

A batch that starts at the delivered horizons is delivered as deltas. Any other batch, after the maintainer went back or
could not deliver the one before, is skipped until it reaches the delivered horizons. Then the whole view is delivered,
because a row that came and went in between is in no delta.
"""

from collections.abc import Callable, Mapping, Sequence
from threading import RLock

from smile.broker.maintenance.listener import BatchDelivery, Horizons, MaintainerListener, ViewSnapshot
from smile.errors import SmileError
from smile.horizons import HORIZON_MIN
from smile.kernels.delta import Delta

ViewRowsReader = Callable[[str], Delta]
"""Reads all rows of a view: at the end of the batch that is delivered, or at the horizons that are restored."""


class OrderedDelivery:
    """Thread-safe. The listener is called by one thread at a time, and not at all after `close`."""

    def __init__(self, listener: MaintainerListener) -> None:
        self._listener = listener
        self._delivered: dict[str, Horizons] = {}
        self._lock = RLock()
        self._closed = False

    def deliver(
        self,
        views: Sequence[str],
        start: Horizons,
        end: Horizons,
        deltas: Mapping[str, Delta],
        read_rows: ViewRowsReader,
    ) -> None:
        """Delivers what a batch between these horizons changed."""
        with self._lock:
            if self._closed:
                return
            continuing = [
                view for view in views if _known_horizons(self._delivered.get(view, {})) == _known_horizons(start)
            ]
            if continuing:
                delivered = {view: deltas[view] for view in continuing if view in deltas}
                self._listener.deliver(BatchDelivery(continuing, delivered, end))
                self._delivered |= dict.fromkeys(continuing, end)
            for view in views:
                if view not in continuing and _reaches(end, self._delivered.get(view, {})):
                    self._restore(view, end, read_rows)

    def restore(self, views: Sequence[str], horizons: Horizons, read_rows: ViewRowsReader) -> None:
        """Delivers the rows of views where a maintainer resumes, unless these or newer ones were delivered before."""
        with self._lock:
            for view in views if not self._closed else ():
                if view not in self._delivered or _is_beyond(horizons, self._delivered[view]):
                    self._restore(view, horizons, read_rows)

    def _restore(self, view: str, horizons: Horizons, read_rows: ViewRowsReader) -> None:
        self._listener.restore(ViewSnapshot(view, read_rows(view), horizons))
        self._delivered[view] = horizons

    def remove_views(self, views: Sequence[str]) -> None:
        """Forgets these views: a later view of the same name is another one."""
        with self._lock:
            for view in views:
                self._delivered.pop(view, None)

    def warn(self, message: str) -> None:
        with self._lock:
            if not self._closed:
                self._listener.warn(message)

    def fail(self, problem: SmileError) -> None:
        with self._lock:
            if not self._closed:
                self._listener.fail(problem)

    def close(self) -> None:
        """After this returns, the listener is not called any more."""
        with self._lock:
            self._closed = True


def _known_horizons(horizons: Horizons) -> Horizons:
    """Leaves out streams without any progress: they are equivalent to missing ones."""
    return {stream: tick for stream, tick in horizons.items() if tick > HORIZON_MIN}


def _is_beyond(horizons: Horizons, reference: Horizons) -> bool:
    return _known_horizons(horizons) != _known_horizons(reference) and _reaches(horizons, reference)


def _reaches(horizons: Horizons, reference: Horizons) -> bool:
    return all(horizons.get(stream, HORIZON_MIN) >= tick for stream, tick in reference.items())
