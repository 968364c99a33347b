"""Parses the tokens of CREATE DOMAIN, CREATE STREAM, CREATE VIEW, IMPORT and SUBSCRIBE into a statement. Those of the
registry are parsed in `registry_parser`, and CREATE TABLE in `table_parser`."""

from dataclasses import dataclass, field, replace

from sqlglot import exp

from smile.errors import error
from smile.lang.column_parser import read_column, read_defined_name, read_list, read_names
from smile.lang.cursor import TokenCursor
from smile.lang.expression_parser import UnexpectedTokenError
from smile.lang.registry_parser import read_advertise, read_republisher
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
from smile.lang.table_parser import read_table
from smile.source import Span

_STATEMENT_KINDS = "CREATE STREAM, CREATE TABLE, CREATE DOMAIN, CREATE VIEW, IMPORT, ADVERTISE or SUBSCRIBE"

REFUSED_STATEMENTS: dict[str, str | None] = {
    "INSERT": "Publish to the stream or table. The first rows of a table are CREATE TABLE … AS VALUES (…).",
    "UPSERT": "Publish to the table: an event replaces the row with its key.",
    "UPDATE": "Publish to the table: an event replaces the row with its key. Events of streams never change.",
    "DELETE": "Publish to the table: the key, with change = 'delete'. Events of streams are never deleted.",
    "MERGE": "Use MERGE(a, b) in FROM.",
    "DROP": "Remove the definition from the program.",
    "ALTER": "Change the definition in the program.",
    "SELECT": "Define a view: CREATE VIEW v AS SELECT ….",
    "WITH": "Define a view: CREATE VIEW v AS WITH ….",
    "VALUES": "Define a view: CREATE VIEW v AS SELECT * FROM (VALUES …) AS v.",
    "COPY": "Publish the file: smile publish STREAM --file FILE. A table can have its first rows AS FILE 'rows.csv'.",
    "EXPLAIN": "Run smile explain PROGRAM.",
    "SHOW": "Run smile status.",
    **dict.fromkeys(("GRANT", "REVOKE"), "Rights belong to the broker, not to a program: smile grant, smile revoke."),
    **dict.fromkeys(("BEGIN", "COMMIT", "ROLLBACK", "LOCK"), "A program has definitions only, and no transactions."),
    **dict.fromkeys(("SET", "USE"), "Settings belong to the broker, not to a program: smile serve --help."),
    **dict.fromkeys(("TRUNCATE", "CALL", "ANALYZE", "DECLARE", "EXECUTE", "PREPARE", "VACUUM"), None),
}

REFUSED_CREATIONS: dict[str, str | None] = {
    "INDEX": "Indexes are created automatically.",
    "MATERIALIZED": "Every view is kept up to date. Use CREATE VIEW.",
    "OR": "A program is compiled as a whole. Omit OR REPLACE.",
    "TEMPORARY": "Omit TEMPORARY.",
    "TEMP": "Omit TEMP.",
    "RECURSIVE": "Views cannot refer to each other in a circle.",
    "FUNCTION": "Write an expression, or a view. There are no functions of users: their bounds would be unknown.",
    "TYPE": "Declare a domain: CREATE DOMAIN d AS string CHECK (VALUE IN ('a', 'b')).",
    "SEQUENCE": "The tick numbers the events of a stream.",
    **dict.fromkeys(("SCHEMA", "DATABASE"), "Relations have no schema."),
    **dict.fromkeys(("TRIGGER", "RULE"), "Subscribe to a view: a subscriber receives its changes."),
    **dict.fromkeys(("ROLE", "USER"), "Rights belong to the broker, not to a program: smile token, smile grant."),
    "SOURCE": "Use CREATE STREAM, and publish to it: smile publish STREAM FILE.",
    "SINK": "Subscribe to the view: smile subscribe VIEW.",
    **dict.fromkeys(("PROCEDURE", "EXTENSION", "UNIQUE", "UNLOGGED"), None),
}


def read_statement(cursor: TokenCursor) -> Statement:
    statement: Statement
    if cursor.skip("CREATE"):
        statement = _read_creation(cursor)
    elif cursor.skip("IMPORT"):
        statement = _read_import(cursor)
    elif cursor.skip("ADVERTISE"):
        statement = read_advertise(cursor, lambda: _read_stream(cursor, is_global=True))
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
    if cursor.skip("TABLE"):
        return read_table(cursor)
    if cursor.skip("GLOBAL", "STREAM"):
        return _read_stream(cursor, is_global=True)
    if cursor.skip("REPUBLISHER"):
        return read_republisher(cursor, read_defined_name(cursor, "the republisher's name"))
    if cursor.skip("DOMAIN"):
        return _read_domain(cursor)
    if cursor.skip("VIEW"):
        return _read_view(cursor)
    _refuse(cursor, REFUSED_CREATIONS, "CREATE ")
    raise UnexpectedTokenError("STREAM, TABLE, DOMAIN or VIEW", cursor.token)


def _refuse(cursor: TokenCursor, refused: dict[str, str | None], prefix: str) -> None:
    for word, hint in refused.items():
        if cursor.skip(word):
            statement_name = {"OR": "OR REPLACE", "MATERIALIZED": "MATERIALIZED VIEW"}.get(word, word)
            raise error("E013", f"{prefix}{statement_name} is not supported", cursor.span_from(0), hint)


def _read_domain(cursor: TokenCursor) -> CreateDomain:
    name = read_defined_name(cursor, "the domain's name")
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
    channel: tuple[Name, ...] | None = None


