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
from smile.operators.aggregates import aggregate_type, default_value
from smile.source import Span
from smile.translate.aggregation import GroupingBuilder, has_aggregates
from smile.translate.expressions import BINARY_OPERATORS, ExpressionTranslator, TypedExpr
from smile.translate.from_clause import FromTranslator, QueryTranslation
from smile.translate.joins import add_join
from smile.translate.null_safe import add_comparable_columns, nulls_among
from smile.translate.outputs import star_columns
from smile.translate.pipeline import QueryPipeline, add_equal_columns, split_conjunction, split_equalities
from smile.translate.quantified import add_any_column, quantifier_of, restrict_to_any
from smile.translate.scope import free_name
from smile.translate.silence import lift_silences

_SINGLE_ROW_HINT = (
    "Use a JOIN, or an aggregate such as MAX or LATEST; or equate the whole key of its relation in WHERE."
)
_OTHER_CLAUSES = ("group", "having", "distinct", "limit", "best", "order", "with_")


def is_subquery_test(node: exp.Expr) -> bool:
    is_in = isinstance(node, exp.In) and node.args.get("query") is not None
    return isinstance(node, exp.Exists) or is_in or quantifier_of(node) is not None


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
        if _is_quantified(node) and (negated or not isinstance(node, exp.In)):
            inner, correlated, condition, is_all = self._open_quantified(node)
            restrict_to_any(self.outer, inner, condition, correlated, negated is not is_all, span_of(node))
            return
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
                if not isinstance(part, exp.Exists):
                    self.lift(part.this)
                if _is_quantified(part):
                    inner, correlated, condition, is_all = self._open_quantified(part)
                    value = add_any_column(self.outer, inner, condition, correlated, span_of(part))
                    value = mmpl.Call("not", (value,), span=value.span) if is_all else value
                    self.translator.add_lifted(part, TypedExpr(value, BOOL))
                    continue
                match_column = free_name(
                    "exists" if isinstance(part, exp.Exists) else "found", self.outer.heading.columns
                )
                self._add_test_join(part, "match", match_column)
                self.translator.add_lifted(part, TypedExpr(mmpl.ColumnRef(match_column, span=span_of(part)), BOOL))
            elif isinstance(part, exp.Subquery):
                self.translator.add_lifted(part, self.translate_scalar(part))

    # ── EXISTS and IN ───────────────────────────────────────────────────────────────────────────────────────────────

    def _add_test_join(self, node: exp.Expr, kind: mmpl.JoinKind, match_column: str | None) -> None:
        if isinstance(node, exp.In):
            self._add_in_join(node, kind, match_column)
            return
        inner, correlated, _ = self.open_subquery(node.this)
        pairs, predicates = split_equalities(self.outer, inner, correlated)
        when = trees.conjunction(predicates) if predicates else None
        self.outer.rel = mmpl.Join(
            kind, self.outer.rel, inner.rel, tuple(pairs), when, match_column, span=span_of(node)
        )

    def _add_in_join(self, node: exp.In, kind: mmpl.JoinKind, match_column: str | None) -> None:
        inner, correlated, outputs = self.open_subquery(node.args["query"])
        compared = self._compared_columns(node, inner, outputs)
        if kind == "semi":
            pairs, predicates = split_equalities(self.outer, inner, correlated)
        else:
            # A NULL makes the result of the comparison of IN unknown, but not that of WHERE. So they stay separate.
            pairs, predicates = [], correlated
        on = tuple(dict.fromkeys([*pairs, *compared]))
        when = trees.conjunction(predicates) if predicates else None
        self.outer.rel = mmpl.Join(
            kind, self.outer.rel, inner.rel, on, when, match_column, kind != "semi", span=span_of(node)
        )

    def _open_quantified(self, node: exp.Expr) -> tuple[QueryPipeline, list[mmpl.Expr], mmpl.Expr, bool]:
        """The pipeline of the subquery of ANY, ALL or IN, the predicates that refer to the outer query, the condition
        on an inner row, and whether it is that of ALL: the opposite of the comparison."""
        quantifier = quantifier_of(node)
        query = node.args["query"] if quantifier is None else quantifier.this
        inner, correlated, outputs = self.open_subquery(query)
        operands = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        _check_column_count(node, len(operands), len(outputs))
        name = "=" if quantifier is None else BINARY_OPERATORS[type(node)]
        pairs = [(self.translator.translate(o), output) for o, output in zip(operands, outputs, strict=True)]
        condition = self.translator.compare_lists(name, pairs, span_of(node)).expr
        is_all = isinstance(quantifier, exp.All)
        condition = mmpl.Call("not", (condition,), span=condition.span) if is_all else condition
        return inner, correlated, condition, is_all

    def _compared_columns(self, node: exp.In, inner: QueryPipeline, outputs: list[TypedExpr]) -> list[tuple[str, str]]:
        """The operands of the comparisons of IN, as columns of both sides."""
        operands = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        _check_column_count(node, len(operands), len(outputs))
        compared: list[tuple[str, str]] = []
        for operand, output in zip(operands, outputs, strict=True):
            if not trees.columns_in(output.expr) <= set(inner.heading.columns):
                raise _outer_reference_error(output.expr.span or span_of(node))
            comparison = self.translator.apply_function(
                "=", [self.translator.translate(operand), output], span_of(node)
            ).expr
            assert isinstance(comparison, mmpl.Call)
            a, b = comparison.args
            compared.append(add_equal_columns(self.outer, a, inner, b))
        return compared

    def open_subquery(self, query: exp.Expr) -> tuple[QueryPipeline, list[mmpl.Expr], list[TypedExpr]]:
        """The pipeline of a subquery, the predicates that refer to the outer query, and the select list."""
        while isinstance(query, exp.Subquery):
            query = query.this
        if not is_from_and_where_only(query):
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
            add_join(inner, sources.pipeline(node.this, as_of=node.method == "ASOF"), node)
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

    def translate_scalar(self, node: exp.Subquery) -> TypedExpr:
        query, span = node.unnest(), span_of(node)
        self.outer.value_spans.add(span)
        if not isinstance(query, exp.Select) or len(query.expressions) != 1:
            raise error("E047", "a subquery used as a value must have one column", span)
        if is_from_and_where_only(query):
            return self._join_row_by_key(query, span)
        if not has_aggregates(query.expressions[0]) or query.args.get("group") is not None:
            return self._join_single_row(query, span)
        if any(query.args.get(part) for part in _OTHER_CLAUSES):
            hint = "Define a view with the other clauses, and read that view in the subquery."
            raise error("E047", "a subquery used as a value may have FROM and WHERE only", span, hint)
        inner = self._translate_from(query)
        if self._is_correlated(inner, query):
            inner.rename_clashes(self._outer_column_names())
        pairs, other_predicates = split_equalities(self.outer, inner, self._split_where(inner, query))
        nullable = [a for a, _ in pairs if a not in self.outer.heading.tick]
        keys = self._join_outer_rows(inner, pairs, other_predicates, span) if other_predicates else []
        output = query.expressions[0]
        grouping = GroupingBuilder(
            inner, ExpressionTranslator(inner.scope, _inner_type_lookup(inner)), self._outer_column_names()
        )
        for column in keys if other_predicates else [b for _, b in pairs]:
            grouping.add_group_column(column, TypedExpr(mmpl.ColumnRef(column), inner.heading.columns[column]))
        grouping.add_aggregates(output)
        typed = grouping.summarize().translate(output.unalias())
        default = _empty_group_value(typed, grouping, inner)
        value = TypedExpr(
            mmpl.ColumnRef(inner.extend(output.alias or "value", typed, self._outer_column_names()), span=span),
            typed.type,
        )
        if other_predicates:
            taken = {*self.outer.heading.columns, *inner.heading.columns}
            new_names = {key: free_name(f"{key}_of_rows", taken) for key in keys}
            inner.rename(new_names)
            return self._join_aggregate(inner, list(new_names.items()), value, default, [])
        return self._join_aggregate(inner, pairs, value, default, nullable)

    def _join_outer_rows(
        self,
        inner: QueryPipeline,
        pairs: list[tuple[str, str]],
        predicates: list[mmpl.Expr],
        span: Span | None,
    ) -> list[str]:
        """Joins the inner rows with the outer rows that they belong to, so that they can be grouped by these. Returns
        the columns that identify an outer row, which are never NULL."""
        key = self.outer.heading.key
        keys = add_comparable_columns(self.outer, key, nulls_among(self.outer, key), tuple(inner.heading.columns))
        needed = {*keys, *(a for a, _ in pairs), *(c for p in predicates for c in trees.columns_in(p))}
        rows = replace(self.outer, rel=self.outer.rows_with(needed & self.outer.heading.columns.keys()))
        left, right = rows.without_default_rows(span), inner.without_default_rows(span)
        inner.rel = mmpl.Join("inner", left, right, tuple(pairs), span=span)
        inner.restrict(predicates)
        return list(dict.fromkeys(keys))

    def _join_aggregate(
        self,
        inner: QueryPipeline,
        pairs: list[tuple[str, str]],
        value: TypedExpr,
        default: mmpl.Constant,
        nullable: list[str],
    ) -> TypedExpr:
        """Joins the aggregate. If it is total, it has a row for every key except NULL, otherwise for the groups that
        have members. The result is `default` where it has none. `nullable` are the outer columns that may be NULL.
        """
        span = value.expr.span
        tested = nullable if inner.heading.total else [b for _, b in pairs]
        kind: mmpl.JoinKind = "left" if tested else "inner"
        if pairs and is_key_equated(self.outer.heading, (a for a, _ in pairs)):
            # Groups that exist only in the subquery are no rows of the outer query.
            self.outer.rel = self.outer.without_default_rows(span)
        self.outer.rel = mmpl.Join(kind, self.outer.rel, inner.rel, tuple(pairs), span=span)
        if default.value is None or not tested:
            return value
        tests = [mmpl.Call("is null", (mmpl.ColumnRef(c),)) for c in tested]
        missing = mmpl.Call("or", tuple(tests)) if len(tests) > 1 else tests[0]
        return TypedExpr(mmpl.Case(((missing, default),), value.expr, span=span), value.type)

    def _join_row_by_key(self, query: exp.Select, span: Span | None) -> TypedExpr:
        """Joins the row of a subquery that has at most one, because its WHERE equates the whole key. Without a row, the
        result is NULL."""
        inner, correlated, outputs = self.open_subquery(query)
        if len(outputs) != 1:
            raise error("E047", "a subquery used as a value must have one column", span)
        pairs, predicates = split_equalities(self.outer, inner, correlated)
        if not is_key_equated(inner.heading, (b for _, b in pairs)):
            message = "a subquery used as a value must be one aggregate, so that it has exactly one row"
            raise error("E047", message, span, _SINGLE_ROW_HINT)
        if not trees.columns_in(outputs[0].expr) <= set(inner.heading.columns):
            raise _outer_reference_error(outputs[0].expr.span or span)
        value = inner.extend(query.expressions[0].alias or "value", outputs[0], self._outer_column_names())
        if pairs and is_key_equated(self.outer.heading, (a for a, _ in pairs)):
            self.outer.rel = self.outer.without_default_rows(span)
        read = {c for p in predicates for c in trees.columns_in(p)} & set(inner.heading.columns)
        columns = tuple(c for c in inner.heading.columns if c in {value, *read, *(b for _, b in pairs)})
        is_always_there = inner.heading.total and not inner.heading.key and not predicates
        kind: mmpl.JoinKind = "inner" if is_always_there else "left"
        when = trees.conjunction(predicates) if predicates else None
        right = mmpl.Project(inner.rel, columns, span=span)
        self.outer.rel = mmpl.Join(kind, self.outer.rel, right, tuple(pairs), when, span=span)
        return TypedExpr(mmpl.ColumnRef(value, span=span), self.outer.heading.columns[value])

    def _join_single_row(self, query: exp.Select, span: Span | None) -> TypedExpr:
        """Joins a subquery that has one row because it has no key, such as an aggregate without GROUP BY."""
        message = "a subquery used as a value must be one aggregate, so that it has exactly one row"
        inner = self._translate_closed(query)
        limit = query.args.get("limit")
        if inner.heading.key and limit is not None and limit.expression.name == "1":
            _summarize_single_row(inner, span)
        if inner.heading.key:
            raise error("E047", message, span, _SINGLE_ROW_HINT)
        (value,) = inner.heading.visible
        kind: mmpl.JoinKind = "inner" if inner.heading.total else "left"
        self.outer.rel = mmpl.Join(kind, self.outer.rel, inner.rel, (), span=span)
        return TypedExpr(mmpl.ColumnRef(value, span=span), self.outer.heading.columns[value])


