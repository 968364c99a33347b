"""CREATE TABLE: a relation with a primary key, as the stream of its changes.

An event of the stream has a row, or the key of a row that is deleted. The contents of the table are the latest change
of each key that is not a deletion. A static table has no stream: its rows are in the program.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from smile import lang
from smile.algebra import mmpl, trees
from smile.algebra.functions.catalogue import evaluate_expr
from smile.algebra.printer import print_expression
from smile.algebra.types import STRING, TIME, DataType, Value
from smile.errors import did_you_mean, error
from smile.source import Span
from smile.translate.expressions import TypedExpr
from smile.translate.pipeline import TICK_COLUMN, KeyedTable, QueryPipeline
from smile.translate.scope import NameTable
from smile.translate.values import constant_rows, row_text

_RESERVED = (TICK_COLUMN, mmpl.CHANGE_COLUMN, "source")
"""The columns that changes have besides those of the table."""

_FILE_HINT = "`smile` reads it beside the file of the program, also for another broker. Here, write the rows in VALUES."

_CHANGE = mmpl.ColumnRef(mmpl.CHANGE_COLUMN)
_DELETE = mmpl.Constant("delete", STRING)
_IS_PRESENT = mmpl.Call("is distinct from", (_CHANGE, _DELETE))


def column_named(name: lang.Name, columns: Iterable[str]) -> str:
    """The declared column that a name refers to."""
    matching = [c for c in columns if c == name.text or (not name.quoted and c.casefold() == name.text.casefold())]
    if not matching:
        raise error("E022", f"there is no column {name.text}", name.span, did_you_mean(name.text, columns))
    return matching[0]


def translate_table(
    statement: lang.CreateTable, columns: Mapping[str, DataType], checks: tuple[mmpl.Expr, ...]
) -> KeyedTable:
    """`checks` hold of all rows."""
    name, span = statement.name.text, statement.span
    for column in columns:
        if column in _RESERVED and not statement.is_static:
            message = f"table {name} cannot have a column named {column}"
            raise error("E210", message, statement.name.span, "The changes of a table have a column of this name.")
    if statement.file is not None:
        message = f"the rows of table {name} are in the file {statement.file.path}, which is not here"
        raise error("E214", message, statement.file.span, _FILE_HINT)
    key = tuple(column_named(c, columns) for c in statement.key)
    checks = (*(mmpl.Call("is not null", (mmpl.ColumnRef(c),)) for c in key), *checks)
    rows = constant_rows(statement.rows, list(columns.values()))
    _check_rows(columns, key, checks, rows, span)
    if statement.is_static:
        values = mmpl.Values(tuple(columns.items()), key, rows, span=span)
        return KeyedTable(name, key, tuple(columns), values, values, None)
    return _keyed_table(statement, columns, key, checks, rows)


def _keyed_table(
    statement: lang.CreateTable, columns: Mapping[str, DataType], key: tuple[str, ...], checks: Sequence[mmpl.Expr],
    rows: Sequence[tuple[Value, ...]],
) -> KeyedTable:  # fmt: skip
    """A table that publishers change. `rows` are its first contents."""
    name, span = statement.name.text, statement.span
    logged = ((mmpl.CHANGE_COLUMN, STRING), *columns.items())
    is_key_present = [mmpl.Call("is not null", (mmpl.ColumnRef(c),)) for c in key]
    stream_checks = (
        mmpl.IS_KEYED_CHANGE,
        *dict.fromkeys([*is_key_present, *(c if c in is_key_present else _or_deleted(c) for c in checks)]),
    )
    stream = mmpl.StreamDef(name, TICK_COLUMN, logged, stream_checks, statement.publisher_timed, span=span)
    changes: mmpl.Rel = mmpl.RelationRef(name, span=span)
    if rows:
        # Ticks below zero: every event comes after the first contents.
        numbered = tuple((i - len(rows), None, *row) for i, row in enumerate(rows))
        first = mmpl.Values(((TICK_COLUMN, TIME), *logged), (TICK_COLUMN,), numbered, span=span)
        changes = mmpl.Merge((first, changes), span=span)
    aggregates = tuple((c, mmpl.Aggregate("latest", mmpl.ColumnRef(c))) for c, _ in logged if c not in key)
    newest = mmpl.Summarize(changes, key, aggregates, span=span)
    contents = mmpl.Project(mmpl.Restrict(newest, _IS_PRESENT, span=span), tuple(columns), span=span)
    return KeyedTable(name, key, tuple(columns), contents, changes, stream)


def _or_deleted(check: mmpl.Expr) -> mmpl.Expr:
    return mmpl.Call("or", (mmpl.Call("is not distinct from", (_CHANGE, _DELETE)), check), span=check.span)


def _check_rows(
    columns: Mapping[str, DataType], key: Sequence[str], checks: Sequence[mmpl.Expr], rows: Sequence[tuple[Value, ...]],
    span: Span | None,
) -> None:  # fmt: skip
    """E212 if a row of VALUES violates a CHECK, or two have the same key."""
    keys: set[tuple[Value, ...]] = set()
    for row in rows:
        values = dict(zip(columns, row, strict=True))
        for check in checks:
            if evaluate_expr(check, values, columns) is False:
                condition = print_expression(check)
                raise error("E212", f"the row {row_text(row, columns)} of VALUES violates {condition}", span)
        key_values = tuple(values[c] for c in key)
        if key_values in keys:
            raise error("E212", f"the row {row_text(row, columns)} of VALUES has the key of another row", span)
        keys.add(key_values)


# ── as of a tick ────────────────────────────────────────────────────────────────────────────────────────────────────


def check_table_join(
    left: QueryPipeline, right: QueryPipeline, on: Sequence[tuple[str, str]], predicates: Sequence[mmpl.Expr],
    written_ticks: tuple[str, str] | None, span: Span | None,
) -> tuple[str, str] | None:  # fmt: skip
    """The ticks that an ASOF JOIN with the changes of a table compares: those that are written, or the tick of the left
    row. The latest change of a row is found by the whole key, and only by it."""
    table, columns = right.table, right.scope.from_items[0].columns
    assert table is not None
    equated = {b for _, b in on}
    missing = [c for c in table.key if columns[c] not in equated]
    if missing:
        message = f"an ASOF JOIN with the table {table.name} must equate its primary key: {missing[0]} is missing"
        raise error("E211", message, span, f"Write ON … AND {missing[0]} = …")
    others = equated - {columns[c] for c in table.key}
    if others or len(predicates) > (written_ticks is not None):
        message = f"an ASOF JOIN with the table {table.name} can only equate its primary key"
        raise error("E211", message, span, "Put other conditions into WHERE.")
    if written_ticks is None and left.heading.tick:
        return left.heading.tick[0], columns[TICK_COLUMN]
    return written_ticks


def hide_deleted_rows(joined: QueryPipeline, table: KeyedTable, is_left: bool, span: Span | None) -> None:
    """After an ASOF JOIN with the changes of a table: a deletion is no match. The columns of changes are no longer
    visible."""
    item = joined.scope.from_items[-1]
    change = item.columns[mmpl.CHANGE_COLUMN]
    is_present = trees.rename_columns(_IS_PRESENT, {mmpl.CHANGE_COLUMN: change})
    visible = {name: item.columns[name] for name in table.columns}
    if not is_left:
        joined.restrict([replace(is_present, span=span)])
    else:
        shared = {c for other in joined.scope.from_items[:-1] for c in other.columns.values()}
        own = {name: column for name, column in visible.items() if column not in shared}
        columns = joined.heading.columns
        present = [
            (name, TypedExpr(_when_present(is_present, column, columns[column]), columns[column]))
            for name, column in own.items()
        ]
        visible |= dict(zip(own, joined.extend_all(present), strict=True))
    item.columns = NameTable({name: visible[name] for name in table.columns})
    item.hidden = {}


def _when_present(is_present: mmpl.Expr, column: str, data: DataType) -> mmpl.Expr:
    return mmpl.Case(((is_present, mmpl.ColumnRef(column)),), mmpl.Constant(None, data))
