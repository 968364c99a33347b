"""Subqueries inside expressions become joins: EXISTS and IN become semi, anti and match joins; a scalar subquery
becomes a join with an aggregate over what correlates it."""

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from smile.algebra import mmpl, trees
from smile.algebra.coercions import cast
from smile.algebra.heading import whole_key_equated
from smile.algebra.scalars import evaluate_expr
from smile.algebra.translate.aggregation import Grouping, has_aggregates
from smile.algebra.translate.expressions import Expressions, Typed
from smile.algebra.translate.joins import join
from smile.algebra.translate.outputs import star_columns
from smile.algebra.translate.pipeline import Pipeline, conjuncts, equal_columns, equate
from smile.algebra.translate.scope import free_name
from smile.algebra.translate.silence import lift_silences
from smile.algebra.translate.sources import Sources, Translate
from smile.algebra.types import BOOL, INT, DataType, Value
from smile.errors import SmileError, error
from smile.lang import span_of
from smile.source import Span

_CLAUSES = ("group", "having", "distinct", "limit", "best", "order", "with_")


def is_test(node: exp.Expr) -> bool:
    return isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None)


def strip_not(node: exp.Expr) -> tuple[exp.Expr, bool]:
    """A test without the NOTs and parentheses around it, and whether they negate it."""
    negated = False
    while isinstance(node, exp.Not | exp.Paren):
        negated ^= isinstance(node, exp.Not)
        node = node.this
    return node, negated


