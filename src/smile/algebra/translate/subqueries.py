"""Subqueries inside expressions become joins: EXISTS and IN become semi, anti and match joins; a scalar subquery
becomes a join with an aggregate over what correlates it."""

from sqlglot import exp

from smile.algebra import mmpl
from smile.algebra.translate.aggregation import find_aggregates, summarize
from smile.algebra.translate.expressions import Expressions, Typed
from smile.algebra.translate.pipeline import Pipeline, conjuncts, equate
from smile.algebra.translate.scope import free_name
from smile.algebra.translate.sources import Sources, Translate
from smile.algebra.types import BOOL, DataType
from smile.errors import error
from smile.lang import span_of
from smile.source import Span


def is_subquery_test(node: exp.Expr) -> bool:
    return isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None)


class Subqueries:
    def __init__(self, outer: Pipeline, translate: Translate) -> None:
        self.outer = outer
        self.translate = translate

    # ── EXISTS and IN ───────────────────────────────────────────────────────────────────────────────────────────────

    def restrict(self, node: exp.Expr, negated: bool) -> None:
        """Keep the rows for which a test holds, or for which it does not."""
        self._test(node, "anti" if negated else "semi", mark=None)

    def lift(self, node: exp.Expr, expressions: Expressions) -> None:
        """Compute every subquery within an expression beforehand, each as a column."""
        for found in node.walk(prune=lambda n: isinstance(n, exp.Query) or is_subquery_test(n)):
            if is_subquery_test(found):
                mark = free_name("exists" if isinstance(found, exp.Exists) else "found", self.outer.heading.columns)
                self._test(found, "match", mark)
                expressions.lifted[id(found)] = Typed(mmpl.Column(mark, span=span_of(found)), BOOL)
            elif isinstance(found, exp.Subquery):
                expressions.lifted[id(found)] = self._scalar(found)

    def _test(self, node: exp.Expr, kind: mmpl.JoinKind, mark: str | None) -> None:
        span = span_of(node)
        if isinstance(node, exp.Exists):
            inner, correlated = self._open(node.this)
            outputs: list[str] = []
        else:
            inner, correlated, outputs = self._open_in(node)
        pairs, rest = equate(self.outer, inner, correlated)
        if isinstance(node, exp.In):
            pairs += self._probe(node, inner, outputs)
        null_aware = isinstance(node, exp.In) and kind != "semi"
        when = mmpl.conjunction(rest) if rest else None
        self.outer.rel = mmpl.Join(
            kind, self.outer.rel, inner.rel, tuple(pairs), when, mark, null_aware, span=span
        )

    def _probe(self, node: exp.In, inner: Pipeline, outputs: list[str]) -> list[tuple[str, str]]:
        written = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        if len(written) != len(outputs):
            raise error("E044", f"IN compares {len(written)} with {len(outputs)} columns", span_of(node))
        expressions = self.outer.expressions()
        pairs = []
        for value, output in zip(written, outputs, strict=True):
            test = expressions.apply(
                "=",
                [expressions.translate(value), Typed(mmpl.Column(output), inner.heading.columns[output])],
                span_of(value),
            )
            found, rest = equate(self.outer, inner, [test])
            if rest:
                raise error("E047", "IN needs a column of this query on its left", span_of(value))
            pairs += found
        return pairs

    def _open(self, query: exp.Expr) -> tuple[Pipeline, list[mmpl.Expr]]:
        """A subquery as a pipeline, and the predicates that tie it to the outer query."""
        query = query.unnest()
        if not _is_plain(query):
            return self._closed(query), []
        inner = self._from(query)
        where = query.args.get("where")
        if where is None:
            return inner, []
        return inner, self._split(inner, conjuncts(where.this))

    def _open_in(self, node: exp.In) -> tuple[Pipeline, list[mmpl.Expr], list[str]]:
        query = node.args["query"].unnest()
        inner, correlated = self._open(query)
        if not _is_plain(query):
            return inner, correlated, list(inner.heading.visible)
        outputs = []
        for written in query.expressions:
            if isinstance(written, exp.Star):
                outputs += [c for item in inner.scope.items for c in item.columns.values()]
            else:
                outputs.append(inner.extend(written.alias or "value", inner.expressions().translate(written.unalias())))
        return inner, correlated, outputs

    def _closed(self, query: exp.Expr) -> Pipeline:
        source = exp.Subquery(this=query)
        inner = Sources(self.outer.catalog, self.translate).pipeline(source)
        inner.avoid(self.outer.heading.columns)
        return inner

    def _from(self, query: exp.Expr) -> Pipeline:
        sources = Sources(self.outer.catalog, self.translate)
        inner = sources.pipeline(query.args["from_"].this, outer=self.outer.scope)
        for join in query.args.get("joins") or []:
            sources.join(inner, join)
        inner.scope.outer = self.outer.scope
        inner.avoid(self.outer.heading.columns)
        return inner

    def _split(self, inner: Pipeline, predicates: list[exp.Expr]) -> list[mmpl.Expr]:
        """Predicates of the inner rows alone restrict them; those that name an outer column are given back."""
        types = {**self.outer.heading.columns, **inner.heading.columns}

        def type_of(name: str, span: Span | None) -> DataType:
            if name in types:
                return types[name]
            raise error("E047", "a subquery may refer to the query right around it, not further out", span)

        expressions = Expressions(inner.scope, type_of)
        nested = Subqueries(inner, self.translate)
        own, correlated = [], []
        for node in predicates:
            positive, negated = strip_not(node)
            if is_subquery_test(positive):
                nested.restrict(positive, negated)
                continue
            predicate = expressions.predicate(node)
            inside = mmpl.columns_in(predicate) <= set(inner.heading.columns)
            (own if inside else correlated).append(predicate)
        inner.restrict(own)
        return correlated

    # ── scalar subqueries ───────────────────────────────────────────────────────────────────────────────────────────

    def _scalar(self, node: exp.Subquery) -> Typed:
        query, span = node.unnest(), span_of(node)
        if not (isinstance(query, exp.Select) and len(query.expressions) == 1 and find_aggregates(query.expressions[0])):
            raise error(
                "E047", "a subquery used as a value must be one aggregate, so that it has exactly one row", span,
                "Use a JOIN, or an aggregate such as MAX or LATEST.",
            )  # fmt: skip
        if any(query.args.get(part) for part in ("group", "having", "distinct", "limit", "best", "order")):
            raise error("E047", "a subquery used as a value may have FROM and WHERE only", span)
        inner = self._from(query)
        where = query.args.get("where")
        correlated = self._split(inner, conjuncts(where.this)) if where is not None else []
        pairs, rest = equate(self.outer, inner, correlated)
        if rest:
            message = "a subquery used as a value is tied to its query by equalities only"
            raise error("E047", message, rest[0].span or span)
        per = tuple(dict.fromkeys(b for _, b in pairs))
        output = query.expressions[0]
        expressions = summarize(inner, per, [output])
        value = inner.extend(free_name(output.alias or "value", self.outer.heading.columns), expressions.translate(output.unalias()))
        inner.avoid([c for c in self.outer.heading.columns if c not in per])
        self.outer.rel = mmpl.Join("inner", self.outer.rel, inner.rel, tuple(pairs), span=span)
        return Typed(mmpl.Column(value, span=span), self.outer.heading.columns[value])


def strip_not(node: exp.Expr) -> tuple[exp.Expr, bool]:
    """A test without the NOTs and parentheses around it, and whether they negate it."""
    negated = False
    while isinstance(node, exp.Not | exp.Paren):
        negated ^= isinstance(node, exp.Not)
        node = node.this
    return node, negated


def _is_plain(query: exp.Expr) -> bool:
    """FROM and WHERE alone: such a query can be opened and tied to the outer one."""
    if not isinstance(query, exp.Select) or query.args.get("from_") is None:
        return False
    if any(query.args.get(part) for part in ("group", "having", "distinct", "limit", "best", "with_")):
        return False
    return not any(find_aggregates(e) or e.find(exp.Window) for e in query.expressions)
