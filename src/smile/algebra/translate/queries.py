"""A query to one relational expression of MMPL whose visible columns are the select list's, in its order."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl
from smile.algebra.coercions import common_type
from smile.algebra.translate.aggregation import find_aggregates, overs, summarize
from smile.algebra.translate.expressions import Expressions, Typed
from smile.algebra.translate.pipeline import Catalog, Pipeline, conjuncts
from smile.algebra.translate.scope import Names, Scope, free_name, matches
from smile.algebra.translate.silence import lift_silences
from smile.algebra.translate.sources import Sources
from smile.algebra.translate.subqueries import Subqueries, is_subquery_test, strip_not
from smile.algebra.types import INT, DataType
from smile.errors import Diagnostic, SmileError, error
from smile.lang import span_of
from smile.source import Span


def translate_query(node: exp.Expr, catalog: Catalog) -> mmpl.Rel:
    while isinstance(node, exp.Subquery | exp.Paren):
        node = node.this
    catalog = _with_ctes(node, catalog)
    if isinstance(node, exp.Union):
        return _union(node, catalog)
    if isinstance(node, exp.Select):
        return _Select(node, catalog).translate()
    raise error("E013", f"{type(node).__name__} is not supported as a query", span_of(node))


def _with_ctes(node: exp.Expr, catalog: Catalog) -> Catalog:
    with_ = node.args.get("with_")
    for cte in with_.expressions if with_ is not None else []:
        rel = translate_query(cte.this, catalog)
        catalog = catalog.with_relation(cte.alias, name_columns(rel, cte.alias_column_names, catalog, span_of(cte)))
    return catalog


def name_columns(rel: mmpl.Rel, names: Sequence[str], catalog: Catalog, span: Span | None) -> mmpl.Rel:
    """Give a query's columns the names of `v (a, b) AS …`, if any."""
    if not names:
        return rel
    heading = catalog.headings.of(rel)
    if len(names) != len(heading.visible):
        raise error("E044", f"{len(names)} names for {len(heading.visible)} columns", span)
    new = {old: name for old, name in zip(heading.visible, names, strict=True) if old != name}
    for hidden in heading.hidden & set(names):
        new[hidden] = free_name(hidden, (*heading.columns, *names))
    return mmpl.Rename(rel, tuple(new.items()), span=span) if new else rel


# ── UNION ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _union(node: exp.Union, catalog: Catalog) -> mmpl.Rel:
    branches: list[exp.Expr] = []
    distinct = bool(node.args.get("distinct"))
    rest: exp.Expr = node
    while isinstance(rest, exp.Union) and bool(rest.args.get("distinct")) == distinct and not rest.args.get("limit"):
        branches.append(rest.expression)
        rest = rest.this
    branches.append(rest)
    if node.args.get("limit") is not None:
        branches = [node.expression, node.this]
    rels = [translate_query(b, catalog) for b in reversed(branches)]
    rel: mmpl.Rel = mmpl.Union(_aligned(rels, list(reversed(branches)), catalog), span=span_of(node))
    if distinct:
        rel = mmpl.Distinct(rel, span=span_of(node))
    if node.args.get("limit") is not None or node.args.get("order") is not None:
        scope = Scope([])
        pipeline = Pipeline(rel, scope, catalog)
        columns = Names(dict.fromkeys(pipeline.heading.visible))
        rel = _limited(node, pipeline, [_Output(c, Typed(mmpl.Column(c), pipeline.heading.columns[c])) for c in columns])
    return rel


def _aligned(rels: list[mmpl.Rel], nodes: list[exp.Expr], catalog: Catalog) -> tuple[mmpl.Rel, ...]:
    """All branches with the first one's names and the types they have in common."""
    headings = [catalog.headings.of(r) for r in rels]
    names = headings[0].visible
    types: list[DataType] = [headings[0].columns[c] for c in names]
    for heading, node in zip(headings, nodes, strict=True):
        if len(heading.visible) != len(names):
            raise error("E044", f"UNION needs {len(names)} columns, this has {len(heading.visible)}", span_of(node))
        for i, c in enumerate(heading.visible):
            common = common_type(types[i], heading.columns[c])
            if common is None:
                raise error("E030", f"UNION of {types[i]} and {heading.columns[c]} in column {names[i]}", span_of(node))
            types[i] = common
    aligned = []
    for rel, node in zip(rels, nodes, strict=True):
        pipeline = Pipeline(rel, Scope([]), catalog)
        outputs = [
            _Output(name, Typed(Expressions(Scope(), pipeline.column_type).coerce(
                Typed(mmpl.Column(c), pipeline.heading.columns[c]), type, span_of(node)), type))
            for name, c, type in zip(names, pipeline.heading.visible, types, strict=True)
        ]  # fmt: skip
        aligned.append(_projected(pipeline, outputs, span_of(node)))
    return tuple(aligned)


