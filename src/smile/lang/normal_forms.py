"""Spellings of other dialects, as the nodes of what they mean: FILTER as CASE, DISTINCT ON as BEST, NULLS FIRST as one
more item of the order."""

import re
from collections.abc import Sequence

from sqlglot import exp

from smile.errors import error
from smile.lang.nodes import (
    ArrayAggregate,
    BestClause,
    Earliest,
    Latest,
    NestedGroup,
    Percentile,
    StringAggregate,
)
from smile.lang.spans import span_of, widen_span

FIRST_CLAUSE = "first_clause"
"""Marks a BEST that was written before FROM, as DISTINCT ON."""


def filtered_aggregate(node: exp.Filter) -> exp.Expr:
    """`SUM(x) FILTER (WHERE c)` is `SUM(CASE WHEN c THEN x END)`: aggregates ignore NULL."""
    aggregate, condition = node.this, node.expression.this
    if span := span_of(node):
        widen_span(aggregate, span)
    if not isinstance(aggregate, exp.AggFunc) or isinstance(aggregate, Latest | Earliest | NestedGroup):
        hint = "Write WHERE in a view, and aggregate over that view."
        raise error("E013", "FILTER after this function is not supported", span_of(aggregate), hint)
    argument = aggregate.this
    if isinstance(aggregate, ArrayAggregate):
        aggregate.set("filter", condition)  # it does not ignore NULL
    elif isinstance(argument, exp.Star):
        aggregate.set("this", _case(condition, exp.Literal.number(1)))
    elif isinstance(argument, exp.Distinct):
        argument.set("expressions", [_case(condition, e) for e in argument.expressions])
    else:
        aggregate.set("this", _case(condition, argument))
    return aggregate


def ordered_aggregate(node: exp.WithinGroup) -> Percentile | StringAggregate:
    """`PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x)`, with x as the argument; `LISTAGG(x, ',') WITHIN GROUP (ORDER BY
    y)` as `STRING_AGG(x, ',' ORDER BY y)`."""
    call, order = node.this, node.expression.expressions
    if isinstance(call, StringAggregate) and not call.order and not call.is_distinct:
        call.set("order", with_explicit_null_order(order))
        return call
    if not isinstance(call, Percentile) or call.this is not None:
        hint = "PERCENTILE_CONT(fraction), PERCENTILE_DISC(fraction) and LISTAGG(x, separator) have it."
        raise error("E013", "WITHIN GROUP after this function is not supported", span_of(node), hint)
    if len(order) != 1:
        raise error("E013", "WITHIN GROUP with several columns is not supported", span_of(node), "Order by one column.")
    call.set("this", order[0].this)
    call.set("descending", bool(order[0].args.get("desc")) or None)
    return call


def _case(condition: exp.Expr, value: exp.Expr) -> exp.Case:
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=value)])


def string_aggregate(args: Sequence[exp.Expr], default_separator: str) -> StringAggregate:
    """From the arguments as sqlglot parses them: ORDER BY and DISTINCT are around the last and the first of them."""
    *first, last = args
    order: list[exp.Expr] = []
    if isinstance(last, exp.Order):
        order, last = last.expressions, last.this
    parts = [*first, last]
    is_distinct = isinstance(parts[0], exp.Distinct)
    if is_distinct:
        parts = [*parts[0].expressions, *parts[1:]]
    separator = parts[1] if len(parts) > 1 else exp.Literal.string(default_separator)
    if not is_distinct:
        return StringAggregate(this=parts[0], separator=separator, order=order or None)
    descending = _distinct_direction(parts, order, "STRING_AGG", "text")
    return StringAggregate(this=parts[0], separator=separator, distinct=True, descending=descending or None)


def array_aggregate(arg: exp.Expr) -> ArrayAggregate:
    """From the argument as sqlglot parses it."""
    order: list[exp.Expr] = []
    if isinstance(arg, exp.Order):
        order, arg = arg.expressions, arg.this
    if not isinstance(arg, exp.Distinct):
        return ArrayAggregate(this=arg, order=order or None)
    (value,) = arg.expressions
    descending = _distinct_direction([value], order, "ARRAY_AGG", "value")
    return ArrayAggregate(this=value, distinct=True, descending=descending or None)


def _distinct_direction(parts: Sequence[exp.Expr], order: Sequence[exp.Expr], name: str, ordered: str) -> bool:
    """Whether different values come in descending order. They have no other order than their own."""
    if [o.this for o in order] not in ([], [parts[0]]):
        hint = f"Order by the {ordered}, or aggregate over a view that uses SELECT DISTINCT."
        raise error("E013", f"{name}(DISTINCT) in another order is not supported", span_of(order[0]), hint)
    return any(o.args.get("desc") for o in order)


