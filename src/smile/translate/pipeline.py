"""The MMPL relation of a partly translated query, with the names that can be written for its columns."""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace

from sqlglot import exp

from smile import limits
from smile.algebra import mmpl, trees
from smile.algebra.coercions import common_type
from smile.algebra.functions.catalogue import type_of
from smile.algebra.heading import Heading
from smile.algebra.types import BOOL, DataType
from smile.analysis.headings import Headings
from smile.analysis.type_analysis import TypeAnalysis
from smile.errors import error
from smile.source import Span
from smile.translate.expressions import ExpressionTranslator, TypedExpr
from smile.translate.scope import FromItem, NameTable, Scope, free_name

TICK_COLUMN = "tick"
"""The tick of a change of a table. Only ASOF JOIN sees it."""


@dataclass(frozen=True)
class KeyedTable:
    """A table with a primary key. `contents` has its columns, and `changes` also `tick` and `change`. `stream` is None
    if the table is static."""

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    contents: mmpl.Rel
    changes: mmpl.Rel
    stream: mmpl.StreamDef | None


@dataclass(frozen=True)
class Catalog:
    """Streams, views and common table expressions by name. The errors of the `broken` ones have already been reported.

    `outer_scope` is the scope of the enclosing query, to which the translated query cannot refer. `tables` are the
    tables with a primary key, by the relations that `relations` has for them. `types` gives the types of what
    is translated so far; None: they are not known.
    """

    relations: NameTable[mmpl.Rel]
    headings: Headings
    broken: NameTable[None]
    outer_scope: Scope | None = None
    tables: dict[mmpl.Rel, "KeyedTable"] = field(default_factory=dict)
    types: Callable[[], TypeAnalysis] | None = None

    def with_relation(self, name: str, quoted: bool, rel: mmpl.Rel) -> "Catalog":
        """The catalog with one more relation, which hides others of the same name."""
        relations = self.relations.without(name, quoted)
        relations.add(name, rel, quoted)
        return replace(self, relations=relations, broken=self.broken.without(name, quoted))

    def never_null(self, rel: mmpl.Rel) -> Set[str]:
        """The columns that are never NULL, as far as that is known."""
        if self.types is None:
            return frozenset()
        relation_type = self.types().relation_type(rel)
        return relation_type.columns.keys() - relation_type.nullable_columns

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
    table: "KeyedTable | None" = None
    """The table whose changes these are, for an ASOF JOIN."""
    value_spans: set[Span | None] = field(default_factory=set)
    """Where the subqueries and window functions are whose joins add a value to each row."""

    @property
    def heading(self) -> Heading:
        return self.catalog.headings.heading_of(self.rel)

    def column_type(self, name: str, span: Span | None) -> DataType:
        return self.heading.columns[name]

    def translator(self) -> ExpressionTranslator:
        return ExpressionTranslator(self.scope, self.column_type)

    def without_default_rows(self, span: Span | None) -> mmpl.Rel:
        """The rows of groups that have members: a restricted relation is not total."""
        return mmpl.Restrict(self.rel, mmpl.Constant(True, BOOL), span=span) if self.heading.total else self.rel

    def restrict(self, predicates: Sequence[mmpl.Expr]) -> None:
        predicates = [self.shorten(p) for p in predicates]
        if predicates:
            self.rel = mmpl.Restrict(self.rel, trees.conjunction(predicates), span=predicates[0].span)

    def extend(self, wanted: str, typed: TypedExpr, avoid: Iterable[str] = ()) -> str:
        """The column with the value of an expression: an existing one, or a new one, preferably named `wanted`."""
        return self.extend_all([(wanted, typed)], avoid)[0]

    def extend_all(self, wanted: Sequence[tuple[str, TypedExpr]], avoid: Iterable[str] = ()) -> list[str]:
        wanted = [(name, TypedExpr(self.shorten(typed.expr), typed.type)) for name, typed in wanted]
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

    def rows_with(self, needed: Iterable[str]) -> mmpl.Rel:
        """The rows with the columns `needed`, without the joins and windows that only add other columns to them. Joins
        of the rows with themselves start from these: with copies of one another, they would double the program each
        time."""
        columns, computed = set(needed), dict[str, mmpl.Expr]()
        found, added = self.rel, dict[str, mmpl.Expr]()
        rel: mmpl.Rel | None = self.rel
        while rel is not None:
            if isinstance(rel, mmpl.Extend):
                computed |= dict(rel.assignments)
                rel = rel.input
                continue
            rel = self._rows_before(rel)
            below = self.catalog.headings.heading_of(rel).columns.keys() if rel is not None else set[str]()
            missing = columns - below
            if rel is None or not all(c in computed and trees.columns_in(computed[c]) <= below for c in missing):
                break
            found, added = rel, {c: e for c, e in computed.items() if c in missing}
        return mmpl.Extend(found, tuple(added.items()), span=found.span) if added else found

    def _rows_before(self, rel: mmpl.Rel) -> mmpl.Rel | None:
        """The rows to which a join or a window only adds columns."""
        match rel:
            case mmpl.Join(kind="match") | mmpl.Asof(kind="left"):
                return rel.left
            case mmpl.Over() | mmpl.OverRows():
                return rel.input
            case mmpl.Join() if rel.span is not None and rel.span in self.value_spans:
                return rel.left
        return None

    def shorten(self, expr: mmpl.Expr) -> mmpl.Expr:
        """The expression with columns for the beginnings of long chains, such as sums of hundreds of terms: trees are
        as deep as chains are long, and code that walks them recurses."""
        chain = [expr]
        while operands := trees.operands_of(chain[-1]):
            chain.append(operands[0])
        if len(chain) <= limits.expression_chain_max:
            return expr
        shortened = chain.pop()
        for length, link in enumerate(reversed(chain), 1):
            shortened = trees.with_operands(link, (shortened, *trees.operands_of(link)[1:]))
            if length % limits.expression_chain_max == 0 and link is not expr:
                typed = TypedExpr(shortened, type_of(shortened, self.heading.columns))
                shortened = mmpl.ColumnRef(self.extend("part", typed), span=link.span)
        return shortened

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
    if common is None or not common.is_comparable:
        raise error("E030", f"{type_a} cannot be compared with {type_b}", span)
    if type_a != common:
        a = left.extend(f"{a}_{common.name}", TypedExpr(mmpl.Cast(mmpl.ColumnRef(a), common), common))
    if type_b != common:
        b = right.extend(f"{b}_{common.name}", TypedExpr(mmpl.Cast(mmpl.ColumnRef(b), common), common))
    return a, b
