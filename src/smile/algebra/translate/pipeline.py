"""The MMPL relation that a query has become so far, with the names by which its columns can be written."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from smile.algebra import mmpl, trees
from smile.algebra.coercions import common_type
from smile.algebra.heading import Heading, Headings
from smile.algebra.scalars import type_of
from smile.algebra.translate.expressions import Expressions, Typed
from smile.algebra.translate.scope import Item, Names, Scope, free_name
from smile.algebra.types import DataType
from smile.errors import error
from smile.source import Span


@dataclass(frozen=True)
class Catalog:
    """Streams, views and common table expressions by name. `broken` are those whose errors are reported already.

    `around` is the query around the one that is being translated, if that may not refer to it.
    """

    relations: Names[mmpl.Rel]
    headings: Headings
    broken: Names[None]
    around: Scope | None = None

    def with_relation(self, name: str, quoted: bool, rel: mmpl.Rel) -> "Catalog":
        """One more, which hides whatever had its name."""
        relations = self.relations.without(name, quoted)
        relations.add(name, rel, quoted)
        return replace(self, relations=relations, broken=self.broken.without(name, quoted))

    def pipeline(self, rel: mmpl.Rel, alias: str) -> "Pipeline":
        """A relation as the one entry of a FROM."""
        heading = self.headings.of(rel)
        item = Item(
            alias, Names({c: c for c in heading.visible}), {c: c for c in heading.columns if c in heading.hidden}
        )
        return Pipeline(rel, Scope([item], outer=self.around, closed=True), self)


class BrokenDependency(Exception):
    """A view refers to one whose errors are reported already: nothing more can be said about it."""


@dataclass
class Pipeline:
    """`computed` are the expressions that are columns of `rel` already."""

    rel: mmpl.Rel
    scope: Scope
    catalog: Catalog
    computed: dict[mmpl.Expr, str] = field(default_factory=dict)

    @property
    def heading(self) -> Heading:
        return self.catalog.headings.of(self.rel)

    def column_type(self, name: str, span: Span | None) -> DataType:
        return self.heading.columns[name]

    def expressions(self) -> Expressions:
        return Expressions(self.scope, self.column_type)

    def restrict(self, predicates: Sequence[mmpl.Expr]) -> None:
        if predicates:
            self.rel = mmpl.Restrict(self.rel, trees.conjunction(predicates), span=predicates[0].span)

    def extend(self, wanted: str, typed: Typed, avoid: Iterable[str] = ()) -> str:
        """The column that holds an expression's value: one that does already, else a new one named like `wanted`."""
        return self.extend_all([(wanted, typed)], avoid)[0]

    def extend_all(self, wanted: Sequence[tuple[str, Typed]], avoid: Iterable[str] = ()) -> list[str]:
        columns = self.heading.columns
        taken = {*columns, *avoid}
        names: list[str] = []
        new: list[tuple[str, mmpl.Expr]] = []
        for name, typed in wanted:
            expr = typed.expr
            if isinstance(expr, mmpl.Column) and expr.name in columns:
                names.append(expr.name)
            elif expr in self.computed:
                names.append(self.computed[expr])
            else:
                names.append(free_name(name, taken))
                taken.add(names[-1])
                new.append((names[-1], expr))
                self.computed[expr] = names[-1]
        self._assign(new)
        return names

    def _assign(self, new: Sequence[tuple[str, mmpl.Expr]]) -> None:
        last = self.rel
        if new and isinstance(last, mmpl.Extend) and not _named(new) & {n for n, _ in last.assignments}:
            self.rel = mmpl.Extend(last.input, (*last.assignments, *new), span=last.span)
        elif new:
            self.rel = mmpl.Extend(last, tuple(new), span=new[0][1].span)

    def copy(self, name: str, column: str, span: Span | None) -> str:
        """One more column with the value of one that is there."""
        free = free_name(name, self.heading.columns)
        self._assign([(free, mmpl.Column(column, span=span))])
        return free

    def rename(self, new: dict[str, str]) -> None:
        if new:
            self.rel = mmpl.Rename(self.rel, tuple(new.items()), span=self.rel.span)
            self.scope.rename(new)
            self.computed.clear()

    def avoid(self, taken: Iterable[str]) -> None:
        """Rename what clashes with `taken`, so that both relations' columns can stand in one expression."""
        clashing = set(taken)
        used = clashing | set(self.heading.columns)
        new = {}
        for column in self.heading.columns:
            if column in clashing:
                new[column] = free_name(self.scope.qualified(column), used)
                used.add(new[column])
        self.rename(new)


def _named(assignments: Iterable[tuple[str, mmpl.Expr]]) -> set[str]:
    return {c for _, e in assignments for c in trees.columns_in(e)}


def conjuncts(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain of ANDs, in their order, without recursion."""
    found: list[exp.Expr] = []
    stack = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, exp.And):
            stack += [top.expression, top.this]
        elif isinstance(top, exp.Paren) and isinstance(top.this, exp.And | exp.Paren):
            stack.append(top.this)
        else:
            found.append(top)
    return found


def equate(
    left: Pipeline, right: Pipeline, predicates: Iterable[mmpl.Expr]
) -> tuple[list[tuple[str, str]], list[mmpl.Expr]]:
    """Cut predicates over both sides into pairs of equal columns and the rest; computed sides become columns."""
    pairs: list[tuple[str, str]] = []
    rest: list[mmpl.Expr] = []
    for predicate in predicates:
        pair = _pair(left, right, predicate)
        if pair is None:
            rest.append(predicate)
        elif pair not in pairs:
            pairs.append(pair)
    return pairs, rest


def _pair(left: Pipeline, right: Pipeline, predicate: mmpl.Expr) -> tuple[str, str] | None:
    if not (isinstance(predicate, mmpl.Call) and predicate.function == "="):
        return None
    on_left, on_right = left.heading.columns, right.heading.columns
    a, b = predicate.args
    for first, second in ((a, b), (b, a)):
        named, other = trees.columns_in(first), trees.columns_in(second)
        if named and other and named <= set(on_left) and other <= set(on_right):
            return equal_columns(left, first, right, second)
    return None


def equal_columns(left: Pipeline, a: mmpl.Expr, right: Pipeline, b: mmpl.Expr) -> tuple[str, str]:
    """Values of both sides, of one type, as columns that a join equates."""
    on_left = left.extend("joined", Typed(a, type_of(a, left.heading.columns)), right.heading.columns)
    return on_left, right.extend("joined_right", Typed(b, type_of(b, right.heading.columns)), left.heading.columns)


def same_type(left: Pipeline, a: str, right: Pipeline, b: str, span: Span | None) -> tuple[str, str]:
    """Columns of both sides that can be equated: those given, or casts of them to what they have in common."""
    type_a, type_b = left.heading.columns[a], right.heading.columns[b]
    common = common_type(type_a, type_b)
    if common is None or not common.is_ordered:
        raise error("E030", f"{type_a} cannot be compared with {type_b}", span)
    if type_a != common:
        a = left.extend(f"{a}_{common.name}", Typed(mmpl.Cast(mmpl.Column(a), common), common))
    if type_b != common:
        b = right.extend(f"{b}_{common.name}", Typed(mmpl.Cast(mmpl.Column(b), common), common))
    return a, b