class Subqueries:
    """The subqueries of a query whose rows are `outer`'s. `expressions` translates what IN has on its left."""

    def __init__(self, outer: Pipeline, translate: Translate, expressions: Expressions) -> None:
        self.outer = outer
        self.translate = translate
        self.expressions = expressions

    def restrict(self, node: exp.Expr, negated: bool) -> None:
        """Keep the rows for which a test holds, or for which it does not."""
        self._test(node, "anti" if negated else "semi", mark=None)

    def lift(self, node: exp.Expr) -> None:
        """Compute every subquery within an expression beforehand, each as a column."""
        done = self.expressions.lifted
        for found in node.walk(bfs=False, prune=lambda n: isinstance(n, exp.Query) or is_test(n) or id(n) in done):
            if id(found) in done:
                continue
            if is_test(found):
                if isinstance(found, exp.In):
                    self.lift(found.this)
                mark = free_name("exists" if isinstance(found, exp.Exists) else "found", self.outer.heading.columns)
                self._test(found, "match", mark)
                self.expressions.lift(found, Typed(mmpl.Column(mark, span=span_of(found)), BOOL))
            elif isinstance(found, exp.Subquery):
                self.expressions.lift(found, self._scalar(found))

    # ── EXISTS and IN ───────────────────────────────────────────────────────────────────────────────────────────────

    def _test(self, node: exp.Expr, kind: mmpl.JoinKind, mark: str | None) -> None:
        if isinstance(node, exp.In):
            self._in(node, kind, mark)
            return
        inner, correlated, _ = self._open(node.this)
        pairs, rest = equate(self.outer, inner, correlated)
        when = trees.conjunction(rest) if rest else None
        self.outer.rel = mmpl.Join(kind, self.outer.rel, inner.rel, tuple(pairs), when, mark, span=span_of(node))

    def _in(self, node: exp.In, kind: mmpl.JoinKind, mark: str | None) -> None:
        inner, correlated, outputs = self._open(node.args["query"])
        probe = self._probe(node, inner, outputs)
        if kind == "semi":
            pairs, rest = equate(self.outer, inner, correlated)
        else:
            # A NULL makes the answer unknown where IN compares, but not where WHERE does: that stays apart.
            pairs, rest = [], correlated
        on = tuple(dict.fromkeys([*pairs, probe]))
        when = trees.conjunction(rest) if rest else None
        self.outer.rel = mmpl.Join(kind, self.outer.rel, inner.rel, on, when, mark, kind != "semi", span=span_of(node))

    def _probe(self, node: exp.In, inner: Pipeline, outputs: list[Typed]) -> tuple[str, str]:
        """What IN compares, as columns of both sides."""
        if len(outputs) != 1:
            raise error("E044", f"IN compares one value with {len(outputs)} columns", span_of(node))
        (output,) = outputs
        if not trees.columns_in(output.expr) <= set(inner.heading.columns):
            raise _outer_in_select(output.expr.span or span_of(node))
        comparison = self.expressions.apply("=", [self.expressions.translate(node.this), output], span_of(node)).expr
        assert isinstance(comparison, mmpl.Call)
        a, b = comparison.args
        return equal_columns(self.outer, a, inner, b)

    def _open(self, query: exp.Expr) -> tuple[Pipeline, list[mmpl.Expr], list[Typed]]:
        """A subquery as a pipeline, the predicates that tie it to the outer query, and its select list."""
        while isinstance(query, exp.Subquery):
            query = query.this
        if not _is_plain(query):
            inner = self._closed(query)
            columns = inner.heading
            return inner, [], [Typed(mmpl.Column(c), columns.columns[c]) for c in columns.visible]
        inner = self._from(query)
        inner.avoid(self._names())
        correlated = self._where(inner, query)
        expressions = Expressions(inner.scope, self._type_within(inner))
        nested = Subqueries(inner, self.translate, expressions)
        outputs: list[Typed] = []
        for written in query.expressions:
            if written.is_star:
                starred = [c for _, c in star_columns(inner.scope, written)]
                outputs += [Typed(mmpl.Column(c), inner.heading.columns[c]) for c in starred]
                continue
            nested.lift(written)
            outputs.append(expressions.translate(written.unalias()))
        return inner, correlated, outputs

    def _closed(self, query: exp.Expr) -> Pipeline:
        """A subquery that has more than FROM and WHERE, which the outer query cannot be named in."""
        catalog = replace(self.outer.catalog, around=self.outer.scope)
        inner = catalog.pipeline(self.translate(query, catalog), "")
        inner.avoid(self._names())
        return inner

    def _names(self) -> set[str]:
        """What columns of the outer query may be called, those that its groups have lost included."""
        return {*self.outer.heading.columns, *(c for item in self.outer.scope.items for c in item.columns.values())}

    def _from(self, query: exp.Expr) -> Pipeline:
        sources = Sources(self.outer.catalog, self.translate)
        inner = sources.pipeline(query.args["from_"].this)
        for node in query.args.get("joins") or []:
            join(inner, sources.pipeline(node.this), node)
        inner.scope.outer, inner.scope.closed = self.outer.scope, False
        return inner

    def _is_correlated(self, inner: Pipeline, query: exp.Expr) -> bool:
        """Whether a name of the subquery may be one of the outer query."""
        return any(inner.scope.find(c, span_of(c)) is None for c in query.find_all(exp.Column) if not c.is_star)

    def _where(self, inner: Pipeline, query: exp.Expr) -> list[mmpl.Expr]:
        """Predicates of the inner rows alone restrict them; those that name an outer column are given back."""
        where = query.args.get("where")
        expressions = Expressions(inner.scope, self._type_within(inner))
        nested = Subqueries(inner, self.translate, expressions)
        own: list[mmpl.Expr] = []
        correlated: list[mmpl.Expr] = []
        tests: list[tuple[exp.Expr, bool]] = []
        for node in conjuncts(where.this) if where is not None else []:
            positive, negated = strip_not(node)
            if is_test(positive):
                tests.append((positive, negated))
                continue
            lift_silences(inner, node, expressions)
            nested.lift(node)
            predicate = expressions.predicate(node)
            inside = trees.columns_in(predicate) <= set(inner.heading.columns)
            (own if inside else correlated).append(predicate)
        inner.restrict(own)
        for test, negated in tests:
            nested.restrict(test, negated)
        return correlated

    def _type_within(self, inner: Pipeline) -> Callable[[str, Span | None], DataType]:
        """The type of a column of the inner query, or of this one as far as groups have left it any."""

        def type_of(name: str, span: Span | None) -> DataType:
            found = inner.heading.columns.get(name) or self.outer.heading.columns.get(name)
            if found is None:
                hint = f"Add {name} to GROUP BY."
                raise error("E041", f"column {name} is neither grouped nor aggregated", span, hint)
            return found

        return type_of

    # ── scalar subqueries ───────────────────────────────────────────────────────────────────────────────────────────

    def _scalar(self, node: exp.Subquery) -> Typed:
        query, span = node.unnest(), span_of(node)
        if not isinstance(query, exp.Select) or len(query.expressions) != 1:
            raise error("E047", "a subquery used as a value must have one column", span)
        if not has_aggregates(query.expressions[0]) or query.args.get("group") is not None:
            return self._single_row(query, span)
        if any(query.args.get(part) for part in _CLAUSES):
            raise error("E047", "a subquery used as a value may have FROM and WHERE only", span)
        inner = self._from(query)
        if self._is_correlated(inner, query):
            inner.avoid(self._names())
        pairs, rest = equate(self.outer, inner, self._where(inner, query))
        if rest:
            message = "a subquery used as a value is tied to its query by equalities only"
            raise error("E047", message, rest[0].span or span)
        output = query.expressions[0]
        grouping = Grouping(inner, Expressions(inner.scope, _type_inside(inner)), self._names())
        for _, column in pairs:
            grouping.by(column, Typed(mmpl.Column(column), inner.heading.columns[column]))
        grouping.add(output)
        typed = grouping.close().translate(output.unalias())
        default = _of_empty_group(typed, grouping, inner)
        value = inner.extend(output.alias or "value", typed, self._names())
        return self._joined(inner, pairs, Typed(mmpl.Column(value, span=span), typed.type), default)

    def _joined(self, inner: Pipeline, pairs: list[tuple[str, str]], value: Typed, default: mmpl.Constant) -> Typed:
        """An aggregate has a row for every value of its key but NULL, whose group is empty."""
        span = value.expr.span
        nullable = [a for a, _ in pairs if a not in self.outer.heading.tick]
        kind: mmpl.JoinKind = "left" if nullable else "inner"
        if pairs and self.outer.heading.total and whole_key_equated(self.outer.heading, (a for a, _ in pairs)):
            # Groups of which only the subquery has heard are no rows of the outer query.
            self.outer.rel = mmpl.Restrict(self.outer.rel, mmpl.Constant(True, BOOL), span=span)
        self.outer.rel = mmpl.Join(kind, self.outer.rel, inner.rel, tuple(pairs), span=span)
        if default.value is None or not nullable:
            return value
        tests = [mmpl.Call("is null", (mmpl.Column(a),)) for a in nullable]
        missing = mmpl.Call("or", tuple(tests)) if len(tests) > 1 else tests[0]
        return Typed(mmpl.Case(((missing, default),), value.expr, span=span), value.type)

    def _single_row(self, query: exp.Select, span: Span | None) -> Typed:
        """A subquery of one row because what it reads has no key, such as an aggregate without groups."""
        hint = "Use a JOIN, or an aggregate such as MAX or LATEST."
        message = "a subquery used as a value must be one aggregate, so that it has exactly one row"
        inner = self._closed(query)
        if inner.heading.key:
            raise error("E047", message, span, hint)
        (value,) = inner.heading.visible
        kind: mmpl.JoinKind = "inner" if inner.heading.total else "left"
        self.outer.rel = mmpl.Join(kind, self.outer.rel, inner.rel, (), span=span)
        return Typed(mmpl.Column(value, span=span), self.outer.heading.columns[value])


