"""The MMPL relation that a query has become so far, with the names by which its columns can be written."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from smile.algebra import mmpl
from smile.algebra.coercions import common_type
from smile.algebra.heading import Heading, Headings, type_of
from smile.algebra.translate.expressions import Expressions, Typed
from smile.algebra.translate.scope import Names, Scope, free_name
from smile.algebra.types import DataType
from smile.errors import error
from smile.source import Span


@dataclass
class Catalog:
    """Streams, views and common table expressions by name. `broken` names views that have errors of their own."""

    relations: Names[mmpl.Rel]
    headings: Headings
    broken: Names[None] = field(default_factory=Names)

    def with_relation(self, name: str, rel: mmpl.Rel) -> "Catalog":
        relations = self.relations.copy()
        relations.add(name, rel)
        return Catalog(relations, self.headings, self.broken)


class BrokenDependency(Exception):
    """A view refers to one whose errors are reported already: nothing more can be said about it."""


@dataclass
class Pipeline:
    rel: mmpl.Rel
    scope: Scope
    catalog: Catalog

    @property
    def heading(self) -> Heading:
        return self.catalog.headings.of(self.rel)

    def column_type(self, name: str, span: Span | None) -> DataType:
        return self.heading.columns[name]

    def expressions(self) -> Expressions:
        return Expressions(self.scope, self.column_type)

    def restrict(self, predicates: Sequence[mmpl.Expr]) -> None:
        if predicates:
            self.rel = mmpl.Restrict(self.rel, mmpl.conjunction(predicates), span=predicates[0].span)

    def extend(self, wanted: str, typed: Typed) -> str:
        """The column that holds an expression's value: itself if it is a column, else a new one named like `wanted`."""
        if isinstance(typed.expr, mmpl.Column) and typed.expr.name in self.heading.columns:
            return typed.expr.name
        name = free_name(wanted, self.heading.columns)
        if isinstance(self.rel, mmpl.Extend) and not (mmpl.columns_in(typed.expr) & {n for n, _ in self.rel.assignments}):
            self.rel = mmpl.Extend(self.rel.input, (*self.rel.assignments, (name, typed.expr)), span=self.rel.span)
        else:
            self.rel = mmpl.Extend(self.rel, ((name, typed.expr),), span=typed.expr.span)
        return name

    def rename(self, new: dict[str, str]) -> None:
        if new:
            self.rel = mmpl.Rename(self.rel, tuple(new.items()), span=self.rel.span)
            self.scope.rename(new)

    def avoid(self, taken: Iterable[str]) -> None:
        """Rename what clashes with `taken`, so that both relations' columns can stand in one expression."""
        used = set(taken) | set(self.heading.columns)
        new = {}
        for column in self.heading.columns:
            if column in taken:
                new[column] = free_name(self.scope.qualified(column), used)
                used.add(new[column])
        self.rename(new)


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
    left: Pipeline, right: Pipeline, predicates: Iterable[Typed | mmpl.Expr]
) -> tuple[list[tuple[str, str]], list[mmpl.Expr]]:
    """Cut predicates over both sides into pairs of equal columns and the rest; computed sides become columns."""
    pairs: list[tuple[str, str]] = []
    rest: list[mmpl.Expr] = []
    for item in predicates:
        predicate = item.expr if isinstance(item, Typed) else item
        pair = _pair(left, right, predicate)
        if pair is None:
            rest.append(predicate)
        else:
            pairs.append(pair)
    return pairs, rest


def _pair(left: Pipeline, right: Pipeline, predicate: mmpl.Expr) -> tuple[str, str] | None:
    if not (isinstance(predicate, mmpl.Call) and predicate.function == "="):
        return None
    on_left, on_right = set(left.heading.columns), set(right.heading.columns)
    a, b = predicate.args
    for first, second in ((a, b), (b, a)):
        named, other = mmpl.columns_in(first), mmpl.columns_in(second)
        if named and other and named <= on_left and other <= on_right:
            type_a, type_b = type_of(first, left.heading.columns), type_of(second, right.heading.columns)
            assert type_a == type_b
            return left.extend("joined", Typed(first, type_a)), right.extend("joined_right", Typed(second, type_b))
    return None


def same_type(left: Pipeline, a: str, right: Pipeline, b: str, span: Span | None) -> tuple[str, str]:
    """Columns of both sides that can be equated: those given, or casts of them to what they have in common."""
    type_a, type_b = left.heading.columns[a], right.heading.columns[b]
    common = common_type(type_a, type_b)
    if common is None:
        raise error("E030", f"{type_a} cannot be compared with {type_b}", span)
    if type_a != common:
        a = left.extend(f"{a}_{common.name}", Typed(mmpl.Cast(mmpl.Column(a), common), common))
    if type_b != common:
        b = right.extend(f"{b}_{common.name}", Typed(mmpl.Cast(mmpl.Column(b), common), common))
    return a, b
