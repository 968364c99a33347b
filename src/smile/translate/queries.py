"""Translates a query to a relational expression. Its visible columns are those of the select list, in their order."""

from collections.abc import Sequence

from sqlglot import exp

from smile.algebra import mmpl
from smile.algebra.types import INT, DataType
from smile.analysis.check import check_operator_count
from smile.errors import error
from smile.lang import span_of
from smile.recursion import continue_in_threads
from smile.source import Span
from smile.translate.alignment import (
    BRANCH_COLUMN,
    BranchColumns,
    align_branch,
    common_types,
    names_inside_union,
    union_all,
    union_with_branch,
    visible_columns,
)
from smile.translate.expressions import TypedExpr
from smile.translate.grouping_sets import expand_grouping_sets
from smile.translate.outputs import SelectOutput, add_limit, column_count_error, project_outputs, unique_names
from smile.translate.pipeline import Catalog, QueryPipeline
from smile.translate.ranking import move_rank_conditions, number_rows
from smile.translate.scope import NameTable, Scope, free_name, is_quoted
from smile.translate.select import SelectTranslator
from smile.translate.session import replace_session_ends


@continue_in_threads
def translate_query(node: exp.Expr, catalog: Catalog, names: Sequence[str] = ()) -> mmpl.Rel:
    """`names` are the column names of `v (a, b) AS …`, if given."""
    while isinstance(node, exp.Subquery):
        node = node.this
    if isinstance(node, exp.Select):
        node = expand_grouping_sets(replace_session_ends(move_rank_conditions(node)))
    catalog = _with_ctes(node, catalog)
    if isinstance(node, exp.Union):
        return _translate_union(node, catalog, names)
    if isinstance(node, exp.Except | exp.Intersect):
        return _translate_difference(node, catalog, names)
    select = _new_select(node, catalog)
    select.prepare()
    return select.finish(names)


def _new_select(node: exp.Expr, catalog: Catalog) -> SelectTranslator:
    if not isinstance(node, exp.Select):
        raise error("E013", f"{type(node).__name__} is not supported as a query", span_of(node))
    return SelectTranslator(node, catalog, translate_query)


def _with_ctes(node: exp.Expr, catalog: Catalog) -> Catalog:
    """The catalog with the common table expressions of a query. Each can refer to those before it."""
    with_ = node.args.get("with_")
    declared: NameTable[None] = NameTable()
    for cte in with_.expressions if with_ is not None else []:
        alias = cte.args["alias"]
        name, quoted = alias.this.name, is_quoted(alias.this)
        if declared.clash(name, quoted) is not None:
            raise error("E020", f"there are two relations named {name} in this WITH", span_of(alias))
        declared.add(name, None, quoted)
        rel = translate_query(cte.this, catalog, [c.name for c in alias.args.get("columns") or []])
        check_operator_count(rel, span_of(cte))
        catalog = catalog.with_relation(name, quoted, rel)
    return catalog


def _translate_union(node: exp.Union, catalog: Catalog, names: Sequence[str]) -> mmpl.Rel:
    span, distinct = span_of(node), bool(node.args.get("distinct"))
    branches = [_UnionBranch(b, catalog) for b in _branches(node, distinct)]
    types = common_types("UNION", [b.columns for b in branches], [b.span for b in branches])
    if names and len(names) != len(types):
        raise column_count_error(len(names), len(types), span)
    own_names = branches[0].names()
    rels = [b.finish(names_inside_union(names or own_names), types) for b in branches]
    rel = union_all(rels, names or own_names, catalog, span)
    incomparable = [t for t in types if not t.is_comparable] if distinct else []
    if incomparable:
        raise error("E031", f"UNION cannot compare a {incomparable[0].name}", span, "Use UNION ALL.")
    pipeline = QueryPipeline(mmpl.Distinct(rel, span=span) if distinct else rel, Scope(), catalog)
    columns = zip(own_names, visible_columns(pipeline.rel, catalog), strict=True)
    outputs = [SelectOutput(name, TypedExpr(mmpl.ColumnRef(column), type)) for name, (column, type) in columns]
    add_limit(node, pipeline, outputs, pipeline.translator())
    return pipeline.rel


