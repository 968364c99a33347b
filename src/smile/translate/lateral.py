"""LATERAL: a subquery of FROM that refers to the entries before it. It is a join: with the rows that its WHERE selects,
or with the aggregates of those rows."""

from sqlglot import exp

from smile.algebra import mmpl, trees
from smile.errors import error
from smile.lang import span_of, widen_span
from smile.translate.aggregation import has_aggregates
from smile.translate.from_clause import QueryTranslation, apply_column_aliases
from smile.translate.outputs import star_columns
from smile.translate.pipeline import QueryPipeline, split_equalities
from smile.translate.scope import FromItem, NameTable, free_name
from smile.translate.subqueries import SubqueryTranslator, is_from_and_where_only

_HINT = (
    "Its subquery may have FROM and WHERE, or aggregates of these rows. For the row before each, use ASOF LEFT JOIN."
)


def add_lateral_join(outer: QueryPipeline, node: exp.Join, translate: QueryTranslation) -> None:
    """Adds `JOIN LATERAL (SELECT …) AS s ON TRUE` to the pipeline. LEFT keeps rows without a match."""
    lateral, span = node.this, span_of(node.this)
    query, on = lateral.this.unnest(), node.args.get("on")
    if node.side not in ("", "LEFT") or not (on is None or (isinstance(on, exp.Boolean) and on.this)):
        raise error("E013", "this join with LATERAL is not supported", span, "Write JOIN LATERAL (…) AS s ON TRUE.")
    subqueries = SubqueryTranslator(outer, translate, outer.translator())
    columns: NameTable[str] = NameTable()
    if is_from_and_where_only(query):
        _join_rows(outer, subqueries, query, node.side == "LEFT", columns)
    elif isinstance(query, exp.Select) and all(has_aggregates(e) for e in query.expressions):
        for output in query.expressions:
            single = query.copy()
            single.set("expressions", [single.expressions[query.expressions.index(output)]])
            subquery = exp.Subquery(this=single)
            if position := span_of(output):
                widen_span(subquery, position)
            value = subqueries.translate_scalar(subquery)
            name = output.alias_or_name or free_name(output.key, columns)
            columns.add(name, outer.extend(name, value))
    else:
        raise error("E013", "this LATERAL is not supported", span, _HINT)
    item = FromItem(lateral.alias, columns)
    apply_column_aliases(item, lateral)
    outer.scope.from_items.append(item)


def _join_rows(
    outer: QueryPipeline, subqueries: SubqueryTranslator, query: exp.Expr, is_left: bool, columns: NameTable[str]
) -> None:
    inner, correlated, outputs = subqueries.open_subquery(query)
    names: list[str] = []
    for output in query.expressions:
        written = [n for n, _ in star_columns(inner.scope, output)] if output.is_star else [output.alias_or_name]
        names += written
    extended = inner.extend_all(
        [(name or "column", typed) for name, typed in zip(names, outputs, strict=True)], outer.heading.columns
    )
    pairs, predicates = split_equalities(outer, inner, correlated)
    when = trees.conjunction(predicates) if predicates and is_left else None
    kind: mmpl.JoinKind = "left" if is_left else "inner"
    outer.rel = mmpl.Join(kind, outer.rel, inner.rel, tuple(pairs), when, span=span_of(query))
    if not is_left:
        outer.restrict(predicates)
    for name, column in zip(names, extended, strict=True):
        columns.add(name or column, column)
