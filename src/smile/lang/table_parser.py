"""Parses the tokens of CREATE TABLE."""

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from smile.errors import error
from smile.lang.column_parser import read_column, read_defined_name, read_list, read_names
from smile.lang.cursor import TokenCursor
from smile.lang.expression_parser import UnexpectedTokenError
from smile.lang.statements import ColumnDecl, CreateTable, Name, RowsFile

_KEY_HINT = "Write (id: int PRIMARY KEY, …), or PRIMARY KEY (a, b) in the list of columns."


def read_table(cursor: TokenCursor) -> CreateTable:
    """`CREATE TABLE name (columns) [WITH (TICKS = PUBLISHER)] [[STATIC] AS {VALUES (…), … | FILE 'path'}]`."""
    name = read_defined_name(cursor, "the table's name")
    cursor.expect("(")
    colon = cursor.is_at(":", ahead=1)
    columns: list[ColumnDecl] = []
    keys: list[tuple[Name, ...]] = []
    checks: list[exp.Expr] = []

    def read_element() -> None:
        if cursor.is_at("CHECK", "("):
            cursor.skip("CHECK")
            checks.append(cursor.read_condition())
        elif cursor.skip("PRIMARY", "KEY"):
            keys.append(read_names(cursor))
            if cursor.is_at("NOT"):
                hint = "Omit NOT ENFORCED: an event replaces the row with its key."
                raise error(
                    "E013", "NOT ENFORCED is not supported", cursor.span_from(cursor.index, cursor.index + 2), hint
                )
        elif cursor.is_at("UNIQUE", "("):
            hint = "Only the primary key of a table is unique. Columns of a stream can be UNIQUE."
            raise error(
                "E013", "UNIQUE is not supported in a table", cursor.span_from(cursor.index, cursor.index + 1), hint
            )
        else:
            column, is_key = read_column(cursor, colon, in_table=True)
            columns.append(column)
            keys.extend([(column.name,)] * is_key)

    read_list(cursor, read_element)
    cursor.expect(")")
    if len(keys) != 1:
        problem = "no PRIMARY KEY" if not keys else "two primary keys"
        raise error("E210", f"table {name} has {problem}", name.span, _KEY_HINT)
    publisher_timed = cursor.skip("WITH", "(", "TICKS", "=")
    if publisher_timed:
        cursor.expect("PUBLISHER", ")")
    is_static = cursor.skip("STATIC")
    rows: tuple[exp.Tuple, ...] = ()
    file = None
    if is_static or cursor.is_at("AS"):
        cursor.expect("AS")
        file = _read_file(cursor)
        rows = _read_rows(cursor) if file is None else ()
    if is_static and publisher_timed:
        raise error("E210", f"nothing is published to the static table {name}", name.span, "Omit TICKS = PUBLISHER.")
    return CreateTable(
        name, tuple(columns), keys[0], tuple(checks), rows, is_static, publisher_timed, cursor.span_from(0), file
    )


def _read_file(cursor: TokenCursor) -> RowsFile | None:
    """`FILE 'path'`."""
    first = cursor.index
    if not cursor.skip("FILE"):
        return None
    token = cursor.token
    if token is None or token.token_type != TokenType.STRING:
        raise UnexpectedTokenError("the name of a file in quotes", token)
    return RowsFile(token.text, cursor.span_from(first, cursor.index + 1))


def _read_rows(cursor: TokenCursor) -> tuple[exp.Tuple, ...]:
    if not cursor.is_at("VALUES"):
        raise UnexpectedTokenError("VALUES or FILE", cursor.token)
    return tuple(cursor.read_values())
