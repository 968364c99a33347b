"""The MMPL relation of a partly translated query, with the names that can be written for its columns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from smile.algebra import mmpl, trees
from smile.algebra.coercions import common_type
from smile.algebra.functions.catalogue import type_of
from smile.algebra.heading import Heading
from smile.algebra.types import DataType
from smile.analysis.headings import Headings
from smile.errors import error
from smile.source import Span
from smile.translate.expressions import ExpressionTranslator, TypedExpr
from smile.translate.scope import FromItem, NameTable, Scope, free_name


@dataclass(frozen=True)
class Catalog:
    """Streams, views and common table expressions by name. The errors of the `broken` ones have already been reported.

    `outer_scope` is the scope of the enclosing query, to which the translated query cannot refer.
    """

    relations: NameTable[mmpl.Rel]
    headings: Headings
    broken: NameTable[None]
    outer_scope: Scope | None = None

    def with_relation(self, name: str, quoted: bool, rel: mmpl.Rel) -> "Catalog":
        """The catalog with one more relation, which hides others of the same name."""
        relations = self.relations.without(name, quoted)
        relations.add(name, rel, quoted)
        return replace(self, relations=relations, broken=self.broken.without(name, quoted))

    def new_pipeline(self, rel: mmpl.Rel, alias: str) -> "QueryPipeline":
        """A pipeline with a relation as the only entry of FROM."""
        heading = self.headings.heading_of(rel)
        item = FromItem(
            alias, NameTable({c: c for c in heading.visible}), {c: c for c in heading.columns if c in heading.hidden}
        )
        return QueryPipeline(rel, Scope([item], outer=self.outer_scope, closed=True), self)


class BrokenDependency(Exception):
    """A definition refers to one whose errors have already been reported. No further error is reported."""


@dataclass
class QueryPipeline:
    """`computed` has the columns of `rel` that contain the values of expressions."""

    rel: mmpl.Rel
    scope: Scope
    catalog: Catalog
    computed: dict[mmpl.Expr, str] = field(default_factory=dict)

    @property
    def heading(self) -> Heading:
        return self.catalog.headings.heading_of(self.rel)

    def column_type(self, name: str, span: Span | None) -> DataType:
        return self.heading.columns[name]

    def translator(self) -> ExpressionTranslator:
        return ExpressionTranslator(self.scope, self.column_type)

    def restrict(self, predicates: Sequence[mmpl.Expr]) -> None:
        if predicates:
            self.rel = mmpl.Restrict(self.rel, trees.conjunction(predicates), span=predicates[0].span)

    def extend(self, wanted: str, typed: TypedExpr, avoid: Iterable[str] = ()) -> str:
        """The column with the value of an expression: an existing one, or a new one, preferably named `wanted`."""
        return self.extend_all([(wanted, typed)], avoid)[0]

    def extend_all(self, wanted: Sequence[tuple[str, TypedExpr]], avoid: Iterable[str] = ()) -> list[str]:
        columns = self.heading.columns
        used_names = {*columns, *avoid}
        names: list[str] = []
        assignments: list[tuple[str, mmpl.Expr]] = []
        for name, typed in wanted:
            expr = typed.expr
            if isinstance(expr, mmpl.ColumnRef) and expr.name in columns:
                names.append(expr.name)
            elif expr in self.computed:
                names.append(self.computed[expr])
            else:
                names.append(free_name(name, used_names))
                used_names.add(names[-1])
                assignments.append((names[-1], expr))
                self.computed[expr] = names[-1]
        self._add_columns(assignments)
        return names

    def _add_columns(self, assignments: Sequence[tuple[str, mmpl.Expr]]) -> None:
        previous = self.rel
        if not assignments:
            return
        if isinstance(previous, mmpl.Extend) and not _columns_of(assignments) & {n for n, _ in previous.assignments}:
            self.rel = mmpl.Extend(previous.input, (*previous.assignments, *assignments), span=previous.span)
        else:
            self.rel = mmpl.Extend(previous, tuple(assignments), span=assignments[0][1].span)

    def add_copy(self, name: str, column: str, span: Span | None) -> str:
        """Adds a copy of a column. Returns its name."""
        new_name = free_name(name, self.heading.columns)
        self._add_columns([(new_name, mmpl.ColumnRef(column, span=span))])
        return new_name

    def rename(self, new_names: dict[str, str]) -> None:
        if new_names:
            self.rel = mmpl.Rename(self.rel, tuple(new_names.items()), span=self.rel.span)
            self.scope.rename(new_names)
            self.computed.clear()

    def rename_clashes(self, taken: Iterable[str]) -> None:
        """Renames the columns whose names are `taken`, so that an expression can use the columns of both relations."""
        clashing = set(taken)
        used_names = clashing | set(self.heading.columns)
        new_names = {}
        for column in self.heading.columns:
            if column in clashing:
                new_names[column] = free_name(self.scope.qualified_name(column), used_names)
                used_names.add(new_names[column])
        self.rename(new_names)


def _columns_of(assignments: Iterable[tuple[str, mmpl.Expr]]) -> set[str]:
    return {c for _, e in assignments for c in trees.columns_in(e)}


def split_conjunction(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain of ANDs, in order. It does not recurse."""
    operands: list[exp.Expr] = []
    stack = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, exp.And):
            stack += [top.expression, top.this]
        elif isinstance(top, exp.Paren) and isinstance(top.this, exp.And | exp.Paren):
            stack.append(top.this)
        else:
            operands.append(top)
    return operands


