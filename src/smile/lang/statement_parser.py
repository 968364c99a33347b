"""Parses the tokens of CREATE DOMAIN, CREATE STREAM, CREATE VIEW, IMPORT and SUBSCRIBE into a statement."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from smile.errors import error
from smile.lang.cursor import TokenCursor
from smile.lang.expression_parser import UnexpectedTokenError
from smile.lang.statements import (
    ColumnDecl,
    CreateDomain,
    CreateStream,
    CreateView,
    ImportRelation,
    Name,
    Statement,
    Subscribe,
)
from smile.source import Span

_STATEMENT_KINDS = "CREATE STREAM, CREATE DOMAIN, CREATE VIEW, IMPORT or SUBSCRIBE"
_NO_TABLES_HINT = "Use a stream for published events, and a view for rows derived from them."

REFUSED_STATEMENTS: dict[str, str | None] = {
    "INSERT": "Events are published to streams. A program only defines streams and views.",
    "UPDATE": "Events never change. A view can show the newest value with LATEST.",
    "DELETE": "Events are never deleted. A view can filter rows with WHERE.",
    "MERGE": "Use MERGE(a, b) in FROM.",
    "DROP": "Remove the definition from the program.",
    "ALTER": "Change the definition in the program.",
    "SELECT": "Define a view: CREATE VIEW v AS SELECT ….",
    "WITH": "Define a view: CREATE VIEW v AS WITH ….",
    **dict.fromkeys(
        ("TRUNCATE", "GRANT", "REVOKE", "BEGIN", "COMMIT", "ROLLBACK", "SET", "EXPLAIN", "COPY", "CALL"), None
    ),
    **dict.fromkeys(("VALUES", "SHOW", "USE", "ANALYZE", "DECLARE", "EXECUTE", "PREPARE", "LOCK", "VACUUM"), None),
}

REFUSED_CREATIONS: dict[str, str | None] = {
    "TABLE": _NO_TABLES_HINT,
    "INDEX": "Indexes are created automatically.",
    "MATERIALIZED": "Every view is kept up to date. Use CREATE VIEW.",
    "OR": "A program is compiled as a whole. Omit OR REPLACE.",
    "TEMPORARY": "Omit TEMPORARY.",
    "TEMP": "Omit TEMP.",
    "RECURSIVE": None,
    **dict.fromkeys(("FUNCTION", "TRIGGER", "SCHEMA", "TYPE", "SEQUENCE", "DATABASE", "ROLE", "USER", "RULE"), None),
    **dict.fromkeys(("PROCEDURE", "EXTENSION", "UNIQUE", "UNLOGGED", "SOURCE", "SINK"), None),
}


def read_statement(cursor: TokenCursor) -> Statement:
    statement: Statement
    if cursor.skip("CREATE"):
        statement = _read_creation(cursor)
    elif cursor.skip("IMPORT"):
        statement = _read_import(cursor)
    elif cursor.skip("SUBSCRIBE") or cursor.skip("SUBSCRIPTIONS"):
        statement = _read_subscribe(cursor)
    else:
        _refuse(cursor, REFUSED_STATEMENTS, "")
        raise UnexpectedTokenError(_STATEMENT_KINDS, cursor.token)
    cursor.expect_end()
    return statement


def _read_creation(cursor: TokenCursor) -> Statement:
    if cursor.skip("STREAM"):
        return _read_stream(cursor)
    if cursor.skip("DOMAIN"):
        return _read_domain(cursor)
    if cursor.skip("VIEW"):
        return _read_view(cursor)
    _refuse(cursor, REFUSED_CREATIONS, "CREATE ")
    raise UnexpectedTokenError("STREAM, DOMAIN or VIEW", cursor.token)


def _refuse(cursor: TokenCursor, refused: dict[str, str | None], prefix: str) -> None:
    for word, hint in refused.items():
        if cursor.skip(word):
            statement_name = {"OR": "OR REPLACE", "MATERIALIZED": "MATERIALIZED VIEW"}.get(word, word)
            raise error("E013", f"{prefix}{statement_name} is not supported", cursor.span_from(0), hint)


def _read_defined_name(cursor: TokenCursor, expected: str) -> Name:
    first = cursor.index
    if cursor.skip("IF", "NOT", "EXISTS"):
        hint = "A program is compiled as a whole, and defines each name once. Omit IF NOT EXISTS."
        raise error("E013", "IF NOT EXISTS is not supported", cursor.span_from(first), hint)
    name = cursor.read_name(expected)
    if cursor.skip("."):
        raise error("E013", "a qualified name is not supported", cursor.span_from(first), "Relations have no schema.")
    return name


def _read_domain(cursor: TokenCursor) -> CreateDomain:
    name = _read_defined_name(cursor, "the domain's name")
    cursor.expect("AS")
    base, base_span = cursor.read_type_name()
    check, not_null = None, False
    while cursor.token:
        first = cursor.index
        if cursor.skip("CHECK"):
            if check is not None:
                raise error(
                    "E010", "a domain can have only one CHECK", cursor.span_from(first), "Combine them with AND."
                )
            check = cursor.read_condition()
        elif cursor.skip("NOT", "NULL"):
            not_null = True
        else:
            raise UnexpectedTokenError("CHECK or NOT NULL", cursor.token)
    return CreateDomain(name, base, base_span, check, not_null, cursor.span_from(0))


@dataclass
class _StreamElements:
    """The elements of a stream that have been parsed so far."""

    ticks: list[ColumnDecl] = field(default_factory=list)
    columns: list[ColumnDecl] = field(default_factory=list)
    checks: list[exp.Expr] = field(default_factory=list)
    unique: list[tuple[Name, ...]] = field(default_factory=list)


def _read_stream(cursor: TokenCursor) -> CreateStream:
    name = _read_defined_name(cursor, "the stream's name")
    cursor.expect("(")
    elements = _StreamElements()
    if cursor.is_at(":", ahead=1):
        _read_paper_columns(cursor, elements)
    else:
        _read_list(cursor, lambda: _read_standard_element(cursor, elements))
    cursor.expect(")")
    options = _read_stream_options(cursor)
    if not elements.ticks:
        hint = "Mark the column that holds the event's tick: t TIME KEY."
        raise error("E040", f"stream {name} has no TIME KEY column", name.span, hint)
    if len(elements.ticks) > 1:
        second = elements.ticks[1]
        message = f"stream {name} has two TIME KEY columns, {elements.ticks[0].name} and {second.name}"
        raise error("E040", message, second.span, "The tick alone is the key of a stream.")
    span = cursor.span_from(0)
    return CreateStream(
        name,
        elements.ticks[0],
        tuple(elements.columns),
        tuple(elements.checks),
        options.publisher_timed,
        span,
        tuple(elements.unique),
        options.many_origins_span,
        options.home,
    )


def _read_paper_columns(cursor: TokenCursor, elements: _StreamElements) -> None:
    """The columns in the notation of the papers: `t: time -> a: string, …`."""
    elements.ticks.append(_read_column(cursor, colon=True)[0])
    if cursor.is_at(")"):
        message = "the stream has no tick: there is no column before ->"
        raise error("E040", message, elements.ticks[0].span, "Write (t: time -> a: int, …).")
    cursor.expect("->")

    def read_element() -> None:
        if cursor.skip("CHECK"):
            elements.checks.append(cursor.read_condition())
        elif cursor.is_at("UNIQUE", "("):
            elements.unique.append(_read_unique(cursor))
        else:
            elements.columns.append(_read_column(cursor, colon=True)[0])

    _read_list(cursor, read_element)


def _read_standard_element(cursor: TokenCursor, elements: _StreamElements) -> None:
    if cursor.is_at("CHECK", "("):
        cursor.skip("CHECK")
        elements.checks.append(cursor.read_condition())
        return
    if cursor.is_at("UNIQUE", "("):
        elements.unique.append(_read_unique(cursor))
        return
    column, is_key = _read_column(cursor, colon=False)
    (elements.ticks if is_key else elements.columns).append(column)


def _read_unique(cursor: TokenCursor) -> tuple[Name, ...]:
    """`UNIQUE (a, b)`."""
    cursor.expect("UNIQUE", "(")
    names: list[Name] = []
    _read_list(cursor, lambda: names.append(cursor.read_name("a column")))
    cursor.expect(")")
    return tuple(names)


def _read_list(cursor: TokenCursor, read_item: Callable[[], None]) -> None:
    read_item()
    while cursor.skip(","):
        read_item()


def _read_column(cursor: TokenCursor, colon: bool) -> tuple[ColumnDecl, bool]:
    """A column, and whether it is the TIME KEY. In `t TIME KEY`, TIME is both the type and part of TIME KEY."""
    first = cursor.index
    name = cursor.read_name("a column")
    if colon:
        cursor.expect(":")
    type_name, type_span = cursor.read_type_name()
    is_key = type_name.upper() == "TIME" and cursor.skip("KEY")
    not_null, unique, checks = False, False, []
    while True:
        start = cursor.index
        if cursor.skip("NOT", "NULL"):
            not_null = True
        elif cursor.skip("CHECK"):
            checks.append(cursor.read_condition())
        elif cursor.skip("UNIQUE"):
            unique = True
        elif not colon and cursor.skip("TIME", "KEY"):
            is_key = True
        elif cursor.skip("PRIMARY", "KEY"):
            hint = "A stream is keyed by its tick: t TIME KEY."
            raise error("E013", "PRIMARY KEY is not supported", cursor.span_from(start), hint)
        elif cursor.skip("DEFAULT") or cursor.skip("REFERENCES") or cursor.skip("NULL"):
            word = cursor.tokens[start].text.upper()
            raise error("E013", f"{word} is not supported in a column", cursor.span_from(start))
        else:
            break
    return ColumnDecl(name, type_name, type_span, not_null, tuple(checks), cursor.span_from(first), unique), is_key


@dataclass(frozen=True)
class _StreamOptions:
    """By default the broker assigns ticks, and the stream has one origin."""

    publisher_timed: bool = False
    many_origins_span: Span | None = None
    home: Name | None = None


def _read_stream_options(cursor: TokenCursor) -> _StreamOptions:
    """The options in `WITH (TICKS = PUBLISHER)` or `WITH (ORIGINS = MANY, HOME = broker)`."""
    seen: set[str] = set()
    options = _StreamOptions()

    def read_option() -> None:
        nonlocal options
        first = cursor.index
        option = next((word for word in ("TICKS", "ORIGINS", "HOME") if cursor.skip(word)), None)
        if option is None:
            raise UnexpectedTokenError("TICKS, ORIGINS or HOME", cursor.token)
        if option in seen:
            raise error("E010", f"{option} is given twice", cursor.span_from(first))
        seen.add(option)
        cursor.expect("=")
        if option == "HOME":
            options = replace(options, home=cursor.read_name("a broker"))
            return
        other, default = ("PUBLISHER", "BROKER") if option == "TICKS" else ("MANY", "ONE")
        is_other = cursor.skip(other)
        if not is_other and not cursor.skip(default):
            raise UnexpectedTokenError(f"{other} or {default}", cursor.token)
        if option == "TICKS":
            options = replace(options, publisher_timed=is_other)
        elif is_other:
            options = replace(options, many_origins_span=cursor.span_from(first))

    if cursor.skip("WITH"):
        cursor.expect("(")
        _read_list(cursor, read_option)
        cursor.expect(")")
    if options.home is not None and options.many_origins_span is None:
        hint = "A stream with one origin has its home where it is created. Write WITH (ORIGINS = MANY, HOME = …)."
        raise error("E049", "only a stream with many origins has a HOME", options.home.span, hint)
    return options


def _read_view(cursor: TokenCursor) -> CreateView:
    name = _read_defined_name(cursor, "the view's name")
    columns: list[Name] = []
    if not cursor.skip("AS"):
        if not cursor.is_at("("):
            raise UnexpectedTokenError("AS", cursor.token)
        if not any(cursor.is_at(word, ahead=1) for word in ("SELECT", "WITH", "(")):
            cursor.skip("(")
            _read_list(cursor, lambda: columns.append(cursor.read_name("a column or SELECT")))
            cursor.expect(")", "AS")
    if cursor.token is None:
        raise UnexpectedTokenError("SELECT", None)
    return CreateView(name, tuple(columns), cursor.read_query(), cursor.span_from(0))


def _read_import(cursor: TokenCursor) -> ImportRelation:
    relation = _read_defined_name(cursor, "a stream or view")
    cursor.expect("FROM")
    brokers: list[Name] = []
    _read_list(cursor, lambda: brokers.append(cursor.read_name("a broker")))
    condition = cursor.read_condition_before("AS") if cursor.skip("WHERE") else None
    alias = cursor.read_name("the name of the import") if cursor.skip("AS") else None
    return ImportRelation(relation, brokers[0], condition, alias, cursor.span_from(0), tuple(brokers[1:]))


def _read_subscribe(cursor: TokenCursor) -> Subscribe:
    names: list[Name] = []
    _read_list(cursor, lambda: names.append(cursor.read_name("a view")))
    return Subscribe(tuple(names), cursor.span_from(0))
