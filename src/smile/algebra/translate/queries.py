"""A query to one relational expression of MMPL whose visible columns are the select list's, in its order."""

from collections.abc import Sequence

from sqlglot import exp

from smile.algebra import mmpl
from smile.algebra.translate.alignment import Shape, aligned, common_types, inner_names, shape_of, union_all
from smile.algebra.translate.expressions import Typed
from smile.algebra.translate.outputs import Output, limit, mismatch, unique_names
from smile.algebra.translate.pipeline import Catalog, Pipeline
from smile.algebra.translate.scope import Names, Scope, is_quoted
from smile.algebra.translate.select import Select
from smile.algebra.types import DataType
from smile.errors import error
from smile.lang import span_of


def translate_query(node: exp.Expr, catalog: Catalog, names: Sequence[str] = ()) -> mmpl.Rel:
    """`names` are those that `v (a, b) AS …` gives the columns."""
    while isinstance(node, exp.Subquery):
        node = node.this
    catalog = _with_ctes(node, catalog)
    if isinstance(node, exp.Union):
        return _union(node, catalog, names)
    select = _select(node, catalog)
    select.prepare()
    return select.finish(names)


def _select(node: exp.Expr, catalog: Catalog) -> Select:
    if not isinstance(node, exp.Select):
        raise error("E013", f"{type(node).__name__} is not supported as a query", span_of(node))
    return Select(node, catalog, translate_query)


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
    span, distinct = span_of(node), bool(node.args.get("distinct"))
    branches = [_Branch(b, catalog) for b in _branches(node, distinct)]
    types = common_types("UNION", [b.shape for b in branches], [b.span for b in branches])
    if names and len(names) != len(types):
        raise mismatch(len(names), len(types), span)
    own = branches[0].names()
    rels = [b.finish(inner_names(names or own), types) for b in branches]
    rel = union_all(rels, names or own, catalog, span)
    incomparable = [t for t in types if not t.is_ordered] if distinct else []
    if incomparable:
        raise error("E031", f"UNION cannot compare a {incomparable[0].name}", span, "Use UNION ALL.")
    pipeline = Pipeline(mmpl.Distinct(rel, span=span) if distinct else rel, Scope(), catalog)
    shape = zip(own, shape_of(pipeline.rel, catalog), strict=True)
    outputs = [Output(name, Typed(mmpl.Column(column), type)) for name, (column, type) in shape]
    limit(node, pipeline, outputs, pipeline.expressions())
    return pipeline.rel


class _Branch:
    """One query of a UNION, translated as far as can be done before its types are settled."""

    def __init__(self, node: exp.Expr, catalog: Catalog) -> None:
        while isinstance(node, exp.Subquery):
            node = node.this
        self.span = span_of(node)
        self.catalog = catalog
        self.shape: Shape
        if isinstance(node, exp.Union):
            self.rel = translate_query(node, catalog)
            self.select = None
            self.shape = shape_of(self.rel, catalog)
        else:
            self.select = _select(node, _with_ctes(node, catalog))
            self.shape = [(o.name, o.typed.type) for o in self.select.prepare()]

    def names(self) -> list[str]:
        return unique_names(self.select.outputs) if self.select is not None else [name for name, _ in self.shape]

    def finish(self, names: Sequence[str], types: Sequence[DataType]) -> mmpl.Rel:
        if self.select is not None:
            return self.select.finish(names, types)
        return aligned(self.rel, names, types, self.span, self.catalog)


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
