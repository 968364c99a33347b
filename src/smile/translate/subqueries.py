"""Translates subqueries in expressions to joins.

EXISTS and IN become semi, anti and match joins. A scalar subquery becomes a join with an aggregate, grouped by the
columns that are correlated with the outer query.
"""

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from smile.algebra import mmpl, trees
from smile.algebra.functions.catalogue import evaluate_expr
from smile.algebra.heading import is_key_equated
from smile.algebra.types import BOOL, DataType, Value
from smile.errors import SmileError, error
from smile.lang import span_of
from smile.operators.aggregates import default_value
from smile.source import Span
from smile.translate.aggregation import GroupingBuilder, has_aggregates
from smile.translate.expressions import ExpressionTranslator, TypedExpr
from smile.translate.from_clause import FromTranslator, QueryTranslation
from smile.translate.joins import add_join
from smile.translate.outputs import star_columns
from smile.translate.pipeline import QueryPipeline, add_equal_columns, split_conjunction, split_equalities
from smile.translate.scope import free_name
from smile.translate.silence import lift_silences

_OTHER_CLAUSES = ("group", "having", "distinct", "limit", "best", "order", "with_")


def is_subquery_test(node: exp.Expr) -> bool:
    return isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None)


def strip_not(node: exp.Expr) -> tuple[exp.Expr, bool]:
    """The expression without the NOTs and parentheses around it, and whether they negate it."""
    negated = False
    while isinstance(node, exp.Not | exp.Paren):
        negated ^= isinstance(node, exp.Not)
        node = node.this
    return node, negated


