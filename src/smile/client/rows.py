"""Rows of a view: the last change of each. A new snapshot replaces all rows at once, when it is complete.

They may be read from any thread.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from smile.client.changes import Change, Frame, Key, Schema

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # it has no types of its own
    import polars as pl
    import pyarrow as pa

ChangesCallback = Callable[[Sequence[Change]], None]

_log = logging.getLogger("smile.client")


class Rows:
    """The rows of a view by key: a snapshot, or the content of a live table. `progress` is the tick of each stream up
    to which they include all events."""

    def __init__(self) -> None:
        self.progress: Mapping[str, int] = {}
        self._schema: Schema | None = None
        self._rows: dict[Key, Change] = {}
        self._new_rows: dict[Key, Change] | None = None
        self._lock = Lock()
        self._callbacks: list[ChangesCallback] = []

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
            return tuple(key[name] for name in self.schema.key)
        return key if isinstance(key, tuple) else (key,)

    def to_arrow(self, times: bool = False) -> "pa.Table":
        """Current values of all columns, and a column `final`, unless the view has a column of that name. Ticks are
        integers, or with `times` timestamps in UTC, to the microsecond."""
        import pyarrow as pa  # noqa: PLC0415  # slow to import, like the other two

        rows, columns = self.rows, self.schema.columns
        arrays = {}
        for name, column in columns.items():
            values = [row.row[name] if name in row.row else row.key.get(name) for row in rows]
            arrays[name] = pa.array(values if not times else map(column.to_times, values), column.arrow_type(times))
        arrays.setdefault("final", pa.array([row.final for row in rows], pa.bool_()))
        return pa.table(arrays)

    def to_polars(self, times: bool = False) -> "pl.DataFrame":
        """`times` as in `to_arrow`."""
        import polars as pl  # noqa: PLC0415

        return pl.DataFrame(self.to_arrow(times))

    def to_pandas(self, times: bool = False) -> "pd.DataFrame":
        """Integer columns with NULLs stay integer columns. `times` as in `to_arrow`."""
        import pandas as pd  # noqa: PLC0415
        import pyarrow as pa  # noqa: PLC0415

        data_frame: pd.DataFrame = self.to_arrow(times).to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
        return data_frame

    # ── receiving ───────────────────────────────────────────────────────────────────────────────────────────────────

    def changed(self, callback: ChangesCallback) -> ChangesCallback:
        """Calls `callback` with the changes of each frame, in the client's thread. It must be fast. A decorator."""
        self._callbacks.append(callback)
        return callback

    def set_schema(self, schema: Schema) -> None:
        self._schema = schema

    def abort_snapshot(self) -> None:
        """Discards an incomplete snapshot."""
        self._new_rows = None

    def deliver_frame(self, reset: bool, frame: Frame) -> Callable[[], None] | None:
        """Applies a frame. Returns the notification of the callbacks, to run after the session's lock is released."""
        if reset:
            self._new_rows = {}
        changes: Sequence[Change] = frame.changes
        with self._lock:
            if self._new_rows is None:
                self._apply(self._rows, changes)
            else:
                self._apply(self._new_rows, changes)
                changes = self._replace_snapshot() if frame.progress is not None else ()
            if frame.progress is not None:
                self.progress = frame.progress
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
