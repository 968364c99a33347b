"""CREATE DOMAIN, CREATE STREAM, CREATE VIEW and SUBSCRIBE: from a statement's tokens to the statement."""

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp

from smile.errors import error
from smile.lang.cursor import Cursor
from smile.lang.expressions import Expected
from smile.lang.statements import ColumnDecl, CreateDomain, CreateStream, CreateView, Name, Statement, Subscribe

_STATEMENTS = "CREATE STREAM, CREATE DOMAIN, CREATE VIEW or SUBSCRIBE"
_NO_TABLES = "Streams hold what is published; views what follows from it."

REFUSED_STATEMENTS: dict[str, str | None] = {
    "INSERT": "Events are published to streams; a program only says what follows from them.",
    "UPDATE": "An event never changes; a view may take the LATEST of them.",
    "DELETE": "An event never goes; a view may leave rows out.",
    "MERGE": "MERGE(a, b) stands in FROM.",
    "DROP": "Leave the statement out of the program.",
    "ALTER": "Change the statement itself.",
    "SELECT": "Name the query: CREATE VIEW v AS SELECT ….",
    "WITH": "Name the query: CREATE VIEW v AS WITH ….",
    **dict.fromkeys(
        ("TRUNCATE", "GRANT", "REVOKE", "BEGIN", "COMMIT", "ROLLBACK", "SET", "EXPLAIN", "COPY", "CALL"), None
    ),
    **dict.fromkeys(("VALUES", "SHOW", "USE", "ANALYZE", "DECLARE", "EXECUTE", "PREPARE", "LOCK", "VACUUM"), None),
}

REFUSED_CREATIONS: dict[str, str | None] = {
    "TABLE": _NO_TABLES,
    "INDEX": "Views are indexed as they need.",
    "MATERIALIZED": "Every view is kept up to date: CREATE VIEW.",
    "OR": "A program is read as a whole; leave OR REPLACE out.",
    "TEMPORARY": "Leave TEMPORARY out.",
    "TEMP": "Leave TEMP out.",
    "RECURSIVE": None,
    **dict.fromkeys(("FUNCTION", "TRIGGER", "SCHEMA", "TYPE", "SEQUENCE", "DATABASE", "ROLE", "USER", "RULE"), None),
    **dict.fromkeys(("PROCEDURE", "EXTENSION", "UNIQUE", "UNLOGGED", "SOURCE", "SINK"), None),
}


def read_statement(cursor: Cursor) -> Statement:
    statement: Statement
    if cursor.skip("CREATE"):
        statement = _read_creation(cursor)
    elif cursor.skip("SUBSCRIBE") or cursor.skip("SUBSCRIPTIONS"):
        statement = _read_subscribe(cursor)
    else:
        _refuse(cursor, REFUSED_STATEMENTS, "")
        raise Expected(_STATEMENTS, cursor.token)
    cursor.expect_end()
    return statement


def _read_creation(cursor: Cursor) -> Statement:
    if cursor.skip("STREAM"):
        return _read_stream(cursor)
    if cursor.skip("DOMAIN"):
        return _read_domain(cursor)
    if cursor.skip("VIEW"):
        return _read_view(cursor)
    _refuse(cursor, REFUSED_CREATIONS, "CREATE ")
    raise Expected("STREAM, DOMAIN or VIEW", cursor.token)


def _refuse(cursor: Cursor, refused: dict[str, str | None], before: str) -> None:
    for word, hint in refused.items():
        if cursor.skip(word):
            whole = {"OR": "OR REPLACE", "MATERIALIZED": "MATERIALIZED VIEW"}.get(word, word)
            raise error("E013", f"{before}{whole} is not supported", cursor.since(0), hint)


def _named(cursor: Cursor, what: str) -> Name:
    first = cursor.at
    if cursor.skip("IF", "NOT", "EXISTS"):
        hint = "A program is read as a whole, and each name defined once."
        raise error("E013", "IF NOT EXISTS is not supported", cursor.since(first), hint)
    name = cursor.name(what)
    if cursor.skip("."):
        raise error("E013", "a qualified name is not supported", cursor.since(first), "Relations have no schema.")
    return name


def _read_domain(cursor: Cursor) -> CreateDomain:
    name = _named(cursor, "the domain's name")
    cursor.expect("AS")
    base, base_span = cursor.type_name()
    check, not_null = None, False
    while cursor.token:
        first = cursor.at
        if cursor.skip("CHECK"):
            if check is not None:
                raise error("E010", "a second CHECK", cursor.since(first), "Join the two with AND.")
            check = cursor.condition()
        elif cursor.skip("NOT", "NULL"):
            not_null = True
        else:
            raise Expected("CHECK or NOT NULL", cursor.token)
    return CreateDomain(name, base, base_span, check, not_null, cursor.since(0))