class SubqueryTranslator:
    """Translates the subqueries of the query `outer`. `translator` translates the left operand of IN."""

    def __init__(self, outer: QueryPipeline, translate: QueryTranslation, translator: ExpressionTranslator) -> None:
        self.outer = outer
        self.translate = translate
        self.translator = translator

    def add_restriction(self, node: exp.Expr, negated: bool) -> None:
        """Restricts the rows to those for which the test is true, or, if `negated`, to those for which it is false."""
        self._add_test_join(node, "anti" if negated else "semi", match_column=None)

    def lift(self, node: exp.Expr) -> None:
        """Adds a column to the pipeline for every subquery within an expression."""
        lifted_values = self.translator.lifted_values
        for part in node.walk(
            bfs=False, prune=lambda n: isinstance(n, exp.Query) or is_subquery_test(n) or id(n) in lifted_values
        ):
            if id(part) in lifted_values:
                continue
            if is_subquery_test(part):
                if isinstance(part, exp.In):
                    self.lift(part.this)
                match_column = free_name(
                    "exists" if isinstance(part, exp.Exists) else "found", self.outer.heading.columns
                )
                self._add_test_join(part, "match", match_column)
                self.translator.add_lifted(part, TypedExpr(mmpl.ColumnRef(match_column, span=span_of(part)), BOOL))
            elif isinstance(part, exp.Subquery):
                self.translator.add_lifted(part, self._translate_scalar(part))

    # ── EXISTS and IN ───────────────────────────────────────────────────────────────────────────────────────────────

    def _add_test_join(self, node: exp.Expr, kind: mmpl.JoinKind, match_column: str | None) -> None:
        if isinstance(node, exp.In):
            self._add_in_join(node, kind, match_column)
            return
        inner, correlated, _ = self._open_subquery(node.this)
        pairs, predicates = split_equalities(self.outer, inner, correlated)
        when = trees.conjunction(predicates) if predicates else None
        self.outer.rel = mmpl.Join(
            kind, self.outer.rel, inner.rel, tuple(pairs), when, match_column, span=span_of(node)
        )

    def _add_in_join(self, node: exp.In, kind: mmpl.JoinKind, match_column: str | None) -> None:
        inner, correlated, outputs = self._open_subquery(node.args["query"])
        compared = self._compared_columns(node, inner, outputs)
        if kind == "semi":
            pairs, predicates = split_equalities(self.outer, inner, correlated)
        else:
            # A NULL makes the result of the comparison of IN unknown, but not that of WHERE. So they stay separate.
            pairs, predicates = [], correlated
        on = tuple(dict.fromkeys([*pairs, compared]))
        when = trees.conjunction(predicates) if predicates else None
        self.outer.rel = mmpl.Join(
            kind, self.outer.rel, inner.rel, on, when, match_column, kind != "semi", span=span_of(node)
        )

    def _compared_columns(self, node: exp.In, inner: QueryPipeline, outputs: list[TypedExpr]) -> tuple[str, str]:
        """The operands of the comparison of IN, as columns of both sides."""
        if len(outputs) != 1:
            raise error("E044", f"IN compares one value with {len(outputs)} columns", span_of(node))
        (output,) = outputs
        if not trees.columns_in(output.expr) <= set(inner.heading.columns):
            raise _outer_reference_error(output.expr.span or span_of(node))
        comparison = self.translator.apply_function(
            "=", [self.translator.translate(node.this), output], span_of(node)
        ).expr
        assert isinstance(comparison, mmpl.Call)
        a, b = comparison.args
        return add_equal_columns(self.outer, a, inner, b)

    def _open_subquery(self, query: exp.Expr) -> tuple[QueryPipeline, list[mmpl.Expr], list[TypedExpr]]:
        """The pipeline of a subquery, the predicates that refer to the outer query, and the select list."""
        while isinstance(query, exp.Subquery):
            query = query.this
        if not _is_from_and_where_only(query):
            inner = self._translate_closed(query)
            heading = inner.heading
            return inner, [], [TypedExpr(mmpl.ColumnRef(c), heading.columns[c]) for c in heading.visible]
        inner = self._translate_from(query)
        inner.rename_clashes(self._outer_column_names())
        correlated = self._split_where(inner, query)
        translator = ExpressionTranslator(inner.scope, self._type_lookup(inner))
        nested = SubqueryTranslator(inner, self.translate, translator)
        outputs: list[TypedExpr] = []
        for output_node in query.expressions:
            if output_node.is_star:
                column_names = [c for _, c in star_columns(inner.scope, output_node)]
                outputs += [TypedExpr(mmpl.ColumnRef(c), inner.heading.columns[c]) for c in column_names]
                continue
            nested.lift(output_node)
            outputs.append(translator.translate(output_node.unalias()))
        return inner, correlated, outputs

    def _translate_closed(self, query: exp.Expr) -> QueryPipeline:
        """The pipeline of a subquery that has other clauses than FROM and WHERE. It cannot refer to the outer query."""
        catalog = replace(self.outer.catalog, outer_scope=self.outer.scope)
        inner = catalog.new_pipeline(self.translate(query, catalog), "")
        inner.rename_clashes(self._outer_column_names())
        return inner

    def _outer_column_names(self) -> set[str]:
        """The column names of the outer query, including the columns that its GROUP BY has removed."""
        return {
            *self.outer.heading.columns,
            *(c for item in self.outer.scope.from_items for c in item.columns.values()),
        }

    def _translate_from(self, query: exp.Expr) -> QueryPipeline:
        sources = FromTranslator(self.outer.catalog, self.translate)
        inner = sources.pipeline(query.args["from_"].this)
        for node in query.args.get("joins") or []:
            add_join(inner, sources.pipeline(node.this), node)
        inner.scope.outer, inner.scope.closed = self.outer.scope, False
        return inner

    def _is_correlated(self, inner: QueryPipeline, query: exp.Expr) -> bool:
        """Whether the subquery contains a name that is not one of its own columns."""
        return any(inner.scope.find(c, span_of(c)) is None for c in query.find_all(exp.Column) if not c.is_star)

    def _split_where(self, inner: QueryPipeline, query: exp.Expr) -> list[mmpl.Expr]:
        """Adds the predicates over the inner rows to the pipeline. Returns those that refer to outer columns."""
        where = query.args.get("where")
        translator = ExpressionTranslator(inner.scope, self._type_lookup(inner))
        nested = SubqueryTranslator(inner, self.translate, translator)
        inner_predicates: list[mmpl.Expr] = []
        correlated: list[mmpl.Expr] = []
        tests: list[tuple[exp.Expr, bool]] = []
        for node in split_conjunction(where.this) if where is not None else []:
            positive, negated = strip_not(node)
            if is_subquery_test(positive):
                tests.append((positive, negated))
                continue
            lift_silences(inner, node, translator)
            nested.lift(node)
            predicate = translator.translate_predicate(node)
            is_inner = trees.columns_in(predicate) <= set(inner.heading.columns)
            (inner_predicates if is_inner else correlated).append(predicate)
        inner.restrict(inner_predicates)
        for test, negated in tests:
            nested.add_restriction(test, negated)
        return correlated

    def _type_lookup(self, inner: QueryPipeline) -> Callable[[str, Span | None], DataType]:
        """The types of the columns of the inner and the outer query. Columns removed by GROUP BY raise E041."""

        def type_of(name: str, span: Span | None) -> DataType:
            data_type = inner.heading.columns.get(name) or self.outer.heading.columns.get(name)
            if data_type is None:
                hint = f"Add {name} to GROUP BY."
                raise error("E041", f"column {name} is neither grouped nor aggregated", span, hint)
            return data_type

        return type_of

    # ── scalar subqueries ───────────────────────────────────────────────────────────────────────────────────────────

    def _translate_scalar(self, node: exp.Subquery) -> TypedExpr:
        query, span = node.unnest(), span_of(node)
        if not isinstance(query, exp.Select) or len(query.expressions) != 1:
            raise error("E047", "a subquery used as a value must have one column", span)
        if not has_aggregates(query.expressions[0]) or query.args.get("group") is not None:
            return self._join_single_row(query, span)
        if any(query.args.get(part) for part in _OTHER_CLAUSES):
            raise error("E047", "a subquery used as a value may have FROM and WHERE only", span)
        inner = self._translate_from(query)
        if self._is_correlated(inner, query):
            inner.rename_clashes(self._outer_column_names())
        pairs, other_predicates = split_equalities(self.outer, inner, self._split_where(inner, query))
        if other_predicates:
            message = "a subquery used as a value can be correlated with the outer query only by equalities"
            raise error("E047", message, other_predicates[0].span or span)
        output = query.expressions[0]
        grouping = GroupingBuilder(
            inner, ExpressionTranslator(inner.scope, _inner_type_lookup(inner)), self._outer_column_names()
        )
        for _, column in pairs:
            grouping.add_group_column(column, TypedExpr(mmpl.ColumnRef(column), inner.heading.columns[column]))
        grouping.add_aggregates(output)
        typed = grouping.summarize().translate(output.unalias())
        default = _empty_group_value(typed, grouping, inner)
        value = inner.extend(output.alias or "value", typed, self._outer_column_names())
        return self._join_aggregate(inner, pairs, TypedExpr(mmpl.ColumnRef(value, span=span), typed.type), default)

    def _join_aggregate(
        self, inner: QueryPipeline, pairs: list[tuple[str, str]], value: TypedExpr, default: mmpl.Constant
    ) -> TypedExpr:
        """Joins the aggregate. It has a row for every key except NULL, for which the result is `default`."""
        span = value.expr.span
        nullable = [a for a, _ in pairs if a not in self.outer.heading.tick]
        kind: mmpl.JoinKind = "left" if nullable else "inner"
        if pairs and self.outer.heading.total and is_key_equated(self.outer.heading, (a for a, _ in pairs)):
            # Makes the outer relation non-total: groups that exist only in the subquery are no rows of the outer query.
            self.outer.rel = mmpl.Restrict(self.outer.rel, mmpl.Constant(True, BOOL), span=span)
        self.outer.rel = mmpl.Join(kind, self.outer.rel, inner.rel, tuple(pairs), span=span)
        if default.value is None or not nullable:
            return value
        tests = [mmpl.Call("is null", (mmpl.ColumnRef(a),)) for a in nullable]
        missing = mmpl.Call("or", tuple(tests)) if len(tests) > 1 else tests[0]
        return TypedExpr(mmpl.Case(((missing, default),), value.expr, span=span), value.type)

    def _join_single_row(self, query: exp.Select, span: Span | None) -> TypedExpr:
        """Joins a subquery that has one row because it has no key, such as an aggregate without GROUP BY."""
        hint = "Use a JOIN, or an aggregate such as MAX or LATEST."
        message = "a subquery used as a value must be one aggregate, so that it has exactly one row"
        inner = self._translate_closed(query)
        if inner.heading.key:
            raise error("E047", message, span, hint)
        (value,) = inner.heading.visible
        kind: mmpl.JoinKind = "inner" if inner.heading.total else "left"
        self.outer.rel = mmpl.Join(kind, self.outer.rel, inner.rel, (), span=span)
        return TypedExpr(mmpl.ColumnRef(value, span=span), self.outer.heading.columns[value])


