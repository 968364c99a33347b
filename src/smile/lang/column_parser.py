"""Parses what streams and tables have in common: lists, the names that they define, and their columns."""

from collections.abc import Callable

from smile.errors import error
from smile.lang.cursor import TokenCursor
from smile.lang.statements import ColumnDecl, Name


def read_defined_name(cursor: TokenCursor, expected: str) -> Name:
    first = cursor.index
    if cursor.skip("IF", "NOT", "EXISTS"):
        hint = "A program is compiled as a whole, and defines each name once. Omit IF NOT EXISTS."
        raise error("E013", "IF NOT EXISTS is not supported", cursor.span_from(first), hint)
    name = cursor.read_name(expected)
    if cursor.skip("."):
        raise error("E013", "a qualified name is not supported", cursor.span_from(first), "Relations have no schema.")
    return name


def read_list(cursor: TokenCursor, read_item: Callable[[], None]) -> None:
    read_item()
    while cursor.skip(","):
        read_item()


def read_names(cursor: TokenCursor) -> tuple[Name, ...]:
    """`(a, b)`."""
    cursor.expect("(")
    names: list[Name] = []
    read_list(cursor, lambda: names.append(cursor.read_name("a column")))
    cursor.expect(")")
    return tuple(names)


_COLUMN_HINTS = {
    "DEFAULT": "A column that an event omits is NULL: write COALESCE(a, 0) in views.",
    "UNIQUE": "Only the primary key of a table is unique. A column of a stream can be UNIQUE.",
    "REFERENCES": "Join the relations: rows without a match can be found with NOT EXISTS.",
    "NULL": "Omit it: a column can be NULL unless it is NOT NULL.",
}


def read_column(cursor: TokenCursor, colon: bool, in_table: bool = False) -> tuple[ColumnDecl, bool]:
    """A column, and whether it is the TIME KEY of a stream or the PRIMARY KEY of a table. In `t TIME KEY`, TIME is both
    the type and part of TIME KEY."""
    first = cursor.index
    name = cursor.read_name("a column")
    if colon:
        cursor.expect(":")
    if name.text.upper() == "WATERMARK" and cursor.is_at("FOR"):
        hint = "A broker knows how far each stream is. Late times: CHECK (ts BETWEEN t - INTERVAL '5' MINUTE AND t)."
        raise error("E013", "WATERMARK is not supported", name.span, hint)
    type_name, type_span = cursor.read_type_name()
    if cursor.is_at("<") or cursor.is_at("ARRAY"):
        hint = "An array is written as the type of its elements and brackets: int[]."
        raise error("E013", "an array in this notation is not supported", type_span, hint)
    is_key = not in_table and type_name.upper() == "TIME" and cursor.skip("KEY")
    not_null, unique, checks = False, False, []
    while True:
        start = cursor.index
        if cursor.skip("NOT", "NULL"):
            not_null = True
        elif cursor.skip("CHECK"):
            checks.append(cursor.read_condition())
        elif not in_table and cursor.skip("UNIQUE"):
            unique = True
        elif not in_table and not colon and cursor.skip("TIME", "KEY"):
            is_key = True
        elif cursor.skip("PRIMARY", "KEY"):
            if not in_table:
                hint = "A stream is keyed by its tick: t TIME KEY. CREATE TABLE has a primary key."
                raise error("E013", "PRIMARY KEY is not supported in a stream", cursor.span_from(start), hint)
            is_key = True
        elif cursor.skip("UNIQUE") or cursor.skip("DEFAULT") or cursor.skip("REFERENCES") or cursor.skip("NULL"):
            word = cursor.tokens[start].text.upper()
            raise error(
                "E013", f"{word} is not supported in a column", cursor.span_from(start), _COLUMN_HINTS.get(word)
            )
        else:
            break
    return ColumnDecl(name, type_name, type_span, not_null, tuple(checks), cursor.span_from(first), unique), is_key