def _read_stream(cursor: TokenCursor, is_global: bool = False) -> CreateStream:
    name = read_defined_name(cursor, "the stream's name")
    cursor.expect("(")
    elements = _StreamElements()
    if is_global:
        _read_global_columns(cursor, elements)
    elif cursor.is_at(":", ahead=1):
        _read_paper_columns(cursor, elements)
    else:
        read_list(cursor, lambda: _read_standard_element(cursor, elements))
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
        options.is_table,
        elements.channel,
    )


def _read_paper_columns(cursor: TokenCursor, elements: _StreamElements) -> None:
    """The columns in the notation of the papers: `t: time -> a: string, …`."""
    elements.ticks.append(read_column(cursor, colon=True)[0])
    if cursor.is_at(")"):
        message = "the stream has no tick: there is no column before ->"
        raise error("E040", message, elements.ticks[0].span, "Write (t: time -> a: int, …).")
    cursor.expect("->")

    def read_element() -> None:
        if cursor.skip("CHECK"):
            elements.checks.append(cursor.read_condition())
        elif cursor.is_at("UNIQUE", "("):
            cursor.expect("UNIQUE")
            elements.unique.append(read_names(cursor))
        else:
            elements.columns.append(read_column(cursor, colon=True)[0])

    read_list(cursor, read_element)


def _read_global_columns(cursor: TokenCursor, elements: _StreamElements) -> None:
    """The columns of a global stream: tick and key columns, an arrow, and the measurements. The tick comes first."""

    cursor.take_as_names("FROM")

    def read_next() -> None:
        column, _ = read_column(cursor, colon=True)
        is_first = not elements.ticks
        (elements.ticks if is_first else elements.columns).append(column)

    read_list(cursor, read_next)
    elements.channel = tuple(column.name for column in elements.columns)
    if cursor.skip("->"):
        read_list(cursor, read_next)


def _read_standard_element(cursor: TokenCursor, elements: _StreamElements) -> None:
    if cursor.is_at("CHECK", "("):
        cursor.skip("CHECK")
        elements.checks.append(cursor.read_condition())
        return
    if cursor.is_at("UNIQUE", "("):
        cursor.expect("UNIQUE")
        elements.unique.append(read_names(cursor))
        return
    column, is_key = read_column(cursor, colon=False)
    (elements.ticks if is_key else elements.columns).append(column)


@dataclass(frozen=True)
class _StreamOptions:
    """By default the broker assigns ticks, and the stream has one origin."""

    publisher_timed: bool = False
    many_origins_span: Span | None = None
    home: Name | None = None
    is_table: bool = False


OPTION_VALUES = {"TICKS": ("PUBLISHER", "BROKER"), "ORIGINS": ("MANY", "ONE"), "CHANGES": ("TABLE", "NONE")}
"""The values of each option, the default last."""


def _read_stream_options(cursor: TokenCursor) -> _StreamOptions:
    """The options in `WITH (TICKS = PUBLISHER)`, `WITH (ORIGINS = MANY, HOME = broker)` or `WITH (CHANGES = TABLE)`."""
    seen: set[str] = set()
    options = _StreamOptions()

    def read_option() -> None:
        nonlocal options
        first = cursor.index
        option = next((word for word in (*OPTION_VALUES, "HOME") if cursor.skip(word)), None)
        if option is None:
            raise UnexpectedTokenError("TICKS, ORIGINS, HOME or CHANGES", cursor.token)
        if option in seen:
            raise error("E010", f"{option} is given twice", cursor.span_from(first))
        seen.add(option)
        cursor.expect("=")
        if option == "HOME":
            options = replace(options, home=cursor.read_name("a broker"))
            return
        other, default = OPTION_VALUES[option]
        is_other = cursor.skip(other)
        if not is_other and not cursor.skip(default):
            raise UnexpectedTokenError(f"{other} or {default}", cursor.token)
        if option == "TICKS":
            options = replace(options, publisher_timed=is_other)
        elif option == "CHANGES":
            options = replace(options, is_table=is_other)
        elif is_other:
            options = replace(options, many_origins_span=cursor.span_from(first))

    if cursor.skip("WITH"):
        cursor.expect("(")
        read_list(cursor, read_option)
        cursor.expect(")")
    if options.home is not None and options.many_origins_span is None:
        hint = "A stream with one origin has its home where it is created. Write WITH (ORIGINS = MANY, HOME = …)."
        raise error("E049", "only a stream with many origins has a HOME", options.home.span, hint)
    return options


def _read_view(cursor: TokenCursor) -> CreateView:
    name = read_defined_name(cursor, "the view's name")
    columns: list[Name] = []
    if not cursor.skip("AS"):
        if not cursor.is_at("("):
            raise UnexpectedTokenError("AS", cursor.token)
        if not any(cursor.is_at(word, ahead=1) for word in ("SELECT", "WITH", "(")):
            cursor.skip("(")
            read_list(cursor, lambda: columns.append(cursor.read_name("a column or SELECT")))
            cursor.expect(")", "AS")
    if cursor.token is None:
        raise UnexpectedTokenError("SELECT", None)
    return CreateView(name, tuple(columns), cursor.read_query(), cursor.span_from(0))


def _read_import(cursor: TokenCursor) -> ImportRelation:
    relation = read_defined_name(cursor, "a stream or view")
    cursor.expect("FROM")
    brokers: list[Name] = []
    read_list(cursor, lambda: brokers.append(cursor.read_name("a broker")))
    condition = cursor.read_condition_before("AS") if cursor.skip("WHERE") else None
    alias = cursor.read_name("the name of the import") if cursor.skip("AS") else None
    return ImportRelation(relation, brokers[0], condition, alias, cursor.span_from(0), tuple(brokers[1:]))


def _read_subscribe(cursor: TokenCursor) -> Subscribe:
    names: list[Name] = []
    read_list(cursor, lambda: names.append(cursor.read_name("a view")))
    return Subscribe(tuple(names), cursor.span_from(0))