@dataclass
class _Columns:
    """What has been read of a stream's columns."""

    ticks: list[ColumnDecl] = field(default_factory=list)
    others: list[ColumnDecl] = field(default_factory=list)
    checks: list[exp.Expr] = field(default_factory=list)


def _read_stream(cursor: Cursor) -> CreateStream:
    name = _named(cursor, "the stream's name")
    cursor.expect("(")
    columns = _Columns()
    if cursor.is_word(":", ahead=1):
        _read_paper_columns(cursor, columns)
    else:
        _read_list(cursor, lambda: _read_standard_item(cursor, columns))
    cursor.expect(")")
    timed = _read_ticks(cursor)
    if not columns.ticks:
        hint = "Mark the column that holds the event's tick: t TIME KEY."
        raise error("E040", f"stream {name} has no TIME KEY column", name.span, hint)
    if len(columns.ticks) > 1:
        second = columns.ticks[1]
        message = f"stream {name} has two TIME KEY columns, {columns.ticks[0].name} and {second.name}"
        raise error("E040", message, second.span, "The tick alone is the key of a stream.")
    span = cursor.since(0)
    return CreateStream(name, columns.ticks[0], tuple(columns.others), tuple(columns.checks), timed, span)


def _read_paper_columns(cursor: Cursor, columns: _Columns) -> None:
    """`t: time -> a: string, …`."""
    columns.ticks.append(_read_column(cursor, colon=True)[0])
    if cursor.is_word(")"):
        message = "the stream has no tick: nothing stands before ->"
        raise error("E040", message, columns.ticks[0].span, "Write (t: time -> a: int, …).")
    cursor.expect("->")

    def item() -> None:
        if cursor.skip("CHECK"):
            columns.checks.append(cursor.condition())
        else:
            columns.others.append(_read_column(cursor, colon=True)[0])

    _read_list(cursor, item)


def _read_standard_item(cursor: Cursor, columns: _Columns) -> None:
    if cursor.is_word("CHECK", "("):
        cursor.skip("CHECK")
        columns.checks.append(cursor.condition())
        return
    column, is_key = _read_column(cursor, colon=False)
    (columns.ticks if is_key else columns.others).append(column)


def _read_list(cursor: Cursor, read_item: Callable[[], None]) -> None:
    read_item()
    while cursor.skip(","):
        read_item()


def _read_column(cursor: Cursor, colon: bool) -> tuple[ColumnDecl, bool]:
    """A column, and whether it is the TIME KEY. `t TIME KEY` gives the type and the key in one."""
    first = cursor.at
    name = cursor.name("a column")
    if colon:
        cursor.expect(":")
    type_name, type_span = cursor.type_name()
    is_key = type_name.upper() == "TIME" and cursor.skip("KEY")
    not_null, checks = False, []
    while True:
        at = cursor.at
        if cursor.skip("NOT", "NULL"):
            not_null = True
        elif cursor.skip("CHECK"):
            checks.append(cursor.condition())
        elif not colon and cursor.skip("TIME", "KEY"):
            is_key = True
        elif cursor.skip("PRIMARY", "KEY"):
            hint = "A stream is keyed by its tick: t TIME KEY."
            raise error("E013", "PRIMARY KEY is not supported", cursor.since(at), hint)
        elif cursor.skip("DEFAULT") or cursor.skip("UNIQUE") or cursor.skip("REFERENCES") or cursor.skip("NULL"):
            word = cursor.tokens[at].text.upper()
            raise error("E013", f"{word} is not supported in a column", cursor.since(at))
        else:
            break
    return ColumnDecl(name, type_name, type_span, not_null, tuple(checks), cursor.since(first)), is_key


def _read_ticks(cursor: Cursor) -> bool:
    """`WITH (TICKS = PUBLISHER)`; by default the broker assigns ticks."""
    if not cursor.skip("WITH"):
        return False
    cursor.expect("(", "TICKS", "=")
    publisher = cursor.skip("PUBLISHER")
    if not publisher and not cursor.skip("BROKER"):
        raise Expected("PUBLISHER or BROKER", cursor.token)
    cursor.expect(")")
    return publisher


def _read_view(cursor: Cursor) -> CreateView:
    name = _named(cursor, "the view's name")
    columns: list[Name] = []
    if not cursor.skip("AS"):
        if not cursor.is_word("("):
            raise Expected("AS", cursor.token)
        if not any(cursor.is_word(word, ahead=1) for word in ("SELECT", "WITH", "(")):
            cursor.skip("(")
            _read_list(cursor, lambda: columns.append(cursor.name("a column or SELECT")))
            cursor.expect(")", "AS")
    if cursor.token is None:
        raise Expected("SELECT", None)
    return CreateView(name, tuple(columns), cursor.query(), cursor.since(0))


def _read_subscribe(cursor: Cursor) -> Subscribe:
    names: list[Name] = []
    _read_list(cursor, lambda: names.append(cursor.name("a view")))
    return Subscribe(tuple(names), cursor.since(0))
