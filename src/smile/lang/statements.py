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
    another broker.
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


@dataclass(frozen=True)
class CreateView:
    """`columns` are the names of `CREATE VIEW v (a, b) AS …`; empty if there are none."""

    name: Name
    columns: tuple[Name, ...]
    query: exp.Query
    span: Span


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
class Subscribe:
    """At least one name. A name may be that of a view or a stream."""

    names: tuple[Name, ...]
    span: Span


Statement = CreateDomain | CreateStream | CreateView | ImportRelation | Subscribe