_PATH_STEP = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|((?:[^\s,{}"\\]|\\.)(?:[^,{}"\\]|\\.)*?))\s*(,|$)', re.DOTALL)


def path_steps(text: str) -> list[str] | None:
    """The elements of an array of texts, as PostgreSQL writes it: `{a,"b c",0}`. None if it is none."""
    inner = text.strip()
    if not (inner.startswith("{") and inner.endswith("}")):
        return None
    inner, position, steps, separator = inner[1:-1], 0, list[str](), ""
    while inner.strip() and (position < len(inner) or separator):
        step = _PATH_STEP.match(inner, position)
        if step is None or (step[2] is not None and step[2].upper() == "NULL"):
            return None
        steps.append(re.sub(r"\\(.)", r"\1", step[2] if step[1] is None else step[1], flags=re.DOTALL))
        position, separator = step.end(), step[3]
    return steps


def conditional(args: Sequence[exp.Expr]) -> exp.Case:
    """`IF(c, a, b)` is `CASE WHEN c THEN a ELSE b END`."""
    condition, value, *default = args
    return exp.Case(ifs=[exp.If(this=condition, true=value)], default=default[0] if default else None)


def with_explicit_null_order(order: Sequence[exp.Ordered]) -> list[exp.Ordered]:
    """`x NULLS FIRST` is `x IS NULL DESC, x`, and `x DESC NULLS LAST` is `x IS NULL, x DESC`. Without these words NULL
    comes last in ascending order, and first in descending order."""
    items: list[exp.Ordered] = []
    for item in order:
        descending, nulls_first = bool(item.args.get("desc")), bool(item.args.get("nulls_first"))
        if descending != nulls_first:
            if isinstance(item.this, exp.Literal):
                hint = "Name the column, or write the expression."
                raise error("E013", "NULLS FIRST or LAST of a column number is not supported", span_of(item), hint)
            is_null = exp.Is(this=item.this.copy(), expression=exp.Null())
            items.append(exp.Ordered(this=is_null, desc=nulls_first or None, nulls_first=nulls_first))
            item.set("nulls_first", descending)
        items.append(item)
    return items


def with_listed_values(node: exp.In) -> exp.In:
    """`x IN (VALUES (1), (2))` is `x IN (1, 2)`."""
    values = node.expressions[0] if len(node.expressions) == 1 else None
    if isinstance(values, exp.Values):
        rows = [row.expressions for row in values.expressions]
        node.set("expressions", [row[0] if len(row) == 1 else exp.Tuple(expressions=row) for row in rows])
    return node


def inline_named_windows(select: exp.Select) -> None:
    """`SUM(x) OVER w … WINDOW w AS (…)` is `SUM(x) OVER (…)`."""
    definitions = {w.this.name.casefold(): w for w in select.args.get("windows") or ()}
    select.set("windows", None)
    for window in list(select.find_all(exp.Window)):
        name = window.args.get("alias")
        definition = definitions.get(name.name.casefold()) if name is not None else None
        if definition is None or any(window.args.get(part) for part in ("partition_by", "order", "spec")):
            continue
        for part in ("partition_by", "order", "spec"):
            value = definition.args.get(part)
            copy = [v.copy() for v in value] if isinstance(value, list) else value.copy() if value is not None else None
            window.set(part, copy)
        window.set("alias", None)


def move_distinct_on_to_best(select: exp.Select) -> None:
    """`SELECT DISTINCT ON (a) … ORDER BY a, b` is `SELECT … BEST 1 BY b PER a`."""
    distinct = select.args.get("distinct")
    if distinct is None or not distinct.args.get("on"):
        return
    on = distinct.args["on"]
    groups: list[exp.Expr] = on.expressions if isinstance(on, exp.Tuple) else [on.unnest()]
    if select.args.get("limit") is not None or select.args.get("best") is not None:
        hint = "Put the query with DISTINCT ON into a subquery."
        raise error("E013", "DISTINCT ON with LIMIT or BEST is not supported", span_of(distinct), hint)
    order = select.args.get("order")
    by = [o for o in (order.expressions if order is not None else ()) if o.this not in groups]
    by = by or [exp.Ordered(this=g.copy(), nulls_first=False) for g in groups]
    best = BestClause(this=exp.Literal.number(1), by=by, per=groups)
    best.meta[FIRST_CLAUSE] = True
    select.set("distinct", None)
    select.set("order", None)
    select.set("best", best)
