"""Headings: the columns of a relational expression, their data types and its key.

Only a valid expression has a heading. MMPL is checked by computing headings: the functions `check_…` raise the errors.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from smile.algebra import mmpl
from smile.algebra.types import TIME, DataType
from smile.errors import did_you_mean, error
from smile.source import Span

ColumnNames = tuple[str, ...]


@dataclass(frozen=True)
class Heading:
    """`hidden` are key columns that were not selected. `tick` are the key columns with the tick of a row, if any.

    A total relation has a row for every value of its key: a group without members has the default row.
    """

    columns: Mapping[str, DataType]
    key: tuple[str, ...]
    hidden: frozenset[str] = frozenset()
    tick: tuple[str, ...] = ()
    total: bool = False

    def order_by(self, column: str) -> tuple[str, ...]:
        """The columns that order rows by a time: the tick with its source, if it is the tick."""
        return self.tick if self.tick[:1] == (column,) else (column,)

    @property
    def visible(self) -> tuple[str, ...]:
        return tuple(c for c in self.columns if c not in self.hidden)

    @property
    def value_columns(self) -> tuple[str, ...]:
        """The visible columns that are not part of the key."""
        return tuple(c for c in self.visible if c not in self.key)


def stream_heading(stream: mmpl.StreamDef) -> Heading:
    check_unique((stream.tick, *(name for name, _ in stream.columns)), stream.span)
    heading = Heading({stream.tick: TIME, **dict(stream.columns)}, (stream.tick,), tick=(stream.tick,))
    for columns in stream.unique:
        check_unique(columns, stream.span)
        check_columns_exist(columns, heading, stream.span)
        check_comparable(columns, heading, stream.span)
    return heading


def is_key_equated(heading: Heading, joined: Iterable[str]) -> bool:
    """Whether a join that equates the columns `joined` equates the whole key."""
    return set(heading.key) <= set(joined)


def check_pairs(on: Sequence[tuple[str, str]], left: Heading, right: Heading, span: Span | None) -> None:
    check_unique((f"{a} = {b}" for a, b in on), span)
    for a, b in on:
        check_columns_exist((a,), left, span)
        check_columns_exist((b,), right, span)
        if left.columns[a] != right.columns[b]:
            raise error("E030", f"{a} is {left.columns[a]}, but {b} is {right.columns[b]}", span)


def check_columns_exist(names: Iterable[str], heading: Heading, span: Span | None) -> None:
    for name in names:
        if name not in heading.columns:
            raise error("E022", f"there is no column {name}", span, did_you_mean(name, heading.columns))


def check_comparable(names: Sequence[str], heading: Heading, span: Span | None) -> None:
    """Columns that rows are compared by must be distinct and have types that can be compared."""
    check_unique(names, span)
    for name in names:
        if not heading.columns[name].is_comparable:
            raise error("E031", f"rows cannot be compared by {name}, which is a {heading.columns[name].name}", span)


def check_unique(names: Iterable[str], span: Span | None) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise error("E020", f"there are two columns named {name}", span, "Rename one of them.")
        seen.add(name)