def split_equalities(
    left: QueryPipeline, right: QueryPipeline, predicates: Iterable[mmpl.Expr]
) -> tuple[list[tuple[str, str]], list[mmpl.Expr]]:
    """Splits predicates over both sides into pairs of equal columns and the rest. Computed operands become columns."""
    pairs: list[tuple[str, str]] = []
    other_predicates: list[mmpl.Expr] = []
    for predicate in predicates:
        pair = _equality_columns(left, right, predicate)
        if pair is None:
            other_predicates.append(predicate)
        elif pair not in pairs:
            pairs.append(pair)
    return pairs, other_predicates


def _equality_columns(left: QueryPipeline, right: QueryPipeline, predicate: mmpl.Expr) -> tuple[str, str] | None:
    if not (isinstance(predicate, mmpl.Call) and predicate.function == "="):
        return None
    left_columns, right_columns = left.heading.columns, right.heading.columns
    a, b = predicate.args
    for first, second in ((a, b), (b, a)):
        first_columns, second_columns = trees.columns_in(first), trees.columns_in(second)
        if (
            first_columns
            and second_columns
            and first_columns <= set(left_columns)
            and second_columns <= set(right_columns)
        ):
            return add_equal_columns(left, first, right, second)
    return None


def add_equal_columns(left: QueryPipeline, a: mmpl.Expr, right: QueryPipeline, b: mmpl.Expr) -> tuple[str, str]:
    """The columns of the values `a` and `b`, which have the same type, for a join that equates them."""
    left_column = left.extend("joined", TypedExpr(a, type_of(a, left.heading.columns)), right.heading.columns)
    return left_column, right.extend(
        "joined_right", TypedExpr(b, type_of(b, right.heading.columns)), left.heading.columns
    )


def cast_to_common_type(
    left: QueryPipeline, a: str, right: QueryPipeline, b: str, span: Span | None
) -> tuple[str, str]:
    """Columns that can be equated: the given ones, or casts of them to their common type."""
    type_a, type_b = left.heading.columns[a], right.heading.columns[b]
    common = common_type(type_a, type_b)
    if common is None or not common.is_ordered:
        raise error("E030", f"{type_a} cannot be compared with {type_b}", span)
    if type_a != common:
        a = left.extend(f"{a}_{common.name}", TypedExpr(mmpl.Cast(mmpl.ColumnRef(a), common), common))
    if type_b != common:
        b = right.extend(f"{b}_{common.name}", TypedExpr(mmpl.Cast(mmpl.ColumnRef(b), common), common))
    return a, b