def _summarize_single_row(inner: QueryPipeline, span: Span | None) -> None:
    """Of at most one row, MAX is the value; without a row it is NULL."""
    (column,) = inner.heading.visible
    greatest = mmpl.Aggregate("max", mmpl.ColumnRef(column), span=span)
    aggregate_type(greatest, inner.heading, span)
    inner.rel = mmpl.Summarize(inner.rel, (), ((column, greatest),), span=span)


def is_from_and_where_only(query: exp.Expr) -> bool:
    """Whether a subquery consists of FROM and WHERE, so that it may refer to the outer query."""
    if not isinstance(query, exp.Select) or any(query.args.get(part) for part in _OTHER_CLAUSES):
        return False
    return not any(has_aggregates(e) or e.find(exp.Window) for e in query.expressions)


def _is_quantified(node: exp.Expr) -> bool:
    """Whether its result may be NULL in another way than that of a null-aware join of one column."""
    return quantifier_of(node) is not None or (isinstance(node, exp.In) and isinstance(node.this, exp.Tuple))


def _check_column_count(node: exp.Expr, values: int, columns: int) -> None:
    if values != columns:
        compared = "one value" if values == 1 else f"{values} values"
        found = "one column" if columns == 1 else f"{columns} columns"
        name = "IN" if isinstance(node, exp.In) else "a comparison with ANY or ALL"
        raise error("E044", f"{name} compares {compared} with {found}", span_of(node))


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
    row |= grouping.empty_distinct_values
    return mmpl.Constant(evaluate_expr(typed.expr, row, types), typed.type)