# ── SELECT ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class _Output:
    name: str
    typed: Typed
    span: Span | None = None


class _Select:
    """One SELECT. Its clauses are taken in the order in which SQL evaluates them; errors of a clause's parts are
    gathered, so that several are reported at once."""

    def __init__(self, node: exp.Select, catalog: Catalog) -> None:
        self.node = node
        self.catalog = catalog
        self.problems: list[Diagnostic] = []
        self.aliases = Names({e.alias: e for e in node.expressions if isinstance(e, exp.Alias)})
        self.materialized: dict[str, str] = {}

    def translate(self) -> mmpl.Rel:
        node = self.node
        if node.args.get("from_") is None:
            raise error("E040", "a view without FROM has no key", span_of(node), "Add FROM with a stream or a view.")
        sources = Sources(self.catalog, translate_query)
        self.pipeline = sources.pipeline(node.args["from_"].this)
        for join in node.args.get("joins") or []:
            sources.join(self.pipeline, join)
        self._where()
        expressions = self._aggregate()
        self._having(expressions)
        self._lift(self._after_grouping(), expressions)
        outputs = self._outputs(expressions)
        if self.problems:
            raise SmileError(self.problems)
        return self._finish(outputs, expressions)

    @contextmanager
    def _gather(self) -> Iterator[None]:
        try:
            yield
        except SmileError as problem:
            self.problems += problem.diagnostics

    # ── WHERE ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _where(self) -> None:
        where = self.node.args.get("where")
        if where is None:
            return
        tests: list[tuple[exp.Expr, bool]] = []
        predicates: list[mmpl.Expr] = []
        for node in conjuncts(where.this):
            with self._gather():
                positive, negated = strip_not(node)
                if is_subquery_test(positive):
                    tests.append((positive, negated))
                    continue
                if find_aggregates(node):
                    raise error("E042", "an aggregate in WHERE", span_of(node), "Put the condition in HAVING.")
                expressions = self._before_grouping()
                lift_silences(self.pipeline, node, expressions)
                Subqueries(self.pipeline, translate_query).lift(node, expressions)
                predicates.append(expressions.predicate(node))
        self.pipeline.restrict(predicates)
        for test, negated in tests:
            with self._gather():
                Subqueries(self.pipeline, translate_query).restrict(test, negated)

    def _before_grouping(self) -> Expressions:
        return Expressions(self.pipeline.scope, self.pipeline.column_type, {}, self._alias_column, tuple(self.aliases))

    def _alias_column(self, node: exp.Column) -> str | None:
        """An alias of the select list, as a column of the pipeline: made when it is first needed."""
        found = self.aliases.find(node.name, bool(node.this.args.get("quoted")))
        if found is None:
            return None
        if found not in self.materialized:
            body = self.aliases[found].this
            if find_aggregates(body) or body.find(exp.Window):
                raise error("E042", f"{found} is an aggregate, which WHERE comes before", span_of(node),
                            "Put the condition in HAVING, or in a view of this view.")  # fmt: skip
            typed = self.pipeline.expressions().translate(body)
            self.materialized[found] = self.pipeline.extend(found, typed)
        return self.materialized[found]

    # ── GROUP BY, HAVING ────────────────────────────────────────────────────────────────────────────────────────────

    def _after_grouping(self) -> list[exp.Expr]:
        """What is evaluated on groups, if there are any: the select list and what orders it."""
        best, order = self.node.args.get("best"), self.node.args.get("order")
        ordered = [o.this for o in (*(best.by if best else ()), *(order.expressions if order else ()))]
        return [*self.node.expressions, *ordered]

    def _aggregate(self) -> Expressions:
        having = self.node.args.get("having")
        evaluated = [*self._after_grouping(), *([having.this] if having is not None else [])]
        group = self.node.args.get("group")
        if group is None and not any(find_aggregates(e) for e in evaluated):
            if having is not None:
                raise error("E042", "HAVING without groups", span_of(having), "Use WHERE.")
            return Expressions(self.pipeline.scope, self.pipeline.column_type)
        per: dict[str, exp.Expr] = {}
        for node in group.expressions if group is not None else []:
            with self._gather():
                written = self._group_expression(node)
                per[self._group_column(node, written)] = written
        if self.problems:
            raise SmileError(self.problems)
        expressions = summarize(self.pipeline, tuple(per), evaluated)
        expressions.alias = self._grouped_alias
        columns = self.pipeline.heading.columns
        for place in (n for e in evaluated for n in e.walk()):
            same = [c for c, w in per.items() if w == place and not isinstance(w, exp.Column)]
            if same:
                expressions.lifted[id(place)] = Typed(mmpl.Column(same[0], span=span_of(place)), columns[same[0]])
        self.grouped = expressions
        return expressions

    def _group_expression(self, node: exp.Expr) -> exp.Expr:
        """The expression that an item of GROUP BY means: an ordinal and an alias stand for one of the select list."""
        if isinstance(node, exp.Literal) and not node.is_string:
            index = int(node.name) if node.name.isdigit() else 0
            if not 1 <= index <= len(self.node.expressions):
                raise error("E022", f"there is no column number {node.name} in the select list", span_of(node))
            return self.node.expressions[index - 1].unalias()
        if isinstance(node, exp.Column) and not node.table:
            quoted = bool(node.this.args.get("quoted"))
            found = self.aliases.find(node.name, quoted)
            if found is not None and self.pipeline.scope.find(None, node.name, quoted, span_of(node)) is None:
                return self.aliases[found].unalias()
        return node

    def _group_column(self, node: exp.Expr, written: exp.Expr) -> str:
        if find_aggregates(written):
            raise error("E042", "an aggregate in GROUP BY", span_of(node))
        named = [a for a in self.aliases if self.aliases[a].unalias() == written]
        typed = self._before_grouping().translate(written)
        if not typed.type.is_ordered:
            raise error("E031", f"rows cannot be grouped by a {typed.type.name}", span_of(node))
        return self.pipeline.extend(named[0] if named else "group_by", typed)

    def _grouped_alias(self, node: exp.Column) -> str | None:
        """HAVING and ORDER BY may name an aggregate by its alias."""
        found = self.aliases.find(node.name, bool(node.this.args.get("quoted")))
        if found is None:
            return None
        return self.pipeline.extend(found, self.grouped.translate(self.aliases[found].unalias()))

    def _having(self, expressions: Expressions) -> None:
        having = self.node.args.get("having")
        if having is None:
            return
        with self._gather():
            Subqueries(self.pipeline, translate_query).lift(having.this, expressions)
            predicates = [expressions.predicate(node) for node in conjuncts(having.this)]
            self.pipeline.restrict(predicates)

    def _lift(self, nodes: Sequence[exp.Expr], expressions: Expressions) -> None:
        """Subqueries and windows of the select list and of what orders it."""
        for node in nodes:
            with self._gather():
                Subqueries(self.pipeline, translate_query).lift(node, expressions)
                overs(self.pipeline, [node], expressions)

    # ── the select list ─────────────────────────────────────────────────────────────────────────────────────────────

    def _outputs(self, expressions: Expressions) -> list[_Output]:
        outputs: list[_Output] = []
        for position, node in enumerate(self.node.expressions, 1):
            with self._gather():
                if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
                    outputs += self._star(node, expressions)
                    continue
                typed = expressions.translate(node.unalias())
                outputs.append(_Output(self._output_name(node, typed, position), typed, span_of(node)))
        seen: set[str] = set()
        for output in outputs:
            if output.name in seen:
                hint = f"Give one of them another name: … AS {free_name(output.name, seen)}."
                message = f"two columns of the select list are named {output.name}"
                self.problems.append(Diagnostic("E020", message, output.span, hint))
            seen.add(output.name)
        return outputs

    def _output_name(self, node: exp.Expr, typed: Typed, position: int) -> str:
        if isinstance(node, exp.Alias):
            return node.alias
        body = node.unnest() if isinstance(node, exp.Paren) else node
        if isinstance(body, exp.Column):
            scope = self.pipeline.scope
            for item in scope.items:
                for name in item.columns:
                    if matches(body.name, bool(body.this.args.get("quoted")), name):
                        return name
        if isinstance(typed.expr, mmpl.Column):
            return typed.expr.name
        return f"column_{position}"

    def _star(self, node: exp.Expr, expressions: Expressions) -> list[_Output]:
        scope, span = self.pipeline.scope, span_of(node)
        table = node.args.get("table") if isinstance(node, exp.Column) else None
        if table is not None and not scope.has_table(table.name, bool(table.args.get("quoted"))):
            raise scope.unknown_column(table.name, "*", span)
        chosen: dict[str, str] = {} if table is not None else dict(scope.merged)
        merged = set(chosen.values()) | {c for n in chosen for i in scope.items for m, c in i.columns.items() if m == n}
        pairs = list(chosen.items())
        for item in scope.items:
            if table is None or matches(table.name, bool(table.args.get("quoted")), item.alias):
                pairs += [(n, c) for n, c in item.columns.items() if c not in merged]
        return [_Output(n, Typed(mmpl.Column(c, span=span), expressions.type_of(c, span)), span) for n, c in pairs]

    # ── BEST, DISTINCT, ORDER BY … LIMIT ────────────────────────────────────────────────────────────────────────────

    def _finish(self, outputs: list[_Output], expressions: Expressions) -> mmpl.Rel:
        node, pipeline, span = self.node, self.pipeline, span_of(self.node)
        for output in outputs:
            if not isinstance(output.typed.expr, mmpl.Column):
                name = self.materialized.get(output.name) or pipeline.extend(output.name, output.typed)
                output.typed = Typed(mmpl.Column(name, span=output.span), output.typed.type)
        best = node.args.get("best")
        if best is not None:
            per = tuple(dict.fromkeys(_orderable(c, expressions, outputs) for c in best.per))
            by = _ordering(best.by, expressions, outputs)
            pipeline.rel = mmpl.Best(pipeline.rel, _count(best.k), by, per, span=span_of(best))
        distinct = node.args.get("distinct") is not None
        if not distinct:
            _limit(node, pipeline, outputs, expressions)
        rel = _projected(pipeline, outputs, span)
        if distinct:
            rel = mmpl.Distinct(rel, span=span)
            renamed = [_Output(o.name, Typed(mmpl.Column(o.name), o.typed.type)) for o in outputs]
            rel = _limited(node, Pipeline(rel, Scope([]), self.catalog), renamed)
        return rel


