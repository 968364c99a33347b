"""The rows of a table that is kept equal to a view: its key and columns, and on request what is known of them.

Others read the table, so its columns have the types that they expect: timestamps and dates are such, and so are ticks,
on request. Several ticks may be at the same time; a tick of the key then has a second column that is the tick itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from smile.algebra.types import TICKS_PER_MICROSECOND, TIME, DataType
from smile.connectors.sinks.change_sink import ViewChanges
from smile.encoding.arrow_changes import EXACTLY, arrow_changes, arrow_schema
from smile.errors import error
from smile.kernels.row_encoding import decode_rows
from smile.kernels.transform import InputRelation

DELETED: Final = "deleted"
_BOUNDS: Final = {"at_least": "lower", "at_most": "upper"}


@dataclass(frozen=True)
class TableColumns:
    """Which columns a table has. `knowledge`: each column that evolves also has its bounds and whether it is final, a
    latest value as of when it is, and the row whether it is final. `times`: ticks are timestamps in UTC."""

    knowledge: bool
    times: bool


@dataclass(frozen=True)
class _Column:
    """`source` is the column in the Arrow form of changes, and `data` its type; None if it says something of the
    row. `is_code`: it is a code of knowledge."""

    source: str
    data: DataType | None = None
    is_code: bool = False
    is_tick: bool = False


class TableRows:
    """`key` has the names of the columns that identify a row of the table."""

    def __init__(self, source: InputRelation, chosen: TableColumns) -> None:
        self._source, self._times = source, chosen.times
        types, self._key = source.type.heading.columns, tuple(source.type.heading.key)
        ticks = {name: f"{name}_tick" for name in self._key if chosen.times and types[name] == TIME}
        self.key: tuple[str, ...] = tuple(ticks.get(name, name) for name in self._key)
        self._columns = _table_columns(source, chosen.knowledge, ticks)
        self.schema: pa.Schema = self._select(pa.Table.from_batches([], arrow_schema(source))).schema

    def changed_rows(self, changes: ViewChanges) -> tuple[pa.Table, pa.Array]:
        """The rows of the changes, and whether each is deleted."""
        tables = []
        for frame in changes.frames:
            if frame.row_count:
                delta = decode_rows(frame.source.layout, frame.rows)
                batch = arrow_changes(frame.source, delta, frame.horizons, include_hidden=True)
                tables.append(pa.Table.from_batches([batch]))
        table = pa.concat_tables(tables) if tables else pa.Table.from_batches([], arrow_schema(self._source))
        table = newest_of_each_row(table, self._key)  # a row may change again while its frames are read
        return self._select(table), table.column(DELETED).combine_chunks()

    def shown_rows(self, changes: ViewChanges) -> pa.Table:
        rows, deleted = self.changed_rows(changes)
        return rows.filter(pc.invert(deleted))

    def _select(self, table: pa.Table) -> pa.Table:
        columns = {}
        for name, chosen in self._columns.items():
            column = table.column(chosen.source).combine_chunks()
            if chosen.is_code:
                column = pc.equal(column, EXACTLY)
            elif chosen.data is not None and not chosen.is_tick:
                column = _readable(column, chosen.data, self._times)
            columns[name] = column
        return pa.table(columns)


def _readable(column: pa.Array, data: DataType, times: bool) -> pa.Array:
    """The values in the types of Arrow that others expect."""
    match data.name:
        case "timestamp":
            return column.cast(pa.timestamp("us"))
        case "date":
            return column.cast(pa.int32()).cast(pa.date32())
        case "time" if times:
            microseconds = pc.shift_right(column, TICKS_PER_MICROSECOND.bit_length() - 1)
            return microseconds.cast(pa.timestamp("us", "UTC"))
        case "array":
            return _list_like(column, _readable(column.flatten(), data.element, times))
        case "relation":
            rows = column.flatten()
            fields = [
                (name, _readable(part, inner, times))
                for part, (name, inner) in zip(rows.flatten(), data.columns, strict=True)
            ]
            struct = pa.StructArray.from_arrays([part for _, part in fields], [name for name, _ in fields])
            return _list_like(column, struct)
    return column


def _list_like(column: pa.Array, elements: pa.Array) -> pa.Array:
    """A column of lists of the same lengths, with other elements."""
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(column), 0))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
    return pa.ListArray.from_arrays(offsets, elements, mask=column.is_null())


def _table_columns(source: InputRelation, with_knowledge: bool, ticks: Mapping[str, str]) -> dict[str, _Column]:
    """`ticks` has the names of the columns with ticks, by the columns that are their times."""
    heading = source.type.heading
    names = [*heading.key, *(name for name in heading.value_columns if name not in heading.key)]
    known = set(arrow_schema(source).names)
    columns: list[tuple[str, _Column]] = []
    for name in names:
        data = heading.columns[name]
        columns.append((name, _Column(name, data)))
        if name in ticks:
            columns.append((ticks[name], _Column(name, data, is_tick=True)))
        if with_knowledge and f"{name}.knowledge" in known:
            for suffix, bound in _BOUNDS.items():
                if f"{name}.{suffix}" in known:
                    columns.append((f"{name}_{bound}", _Column(f"{name}.{suffix}", data)))
            if f"{name}.at" in known:
                columns.append((f"{name}_at", _Column(f"{name}.at", TIME)))
            columns.append((f"{name}_final", _Column(f"{name}.knowledge", is_code=True)))
    if with_knowledge:
        columns.append(("row_final", _Column("final")))
    chosen = [name for name, _ in columns]
    repeated = next((name for name in chosen if chosen.count(name) > 1), None)
    if repeated is not None:
        hint = "Rename a column of the view, or do not ask for knowledge or times."
        raise error("E206", f"the table would have two columns {repeated}", hint=hint)
    return dict(columns)


def newest_of_each_row(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """The last of the rows with equal keys. NULL equals NULL."""
    if not key:
        return table.slice(max(0, table.num_rows - 1))
    numbers = pa.array(range(table.num_rows), pa.int64())
    names = [f"k{n}" for n in range(len(key))]
    keyed = pa.table([*(table.column(name) for name in key), numbers], names=[*names, "number"])
    newest = keyed.group_by(names).aggregate([("number", "max")]).column("number_max").combine_chunks()
    return table.take(pc.take(newest, pc.sort_indices(newest)))