def _is_from_and_where_only(query: exp.Expr) -> bool:
    """Whether a subquery consists of FROM and WHERE, so that it may refer to the outer query."""
    if not isinstance(query, exp.Select) or any(query.args.get(part) for part in _OTHER_CLAUSES):
        return False
    return not any(has_aggregates(e) or e.find(exp.Window) for e in query.expressions)


def _outer_reference_error(span: Span | None) -> SmileError:
    message = "the select list of a subquery may not refer to the outer query"
    return error("E047", message, span, "Refer to the outer query in the WHERE of the subquery.")


def _inner_type_lookup(inner: QueryPipeline) -> Callable[[str, Span | None], DataType]:
    def type_of(name: str, span: Span | None) -> DataType:
        if name not in inner.heading.columns:
            raise _outer_reference_error(span)
        return inner.heading.columns[name]

    return type_of


def _empty_group_value(typed: TypedExpr, grouping: GroupingBuilder, inner: QueryPipeline) -> mmpl.Constant:
    """The value of an expression with aggregates for an empty group. Counts and sums are 0."""
    types = inner.heading.columns
    row: dict[str, Value] = dict.fromkeys(types)
    row |= {name: default_value(aggregate, types[name]) for name, aggregate in grouping.aggregates.items()}
    return mmpl.Constant(evaluate_expr(typed.expr, row, types), typed.type)
