"""Statements of a program as written: names, types and order are the text's own, and every part knows its place.

Nothing is resolved here: a name may be unknown, a type may not exist, a query may make no sense.
"""

from dataclasses import dataclass

from sqlglot import exp

from smile.source import Span


@dataclass(frozen=True)
class Name:
    """`text` is as written, without quotes; whether its case matters is said by `quoted`."""

    text: str
    quoted: bool
    span: Span

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ColumnDecl:
    """`type_name` is as written with its arguments, one space between words: `decimal(10, 2)`, `double precision`."""

    name: Name
    type_name: str
    type_span: Span
    not_null: bool
    checks: tuple[exp.Expr, ...]
    span: Span


@dataclass(frozen=True)
class CreateDomain:
    """In `check` the value is the column VALUE."""

    name: Name
    base: str
    base_span: Span
    check: exp.Expr | None
    not_null: bool
    span: Span


@dataclass(frozen=True)
class CreateStream:
    """`columns` are those other than the tick, in their order; `checks` those of the stream, not of one column.

    `tick.checks` and `tick.not_null` are as written: a tick is never NULL whether it says so or not.
    """

    name: Name
    tick: ColumnDecl
    columns: tuple[ColumnDecl, ...]
    checks: tuple[exp.Expr, ...]
    publisher_timed: bool
    span: Span


@dataclass(frozen=True)
class CreateView:
    """`columns` are the names given in `CREATE VIEW v (a, b) AS …`, or none."""

    name: Name
    columns: tuple[Name, ...]
    query: exp.Query
    span: Span


@dataclass(frozen=True)
class Subscribe:
    """At least one name. A name may be that of a stream: a stream is subscribed to like a view."""

    names: tuple[Name, ...]
    span: Span


Statement = CreateDomain | CreateStream | CreateView | Subscribe
