"""A sink: a file in Parquet that is kept equal to a view. Each write replaces the whole file: a reader sees a state
that the view had. The resume token is in the metadata of the file.
"""

import os
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from smile.connectors.file_systems import open_file_system
from smile.connectors.sinks.change_sink import ViewChanges
from smile.connectors.sinks.table_rows import DELETED, TableColumns, TableRows, newest_of_each_row
from smile.errors import error
from smile.kernels.transform import InputRelation

_VIEW: Final = b"smile.view"
_RESUME: Final = b"smile.resume"


class ParquetTable:
    """`url` is that of the file."""

    only_final = False

    def __init__(self, url: str, view: str, columns: TableColumns) -> None:
        self._url, self._view, self._columns = url, view, columns
        self._rows: TableRows | None = None
        self._table: pa.Table | None = None
        self._row_count = 0

    def open(self, source: InputRelation) -> str | None:
        self._system, self._path = open_file_system(self._url)
        self._rows = rows = TableRows(source, self._columns)
        self._table = None
        info = self._system.get_file_info(self._path)
        if info.type == fs.FileType.NotFound:
            return None
        if info.type != fs.FileType.File:
            raise error("E206", f"{self._url} is not a file", hint="Write the name of a file, such as sales.parquet.")
        table = pq.read_table(self._path, filesystem=self._system)
        metadata = table.schema.metadata or {}
        if metadata.get(_VIEW) != self._view.encode():
            message = f"{self._url} is a file that SMILE has not created for {self._view}"
            raise error("E206", message, hint="Remove it, or choose another name.")
        if not table.schema.equals(rows.schema):
            return None  # the view or the settings have other columns now
        self._table, self._row_count = table, table.num_rows
        return metadata[_RESUME].decode() or None

    def write(self, changes: ViewChanges) -> None:
        assert self._rows is not None
        if changes.is_reset or self._table is None:
            table = self._rows.shown_rows(changes)
        else:
            table = _apply(self._table, *self._rows.changed_rows(changes), self._rows.key)
        metadata = {_VIEW: self._view.encode(), _RESUME: (changes.resume or "").encode()}
        self._replace(table.replace_schema_metadata(metadata))
        self._table, self._row_count = table, table.num_rows

    def _replace(self, table: pa.Table) -> None:
        """The new file is complete and on the disk before it gets its name."""
        folder, _, name = self._path.rpartition("/")
        temporary = f"{folder}/.{name}.new" if folder else f".{name}.new"
        if isinstance(self._system, fs.LocalFileSystem):
            if folder:
                os.makedirs(folder, exist_ok=True)  # noqa: PTH103  # a path of Arrow's file system
            pq.write_table(table, temporary)
            with open(temporary, "rb+") as file:  # noqa: PTH123
                os.fsync(file.fileno())
            os.replace(temporary, self._path)  # noqa: PTH105
        else:
            pq.write_table(table, temporary, filesystem=self._system)
            self._system.move(temporary, self._path)

    def close(self) -> None:
        self._table = None

    def status(self) -> dict[str, Any]:
        return {"table_rows": self._row_count}


def _apply(table: pa.Table, changed: pa.Table, deleted: pa.Array, key: tuple[str, ...]) -> pa.Table:
    """The table after the changes."""
    present = table.append_column(DELETED, pa.array([False] * table.num_rows, pa.bool_()))
    both = pa.concat_tables([present.replace_schema_metadata(None), changed.append_column(DELETED, deleted)])
    newest = newest_of_each_row(both, key)
    return newest.filter(pc.invert(newest.column(newest.num_columns - 1))).drop_columns([DELETED])
