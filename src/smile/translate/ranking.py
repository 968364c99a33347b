"""Translates comparisons of ROW_NUMBER, RANK and DENSE_RANK with a number to BEST.

`ROW_NUMBER() <= k` is BEST k. `RANK() <= k` shows the rows that are not after the last of the best k rows, and
`DENSE_RANK() <= k` those that are not after the last of the best k distinct values. Where the number is at most k, it
can be a value too: the number of the rows before a row, of these rows, and 1.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from sqlglot import exp

from smile.algebra import mmpl
from smile.algebra.functions.catalogue import type_of
from smile.algebra.types import INT, json_hint
from smile.errors import SmileError, error
from smile.lang import RANKING_FUNCTIONS, span_of
from smile.source import Span
from smile.translate.expressions import ExpressionTranslator, TypedExpr
from smile.translate.null_safe import add_comparable_columns, nulls_among
from smile.translate.pipeline import QueryPipeline, split_conjunction
from smile.translate.scope import Scope, free_name, is_match, is_quoted

_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ}
_HINT = (
    "Say in QUALIFY, or in the WHERE around a subquery, how many rows you need: ROW_NUMBER() OVER (…) <= 3. "
    "Their numbers can then be shown and compared."
)


@dataclass(frozen=True)
class RankCondition:
    """`window` <= `k`. `is_whole`: the condition says nothing else, as `window` = `k` does."""

    window: exp.Window
    k: int
    is_whole: bool


def is_ranking(node: exp.Expr) -> bool:
    """Whether a node is ROW_NUMBER, RANK or DENSE_RANK with OVER."""
    return (
        isinstance(node, exp.Window)
        and isinstance(node.this, exp.Anonymous)
        and node.this.name.upper() in RANKING_FUNCTIONS
    )


def misplaced_rank_error(node: exp.Expr) -> SmileError:
    return error("E200", "the number of a row needs a greatest value", span_of(node), _HINT)


def rank_condition(node: exp.Expr, find_window: Callable[[exp.Expr], exp.Expr | None]) -> RankCondition | None:
    """The condition `ROW_NUMBER() <= k` that follows from a comparison, however it is written; None if none does.
    `find_window` gives the window that an operand is or refers to."""
    comparison, a, b = type(node), node.this, node.args.get("expression")
    is_from_one = True
    if isinstance(node, exp.Between):
        low = node.args["low"]
        is_from_one = isinstance(low, exp.Literal) and low.name == "1"
        comparison, b = exp.LTE, node.args["high"]
    if isinstance(node, exp.In) and node.expressions and all(map(_is_whole_number, node.expressions)):
        is_from_one, comparison, b = False, exp.LTE, max(node.expressions, key=lambda e: int(e.name))
    if comparison in _FLIPPED and isinstance(a, exp.Literal):
        comparison, a, b = _FLIPPED[comparison], b, a
    window = find_window(a.unnest()) if isinstance(a, exp.Expr) else None
    if not isinstance(window, exp.Window) or not is_ranking(window) or comparison not in (exp.LT, exp.LTE, exp.EQ):
        return None
    if not _is_whole_number(b):
        return None
    k = int(b.name) - (comparison is exp.LT)
    if k < 1:
        raise error("E200", "no row has this number", span_of(node), "The first row has the number 1.")
    return RankCondition(window, k, is_whole=is_from_one and (comparison is not exp.EQ or k == 1))


def _is_whole_number(node: exp.Expr | None) -> TypeGuard[exp.Literal]:
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal()


def ranking_operands(node: exp.Expr) -> list[exp.Expr]:
    """The expressions by which the row numbers within an expression partition and order."""
    windows = [n for n in node.walk(bfs=False) if is_ranking(n)]
    return [
        e
        for w in windows
        for e in (*(w.args.get("partition_by") or ()), *(o.this for o in w.args["order"].expressions))
    ]


def add_rank_condition(
    pipeline: QueryPipeline, condition: RankCondition, translator: ExpressionTranslator, shows_number: bool
) -> TypedExpr | None:
    """Restricts the pipeline to the rows whose number is at most k. Returns the number if it is shown."""
    window, span = condition.window, span_of(condition.window)
    partition = [("partition", translator.translate(p)) for p in window.args.get("partition_by") or []]
    by: list[tuple[mmpl.Expr, bool]] = []
    for ordered in window.args["order"].expressions:
        typed = translator.translate(ordered.this)
        if not typed.type.is_ordered:
            raise error(
                "E031", f"rows cannot be ordered by a {typed.type.name}", span_of(ordered), json_hint([typed.type])
            )
        by.append((typed.expr, bool(ordered.args.get("desc"))))
    per = tuple(dict.fromkeys(pipeline.extend_all(partition)))
    if window.this.name.upper() == "ROW_NUMBER":
        pipeline.rel = mmpl.Best(pipeline.rel, condition.k, tuple(by), per, span=span)
    else:
        _restrict_to_rank(pipeline, condition, per, by)
    if not shows_number:
        return None
    if condition.k == 1:
        return TypedExpr(mmpl.Constant(1, INT, span=span), INT)
    return number_rows(pipeline, per, by, window.this.name.upper(), span)


def _ordered_columns(pipeline: QueryPipeline, by: Sequence[tuple[mmpl.Expr, bool]]) -> list[str]:
    types = pipeline.heading.columns
    return pipeline.extend_all([("ordered", TypedExpr(e, type_of(e, types))) for e, _ in by])


def _restrict_to_rank(
    pipeline: QueryPipeline, condition: RankCondition, per: Sequence[str], by: Sequence[tuple[mmpl.Expr, bool]]
) -> None:
    """Joins each row with the last of the best ones of its partition, and compares."""
    span = span_of(condition.window)
    columns = _ordered_columns(pipeline, by)
    groups = add_comparable_columns(pipeline, per, nulls_among(pipeline, per))
    ranked: mmpl.Rel = pipeline.rel
    if condition.window.this.name.upper() == "DENSE_RANK":
        ranked = mmpl.Distinct(mmpl.Project(ranked, tuple(dict.fromkeys((*groups, *columns)))), span=span)
    ordering = tuple((mmpl.ColumnRef(c), descending) for c, (_, descending) in zip(columns, by, strict=True))
    best = mmpl.Best(ranked, condition.k, ordering, tuple(groups), span=span)
    if len(columns) == 1:
        _restrict_to_last_value(pipeline, best, groups, columns[0])
        return
    last = mmpl.Best(best, 1, tuple((c, not descending) for c, descending in ordering), tuple(groups), span=span)
    # There is one row for each partition, so MIN is its value.
    values = _free_names(["last" for _ in columns], groups)
    aggregates = tuple((v, mmpl.Aggregate("min", mmpl.ColumnRef(c))) for v, c in zip(values, columns, strict=True))
    limits, names = _renamed(pipeline, mmpl.Summarize(last, tuple(groups), aggregates, span=span))
    on = tuple((group, names[group]) for group in groups)
    directions = [descending for _, descending in by]
    pipeline.rel = mmpl.Join("inner", pipeline.rel, limits, on, span=span)
    is_after = _precedes(_references(names[value] for value in values), _references(columns), directions)
    pipeline.restrict([mmpl.Call("not", (is_after,), span=span)])


def _restrict_to_last_value(pipeline: QueryPipeline, best: mmpl.Best, groups: Sequence[str], ordered: str) -> None:
    """For an order of one column: the last value is the greatest. If a NULL is among the best rows in ascending order,
    all rows are; in descending order it comes first."""
    span, ((_, descending),) = best.span, best.by
    limits = QueryPipeline(best, Scope(), pipeline.catalog)
    value = mmpl.ColumnRef(ordered)
    null_count = mmpl.Case(((mmpl.Call("is null", (value,)), mmpl.Constant(1, INT)),), mmpl.Constant(None, INT))
    aggregates = (
        ("last", mmpl.Aggregate("min" if descending else "max", value)),
        ("nulls", mmpl.Aggregate("count", null_count)),
    )
    limits.rel = mmpl.Summarize(best, tuple(groups), aggregates, span=span)
    limits.rename_clashes(pipeline.heading.columns)
    *keys, last, nulls = limits.heading.columns
    pipeline.rel = mmpl.Join("inner", pipeline.rel, limits.rel, tuple(zip(groups, keys, strict=True)), span=span)
    reaches = mmpl.Call(">=" if descending else "<=", (value, mmpl.ColumnRef(last)))
    with_null = (
        mmpl.Call("is null", (value,)) if descending else mmpl.Call(">", (mmpl.ColumnRef(nulls), mmpl.Constant(0, INT)))
    )
    pipeline.restrict([mmpl.Call("or", (reaches, with_null), span=span)])


# ── the number as a value ───────────────────────────────────────────────────────────────────────────────────────────


def number_rows(
    pipeline: QueryPipeline,
    per: Sequence[str],
    by: Sequence[tuple[mmpl.Expr, bool]],
    function: str,
    span: Span | None,
) -> TypedExpr:
    """One more than the number of the rows that come before in the partition, or of their different values. All of them
    are rows of the pipeline: it has the first ones."""
    key = pipeline.heading.key
    columns, directions = _ordered_columns(pipeline, by), [descending for _, descending in by]
    groups = add_comparable_columns(pipeline, per, nulls_among(pipeline, per))
    keys = add_comparable_columns(pipeline, key, nulls_among(pipeline, key))
    if function == "ROW_NUMBER":
        columns, directions = [*columns, *keys], [*directions, *(False for _ in keys)]
    compared = tuple(dict.fromkeys((*groups, *columns)))
    others: mmpl.Rel = mmpl.Project(pipeline.rel, compared, span=span)
    if function == "DENSE_RANK":
        others = mmpl.Distinct(others, span=span)
    rows = QueryPipeline(
        mmpl.Project(pipeline.rel, tuple(dict.fromkeys((*keys, *compared))), span=span), Scope(), pipeline.catalog
    )
    others, names = _renamed(rows, others)
    rows.rel = mmpl.Join("inner", rows.rel, others, tuple((group, names[group]) for group in groups), span=span)
    rows.restrict([_precedes(_references(names[c] for c in columns), _references(columns), directions)])
    per_row = tuple(dict.fromkeys((*keys, *groups)))  # a group is final with its partition
    count = mmpl.Summarize(rows.rel, per_row, (("before", mmpl.Aggregate("count", span=span)),), span=span)
    counts, names = _renamed(pipeline, count)
    on = tuple((column, names[column]) for column in per_row)
    pipeline.rel = mmpl.Join("inner", pipeline.rel, counts, on, span=span)
    number = mmpl.Call("+", (mmpl.ColumnRef(names["before"]), mmpl.Constant(1, INT)), span=span)
    return TypedExpr(mmpl.ColumnRef(pipeline.extend("number", TypedExpr(number, INT)), span=span), INT)


def _free_names(wanted: Sequence[str], taken: Iterable[str]) -> list[str]:
    names: list[str] = []
    for name in wanted:
        names.append(free_name(name, {*taken, *names}))
    return names


def _renamed(pipeline: QueryPipeline, rel: mmpl.Rel) -> tuple[mmpl.Rel, dict[str, str]]:
    """A relation with names that the pipeline does not have, and these names."""
    columns = list(pipeline.catalog.headings.heading_of(rel).columns)
    names = dict(zip(columns, _free_names(columns, pipeline.heading.columns), strict=True))
    changed = tuple((column, name) for column, name in names.items() if column != name)
    return (mmpl.Rename(rel, changed, span=rel.span) if changed else rel), names


def _references(columns: Iterable[str]) -> list[mmpl.Expr]:
    return [mmpl.ColumnRef(column) for column in columns]


def _precedes(a: Sequence[mmpl.Expr], b: Sequence[mmpl.Expr], directions: Sequence[bool]) -> mmpl.Expr:
    """Whether the values `a` come before the values `b`. It is never NULL."""
    cases: list[mmpl.Expr] = []
    same: list[mmpl.Expr] = []
    for x, y, descending in zip(a, b, directions, strict=True):
        first, second = (y, x) if descending else (x, y)
        is_less = mmpl.Call("<", (first, second))
        has_both = mmpl.Call("and", (mmpl.Call("is not null", (first,)), mmpl.Call("is not null", (second,)), is_less))
        has_first = mmpl.Call("and", (mmpl.Call("is not null", (first,)), mmpl.Call("is null", (second,))))
        precedes = mmpl.Call("or", (has_both, has_first))
        cases.append(mmpl.Call("and", (*same, precedes)) if same else precedes)
        same.append(mmpl.Call("is not distinct from", (x, y)))
    return mmpl.Call("or", tuple(cases)) if len(cases) > 1 else cases[0]


# ── conditions around a subquery ────────────────────────────────────────────────────────────────────────────────────


def move_rank_conditions(select: exp.Select) -> exp.Select:
    """Moves the conditions on row numbers from the WHERE around a subquery, or around a common table expression, into
    the QUALIFY of that query: `SELECT … FROM (SELECT …, ROW_NUMBER() OVER w AS n …) WHERE n <= 3`."""
    where, from_ = select.args.get("where"), select.args.get("from_")
    if where is None or from_ is None or not any(_rank_outputs(s) for s in _subqueries(select)):
        return select
    select = select.copy()
    for source in [select.args["from_"].this, *(j.this for j in select.args.get("joins") or [] if not j.side)]:
        _move_into(select, source)
    return select


def _subqueries(select: exp.Select) -> list[exp.Expr]:
    with_ = select.args.get("with_")
    ctes = [c.this for c in (with_.expressions if with_ is not None else ())]
    sources = [select.args["from_"].this, *(j.this for j in select.args.get("joins") or [])]
    return [*ctes, *(s.unnest() for s in sources if isinstance(s, exp.Subquery))]


def _rank_outputs(query: exp.Expr) -> dict[str, exp.Alias]:
    """The outputs of a query that are row numbers. None of a query whose other clauses come after its windows."""
    if not isinstance(query, exp.Select) or any(query.args.get(p) for p in ("distinct", "limit", "best", "order")):
        return {}
    return {e.alias: e for e in query.expressions if isinstance(e, exp.Alias) and is_ranking(e.this)}


def _move_into(select: exp.Select, source: exp.Expr) -> None:
    query = source.unnest() if isinstance(source, exp.Subquery) else _common_table(select, source)
    outputs = _rank_outputs(query) if query is not None else {}
    if not outputs or not isinstance(query, exp.Select):
        return
    conditions = split_conjunction(select.args["where"].this) if select.args.get("where") is not None else []
    moved: list[exp.Expr] = []
    bounded: list[exp.Alias] = []
    for node in conditions:
        condition = rank_condition(node, lambda operand: _window_of(operand, source, outputs))
        if condition is not None:
            moved.append(node)
            _add_qualify(query, exp.LTE(this=condition.window.copy(), expression=exp.Literal.number(condition.k)))
            if not condition.is_whole:
                moved.pop()
            bounded.append(next(o for o in outputs.values() if o.this is condition.window))
    for output in bounded:
        _remove_unread(select, query, output, moved)
    rest = [c for c in conditions if not any(c is m for m in moved)]
    select.set("where", exp.Where(this=exp.and_(*rest, copy=False)) if rest else None)


def _common_table(select: exp.Select, source: exp.Expr) -> exp.Select | None:
    """The query of the common table expression that a FROM entry names. It replaces the name, because other uses of
    the expression have other conditions."""
    with_ = select.args.get("with_")
    if not isinstance(source, exp.Table) or with_ is None:
        return None
    for cte in with_.expressions:
        name = cte.args["alias"].this
        is_named = is_match(source.name, is_quoted(source), name.name)
        if is_named and _rank_outputs(cte.this) and not cte.args["alias"].args.get("columns"):
            query: exp.Select = cte.this.copy()
            alias = source.args.get("alias") or exp.TableAlias(this=name.copy())
            source.replace(exp.Subquery(this=query, alias=alias))
            if not any(is_match(t.name, is_quoted(t), name.name) for t in select.find_all(exp.Table)):
                cte.pop()
                if not with_.expressions:
                    select.set("with_", None)
            return query
    return None


def _window_of(operand: exp.Expr, source: exp.Expr, outputs: dict[str, exp.Alias]) -> exp.Expr | None:
    """The window that a name in the outer query refers to."""
    if not isinstance(operand, exp.Column):
        return None
    if operand.table and operand.table.casefold() != (source.alias or source.name).casefold():
        return None
    name = next((n for n in outputs if is_match(operand.name, is_quoted(operand), n)), None)
    return outputs[name].this if name is not None else None


def _add_qualify(query: exp.Select, condition: exp.Expr) -> None:
    qualify = query.args.get("qualify")
    both = condition if qualify is None else exp.And(this=qualify.this, expression=condition)
    query.set("qualify", exp.Qualify(this=both))


def _remove_unread(select: exp.Select, query: exp.Select, output: exp.Alias, moved: Sequence[exp.Expr]) -> None:
    """Removes a row number from the select list of the subquery if only the moved conditions read it."""
    names = [c for c in select.find_all(exp.Column) if is_match(c.name, is_quoted(c), output.alias)]
    is_read = any(
        c.find_ancestor(exp.Select) is select and not any(_is_within(c, condition) for condition in moved)
        for c in names
    )
    if not is_read and not any(e.is_star for e in select.expressions):
        others = [e for e in query.expressions if e is not output]
        query.set("expressions", others or [exp.alias_(exp.Literal.number(1), output.alias)])


def _is_within(node: exp.Expr, ancestor: exp.Expr) -> bool:
    current: exp.Expr | None = node
    while current is not None and current is not ancestor:
        current = current.parent
    return current is not None