def _translate_difference(node: exp.SetOperation, catalog: Catalog, names: Sequence[str]) -> mmpl.Rel:
    """EXCEPT and INTERSECT: the groups of equal rows of both queries, with members of the first query only, or of both.
    The column `branch` of a UNION is 1 for rows of the first query, and 2 for those of the second. With ALL, equal rows
    of a query are numbered, and rows with the same number are compared."""
    span, operator = span_of(node), node.key.upper()
    branches = [_UnionBranch(node.this, catalog), _UnionBranch(node.expression, catalog)]
    types = common_types(operator, [b.columns for b in branches], [b.span for b in branches])
    own_names = names or branches[0].names()
    if len(own_names) != len(types):
        raise column_count_error(len(own_names), len(types), span)
    incomparable = [t for t in types if not t.is_comparable]
    if incomparable:
        raise error("E031", f"{operator} cannot compare a {incomparable[0].name}", span)
    inside = names_inside_union(own_names)
    rels = [b.finish(inside, types) for b in branches]
    compared = list(inside)
    if not node.args.get("distinct"):
        compared.append(free_name("number", (*inside, BRANCH_COLUMN)))
        rels = [_number_equal_rows(rel, inside, compared[-1], catalog, span) for rel in rels]
    union = union_with_branch(rels, compared, catalog, span)
    first, last = free_name("first", compared), free_name("last", compared)
    branch = mmpl.ColumnRef(BRANCH_COLUMN)
    aggregates = ((first, mmpl.Aggregate("min", branch)), (last, mmpl.Aggregate("max", branch)))
    is_last = mmpl.Constant(1 if isinstance(node, exp.Except) else 2, INT)
    conditions = [
        mmpl.Call("=", (mmpl.ColumnRef(first), mmpl.Constant(1, INT))),
        mmpl.Call("=", (mmpl.ColumnRef(last), is_last)),
    ]
    pipeline = QueryPipeline(mmpl.Summarize(union, tuple(compared), aggregates, span=span), Scope(), catalog)
    pipeline.restrict(conditions)
    outputs = [
        SelectOutput(name, TypedExpr(mmpl.ColumnRef(column), type))
        for name, column, type in zip(own_names, inside, types, strict=True)
    ]
    add_limit(node, pipeline, outputs, pipeline.translator())
    return project_outputs(pipeline, outputs, span)


def _number_equal_rows(
    rel: mmpl.Rel, columns: Sequence[str], name: str, catalog: Catalog, span: Span | None
) -> mmpl.Rel:
    """The rows with a column `name`: the number of each among the rows that are equal in `columns`."""
    pipeline = QueryPipeline(rel, Scope(), catalog)
    heading = pipeline.heading
    if heading.key == heading.tick and len(heading.key) == 1:  # rows of MERGE share ticks
        number = free_name(name, heading.columns)
        count = ((number, mmpl.Aggregate("count", span=span)),)
        pipeline.rel = mmpl.Over(rel, tuple(columns), heading.key[0], None, count, span=span)
    else:
        typed = number_rows(pipeline, columns, (), "ROW_NUMBER", span)
        number = pipeline.extend(name, typed)
    outputs = [
        SelectOutput(n, TypedExpr(mmpl.ColumnRef(c), pipeline.heading.columns[c]))
        for n, c in zip((*columns, name), (*columns, number), strict=True)
    ]
    return project_outputs(pipeline, outputs, span)


class _UnionBranch:
    """One query of a UNION. Its translation is finished once the common types of all branches are known."""

    def __init__(self, node: exp.Expr, catalog: Catalog) -> None:
        while isinstance(node, exp.Subquery):
            node = node.this
        if isinstance(node, exp.Select):
            node = expand_grouping_sets(replace_session_ends(move_rank_conditions(node)))
        self.span = span_of(node)
        self.catalog = catalog
        self.columns: BranchColumns
        if isinstance(node, exp.SetOperation):
            self.rel = translate_query(node, catalog)
            self.select = None
            self.columns = visible_columns(self.rel, catalog)
        else:
            self.select = _new_select(node, _with_ctes(node, catalog))
            self.columns = [(o.name, o.typed.type) for o in self.select.prepare()]

    def names(self) -> list[str]:
        return unique_names(self.select.outputs) if self.select is not None else [name for name, _ in self.columns]

    def finish(self, names: Sequence[str], types: Sequence[DataType]) -> mmpl.Rel:
        if self.select is not None:
            return self.select.finish(names, types)
        return align_branch(self.rel, names, types, self.span, self.catalog)


def _branches(node: exp.Union, distinct: bool) -> list[exp.Expr]:
    """The queries of a chain of UNIONs that can be one UNION.

    UNION also removes the duplicates of everything to its left, so a chain that ends with it is one UNION. A UNION
    before a UNION ALL is computed separately: it removes only its own duplicates.
    """
    branches: list[exp.Expr] = [node.expression]
    remaining: exp.Expr = node.this
    while True:
        while isinstance(remaining, exp.Subquery):
            remaining = remaining.this
        can_flatten = isinstance(remaining, exp.Union) and not any(
            remaining.args.get(p) for p in ("order", "limit", "with_")
        )
        if not can_flatten or (remaining.args.get("distinct") and not distinct):
            break
        branches.append(remaining.expression)
        remaining = remaining.this
    return [remaining, *reversed(branches)]
