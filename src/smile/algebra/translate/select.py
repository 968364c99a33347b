"""One SELECT. Its clauses are taken in the order in which SQL evaluates them; errors of a clause's parts are gathered,
so that several are reported at once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sqlglot import exp

from smile.algebra import mmpl
from smile.algebra.translate.aggregation import Grouping, find_aggregates, has_aggregates
from smile.algebra.translate.expressions import Expressions, Typed
from smile.algebra.translate.joins import join, tied
from smile.algebra.translate.outputs import Output, best, limit, mismatch, projected, star_columns, unique_names
from smile.algebra.translate.overs import lift_overs
from smile.algebra.translate.pipeline import Catalog, Pipeline, conjuncts
from smile.algebra.translate.scope import Names, Scope, free_name, is_quoted, matches
from smile.algebra.translate.silence import lift_silences
from smile.algebra.translate.sources import Sources, Translate
from smile.algebra.translate.subqueries import Subqueries, is_test, strip_not
from smile.algebra.types import NULL, STRING, DataType
from smile.errors import Diagnostic, SmileError, error
from smile.lang import span_of
from smile.source import Span


class Select:
    """`prepare` finds the outputs and their types, `finish` makes the relation: a UNION has its say in between."""

    def __init__(self, node: exp.Select, catalog: Catalog, translate: Translate) -> None:
        self.node = node
        self.translate_query = translate
        self.problems: list[Diagnostic] = []
        self.aliases = Names({e.alias: e for e in node.expressions if isinstance(e, exp.Alias)})
        self.lifted: dict[int, Typed] = {}
        self.pipeline = self._from(catalog)

    def prepare(self) -> list[Output]:
        self._where()
        try:
            self.expressions = self._grouped() or self._on_rows()
        except SmileError as problem:
            raise SmileError(_once([*self.problems, *problem.diagnostics])) from None
        self._having()
        sound = [node for node in self._evaluated_last() if self._lift(node)]
        self.outputs = self._outputs(sound)
        self._stop_at_problems()
        return self.outputs

    @contextmanager
    def _gather(self) -> Iterator[None]:
        """Keep an error for later, and the relation, with what is known of it, as it was before."""
        pipeline = self.pipeline
        rel, computed, lifted = pipeline.rel, dict(pipeline.computed), dict(self.lifted)
        try:
            yield
            pipeline.catalog.headings.of(pipeline.rel)
        except SmileError as problem:
            self.problems += problem.diagnostics
            pipeline.rel, pipeline.computed = rel, computed
            self.lifted.clear()
            self.lifted.update(lifted)

    def _stop_at_problems(self) -> None:
        if self.problems:
            raise SmileError(_once(self.problems))

    def _lift(self, node: exp.Expr) -> bool:
        """Compute what must be computed before an expression; whether that could be done."""
        before = len(self.problems)
        with self._gather():
            self._subqueries(self.expressions).lift(node)
            lift_overs(self.pipeline, node, self.expressions)
        return len(self.problems) == before

    def _from(self, catalog: Catalog) -> Pipeline:
        sources = Sources(catalog, self.translate_query)
        pipeline = sources.pipeline(self.node.args["from_"].this)
        for node in self.node.args.get("joins") or []:
            join(pipeline, sources.pipeline(node.this), node)
        return pipeline

    def _on_rows(self) -> Expressions:
        return replace(self.pipeline.expressions(), lifted=self.lifted)

    def _subqueries(self, expressions: Expressions) -> Subqueries:
        return Subqueries(self.pipeline, self.translate_query, expressions)

    # ── WHERE ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _where(self) -> None:
        where = self.node.args.get("where")
        tests: list[tuple[exp.Expr, bool]] = []
        predicates: list[mmpl.Expr] = []
        for node in conjuncts(where.this) if where is not None else []:
            with self._gather():
                positive, negated = strip_not(node)
                if is_test(positive):
                    tests.append((positive, negated))
                    continue
                if has_aggregates(node):
                    raise error("E042", "an aggregate in WHERE", span_of(node), "Put the condition in HAVING.")
                found = self._predicate(node)
                self.pipeline.catalog.headings.of(self.pipeline.rel)  # what it needed may not be well formed
                predicates += found
        self.pipeline.restrict(predicates)
        for test, negated in tests:
            with self._gather():
                self._subqueries(self._with_aliases()).restrict(test, negated)

    def _predicate(self, node: exp.Expr) -> list[mmpl.Expr]:
        """One condition of WHERE; none, if it was put into a join."""
        pipeline, expressions = self.pipeline, self._with_aliases()
        lift_silences(pipeline, node, expressions)
        self._subqueries(expressions).lift(node)
        predicate = expressions.predicate(node)
        joined = tied(pipeline.rel, predicate, pipeline.catalog.headings)
        if joined is None:
            return [predicate]
        pipeline.rel = joined
        return []

    def _with_aliases(self) -> Expressions:
        return replace(self._on_rows(), alias=self._alias_on_rows, aliases=tuple(self.aliases))

    def _alias_on_rows(self, node: exp.Column) -> Typed | None:
        """An alias of the select list, as a column of the pipeline."""
        found = self.aliases.find(node.name, is_quoted(node))
        if found is None:
            return None
        body = self.aliases[found].this
        if has_aggregates(body) or body.find(exp.Window):
            hint = "Put the condition in HAVING, or in a view of this view."
            raise error("E042", f"{found} is an aggregate, which WHERE comes before", span_of(node), hint)
        expressions = self._on_rows()
        self._subqueries(expressions).lift(body)
        return self._as_column(found, expressions.translate(body), span_of(node))

    def _as_column(self, name: str, typed: Typed, span: Span | None) -> Typed:
        return Typed(mmpl.Column(self.pipeline.extend(name, typed), span=span), typed.type)

    # ── GROUP BY, HAVING ────────────────────────────────────────────────────────────────────────────────────────────

    def _evaluated_last(self) -> list[exp.Expr]:
        """What is evaluated on groups, if there are any: the select list and what orders it."""
        ordering, order = self.node.args.get("best"), self.node.args.get("order")
        ordered = [o.this for o in (*(ordering.by if ordering else ()), *(order.expressions if order else ()))]
        return [*self.node.expressions, *ordered]

    def _grouped(self) -> Expressions | None:
        """How to translate what is evaluated on groups; None if there are none."""
        having, group = self.node.args.get("having"), self.node.args.get("group")
        evaluated = [*self._evaluated_last(), *([having.this] if having is not None else [])]
        if group is None and not any(has_aggregates(e) for e in evaluated):
            if having is not None:
                raise error("E042", "HAVING without groups", span_of(having), "Use WHERE.")
            return None
        rows = self._on_rows()
        grouping = Grouping(self.pipeline, rows)
        for node in group.expressions if group is not None else []:
            with self._gather():
                self._group_by(grouping, node)
        for output in evaluated:
            with self._gather():
                for aggregate in find_aggregates(output):
                    self._subqueries(rows).lift(aggregate)
                grouping.add(output)
        self._stop_at_problems()
        return replace(grouping.close(), alias=self._alias_on_groups, aliases=tuple(self.aliases))

    def _group_by(self, grouping: Grouping, node: exp.Expr) -> None:
        written = self._group_expression(node)
        if has_aggregates(written):
            raise error("E042", "an aggregate in GROUP BY", span_of(node))
        self._subqueries(grouping.rows).lift(written)
        typed = grouping.rows.translate(written)
        if not typed.type.is_ordered:
            raise error("E031", f"rows cannot be grouped by a {typed.type.name}", span_of(node))
        named = [a for a in self.aliases if self.aliases[a].unalias() == written]
        grouping.by(named[0] if named else "group_by", typed)

    def _group_expression(self, node: exp.Expr) -> exp.Expr:
        """The expression that an item of GROUP BY means: an ordinal and an alias stand for one of the select list."""
        if isinstance(node, exp.Literal) and not node.is_string:
            index = int(node.name) if node.name.isdigit() else 0
            if not 1 <= index <= len(self.node.expressions) or self.node.expressions[index - 1].is_star:
                raise error("E022", f"there is no column number {node.name} in the select list", span_of(node))
            written: exp.Expr = self.node.expressions[index - 1].unalias()
            return written
        if isinstance(node, exp.Column) and not node.table:
            found = self.aliases.find(node.name, is_quoted(node))
            if found is not None and self.pipeline.scope.find(node, span_of(node)) is None:
                body: exp.Expr = self.aliases[found].this
                return body
        return node

    def _alias_on_groups(self, node: exp.Column) -> Typed | None:
        """HAVING and ORDER BY may name an aggregate by its alias."""
        found = self.aliases.find(node.name, is_quoted(node))
        if found is None:
            return None
        body = self.aliases[found].unalias()
        if body.find(exp.Window):
            raise error("E042", f"{found} has OVER, which HAVING comes before", span_of(node))
        expressions = replace(self.expressions, alias=lambda _: None)
        self._subqueries(expressions).lift(body)
        return expressions.begin(self._as_column(found, expressions.translate(body), span_of(node)))

    def _having(self) -> None:
        having = self.node.args.get("having")
        if having is not None:
            with self._gather():
                self._subqueries(self.expressions).lift(having.this)
                self.pipeline.restrict([self.expressions.predicate(node) for node in conjuncts(having.this)])

    # ── the select list ─────────────────────────────────────────────────────────────────────────────────────────────

    def _outputs(self, sound: Sequence[exp.Expr]) -> list[Output]:
        outputs: list[Output] = []
        expressions = replace(self.expressions, alias=lambda _: None, aliases=())
        for node in (n for n in self.node.expressions if any(n is s for s in sound)):
            with self._gather():
                if node.is_star:
                    outputs += self._starred(node, expressions)
                else:
                    typed = expressions.translate(node.unalias())
                    outputs.append(self._named(node, typed, {o.name for o in outputs}))
        return outputs

    def _starred(self, node: exp.Expr, expressions: Expressions) -> list[Output]:
        span, outputs = span_of(node), []
        for name, column in star_columns(self.pipeline.scope, node):
            typed = Typed(mmpl.Column(column, span=span), expressions.type_of(column, span))
            outputs.append(Output(name, expressions.finish(typed), span))
        return outputs

    def _named(self, node: exp.Expr, typed: Typed, taken: set[str]) -> Output:
        """An output by its alias, its column, its function, or a name that is free."""
        span = span_of(node)
        if isinstance(node, exp.Alias):
            return Output(node.alias, typed, span, is_quoted(node.args["alias"]))
        body = node
        while isinstance(body, exp.Paren):
            body = body.this
        if isinstance(body, exp.Column):
            return Output(self._declared(body), typed, span)
        inner = body
        while isinstance(inner, exp.Paren | exp.Cast):
            inner = inner.this
        if isinstance(inner, exp.Column):
            wanted = self._declared(inner)
        elif isinstance(typed.expr, mmpl.Column):
            wanted = typed.expr.name
        elif isinstance(inner, exp.Anonymous):
            wanted = str(inner.this).lower()
        else:
            wanted = inner.key if isinstance(inner, exp.Case | exp.Extract) else "column"
        return Output(free_name(wanted, taken), typed, span)

    def _declared(self, node: exp.Column) -> str:
        """A column's name as its relation declares it."""
        table = node.args.get("table")
        for item in self.pipeline.scope.items:
            if table is None or self.pipeline.scope.has_table(table.name, is_quoted(table)):
                found = item.columns.find(node.name, is_quoted(node))
                if found is not None:
                    return found
        return node.name

    # ── BEST, DISTINCT, ORDER BY … LIMIT ────────────────────────────────────────────────────────────────────────────

    def finish(self, names: Sequence[str] = (), types: Sequence[DataType] = ()) -> mmpl.Rel:
        """`names` and `types` are what the outputs are to have, if it is not their own: a bare NULL is a string."""
        node, pipeline, span, outputs = self.node, self.pipeline, span_of(self.node), self.outputs
        if names and len(names) != len(outputs):
            raise mismatch(len(names), len(outputs), outputs[0].span)
        if not names:
            names = unique_names(outputs)
        own = [STRING if o.typed.type == NULL else o.typed.type for o in outputs]
        for output, type in zip(outputs, types or own, strict=True):
            output.typed = Typed(self.expressions.coerce(output.typed, type, output.span), type)
        columns = pipeline.extend_all([(n, o.typed) for n, o in zip(names, outputs, strict=True)])
        for output, column in zip(outputs, columns, strict=True):
            output.typed = Typed(mmpl.Column(column, span=output.span), output.typed.type)
        ordering = replace(self.expressions, alias=self._alias_of_output)
        if node.args.get("best") is not None:
            best(node.args["best"], pipeline, outputs, ordering)
        if node.args.get("distinct") is None:
            limit(node, pipeline, outputs, ordering)
        shown = [replace(o, name=n) for o, n in zip(outputs, names, strict=True)]
        rel = projected(pipeline, shown, span)
        return rel if node.args.get("distinct") is None else self._distinct(rel, shown)

    def _alias_of_output(self, node: exp.Column) -> Typed | None:
        found = [o.typed for o in self.outputs if matches(node.name, is_quoted(node), o.name)]
        return self.expressions.begin(found[0]) if found else None

    def _distinct(self, rel: mmpl.Rel, shown: list[Output]) -> mmpl.Rel:
        for output in shown:
            if not output.typed.type.is_ordered:
                raise error("E031", f"DISTINCT cannot compare a {output.typed.type.name}", output.span)
        distinct = Pipeline(mmpl.Distinct(rel, span=span_of(self.node)), Scope(), self.pipeline.catalog)
        pairs = zip(self.outputs, shown, strict=True)
        outputs = [replace(o, typed=Typed(mmpl.Column(s.name), s.typed.type)) for o, s in pairs]
        limit(self.node, distinct, outputs, distinct.expressions())
        return distinct.rel


def _once(problems: list[Diagnostic]) -> list[Diagnostic]:
    """An alias is translated wherever it is used, and its errors found there each time."""
    return list(dict.fromkeys(problems))
