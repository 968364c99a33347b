"""Rows of a view as Arrow tables, for data frames, and as HTML, for notebooks."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from smile import limits
from smile.client.changes import Change, Schema
from smile.client.values import ViewColumn, document_text
from smile.extras import libraries_of

if TYPE_CHECKING:
    import pyarrow as pa


_TEMPORAL_KINDS = ("time", "timestamp", "date")


def rows_by_key(schema: Schema, rows: Sequence[Change], newest_first: bool = False) -> list[Change]:
    """The rows in the order of their keys, NULLs last. `newest_first`: those that are not final first, and then the
    greatest times."""
    ordered = list(rows)
    for name in reversed(schema.key):
        column = schema.columns.get(name)
        kind = "json" if column is None else column.kind
        if kind in ("json", "relation", "array"):
            continue  # their values may have no order
        is_reversed = newest_first and kind in _TEMPORAL_KINDS
        ordered.sort(key=lambda row: ((row.key[name] is None) != is_reversed, row.key[name]), reverse=is_reversed)
    return sorted(ordered, key=lambda row: row.final) if newest_first else ordered


def rows_to_arrow(schema: Schema, rows: Sequence[Change], times: bool, knowledge: bool) -> "pa.Table":
    """In the order of the keys: the current values, and a column `final`; with `knowledge`, also the bounds of what
    evolves, and the tick as of when a latest value is known."""
    with libraries_of("frames"):
        import pyarrow as pa  # noqa: PLC0415  # slow to import, and only needed for frames

    rows = rows_by_key(schema, rows)
    evolving = {name for row in rows for name in row.knowledge} if knowledge else set()
    arrays = {}
    for name, column in schema.columns.items():
        arrays[name] = _array(column, [row.row[name] if name in row.row else row.key.get(name) for row in rows], times)
        if name in evolving and column.kind != "relation":
            arrays.setdefault(f"{name}.at_least", _array(column, [row[name].low for row in rows], times))
            arrays.setdefault(f"{name}.at_most", _array(column, [row[name].high for row in rows], times))
            if any(row[name].kind == "latest" for row in rows):
                at = ViewColumn.from_type(f"{name}.at", "time")
                arrays.setdefault(at.name, _array(at, [row[name].at for row in rows], times))
            arrays.setdefault(f"{name}.final", pa.array([row[name].is_final for row in rows], pa.bool_()))
    arrays.setdefault("final", pa.array([row.final for row in rows], pa.bool_()))
    return pa.table(arrays)


def _array(column: ViewColumn, values: Sequence[Any], times: bool) -> Any:  # Any: pyarrow has no type hints
    import pyarrow as pa  # noqa: PLC0415

    if column.kind == "json":
        values = [None if value is None else document_text(value) for value in values]
    return pa.array(values if not times else map(column.to_times, values), column.arrow_type(times))


def narrow_integers(table: "pa.Table") -> "pa.Table":
    """Decimals without fraction, such as a SUM of ints, as 64-bit integers if all of them fit: libraries of data frames
    compute with these, and treat decimals as objects."""
    import pyarrow as pa  # noqa: PLC0415

    for i, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type) and field.type.scale == 0:
            try:
                narrow = table.column(i).cast(pa.int64())
            except pa.ArrowInvalid:  # beyond 64 bits
                continue
            table = table.set_column(i, field.name, narrow)
    return table


def count_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def rows_html(schema: Schema, rows: Sequence[Change]) -> str:
    """A table for notebooks: open rows and the newest ones first. Final rows are bold; values are shown with their
    knowledge."""
    names = list(schema.columns)
    shown = rows_by_key(schema, rows, newest_first=True)[: limits.notebook_rows_max]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(_row_html(row, names) for row in shown)
    final_count = sum(row.final for row in rows)
    caption = f"{escape(schema.view)}: {count_text(len(rows), 'row')}, {final_count:,} final"
    if len(shown) < len(rows):
        caption += f"; the first {len(shown):,} are shown"
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row_html(row: Change, names: Sequence[str]) -> str:
    tag = "th" if row.final else "td"
    return f"<tr>{''.join(f'<{tag}>{escape(row.column_text(name))}</{tag}>' for name in names)}</tr>"


def connection_text(is_connected: bool) -> str:
    return "connected" if is_connected else "not connected"


def client_html(url: str, is_connected: bool, relations: Mapping[str, Sequence[str]]) -> str:
    """What a notebook shows for a client."""
    texts = {kind: escape(", ".join(names)) or "–" for kind, names in relations.items()}
    lines = "".join(f"<tr><th>{escape(kind)}</th><td>{text}</td></tr>" for kind, text in texts.items())
    return f"<table><caption>{escape(url)}: {connection_text(is_connected)}</caption><tbody>{lines}</tbody></table>"
