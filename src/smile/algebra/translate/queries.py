"""A query to one relational expression of MMPL whose visible columns are the select list's, in its order."""

from collections.abc import Sequence

from sqlglot import exp

from smile.algebra import mmpl
from smile.algebra.translate.alignment import union_all
from smile.algebra.translate.expressions import Typed
from smile.algebra.translate.outputs import Output, limit
from smile.algebra.translate.pipeline import Catalog, Pipeline
from smile.algebra.translate.scope import Names, Scope, is_quoted
from smile.algebra.translate.select import Select
from smile.errors import error
from smile.lang import span_of


def translate_query(node: exp.Expr, catalog: Catalog, names: Sequence[str] = (), bare_nulls: bool = False) -> mmpl.Rel:
    """`names` are those that `v (a, b) AS …` gives the columns; `bare_nulls` as in `Select`."""
    while isinstance(node, exp.Subquery):
        node = node.this
    catalog = _with_ctes(node, catalog)
    if isinstance(node, exp.Union):
        return _union(node, catalog, names)
    if isinstance(node, exp.Select):
        return Select(node, catalog, translate_query, names, bare_nulls).translate()
    raise error("E013", f"{type(node).__name__} is not supported as a query", span_of(node))


def _with_ctes(node: exp.Expr, catalog: Catalog) -> Catalog:
    """The catalog with the common table expressions of a query, each of which sees those before it."""
    with_ = node.args.get("with_")
    declared: Names[None] = Names()
    for cte in with_.expressions if with_ is not None else []:
        alias = cte.args["alias"]
        name, quoted = alias.this.name, is_quoted(alias.this)
        if declared.clash(name, quoted) is not None:
            raise error("E020", f"there are two relations named {name} in this WITH", span_of(alias))
        declared.add(name, None, quoted)
        rel = translate_query(cte.this, catalog, [c.name for c in alias.args.get("columns") or []])
        catalog = catalog.with_relation(name, quoted, rel)
    return catalog


def _union(node: exp.Union, catalog: Catalog, names: Sequence[str]) -> mmpl.Rel:
    distinct = bool(node.args.get("distinct"))
    branches = _branches(node, distinct)
    rels = [translate_query(branches[0], catalog, names, bare_nulls=True)]
    wanted = catalog.headings.of(rels[0]).visible
    for branch in branches[1:]:
        rel = translate_query(branch, catalog, (), bare_nulls=True)
        if isinstance(branch, exp.Select) and len(catalog.headings.of(rel).visible) == len(wanted):
            rel = translate_query(branch, catalog, wanted, bare_nulls=True)
        rels.append(rel)
    rel = union_all(rels, [span_of(b) for b in branches], catalog, span_of(node))
    pipeline = Pipeline(mmpl.Distinct(rel, span=span_of(node)) if distinct else rel, Scope(), catalog)
    columns = pipeline.heading.columns
    outputs = [Output(c, Typed(mmpl.Column(c), columns[c])) for c in pipeline.heading.visible]
    if distinct:
        for output, span in zip(outputs, [span_of(node)] * len(outputs), strict=True):
            if not output.typed.type.is_ordered:
                raise error("E031", f"UNION cannot compare a {output.typed.type.name}", span)
    limit(node, pipeline, outputs, pipeline.expressions())
    return pipeline.rel


def _branches(node: exp.Union, distinct: bool) -> list[exp.Expr]:
    """The queries of a chain of UNIONs. UNION drops duplicates of whatever is to its left; UNION ALL keeps what a UNION
    before it has dropped dropped."""
    branches: list[exp.Expr] = [node.expression]
    rest: exp.Expr = node.this
    while True:
        while isinstance(rest, exp.Subquery):
            rest = rest.this
        plain = isinstance(rest, exp.Union) and not any(rest.args.get(p) for p in ("order", "limit", "with_"))
        if not plain or (rest.args.get("distinct") and not distinct):
            break
        branches.append(rest.expression)
        rest = rest.this
    return [rest, *reversed(branches)]
