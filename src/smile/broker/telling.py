"""What a keeper tells, in order: of each view the horizons never fall, and nothing is left out.

A batch that goes on from what was told last is told as changes. One that does not, since the keeper went back or could
not tell the one before, is passed over until it has come as far as what was told; then the view is told as a whole,
because a row that came and went in between is in no change.
"""

from collections.abc import Callable, Mapping, Sequence
from threading import RLock

from smile.broker.keeper import Delivered, Horizons, Listener, Restored
from smile.errors import SmileError
from smile.kernels.changes import Changes
from smile.log.frame import NOTHING

RowsOf = Callable[[str], Changes]
"""All rows of a view, as they are at the end of the batch that is told."""


class Telling:
    """May be used from any thread; the listener is called in one at a time, and not at all once this is closed."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._told: dict[str, Horizons] = {}
        self._lock = RLock()
        self._closed = False

    def batch(
        self, views: Sequence[str], start: Horizons, end: Horizons, changes: Mapping[str, Changes], rows: RowsOf
    ) -> None:
        """What a batch between these horizons changed."""
        with self._lock:
            if self._closed:
                return
            going_on = [view for view in views if _known(self._told.get(view, {})) == _known(start)]
            if going_on:
                told = {view: changes[view] for view in going_on if view in changes}
                self._listener.deliver(Delivered(going_on, told, end))
                self._told |= dict.fromkeys(going_on, end)
            for view in views:
                if view not in going_on and _reaches(end, self._told.get(view, {})):
                    self._restore(view, end, rows)

    def restore(self, views: Sequence[str], horizons: Horizons, rows: RowsOf) -> None:
        """What views show where a keeper goes on, unless more was told of them before."""
        with self._lock:
            for view in views if not self._closed else ():
                if view not in self._told or _is_beyond(horizons, self._told[view]):
                    self._restore(view, horizons, rows)

    def _restore(self, view: str, horizons: Horizons, rows: RowsOf) -> None:
        self._listener.restore(Restored(view, rows(view), horizons))
        self._told[view] = horizons

    def forget(self, views: Sequence[str]) -> None:
        """A view of the same name is another one."""
        with self._lock:
            for view in views:
                self._told.pop(view, None)

    def trouble(self, what: str) -> None:
        with self._lock:
            if not self._closed:
                self._listener.trouble(what)

    def failed(self, problem: SmileError) -> None:
        with self._lock:
            if not self._closed:
                self._listener.failed(problem)

    def close(self) -> None:
        """When this returns, the last thing was told."""
        with self._lock:
            self._closed = True


def _known(horizons: Horizons) -> Horizons:
    """A stream of which nothing is known is as one that is not there."""
    return {stream: tick for stream, tick in horizons.items() if tick > NOTHING}


def _is_beyond(some: Horizons, others: Horizons) -> bool:
    return _known(some) != _known(others) and _reaches(some, others)


def _reaches(some: Horizons, others: Horizons) -> bool:
    return all(some.get(stream, NOTHING) >= tick for stream, tick in others.items())
