"""The order that a relation asks for its rows: that of its BEST. Relations have none; it is for those who show rows."""

from itertools import takewhile

from smile.algebra.mmpl import Best, ColumnRef, Extend, Project, Rel, Rename, Restrict

RowOrder = tuple[tuple[str, bool], ...]
"""Visible columns, and whether the greatest value is first."""


def row_order(rel: Rel) -> RowOrder:
    """Empty if there is no BEST of all rows, or if it orders by a column that is not visible."""
    match rel:
        case Best(by=by, per=()):
            named = takewhile(lambda pair: isinstance(pair[0], ColumnRef), by)
            return tuple((e.name, descending) for e, descending in named if isinstance(e, ColumnRef))
        case Rename(input=source, pairs=pairs):
            new_names = dict(pairs)
            return tuple((new_names.get(column, column), descending) for column, descending in row_order(source))
        case Project(input=source, columns=columns):
            return tuple(takewhile(lambda pair: pair[0] in columns, row_order(source)))
        case Restrict(input=source) | Extend(input=source):
            return row_order(source)
    return ()
