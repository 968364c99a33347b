"""A sink: a Delta table that is kept equal to a view. One commit of the table has everything between two progress marks
of the view, and the resume token: whoever reads a version of the table sees a state that the view had.
"""

from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake
from deltalake.exceptions import DeltaError

from smile.connectors.sinks.change_sink import ViewChanges
from smile.connectors.sinks.table_rows import DELETED, TableColumns, TableRows
from smile.errors import error
from smile.kernels.transform import InputRelation

_RESUME: Final = "smile.resume"


class DeltaViewTable:
    """`url` is that of the table."""

    only_final = False

    def __init__(self, url: str, view: str, columns: TableColumns) -> None:
        self._url, self._columns = url, columns
        self._description = f"SMILE keeps it equal to the view {view}"
        self._rows: TableRows | None = None
        self._table: DeltaTable | None = None
        self._version = 0

    def open(self, source: InputRelation) -> str | None:
        self._rows, self._table = TableRows(source, self._columns), None
        try:
            if not DeltaTable.is_deltatable(self._url):
                return None
            table = DeltaTable(self._url)
            if table.metadata().description != self._description:
                message = f"there is a table at {self._url} that SMILE has not created for this view"
                raise error("E206", message, hint="Remove it, or choose another place.")
            if not _has_columns(table, self._rows.schema):
                return None  # the view or the settings have other columns now
            self._table, self._version = table, table.version()
            return next((str(entry[_RESUME]) for entry in table.history() if entry.get(_RESUME)), None)
        except (DeltaError, OSError) as problem:
            raise error("E206", f"{self._url} cannot be opened: {problem}") from None

    def write(self, changes: ViewChanges) -> None:
        assert self._rows is not None
        commit = CommitProperties(custom_metadata={_RESUME: changes.resume or ""})
        try:
            if changes.is_reset or self._table is None:
                write_deltalake(
                    self._url,
                    self._rows.shown_rows(changes),
                    mode="overwrite",
                    schema_mode="overwrite",
                    description=self._description,
                    commit_properties=commit,
                )
                self._table = DeltaTable(self._url)
            else:
                self._merge(self._table, *self._rows.changed_rows(changes), commit)
        except (DeltaError, OSError) as problem:
            raise error("E206", f"{self._url} cannot be written: {problem}") from None
        self._version = self._table.version()

    def _merge(self, table: DeltaTable, changed: pa.Table, deleted: pa.Array, commit: CommitProperties) -> None:
        assert self._rows is not None
        columns = {_quote(name): f"s.{_quote(name)}" for name in self._rows.schema.names}
        key = [f"(t.{_quote(name)} IS NOT DISTINCT FROM s.{_quote(name)})" for name in self._rows.key]
        (
            table.merge(
                changed.append_column(_HIDDEN, deleted),
                " AND ".join(key) or "true",
                source_alias="s",
                target_alias="t",
                commit_properties=commit,
            )
            .when_matched_delete(f"s.{_HIDDEN}")
            .when_matched_update(columns)
            .when_not_matched_insert(columns, f"NOT s.{_HIDDEN}")
            .execute()
        )

    def close(self) -> None:
        self._table = None

    def status(self) -> dict[str, Any]:
        return {"table_version": self._version}


_HIDDEN: Final = f"smile_{DELETED}"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _has_columns(table: DeltaTable, schema: pa.Schema) -> bool:
    return bool(table.schema() == Schema.from_arrow(schema))
