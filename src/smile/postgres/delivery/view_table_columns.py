"""The columns of a table that has the rows of a view, and the statements that keep it equal to the view. Rows come as
JSON, in the form of the view's changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from smile.algebra.types import DataType
from smile.errors import error
from smile.knowledge.types import RelationType

_TYPES: Final = {
    "bool": "boolean",
    "int": "bigint",
    "float": "double precision",
    "string": "text",
    "time": "bigint",
    "interval": "interval",
    "timestamp": "timestamp",
    "date": "date",
    "bytes": "bytea",
    "json": "jsonb",
    "relation": "jsonb",
    "null": "text",
    "array": "jsonb",
}
_ROW_FINAL: Final = "row_final"


@dataclass(frozen=True)
class TableColumn:
    """`path` leads to the value in the JSON of a changed row."""

    name: str
    type: str
    path: tuple[str, ...]
    data: DataType
    alternatives: tuple[tuple[str, ...], ...] = ()
    """Paths of the value if the first one has none."""
    is_present: bool = False
    """Whether the column says if there is a value at the path."""

    @property
    def expression(self) -> sql.Composable:
        if self.is_present:
            return sql.SQL("(m #> {}) IS NOT NULL").format(_path(self.path))
        if self.data.name == "json":
            present = sql.SQL("WHEN (m #>> {path}) IS NOT NULL THEN (m #> {path})::jsonb")
            cases = [present.format(path=_path(path)) for path in (self.path, *self.alternatives)]
            return sql.SQL("CASE {} END").format(sql.SQL(" ").join(cases))
        texts = [sql.SQL("m #>> {}").format(_path(path)) for path in (self.path, *self.alternatives)]
        text = texts[0] if len(texts) == 1 else sql.SQL("coalesce({})").format(sql.SQL(", ").join(texts))
        if self.data.name in ("timestamp", "date", "interval", "bytes"):
            return sql.SQL("smile.{}({})").format(sql.Identifier(f"{self.data.name}_from_text"), text)
        return sql.SQL("({})::{}").format(text, sql.SQL(self.type))


def _path(path: Sequence[str]) -> sql.Composable:
    return sql.Literal(list(path))


def postgres_type(data: DataType) -> str:
    """An array is JSON, as its elements are in JSON."""
    return f"numeric({data.digits}, {data.scale})" if data.name == "decimal" else _TYPES[data.name]


def table_columns(type_: RelationType, with_knowledge: bool) -> tuple[TableColumn, ...]:
    """The key and the columns of the view. With knowledge, each column that evolves also has its bounds, which are NULL
    where there is none, and whether it is final; and the row has whether it is final."""
    heading, columns = type_.heading, list[TableColumn]()
    for name in heading.key:
        columns.append(TableColumn(name, postgres_type(heading.columns[name]), ("key", name), heading.columns[name]))
    for name in heading.value_columns:
        data = heading.columns[name]
        columns.append(TableColumn(name, postgres_type(data), ("row", name), data))
        if with_knowledge and type_.columns[name].evolves:
            known = ("knowledge", name)
            exactly = ((*known, "exactly"),)
            if data.is_ordered and data.name not in ("bool", "array"):
                lower = (exactly[0], (*known, "between", "0"))
                upper = (exactly[0], (*known, "between", "1"))
                text = postgres_type(data)
                columns.append(TableColumn(f"{name}_lower", text, (*known, "at_least"), data, lower))
                columns.append(TableColumn(f"{name}_upper", text, (*known, "at_most"), data, upper))
            columns.append(TableColumn(f"{name}_final", "boolean", exactly[0], data, is_present=True))
    if with_knowledge:
        columns.append(TableColumn(_ROW_FINAL, "boolean", ("final",), DataType("bool")))
    names = [column.name for column in columns]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        hint = "Rename a column of the view, or do not ask for knowledge."
        raise error("E165", f"the table would have two columns {repeated}", hint=hint)
    return tuple(columns)


@dataclass(frozen=True)
class ViewTableStatements:
    """`table` is the qualified name. `key` are the columns that identify a row, `nullable_key` those of them that may
    be NULL."""

    table: sql.Composable
    columns: Sequence[TableColumn]
    key: Sequence[str]
    nullable_key: frozenset[str] = frozenset()

    def create(self) -> sql.Composed:
        columns = [sql.SQL("{} {}").format(sql.Identifier(c.name), sql.SQL(c.type)) for c in self.columns]
        if self.key and not self.nullable_key:
            columns.append(sql.SQL("PRIMARY KEY ({})").format(self._names(self.key)))
        return sql.SQL("CREATE TABLE {} ({})").format(self.table, sql.SQL(", ").join(columns))

    def create_index(self) -> sql.Composed | None:
        """The index of a key that may be NULL, which no primary key may be."""
        if not self.nullable_key:
            return None
        return sql.SQL("CREATE INDEX ON {} ({})").format(self.table, self._names(self.key))

    def delete_all(self) -> sql.Composed:
        return sql.SQL("DELETE FROM {}").format(self.table)

    def delete_changed(self) -> sql.Composed:
        """Deletes the rows with the keys of the changes, which are the parameter."""
        by_name = {c.name: c for c in self.columns}
        keys: list[sql.Composable] = [
            sql.SQL("{} AS {}").format(by_name[k].expression, sql.Identifier(k)) for k in self.key
        ]
        matches: list[sql.Composable] = [self._is_same(k) for k in self.key] or [sql.SQL("true")]
        return sql.SQL(
            "DELETE FROM {} AS t USING (SELECT {} FROM json_array_elements(%s::json) AS m) AS c WHERE {}"
        ).format(self.table, sql.SQL(", ").join(keys or [sql.SQL("1 AS one")]), sql.SQL(" AND ").join(matches))

    def insert_changed(self) -> sql.Composed:
        """Inserts the rows of the changes that are shown."""
        return sql.SQL(
            "INSERT INTO {} ({}) SELECT {} FROM json_array_elements(%s::json) AS m WHERE (m ->> 'deleted') IS NULL"
        ).format(
            self.table,
            self._names([c.name for c in self.columns]),
            sql.SQL(", ").join([c.expression for c in self.columns]),
        )

    def _is_same(self, name: str) -> sql.Composable:
        column = sql.Identifier(name)
        same = sql.SQL("t.{0} = c.{0}").format(column)
        if name not in self.nullable_key:
            return same
        return sql.SQL("({0} OR (t.{1} IS NULL AND c.{1} IS NULL))").format(same, column)

    def _names(self, names: Sequence[str]) -> sql.Composable:
        return sql.SQL(", ").join(map(sql.Identifier, names))
