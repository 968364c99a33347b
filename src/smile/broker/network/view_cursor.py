"""A view as the source of an export."""

from collections.abc import Callable

from smile.broker.imports.exported_view import ExportedView
from smile.broker.imports.import_frame import Horizons
from smile.links.exports import RowsFrame
from smile.links.messages import StreamHorizons
from smile.log.position import DEFAULT_ORIGIN

PART_ROWS = 5_000
"""The rows in one message."""


def to_link_horizons(horizons: Horizons) -> StreamHorizons:
    """Horizons of a view have no origins: they are the lowest of all."""
    return {stream: {DEFAULT_ORIGIN: tick} for stream, tick in horizons.items()}


def from_link_horizons(horizons: StreamHorizons) -> dict[str, int]:
    return {stream: min(origins.values()) for stream, origins in horizons.items() if origins}


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
