"""A view as the source of an export."""

from collections.abc import Callable, Set as AbstractSet

from smile.broker.imports.exported_view import ExportedView
from smile.broker.imports.import_frame import Horizons
from smile.horizons import HORIZON_MIN, split_name, with_origins, without_origins
from smile.links.exports import RowsFrame
from smile.links.messages import StreamHorizons
from smile.log.position import DEFAULT_ORIGIN

PART_ROWS = 5_000
"""The rows in one message."""


def to_link_horizons(horizons: Horizons) -> StreamHorizons:
    """By stream and origin. Of a stream that has not many origins, there is only the lowest."""
    by_stream: dict[str, dict[str, int]] = {}
    for name, tick in horizons.items():
        stream, origin = split_name(name, ())
        if stream in horizons and origin is not None:
            by_stream.setdefault(stream, {})[origin] = tick
    least = {stream: {DEFAULT_ORIGIN: tick} for stream, tick in without_origins(horizons).items()}
    return {**least, **by_stream}


def from_link_horizons(horizons: StreamHorizons, many_origins: AbstractSet[str]) -> dict[str, int]:
    """`many_origins` are the streams of which the origins count."""
    named: dict[str, int] = {}
    for stream, origins in horizons.items():
        if stream in many_origins:
            named |= with_origins(stream, {o: tick for o, tick in origins.items() if tick > HORIZON_MIN})
        elif origins:
            named[stream] = min(origins.values())
    return named


class ExportCursor:
    """`check_access` raises an error if the neighbour may not read the view any more."""

    def __init__(self, view: ExportedView, check_access: Callable[[], None]) -> None:
        self._view, self._check_access = view, check_access
        self._sent_change = view.change
        """The last change that the neighbour was told. The view may have skipped changes since that concern no row."""

    @property
    def change(self) -> int:
        return self._view.change

    def next_frame(self) -> RowsFrame | None:
        self._check_access()
        part = self._view.next_part(PART_ROWS)
        if part is None:
            if self._view.problem is not None:
                raise self._view.problem
            return None
        horizons = None if part.end is None else to_link_horizons(part.end)
        first = -1 if part.is_reset else self._sent_change
        self._sent_change = self._view.change
        return RowsFrame(first, self._sent_change, horizons, part.block or b"", part.row_count)

    def seek(self, change: int) -> None:
        self._view.seek(change)
        self._sent_change = change

    def close(self) -> None:
        self._view.close()
