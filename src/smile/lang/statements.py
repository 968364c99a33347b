"""The statements of a program as written. Names, types and order are those of the text, and every part has a span.

Nothing is resolved: a name or a type may be unknown, and a query may be invalid.
"""

from dataclasses import dataclass

from sqlglot import exp

from smile.source import Span


@dataclass(frozen=True)
class Name:
    """`text` is the name as written, without quotes. Its case matters if it was `quoted`."""

    text: str
    quoted: bool
    span: Span

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ColumnDecl:
    """`type_name` includes the arguments and has one space between words: `decimal(10, 2)`, `double precision`."""

    name: Name
    type_name: str
    type_span: Span
    not_null: bool
    checks: tuple[exp.Expr, ...]
    span: Span
    unique: bool = False


@dataclass(frozen=True)
class CreateDomain:
    """`check` refers to the value as the column VALUE."""

    name: Name
    base: str
    base_span: Span
    check: exp.Expr | None
    not_null: bool
    span: Span


@dataclass(frozen=True)
class CreateStream:
    """`columns` excludes the tick. `checks` and `unique` are those of the stream, not those of single columns.

    `tick.checks` and `tick.not_null` are as written. A tick is never NULL, also without NOT NULL.
    `many_origins_span` is where `ORIGINS = MANY` is written; None if it is not. `home` is the stream's home, if it is
    another broker. `is_table`: the events are changes of a table. `channel` has the key columns of a global stream;
    None if it is none.
    """

    name: Name
    tick: ColumnDecl
    columns: tuple[ColumnDecl, ...]
    checks: tuple[exp.Expr, ...]
    publisher_timed: bool
    span: Span
    unique: tuple[tuple[Name, ...], ...] = ()
    many_origins_span: Span | None = None
    home: Name | None = None
    is_table: bool = False
    channel: tuple[Name, ...] | None = None


@dataclass(frozen=True)
class RowsFile:
    """`FILE 'path'`, at `span`: a table's first contents."""

    path: str
    span: Span


@dataclass(frozen=True)
class CreateTable:
    """`key` is the primary key. `checks` are those of the table, not those of single columns. `rows` are the lists of
    VALUES: the first contents, and all there is if the table `is_static`. They may be in a `file` instead."""

    name: Name
    columns: tuple[ColumnDecl, ...]
    key: tuple[Name, ...]
    checks: tuple[exp.Expr, ...]
    rows: tuple[exp.Tuple, ...]
    is_static: bool
    publisher_timed: bool
    span: Span
    file: RowsFile | None = None


@dataclass(frozen=True)
class CreateView:
    """`columns` are the names of `CREATE VIEW v (a, b) AS …`; empty if there are none."""

    name: Name
    columns: tuple[Name, ...]
    query: exp.Query
    span: Span


def relations_named(view: CreateView) -> list[str]:
    """The names after FROM and JOIN, but for those of common table expressions."""
    common = {expression.alias.casefold() for expression in view.query.find_all(exp.CTE)}
    names = [table.name for table in view.query.find_all(exp.Table)]
    return [name for name in dict.fromkeys(names) if name and name.casefold() not in common]


@dataclass(frozen=True)
class ImportRelation:
    """`alias` is the name that the relation has in this program, if it is another one. `other_brokers` have the same
    relation."""

    relation: Name
    broker: Name
    condition: exp.Expr | None
    alias: Name | None
    span: Span
    other_brokers: tuple[Name, ...] = ()

    @property
    def name(self) -> Name:
        return self.alias or self.relation


@dataclass(frozen=True)
class AdvertiseProducer:
    """A producer of a global stream. Without a condition, it may publish anything. `alias` is its name. `stream`
    declares the global stream, if its columns are given."""

    relation: Name
    condition: exp.Expr | None
    alias: Name | None
    span: Span
    stream: CreateStream | None = None


@dataclass(frozen=True)
class CreateRepublisher:
    """`CREATE REPUBLISHER name AS SELECT * FROM relation WHERE condition WITH (HISTORY = interval)`."""

    name: Name
    relation: Name
    condition: exp.Expr | None
    span: Span
    history: exp.Expr | None = None


@dataclass(frozen=True)
class Subscribe:
    """At least one name. A name may be that of a view or a stream."""

    names: tuple[Name, ...]
    span: Span


Statement = (
    CreateDomain
    | CreateStream
    | CreateTable
    | CreateView
    | ImportRelation
    | AdvertiseProducer
    | CreateRepublisher
    | Subscribe
)
