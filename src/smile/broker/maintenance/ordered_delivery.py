"""Delivers a maintainer's batches in order: the horizons of a view never decrease, and no change is left out.

A batch that starts at the delivered horizons is delivered as deltas. Any other batch, after the maintainer went back or
could not deliver the one before, is skipped until it reaches the delivered horizons. Then the whole view is delivered,
because a row that came and went in between is in no delta.

If the listener cannot take the rows of one view, the others are delivered nevertheless. The view gets nothing more
until it is paused or removed, and its error waits in `first_failure`.
"""

from collections.abc import Callable, Mapping, Sequence
from threading import RLock

from smile.broker.maintenance.listener import BatchDelivery, Horizons, MaintainerListener, ViewPause, ViewSnapshot
from smile.engine.generation import Generation
from smile.engine.view_error import ViewError, attribute_to_views
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
        self._failures: dict[str, ViewError] = {}
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
            for view in views if not self._closed else ():
                delivered = self._delivered.get(view, {})
                if view in self._failures:
                    continue
                if _known_horizons(delivered) == _known_horizons(start):
                    deltas_of_view = {view: deltas[view]} if view in deltas else {}
                    self._pass_on(view, end, BatchDelivery([view], deltas_of_view, end))
                elif _reaches(end, delivered):
                    self._pass_on(view, end, ViewSnapshot(view, read_rows(view), end))

    def restore(self, views: Sequence[str], horizons: Horizons, read_rows: ViewRowsReader) -> None:
        """Delivers the rows of views where a maintainer resumes, unless these or newer ones were delivered before."""
        with self._lock:
            for view in views if not self._closed else ():
                is_new = view not in self._delivered or _is_beyond(horizons, self._delivered[view])
                if is_new and view not in self._failures:
                    self._pass_on(view, horizons, ViewSnapshot(view, read_rows(view), horizons))

    def _pass_on(self, view: str, horizons: Horizons, result: BatchDelivery | ViewSnapshot) -> None:
        try:
            if isinstance(result, BatchDelivery):
                self._listener.deliver(result)
            else:
                self._listener.restore(result)
        except Exception as problem:
            failure = attribute_to_views(problem, [view], view)
            if not isinstance(failure, ViewError):
                raise
            self._failures[view] = failure
        else:
            self._delivered[view] = horizons

    @property
    def first_failure(self) -> ViewError | None:
        """The error of a view whose rows the listener could not take."""
        with self._lock:
            return next(iter(self._failures.values()), None)

    def pause_views(self, generation: str, separated: Generation, pause: ViewPause) -> None:
        with self._lock:
            if not self._closed:
                self._listener.pause_views(generation, separated, pause)
            for view in separated.views:
                self._failures.pop(view, None)

    def resume_views(self, generation: Generation) -> None:
        with self._lock:
            if not self._closed:
                self._listener.resume_views(generation)

    def remove_views(self, views: Sequence[str]) -> None:
        """Forgets these views: a later view of the same name is another one."""
        with self._lock:
            for view in views:
                self._delivered.pop(view, None)
                self._failures.pop(view, None)

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
