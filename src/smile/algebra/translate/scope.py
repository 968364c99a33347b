"""What names mean at one place of a query. A scope maps the names a user may write to columns of one MMPL relation.

Unquoted names match whatever their case; a quoted one matches exactly.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from smile.errors import error, nearest
from smile.source import Span

T = TypeVar("T")


def fold(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def matches(written: str, quoted: bool, declared: str) -> bool:
    return written == declared or (not quoted and fold(written) == fold(declared))


class Names(Generic[T]):
    """Declared names and what each stands for. An unquoted name prefers the spelling that is exactly its own."""

    def __init__(self, items: Mapping[str, T] | None = None) -> None:
        self._exact: dict[str, T] = {}
        self._folded: dict[str, list[str]] = {}
        for name, item in (items or {}).items():
            self.add(name, item)

    def add(self, name: str, item: T) -> None:
        self._exact[name] = item
        self._folded.setdefault(fold(name), []).append(name)

    def find(self, written: str, quoted: bool) -> str | None:
        """The declared spelling that a written name means."""
        if written in self._exact:
            return written
        spellings = [] if quoted else self._folded.get(fold(written), [])
        return spellings[0] if spellings else None

    def __getitem__(self, name: str) -> T:
        return self._exact[name]

    def __contains__(self, name: str) -> bool:
        return name in self._exact

    def __iter__(self) -> Iterator[str]:
        return iter(self._exact)

    def copy(self) -> "Names[T]":
        return Names(self._exact)


@dataclass
class Item:
    """One entry of FROM: the name it goes by and its visible columns, each with its column of the MMPL relation."""

    alias: str
    columns: dict[str, str]


@dataclass
class Scope:
    """`merged` are the columns that USING made one of two, by the name they share."""

    items: list[Item] = field(default_factory=list)
    merged: dict[str, str] = field(default_factory=dict)
    outer: "Scope | None" = None

    def find(self, table: str | None, name: str, quoted: bool, span: Span | None, table_quoted: bool = False) -> str | None:
        """The MMPL column of this scope that a name means; None if it means none; an error if it means several."""
        if table is None:
            merged = [c for n, c in self.merged.items() if matches(name, quoted, n)]
            if merged:
                return merged[0]
        found: dict[str, str] = {}
        for item in self.items:
            if table is not None and not matches(table, table_quoted, item.alias):
                continue
            spellings = [n for n in item.columns if matches(name, quoted, n)]
            if spellings:
                chosen = name if name in spellings else spellings[0]
                found[item.columns[chosen]] = f"{item.alias}.{chosen}"
        if len(found) > 1:
            choices = " or ".join(found.values())
            raise error("E023", f"column {name} is ambiguous", span, f"Write {choices}.")
        return next(iter(found), None)

    def has_table(self, table: str, quoted: bool) -> bool:
        return any(matches(table, quoted, i.alias) for i in self.items)

    def unknown_column(self, table: str | None, name: str, span: Span | None, aliases: Iterable[str] = ()) -> Exception:
        scope: Scope | None = self
        tables: list[str] = []
        columns: list[str] = list(aliases)
        while scope is not None:
            tables += [i.alias for i in scope.items]
            columns += [c for i in scope.items for c in i.columns if table is None or matches(table, False, i.alias)]
            scope = scope.outer
        if table is not None and not any(matches(table, False, t) for t in tables):
            return error("E021", f"there is no relation {table} in this FROM", span, nearest(table, tables))
        shown = f"{table}.{name}" if table else name
        return error("E022", f"there is no column {shown}", span, nearest(name, columns))

    def rename(self, new: Mapping[str, str]) -> None:
        """The MMPL relation's columns were renamed; what users write stays."""
        for item in self.items:
            item.columns = {n: new.get(c, c) for n, c in item.columns.items()}
        self.merged = {n: new.get(c, c) for n, c in self.merged.items()}

    def qualified(self, column: str) -> str:
        """A column's name with the entry of FROM it came from: what a clash of names is resolved to."""
        for item in self.items:
            for name, c in item.columns.items():
                if c == column:
                    return f"{item.alias}.{name}"
        return column


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """`wanted`, or with a number behind it that nobody has taken."""
    used = set(taken)
    name, number = wanted, 2
    while name in used:
        name, number = f"{wanted}_{number}", number + 1
    return name