def _projected(pipeline: Pipeline, outputs: list[_Output], span: Span | None) -> mmpl.Rel:
    """The outputs as the visible columns. A key column that is not among them stays, hidden, under a name of its own."""
    columns: list[str] = []
    new: dict[str, str] = {}
    names = {o.name for o in outputs}
    for output in outputs:
        column = output.typed.expr
        if not isinstance(column, mmpl.Column) or column.name in columns:
            column = mmpl.Column(_copy(pipeline, output))
        columns.append(column.name)
        if column.name != output.name:
            new[column.name] = output.name
    heading = pipeline.heading
    hidden = [c for c in heading.key if c not in columns]
    for c in hidden:
        if c in names:
            new[c] = free_name(pipeline.scope.qualified(c), (*names, *hidden))
    if tuple(columns) != heading.visible:
        pipeline.rel = mmpl.Project(pipeline.rel, tuple(columns), span=span)
    return mmpl.Rename(pipeline.rel, tuple(new.items()), span=span) if new else pipeline.rel


def _copy(pipeline: Pipeline, output: _Output) -> str:
    name = free_name(output.name, pipeline.heading.columns)
    pipeline.rel = mmpl.Extend(pipeline.rel, ((name, output.typed.expr),), span=output.span)
    return name


def _limited(node: exp.Expr, pipeline: Pipeline, outputs: list[_Output]) -> mmpl.Rel:
    _limit(node, pipeline, outputs, pipeline.expressions())
    return pipeline.rel


