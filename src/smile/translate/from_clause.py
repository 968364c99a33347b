"""Translates the entries of FROM to pipelines: named relations, subqueries, windows and merges."""

from collections.abc import Callable
from typing import Literal

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl
from smile.errors import did_you_mean, error
from smile.lang import span_of
from smile.operators.window import WINDOW_COLUMNS
from smile.translate.alignment import align_branch, common_types, visible_columns
from smile.translate.calendar_windows import calendar_windows, first_monday, is_calendar_window
from smile.translate.expressions import interval_ticks
from smile.translate.outputs import column_count_error
from smile.translate.pipeline import BrokenDependency, Catalog, QueryPipeline
from smile.translate.scope import FromItem, NameTable, free_name, is_quoted
from smile.translate.values import translate_values

QueryTranslation = Callable[[exp.Expr, Catalog], mmpl.Rel]
"""Translates a nested query to MMPL."""


class FromTranslator:
    def __init__(self, catalog: Catalog, translate: QueryTranslation) -> None:
        self.catalog = catalog
        self.translate = translate

    def pipeline(self, node: exp.Expr, as_of: bool = False) -> QueryPipeline:
        """The pipeline of one entry of FROM. `as_of`: of a table, all its changes."""
        table = None
        if isinstance(node, exp.Table):
            rel, name = self._named_relation(node)
            table = self.catalog.tables.get(rel) if as_of else None
            rel = rel if table is None else table.changes
        elif isinstance(node, exp.Values):
            rel, name = translate_values(node), ""
        elif isinstance(node, exp.Subquery):
            rel, name = self.translate(node.this, self.catalog), ""
        elif isinstance(node, lang.StreamFunction):
            rel, name = self._stream_function(node)
        elif isinstance(node, exp.Unnest):
            hint = "Every row of a view comes from streams: write FROM s, UNNEST(s.tags) AS u (tag)."
            raise error("E040", "UNNEST without a relation before it has no key", span_of(node), hint)
        else:
            raise error("E013", f"{type(node).__name__} is not supported in FROM", span_of(node))
        pipeline = self.catalog.new_pipeline(rel, node.alias or name)
        pipeline.table = table if table is not None and table.stream is not None else None
        apply_column_aliases(pipeline.scope.from_items[0], node)
        return pipeline

    def _named_relation(self, node: exp.Table) -> tuple[mmpl.Rel, str]:
        written, quoted = node.name, is_quoted(node)
        name = self.catalog.relations.find(written, quoted)
        if name is None:
            if self.catalog.broken.find(written, quoted) is not None:
                raise BrokenDependency
            hint = did_you_mean(written, self.catalog.relations)
            raise error("E021", f"there is no stream or view {written}", span_of(node.this), hint)
        rel = self.catalog.relations[name]
        return (mmpl.RelationRef(rel.name, span=span_of(node)) if isinstance(rel, mmpl.RelationRef) else rel), name

    def _stream_function(self, node: lang.StreamFunction) -> tuple[mmpl.Rel, str]:
        if node.kind == "merge":
            return self._merge(node), ""
        source = self.pipeline(node.relations[0])
        assert node.column is not None
        on = source.translator().column_name(node.column)
        alias = source.scope.from_items[0].alias
        if node.kind == "tumble" and is_calendar_window(node):
            _free_window_columns(source, node)
            return calendar_windows(source, node), alias
        sizes = [interval_ticks(i) for i in node.intervals]
        if node.kind == "session":
            _free_window_columns(source, node)
            translator = source.translator()
            per = tuple(dict.fromkeys(translator.column_name(c) for c in node.per))
            tick = translator.column_name(node.column)
            return mmpl.Session(source.rel, tick, per, sizes[0], span=span_of(node)), alias
        kind: Literal["tumble", "hop", "last"] = node.kind  # type: ignore[assignment]
        if kind != "last":
            _free_window_columns(source, node)
            on = source.translator().column_name(node.column)
        slide = sizes.pop(0) if kind == "hop" else None
        size, offset = (*sizes, first_monday(node, slide or sizes[0]))[:2]
        window = mmpl.Window(kind, source.rel, on, size, slide, offset, span=span_of(node))
        return window, alias

    def _merge(self, node: lang.StreamFunction) -> mmpl.Rel:
        rels = [self.pipeline(r).rel for r in node.relations]
        spans = [span_of(r) for r in node.relations]
        branches = [visible_columns(r, self.catalog) for r in rels]
        types = common_types("MERGE", branches, spans)
        names = [name for name, _ in branches[0]]
        inputs = tuple(align_branch(r, names, types, s, self.catalog) for r, s in zip(rels, spans, strict=True))
        return mmpl.Merge(inputs, span=span_of(node))


def _free_window_columns(source: QueryPipeline, node: lang.StreamFunction) -> None:
    """Renames hidden columns that are called as those that the window adds. Visible ones are an error."""
    (item,) = source.scope.from_items
    for name in WINDOW_COLUMNS:
        if name in source.heading.visible:
            hint = f"Select it under another name in a subquery: {name} AS inner_{name.removeprefix('window_')}."
            message = f"{node.kind.upper()} adds a column {name}, but the relation has one already"
            raise error("E020", message, span_of(node), hint)
        if name in source.heading.columns:
            source.rename({name: free_name(f"{item.alias or 'inner'}.{name}", source.heading.columns)})


def apply_column_aliases(item: FromItem, node: exp.Expr) -> None:
    """In `FROM s AS q (a, b)`, the first columns get these names, and the others keep their own."""
    alias = node.args.get("alias")
    if not isinstance(alias, exp.TableAlias) or not alias.args.get("columns"):
        return
    aliases = alias.args["columns"]
    columns = list(item.columns.items())
    if len(aliases) > len(columns):
        raise column_count_error(len(aliases), len(columns), span_of(alias))
    renamed: NameTable[str] = NameTable()
    for position, (name, column) in enumerate(columns):
        new_name, quoted = (
            (aliases[position].name, is_quoted(aliases[position])) if position < len(aliases) else (name, True)
        )
        if renamed.clash(new_name, quoted) is not None:
            raise error("E020", f"there are two columns named {new_name}", span_of(alias))
        renamed.add(new_name, column, quoted)
    item.columns = renamed
