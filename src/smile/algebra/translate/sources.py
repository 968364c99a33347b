"""Entries of FROM: relations by name, subqueries, windows and merges, each a pipeline of its own."""

from collections.abc import Callable
from typing import Literal

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl
from smile.algebra.translate.alignment import aligned, common_types, shape_of
from smile.algebra.translate.expressions import interval_ticks
from smile.algebra.translate.outputs import mismatch
from smile.algebra.translate.pipeline import BrokenDependency, Catalog, Pipeline
from smile.algebra.translate.scope import Names, is_quoted
from smile.errors import error, nearest
from smile.lang import span_of

Translate = Callable[[exp.Expr, Catalog], mmpl.Rel]
"""How a query inside another becomes MMPL."""


class Sources:
    def __init__(self, catalog: Catalog, translate: Translate) -> None:
        self.catalog = catalog
        self.translate = translate

    def pipeline(self, node: exp.Expr) -> Pipeline:
        """One entry of FROM."""
        if isinstance(node, exp.Table):
            rel, name = self._named(node)
        elif isinstance(node, exp.Subquery):
            rel, name = self.translate(node.this, self.catalog), ""
        elif isinstance(node, lang.StreamFunction):
            rel, name = self._function(node)
        else:
            raise error("E013", f"{type(node).__name__} is not supported in FROM", span_of(node))
        pipeline = self.catalog.pipeline(rel, node.alias or name)
        _name_columns(pipeline, node)
        return pipeline

    def _named(self, node: exp.Table) -> tuple[mmpl.Rel, str]:
        written, quoted = node.name, is_quoted(node)
        found = self.catalog.relations.find(written, quoted)
        if found is None:
            if self.catalog.broken.find(written, quoted) is not None:
                raise BrokenDependency
            hint = nearest(written, self.catalog.relations)
            raise error("E021", f"there is no stream or view {written}", span_of(node.this), hint)
        rel = self.catalog.relations[found]
        return (mmpl.Ref(rel.name, span=span_of(node)) if isinstance(rel, mmpl.Ref) else rel), found

    def _function(self, node: lang.StreamFunction) -> tuple[mmpl.Rel, str]:
        if node.kind == "merge":
            return self._merge(node), ""
        source = self.pipeline(node.relations[0])
        assert node.column is not None
        on = source.expressions().column(node.column)
        sizes = [interval_ticks(i) for i in node.intervals]
        kind: Literal["tumble", "hop", "last"] = node.kind  # type: ignore[assignment]
        slide, size = (sizes[0], sizes[1]) if kind == "hop" else (None, sizes[0])
        return mmpl.Window(kind, source.rel, on, size, slide, span=span_of(node)), source.scope.items[0].alias

    def _merge(self, node: lang.StreamFunction) -> mmpl.Rel:
        rels = [self.pipeline(r).rel for r in node.relations]
        spans = [span_of(r) for r in node.relations]
        shapes = [shape_of(r, self.catalog) for r in rels]
        types = common_types("MERGE", shapes, spans)
        names = [name for name, _ in shapes[0]]
        merged = tuple(aligned(r, names, types, s, self.catalog) for r, s in zip(rels, spans, strict=True))
        return mmpl.Merge(merged, span=span_of(node))


def _name_columns(pipeline: Pipeline, node: exp.Expr) -> None:
    """`FROM s AS q (a, b)`: the first columns go by these names, the others by their own."""
    alias = node.args.get("alias")
    if not isinstance(alias, exp.TableAlias) or not alias.args.get("columns"):
        return
    given = alias.args["columns"]
    item = pipeline.scope.items[0]
    columns = list(item.columns.items())
    if len(given) > len(columns):
        raise mismatch(len(given), len(columns), span_of(alias))
    named: Names[str] = Names()
    for position, (name, column) in enumerate(columns):
        new, quoted = (given[position].name, is_quoted(given[position])) if position < len(given) else (name, True)
        if named.clash(new, quoted) is not None:
            raise error("E020", f"there are two columns named {new}", span_of(alias))
        named.add(new, column, quoted)
    item.columns = named
