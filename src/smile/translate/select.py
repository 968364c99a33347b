"""Translates one SELECT. Its clauses are translated in the order in which SQL evaluates them.

The errors of the parts of a clause are collected, so that several are reported at once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl
from smile.algebra.types import INT, NULL, STRING, DataType
from smile.errors import Diagnostic, SmileError, error
from smile.lang import span_of
from smile.source import Span
from smile.translate.aggregation import GroupingBuilder, find_aggregates, has_aggregates
from smile.translate.expressions import ExpressionTranslator, TypedExpr
from smile.translate.from_clause import FromTranslator, QueryTranslation
from smile.translate.joins import add_join, with_equality_in_join
from smile.translate.lateral import add_lateral_join
from smile.translate.outputs import (
    SelectOutput,
    add_best,
    add_limit,
    column_count_error,
    project_outputs,
    star_columns,
    unique_names,
)
from smile.translate.pipeline import Catalog, QueryPipeline, split_conjunction
from smile.translate.ranking import RankCondition, add_rank_condition, is_ranking, rank_condition, ranking_operands
from smile.translate.recent import RecentRows, reads_clock, recent_rows, restrict_to_recent_rows
from smile.translate.scope import NameTable, Scope, free_name, is_match, is_quoted
from smile.translate.silence import lift_silences
from smile.translate.subqueries import SubqueryTranslator, is_subquery_test, strip_not
from smile.translate.unnest import add_unnest
from smile.translate.window_functions import lift_window_functions, window_rank

_DERIVED_NAMES: dict[type[exp.Expr], str] = {
    **{kind: name.lower() for name, kind in lang.DERIVED_AGGREGATES.items()},
    **{kind: name.lower() for name, kind in lang.PERCENTILES.items()},
    lang.StringAggregate: "string_agg",
    lang.ArrayAggregate: "array_agg",
}


class SelectTranslator:
    """`prepare` determines the outputs and their types. `finish` builds the relation; a UNION gives it other types."""

    def __init__(self, node: exp.Select, catalog: Catalog, translate: QueryTranslation) -> None:
        self.node = node
        self.translate_query = translate
        self.problems: list[Diagnostic] = []
        self.aliases = NameTable({e.alias: e for e in node.expressions if isinstance(e, exp.Alias)})
        self.lifted_values: dict[int, TypedExpr] = {}
        self.pipeline = self._translate_from(catalog)

    def prepare(self) -> list[SelectOutput]:
        self._translate_where()
        try:
            self.translator = self._translate_grouping() or self._row_translator()
        except SmileError as problem:
            raise SmileError(_remove_duplicates([*self.problems, *problem.diagnostics])) from None
        self._translate_having()
        rank_conditions = self._find_rank_conditions()
        liftable = [node for node in sorted(self._expressions_after_grouping(), key=window_rank) if self._lift(node)]
        self._translate_qualify(rank_conditions)
        self.outputs = self._translate_outputs(liftable)
        self._raise_problems()
        return self.outputs

    @contextmanager
    def _collect_errors(self) -> Iterator[None]:
        """Collects an error, and restores the relation and what was computed for it to the state before."""
        pipeline = self.pipeline
        rel, computed, lifted_values = pipeline.rel, dict(pipeline.computed), dict(self.lifted_values)
        try:
            yield
            pipeline.catalog.headings.heading_of(pipeline.rel)
        except SmileError as problem:
            self.problems += problem.diagnostics
            pipeline.rel, pipeline.computed = rel, computed
            self.lifted_values.clear()
            self.lifted_values.update(lifted_values)

    def _raise_problems(self) -> None:
        if self.problems:
            raise SmileError(_remove_duplicates(self.problems))

    def _lift(self, node: exp.Expr) -> bool:
        """Lifts the subqueries and window functions of an expression. Returns False if there was an error."""
        problem_count = len(self.problems)
        with self._collect_errors():
            self._subquery_translator(self.translator).lift(node)
            lift_window_functions(self.pipeline, node, self.translator)
        return len(self.problems) == problem_count

    def _translate_from(self, catalog: Catalog) -> QueryPipeline:
        sources = FromTranslator(catalog, self.translate_query)
        pipeline = sources.pipeline(self.node.args["from_"].this)
        for node in self.node.args.get("joins") or []:
            if isinstance(node.this, exp.Lateral):
                add_lateral_join(pipeline, node, self.translate_query)
            elif isinstance(node.this, exp.Unnest):
                add_unnest(pipeline, node)
            else:
                add_join(pipeline, sources.pipeline(node.this, as_of=node.method == "ASOF"), node)
        return pipeline

    def _row_translator(self) -> ExpressionTranslator:
        return replace(self.pipeline.translator(), lifted_values=self.lifted_values)

    def _subquery_translator(self, translator: ExpressionTranslator) -> SubqueryTranslator:
        return SubqueryTranslator(self.pipeline, self.translate_query, translator)

    # ── WHERE ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _translate_where(self) -> None:
        where = self.node.args.get("where")
        tests: list[tuple[exp.Expr, bool]] = []
        predicates: list[mmpl.Expr] = []
        recent: list[RecentRows] = []
        for node in split_conjunction(where.this) if where is not None else []:
            with self._collect_errors():
                if reads_clock(node):
                    recent.append(recent_rows(node))
                    continue
                positive, negated = strip_not(node)
                if is_subquery_test(positive):
                    tests.append((positive, negated))
                    continue
                if has_aggregates(node):
                    raise error(
                        "E042", "WHERE cannot contain an aggregate", span_of(node), "Put the condition in HAVING."
                    )
                conditions = self._translate_where_condition(node)
                self.pipeline.catalog.headings.heading_of(self.pipeline.rel)  # raises the errors of lifted parts
                predicates += conditions
        self.pipeline.restrict(predicates)
        for test, negated in tests:
            with self._collect_errors():
                self._subquery_translator(self._row_translator_with_aliases()).add_restriction(test, negated)
        for rows in recent:
            with self._collect_errors():
                restrict_to_recent_rows(self.pipeline, rows, self._row_translator())

    def _translate_where_condition(self, node: exp.Expr) -> list[mmpl.Expr]:
        """The predicate of one condition of WHERE; empty if it became an equality of a join."""
        pipeline, translator = self.pipeline, self._row_translator_with_aliases()
        lift_silences(pipeline, node, translator)
        self._subquery_translator(translator).lift(node)
        predicate = translator.translate_predicate(node)
        joined = with_equality_in_join(pipeline.rel, predicate, pipeline.catalog.headings)
        if joined is None:
            return [predicate]
        pipeline.rel = joined
        return []

    def _row_translator_with_aliases(self) -> ExpressionTranslator:
        return replace(self._row_translator(), resolve_alias=self._alias_on_rows, alias_names=tuple(self.aliases))

    def _alias_on_rows(self, node: exp.Column) -> TypedExpr | None:
        """The column of the pipeline for an alias of the select list."""
        alias = self.aliases.find(node.name, is_quoted(node))
        if alias is None:
            return None
        body = self.aliases[alias].this
        if has_aggregates(body) or body.find(exp.Window):
            hint = "Put the condition in HAVING, or in another view that reads this one."
            raise error("E042", f"{alias} is an aggregate and cannot be used in WHERE", span_of(node), hint)
        translator = self._row_translator()
        self._subquery_translator(translator).lift(body)
        return self._as_column(alias, translator.translate(body), span_of(node))

    def _as_column(self, name: str, typed: TypedExpr, span: Span | None) -> TypedExpr:
        return TypedExpr(mmpl.ColumnRef(self.pipeline.extend(name, typed), span=span), typed.type)

    # ── GROUP BY, HAVING ────────────────────────────────────────────────────────────────────────────────────────────

    def _expressions_after_grouping(self) -> list[exp.Expr]:
        """The expressions that are evaluated after grouping: the select list, and those of ORDER BY and BEST."""
        best_clause, order = self.node.args.get("best"), self.node.args.get("order")
        ordering_nodes = [
            o.this for o in (*(best_clause.by if best_clause else ()), *(order.expressions if order else ()))
        ]
        return [*self.node.expressions, *ordering_nodes]

    def _translate_grouping(self) -> ExpressionTranslator | None:
        """The translator for expressions over groups; None if the query has no groups."""
        having, group = self.node.args.get("having"), self.node.args.get("group")
        evaluated = [*self._expressions_after_grouping(), *([having.this] if having is not None else [])]
        qualify = self.node.args.get("qualify")
        if qualify is not None:
            evaluated += [o for e in (qualify.this, *self.node.expressions) for o in ranking_operands(e)]
        if group is None and not any(has_aggregates(e) for e in evaluated):
            if having is not None:
                raise error("E042", "HAVING needs GROUP BY or an aggregate", span_of(having), "Use WHERE.")
            return None
        row_translator = self._row_translator()
        grouping = GroupingBuilder(self.pipeline, row_translator)
        for node in group.expressions if group is not None else []:
            with self._collect_errors():
                self._group_by(grouping, node)
        for output in evaluated:
            with self._collect_errors():
                for aggregate in find_aggregates(output):
                    self._subquery_translator(row_translator).lift(aggregate)
                grouping.add_aggregates(output)
        self._raise_problems()
        translator = grouping.summarize()
        return replace(translator, resolve_alias=self._alias_on_groups, alias_names=tuple(self.aliases))

    def _group_by(self, grouping: GroupingBuilder, node: exp.Expr) -> None:
        expression = self._group_expression(node)
        if has_aggregates(expression):
            raise error("E042", "GROUP BY cannot contain an aggregate", span_of(node))
        self._subquery_translator(grouping.row_translator).lift(expression)
        typed = grouping.row_translator.translate(expression)
        if not typed.type.is_comparable:
            raise error("E031", f"rows cannot be grouped by a {typed.type.name}", span_of(node))
        alias_names = [a for a in self.aliases if self.aliases[a].unalias() == expression]
        grouping.add_group_column(alias_names[0] if alias_names else "group_by", typed)

    def _group_expression(self, node: exp.Expr) -> exp.Expr:
        """The expression of an item of GROUP BY. A number or an alias refers to one of the select list."""
        if isinstance(node, exp.Literal) and not node.is_string:
            index = int(node.name) if node.name.isdigit() else 0
            if not 1 <= index <= len(self.node.expressions) or self.node.expressions[index - 1].is_star:
                raise error("E022", f"there is no column number {node.name} in the select list", span_of(node))
            written: exp.Expr = self.node.expressions[index - 1].unalias()
            return written
        if isinstance(node, exp.Column) and not node.table:
            alias = self.aliases.find(node.name, is_quoted(node))
            if alias is not None and self.pipeline.scope.find(node, span_of(node)) is None:
                body: exp.Expr = self.aliases[alias].this
                return body
        return node

    def _alias_on_groups(self, node: exp.Column) -> TypedExpr | None:
        """HAVING and ORDER BY may refer to an aggregate by its alias."""
        alias = self.aliases.find(node.name, is_quoted(node))
        if alias is None:
            return None
        body = self.aliases[alias].unalias()
        if body.find(exp.Window):
            raise error("E042", f"{alias} has OVER and cannot be used in HAVING", span_of(node))
        translator = replace(self.translator, resolve_alias=lambda _: None)
        self._subquery_translator(translator).lift(body)
        return translator.mark_lifted(self._as_column(alias, translator.translate(body), span_of(node)))

    def _translate_having(self) -> None:
        having = self.node.args.get("having")
        if having is not None:
            with self._collect_errors():
                self._subquery_translator(self.translator).lift(having.this)
                self.pipeline.restrict(
                    [self.translator.translate_predicate(node) for node in split_conjunction(having.this)]
                )

    # ── QUALIFY ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _find_rank_conditions(self) -> list[RankCondition]:
        """The conditions of QUALIFY on row numbers. What else uses such a number is translated once it is known."""
        qualify = self.node.args.get("qualify")
        conditions: list[RankCondition] = []
        self.other_conditions: list[exp.Expr] = []
        for node in split_conjunction(qualify.this) if qualify is not None else []:
            with self._collect_errors():
                condition = rank_condition(node, self._window_of)
                conditions += [condition] if condition is not None else []
                if condition is None or not condition.is_whole:
                    self.other_conditions.append(node)
        windows = [c.window for c in conditions]
        evaluated = (*self._expressions_after_grouping(), *self.other_conditions)
        self.ranking_nodes = [n for e in evaluated for n in e.walk(bfs=False) if is_ranking(n) and n in windows]
        for node in self.ranking_nodes:
            self.translator.add_lifted(node, TypedExpr(mmpl.Constant(None, INT, span=span_of(node)), INT))
        return conditions

    def _window_of(self, operand: exp.Expr) -> exp.Expr:
        """The operand, or what it is an alias of."""
        alias = self.aliases.find(operand.name, is_quoted(operand)) if isinstance(operand, exp.Column) else None
        return operand if alias is None else self.aliases[alias].this

    def _translate_qualify(self, rank_conditions: Sequence[RankCondition]) -> None:
        """All windows are computed before QUALIFY removes rows."""
        translator = replace(self.translator, resolve_alias=self._alias_of_window)
        conditions = [node for node in self.other_conditions if self._lift(node)]
        if any(c.window != rank_conditions[0].window for c in rank_conditions):
            span = span_of(rank_conditions[-1].window)
            raise error("E200", "a query can compare one row number", span, "Compare the other in a query around it.")
        if rank_conditions:
            with self._collect_errors():
                condition = min(rank_conditions, key=lambda c: c.k)
                number = add_rank_condition(self.pipeline, condition, self.translator, bool(self.ranking_nodes))
                if number is not None:
                    for node in self.ranking_nodes:
                        self.translator.add_lifted(node, number)
        for node in conditions:
            with self._collect_errors():
                self.pipeline.restrict([translator.translate_predicate(node)])

    def _alias_of_window(self, node: exp.Column) -> TypedExpr | None:
        alias = self.aliases.find(node.name, is_quoted(node))
        return None if alias is None else self.translator.translate(self.aliases[alias].this)

    # ── the select list ─────────────────────────────────────────────────────────────────────────────────────────────

    def _translate_outputs(self, liftable: Sequence[exp.Expr]) -> list[SelectOutput]:
        outputs: list[SelectOutput] = []
        translator = replace(self.translator, resolve_alias=lambda _: None, alias_names=())
        taken: set[str] = set()
        lifted = {id(node) for node in liftable}
        for node in (n for n in self.node.expressions if id(n) in lifted):
            with self._collect_errors():
                if node.is_star:
                    added = self._star_outputs(node, translator)
                else:
                    added = [self._named_output(node, translator.translate(node.unalias()), taken)]
                outputs += added
                taken.update(o.name for o in added)
        return outputs

    def _star_outputs(self, node: exp.Expr, translator: ExpressionTranslator) -> list[SelectOutput]:
        span, outputs = span_of(node), []
        for name, column in star_columns(self.pipeline.scope, node):
            typed = TypedExpr(mmpl.ColumnRef(column, span=span), translator.type_of(column, span))
            outputs.append(SelectOutput(name, translator.finish_expression(typed), span))
        return outputs

    def _named_output(self, node: exp.Expr, typed: TypedExpr, taken: set[str]) -> SelectOutput:
        """An output, named by its alias, its column or its function, or with another free name."""
        span = span_of(node)
        if isinstance(node, exp.Alias):
            return SelectOutput(node.alias, typed, span, is_quoted(node.args["alias"]))
        body = node
        while isinstance(body, exp.Paren):
            body = body.this
        if isinstance(body, exp.Column):
            return SelectOutput(self._declared_name(body), typed, span)
        inner = body
        while isinstance(inner, exp.Paren | exp.Cast):
            inner = inner.this
        if isinstance(inner, exp.Column):
            wanted = self._declared_name(inner)
        elif isinstance(typed.expr, mmpl.ColumnRef):
            wanted = typed.expr.name
        elif isinstance(inner, exp.Anonymous):
            wanted = str(inner.this).lower()
        elif type(inner) in _DERIVED_NAMES:
            wanted = _DERIVED_NAMES[type(inner)]
        else:
            wanted = inner.key if isinstance(inner, exp.Case | exp.Extract) else "column"
        return SelectOutput(free_name(wanted, taken), typed, span)

    def _declared_name(self, node: exp.Column) -> str:
        """The name of a column in the declared spelling."""
        table = node.args.get("table")
        for item in self.pipeline.scope.from_items:
            if table is None or is_match(table.name, is_quoted(table), item.alias):
                name = item.columns.find(node.name, is_quoted(node))
                if name is not None:
                    return name
        return node.name

    # ── BEST, DISTINCT, ORDER BY … LIMIT ────────────────────────────────────────────────────────────────────────────

    def finish(self, names: Sequence[str] = (), types: Sequence[DataType] = ()) -> mmpl.Rel:
        """The relation, with other `names` and `types` of the outputs if given. A bare NULL becomes a string."""
        node, pipeline, span, outputs = self.node, self.pipeline, span_of(self.node), self.outputs
        if names and len(names) != len(outputs):
            raise column_count_error(len(names), len(outputs), outputs[0].span)
        if not names:
            names = unique_names(outputs)
        own_types = [STRING if o.typed.type == NULL else o.typed.type for o in outputs]
        for output, type in zip(outputs, types or own_types, strict=True):
            output.typed = TypedExpr(self.translator.coerce(output.typed, type, output.span), type)
        columns = pipeline.extend_all([(n, o.typed) for n, o in zip(names, outputs, strict=True)])
        for output, column in zip(outputs, columns, strict=True):
            output.typed = TypedExpr(mmpl.ColumnRef(column, span=output.span), output.typed.type)
        translator = replace(self.translator, resolve_alias=self._output_alias)
        if node.args.get("best") is not None:
            add_best(node.args["best"], pipeline, outputs, translator)
        if node.args.get("distinct") is None:
            add_limit(node, pipeline, outputs, translator)
        renamed = [replace(o, name=n) for o, n in zip(outputs, names, strict=True)]
        rel = project_outputs(pipeline, renamed, span)
        return rel if node.args.get("distinct") is None else self._translate_distinct(rel, renamed)

    def _output_alias(self, node: exp.Column) -> TypedExpr | None:
        matching = [o.typed for o in self.outputs if is_match(node.name, is_quoted(node), o.name)]
        return self.translator.mark_lifted(matching[0]) if matching else None

    def _translate_distinct(self, rel: mmpl.Rel, renamed: list[SelectOutput]) -> mmpl.Rel:
        for output in renamed:
            if not output.typed.type.is_comparable:
                raise error("E031", f"DISTINCT cannot compare a {output.typed.type.name}", output.span)
        distinct = QueryPipeline(mmpl.Distinct(rel, span=span_of(self.node)), Scope(), self.pipeline.catalog)
        pairs = zip(self.outputs, renamed, strict=True)
        outputs = [replace(o, typed=TypedExpr(mmpl.ColumnRef(r.name), r.typed.type)) for o, r in pairs]
        add_limit(self.node, distinct, outputs, distinct.translator())
        return distinct.rel


def _remove_duplicates(problems: list[Diagnostic]) -> list[Diagnostic]:
    """Keeps the first of equal diagnostics: an alias is translated wherever it is used, and repeats its errors."""
    return list(dict.fromkeys(problems))