def _is_plain(query: exp.Expr) -> bool:
    """FROM and WHERE alone: such a query can be opened and tied to the outer one."""
    if not isinstance(query, exp.Select) or any(query.args.get(part) for part in _CLAUSES):
        return False
    return not any(has_aggregates(e) or e.find(exp.Window) for e in query.expressions)


def _outer_in_select(span: Span | None) -> SmileError:
    message = "the select list of a subquery may not refer to the query around it"
    return error("E047", message, span, "Refer to it in the subquery's WHERE.")


def _type_inside(inner: Pipeline) -> Callable[[str, Span | None], DataType]:
    def type_of(name: str, span: Span | None) -> DataType:
        if name not in inner.heading.columns:
            raise _outer_in_select(span)
        return inner.heading.columns[name]

    return type_of


def _of_empty_group(typed: Typed, grouping: Grouping, inner: Pipeline) -> mmpl.Constant:
    """The value of an aggregate's expression where no row is: counts and sums are 0."""
    types = inner.heading.columns
    row: dict[str, Value] = dict.fromkeys(types)
    for name, aggregate in grouping.aggregates.items():
        if aggregate.function in ("sum", "count", "count_distinct"):
            row[name] = cast(0, INT, types[name]) if types[name].is_number else 0
    return mmpl.Constant(evaluate_expr(typed.expr, row, types), typed.type)