def _limit(node: exp.Expr, pipeline: Pipeline, outputs: list[_Output], expressions: Expressions) -> None:
    order, limit = node.args.get("order"), node.args.get("limit")
    if limit is None:
        if order is not None:
            raise error("E013", "ORDER BY without LIMIT: a view's rows have no order", span_of(order),
                        "Add LIMIT k to keep the first k rows, or take the ORDER BY away.")  # fmt: skip
        return
    if order is None:
        raise error("E013", "LIMIT without ORDER BY would keep any rows at all", span_of(limit), "Add ORDER BY.")
    by = _ordering(order.expressions, expressions, outputs)
    pipeline.rel = mmpl.Best(pipeline.rel, _count(limit.expression), by, (), span=span_of(limit))


def _ordering(
    nodes: Sequence[exp.Ordered], expressions: Expressions, outputs: list[_Output]
) -> tuple[tuple[mmpl.Expr, bool], ...]:
    by = []
    for node in nodes:
        typed = _output_of(node.this, outputs) or expressions.translate(node.this)
        by.append((typed.expr, bool(node.args.get("desc"))))
    return tuple(by)


def _output_of(node: exp.Expr, outputs: list[_Output]) -> Typed | None:
    """ORDER BY names outputs before columns, and may count them."""
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        if not 1 <= int(node.name) <= len(outputs):
            raise error("E022", f"there is no column number {node.name} in the select list", span_of(node))
        return outputs[int(node.name) - 1].typed
    if isinstance(node, exp.Column) and not node.table:
        quoted = bool(node.this.args.get("quoted"))
        return next((o.typed for o in outputs if matches(node.name, quoted, o.name)), None)
    return None


def _orderable(node: exp.Column, expressions: Expressions, outputs: list[_Output]) -> str:
    typed = _output_of(node, outputs) or expressions.translate(node)
    assert isinstance(typed.expr, mmpl.Column)
    return typed.expr.name


def _count(node: exp.Expr) -> int:
    if not (isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and int(node.name) > 0):
        raise error("E033", "the number of rows is a whole number above zero", span_of(node))
    return int(node.name)


