"""Rows of a view: the last change of each. A new snapshot replaces all rows at once, when it is complete.

They may be read from any thread.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from smile.client.changes import Change, Frame, Key, Schema
from smile.client.row_tables import count_text, narrow_integers, rows_html, rows_to_arrow
from smile.extras import libraries_of

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # it has no types of its own
    import polars as pl
    import pyarrow as pa

    from smile.client.notebook import LiveDisplay

ChangesCallback = Callable[[Sequence[Change]], None]

_log = logging.getLogger("smile.client")


class Rows:
    """The rows of a view by key: a snapshot, or the content of a live table. `progress` is the tick of each stream up
    to which they include all events, and `epochs` the closed epochs of global streams with respect to which rows are
    final."""

    def __init__(self) -> None:
        self.progress: Mapping[str, int] = {}
        self.epochs: Mapping[str, str] = {}
        self._schema: Schema | None = None
        self._rows: dict[Key, Change] = {}
        self._new_rows: dict[Key, Change] | None = None
        self._lock = Lock()
        self._callbacks: tuple[ChangesCallback, ...] = ()

    def begin_anew(self) -> None:
        """The rows stay until the next snapshot replaces them."""

    @property
    def schema(self) -> Schema:
        assert self._schema is not None  # set before a table is returned to the user
        return self._schema

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def rows(self) -> list[Change]:
        with self._lock:
            return list(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Change]:
        return iter(self.rows)

    def __contains__(self, key: object) -> bool:
        return self._row_key(key) in self._rows

    def __getitem__(self, key: object) -> Change:
        """The key is a value, a tuple of values, or a dict by column name."""
        return self._rows[self._row_key(key)]

    def get(self, key: object) -> Change | None:
        return self._rows.get(self._row_key(key))

    def _row_key(self, key: object) -> Key:
        if isinstance(key, Mapping):
            return self.schema.identity([key[name] for name in self.schema.key])
        return self.schema.identity(key if isinstance(key, tuple) else (key,))

    def to_arrow(self, times: bool = False, knowledge: bool = False) -> "pa.Table":
        """Rows in the order of their keys: the current values of all columns, and a column `final`, unless the view has
        a column of that name. Ticks are integers, or with `times` timestamps in UTC, to the microsecond. With
        `knowledge`, each column that evolves is followed by its bounds, `NAME.at_least` and `NAME.at_most` (NULL is no
        bound), by `NAME.at`, the tick as of when a LATEST value is known, and by `NAME.final`."""
        return rows_to_arrow(self.schema, self.rows, times, knowledge)

    def to_polars(self, times: bool = False, knowledge: bool = False) -> "pl.DataFrame":
        """Sums of integers are integer columns. `times` and `knowledge` as in `to_arrow`."""
        with libraries_of("frames"):
            import polars as pl  # noqa: PLC0415  # slow to import, like pandas

        return pl.DataFrame(narrow_integers(self.to_arrow(times, knowledge)))

    def to_pandas(self, times: bool = False, knowledge: bool = False) -> "pd.DataFrame":
        """Sums of integers are integer columns, also with NULLs. `times` and `knowledge` as in `to_arrow`."""
        with libraries_of("frames"):
            import pandas as pd  # noqa: PLC0415
            import pyarrow as pa  # noqa: PLC0415

        table = narrow_integers(self.to_arrow(times, knowledge))
        data_frame: pd.DataFrame = table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
        return data_frame

    def __repr__(self) -> str:
        if self._schema is None:
            return f"<{type(self).__name__}>"
        final_count = sum(row.final for row in self.rows)
        return f"<{type(self).__name__} {self._schema.view}: {count_text(len(self), 'row')}, {final_count:,} final>"

    def _repr_html_(self) -> str:
        """A notebook shows the rows with their knowledge."""
        return rows_html(self.schema, self.rows)

    def live(self) -> "LiveDisplay":
        """Shows the rows in a notebook, as a table that updates itself: open rows first, then the newest. `stop()` of
        what is returned ends that."""
        from smile.client.notebook import LiveDisplay, show_in_notebook  # noqa: PLC0415  # only notebooks need it

        return LiveDisplay(self, self._repr_html_, show_in_notebook)

    def plot(self, y: str, x: str | None = None, by: str | None = None) -> "LiveDisplay":
        """Plots the column `y` in a notebook, within the band of what is still possible, and follows the rows. With
        `x`, each row has a point at its value of that column, and `by` is the column that divides the rows into lines.
        Without `x`, each row has a line: how what is known of `y` evolves from now on."""
        from smile.client.notebook import HistoryPlot, LiveDisplay, RowPlot, show_in_notebook  # noqa: PLC0415

        plot = HistoryPlot(self, y, time.monotonic) if x is None else RowPlot(self, y, x, by)
        return LiveDisplay(self, plot.render, show_in_notebook)

    # ── receiving ───────────────────────────────────────────────────────────────────────────────────────────────────

    def changed(self, callback: ChangesCallback) -> ChangesCallback:
        """Calls `callback` with the changes of each frame, in the client's thread. It must be fast. A decorator."""
        self._callbacks = (*self._callbacks, callback)
        return callback

    def stop_calling(self, callback: ChangesCallback) -> None:
        """Calls it no more; a call that has begun may still be in progress."""
        self._callbacks = tuple(c for c in self._callbacks if c != callback)

    def set_schema(self, schema: Schema) -> None:
        self._schema = schema

    def abort_snapshot(self) -> None:
        """Discards an incomplete snapshot."""
        self._new_rows = None

    def deliver_frame(self, frame: Frame) -> Callable[[], None] | None:
        """Applies a frame. Returns the notification of the callbacks, to run after the session's lock is released."""
        if frame.reset:
            self._new_rows = {}
        changes: Sequence[Change] = frame.changes
        with self._lock:
            if self._new_rows is None:
                self._apply(self._rows, changes)
            else:
                self._apply(self._new_rows, changes)
                changes = self._replace_snapshot() if frame.progress is not None else ()
            if frame.progress is not None:
                self.progress, self.epochs = frame.progress, frame.epochs
        if not changes or not self._callbacks:
            return None
        return lambda: self._notify(changes)

    def _apply(self, rows: dict[Key, Change], changes: Sequence[Change]) -> None:
        for change in changes:
            if change.deleted:
                rows.pop(change.id, None)
            else:
                rows[change.id] = change

    def _replace_snapshot(self) -> list[Change]:
        """Replaces the rows by the new snapshot. Returns the differences."""
        before, self._rows, self._new_rows = self._rows, self._new_rows or {}, None
        deletions = [deletion_change(self.schema, before[key].key) for key in before.keys() - self._rows.keys()]
        return [row for key, row in self._rows.items() if before.get(key) != row] + deletions

    def _notify(self, changes: Sequence[Change]) -> None:
        for callback in self._callbacks:
            try:
                callback(changes)
            except Exception:  # noqa: BLE001  # a user's code may raise anything
                # An error in a callback must not stop the table.
                _log.exception("a callback of the table %s failed", self.schema.view)

    def has_reached(self, ticks: Mapping[str, int]) -> bool:
        """Whether the rows include all events up to these ticks. Streams that the view does not read are ignored."""
        if not self.progress and self._schema is not None and self.schema.streams:
            return False
        return all(self.progress[stream] >= tick for stream, tick in ticks.items() if stream in self.progress)


def deletion_change(schema: Schema, key: Mapping[str, Any]) -> Change:
    """The deletion of a row that a new snapshot does not have."""
    return Change(schema, key, deleted=True)
