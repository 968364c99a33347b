"""Name resolution. A scope maps the names that can be written at a point of a query to columns of an MMPL relation.

Unquoted names match in any case, and prefer the declared name with exactly their spelling. Quoted names match exactly.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sqlglot import exp

from smile.errors import SmileError, did_you_mean, error
from smile.source import Span

T = TypeVar("T")


def fold_case(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def is_match(written: str, quoted: bool, declared: str) -> bool:
    return written == declared or (not quoted and fold_case(written) == fold_case(declared))


def is_quoted(node: exp.Expr) -> bool:
    """Whether the name of a column, table or identifier was written in quotes."""
    identifier = node.this if isinstance(node, exp.Column | exp.Table) else node
    return bool(identifier.args.get("quoted"))


class NameTable(Generic[T]):
    """Declared names, with an item for each."""

    def __init__(self, items: Mapping[str, T] | None = None) -> None:
        self._exact: dict[str, T] = {}
        self._folded: dict[str, list[str]] = {}
        self._quoted: set[str] = set()
        for name, item in (items or {}).items():
            self.add(name, item)

    def add(self, name: str, item: T, quoted: bool = False) -> None:
        if name not in self._exact:
            self._folded.setdefault(fold_case(name), []).append(name)
        self._exact[name] = item
        if quoted:
            self._quoted.add(name)

    def clash(self, name: str, quoted: bool) -> str | None:
        """The declared name that is ambiguous with this one, if any. Names that differ in case must all be quoted."""
        if name in self._exact:
            return name
        declared = self._folded.get(fold_case(name), [])
        return next((spelling for spelling in declared if not (quoted and spelling in self._quoted)), None)

    def spellings(self, written: str, quoted: bool) -> list[str]:
        """The declared names that a written name can refer to."""
        if written in self._exact:
            return [written]
        return [] if quoted else self._folded.get(fold_case(written), [])

    def find(self, written: str, quoted: bool) -> str | None:
        """The declared name that a written name refers to; None if there is none or it is ambiguous."""
        spellings = self.spellings(written, quoted)
        return spellings[0] if len(spellings) == 1 else None

    def without(self, name: str, quoted: bool) -> "NameTable[T]":
        """The table without the names that `name` hides."""
        return NameTable({n: item for n, item in self._exact.items() if not is_match(name, quoted, n)})

    def __getitem__(self, name: str) -> T:
        return self._exact[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._exact)

    def items(self) -> Iterable[tuple[str, T]]:
        return self._exact.items()

    def values(self) -> Iterable[T]:
        return self._exact.values()


@dataclass
class FromItem:
    """One entry of FROM: its alias, and the MMPL columns of its visible and of its hidden columns."""

    alias: str
    columns: NameTable[str]
    hidden: dict[str, str] = field(default_factory=dict)


@dataclass
class MergedColumn:
    """A column that USING merges: its name, its MMPL column, and the (alias, name) pairs of the merged columns."""

    name: str
    column: str
    parts: frozenset[tuple[str, str]]


@dataclass
class Scope:
    """`outer` is the scope of the enclosing query. A query with a closed scope cannot refer to it."""

    from_items: list[FromItem] = field(default_factory=list)
    merged_columns: list[MergedColumn] = field(default_factory=list)
    outer: "Scope | None" = None
    closed: bool = False

    def find(self, column: exp.Expr, span: Span | None) -> str | None:
        """The MMPL column that a name refers to in this scope, or None. Raises E023 if the name is ambiguous."""
        name, quoted = _name_of(column), is_quoted(column)
        table = column.args.get("table")
        candidates: dict[str, str] = {}
        merged_parts: set[tuple[str, str]] = set()
        if table is None:
            for merged in self.merged_columns:
                if is_match(name, quoted, merged.name):
                    candidates[self._unambiguous_name(merged)] = merged.column
                    merged_parts |= merged.parts
        for item in self.from_items:
            if table is not None and not is_match(table.name, is_quoted(table), item.alias):
                continue
            for spelling in item.columns.spellings(name, quoted):
                if (item.alias, spelling) not in merged_parts:
                    written = spelling if is_match(name, True, spelling) else f'"{spelling}"'
                    candidates[f"{item.alias}.{written}" if item.alias else written] = item.columns[spelling]
        if len(candidates) > 1:
            raise error("E023", f"column {name} is ambiguous", span, f"Write {' or '.join(candidates)}.")
        return next(iter(candidates.values()), None)

    def _unambiguous_name(self, merged: MergedColumn) -> str:
        """A qualified name for a merged column, which is not ambiguous."""
        parts = (
            f"{i.alias}.{n}" for i in self.from_items for n in i.columns if (i.alias, n) in merged.parts and i.alias
        )
        return next(parts, merged.name)

    def has_table(self, table: str, quoted: bool) -> bool:
        return any(is_match(table, quoted, i.alias) for i in self.from_items)

    def unknown_column_error(self, column: exp.Expr, span: Span | None, aliases: Iterable[str] = ()) -> SmileError:
        name, table = _name_of(column), column.args.get("table")
        scope: Scope | None = self
        tables: list[str] = []
        columns: list[str] = list(aliases)
        while scope is not None:
            tables += [i.alias for i in scope.from_items]
            columns += [
                c for i in scope.from_items for c in i.columns if table is None or is_match(table.name, False, i.alias)
            ]
            scope = scope.outer
        if table is not None and not any(is_match(table.name, False, t) for t in tables):
            return error(
                "E021", f"there is no relation {table.name} in this FROM", span, did_you_mean(table.name, tables)
            )
        written_name = f"{table.name}.{name}" if table is not None else name
        hint = self._hidden_column_hint(name, is_quoted(column), table) or did_you_mean(name, columns)
        return error("E022", f"there is no column {written_name}", span, hint)

    def _hidden_column_hint(self, name: str, quoted: bool, table: exp.Expr | None) -> str | None:
        scope: Scope | None = self
        while scope is not None:
            for item in scope.from_items:
                if table is None or is_match(table.name, is_quoted(table), item.alias):
                    for hidden in item.hidden:
                        if is_match(name, quoted, hidden):
                            source = item.alias or "the subquery"
                            return f"{hidden} is a hidden key column of {source}: select it there."
            scope = scope.outer
        return None

    def rename(self, new_names: Mapping[str, str]) -> None:
        """Follows a renaming of columns of the MMPL relation. The names that can be written stay the same."""
        for item in self.from_items:
            item.columns = NameTable({n: new_names.get(c, c) for n, c in item.columns.items()})
            item.hidden = {n: new_names.get(c, c) for n, c in item.hidden.items()}
        for merged in self.merged_columns:
            merged.column = new_names.get(merged.column, merged.column)

    def qualified_name(self, column: str) -> str:
        """The name of a column, with the alias of its FROM entry. Columns with clashing names are renamed to it."""
        for item in self.from_items:
            for name, c in (*item.columns.items(), *item.hidden.items()):
                if c == column and item.alias:
                    return f"{item.alias}.{name}"
        return column


def _name_of(column: exp.Expr) -> str:
    return str(column.this.name if isinstance(column, exp.Column) else column.name)


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """`wanted`, with a number appended if it is taken."""
    used_names = taken if isinstance(taken, set | frozenset | dict) else set(taken)
    name, number = wanted, 2
    while name in used_names:
        name, number = f"{wanted}_{number}", number + 1
    return name
