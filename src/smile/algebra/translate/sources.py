"""FROM and JOIN: relations by name, subqueries, windows and merges, joined into one pipeline."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from smile import lang
from smile.algebra import mmpl
from smile.algebra.translate.expressions import Expressions, Typed, interval_ticks
from smile.algebra.translate.pipeline import (
    BrokenDependency,
    Catalog,
    Pipeline,
    conjuncts,
    equate,
    same_type,
)
from smile.algebra.translate.scope import Item, Scope, fold, free_name, matches
from smile.errors import error, nearest
from smile.lang import span_of
from smile.source import Span

Translate = Callable[[exp.Expr, Catalog], mmpl.Rel]
"""How a query inside another becomes MMPL."""


class Sources:
    def __init__(self, catalog: Catalog, translate: Translate) -> None:
        self.catalog = catalog
        self.translate = translate

    def pipeline(self, node: exp.Expr, outer: Scope | None = None) -> Pipeline:
        """One entry of FROM."""
        if isinstance(node, exp.Table):
            rel, name = self._named(node)
        elif isinstance(node, exp.Subquery):
            rel, name = self.translate(node.this, self.catalog), ""
        elif isinstance(node, lang.StreamFunction):
            rel, name = self._function(node)
        else:
            raise error("E013", f"{type(node).__name__} is not supported in FROM", span_of(node))
        heading = self.catalog.headings.of(rel)
        item = Item(node.alias or name, {c: c for c in heading.visible})
        return Pipeline(rel, Scope([item], outer=outer), self.catalog)

    def _named(self, node: exp.Table) -> tuple[mmpl.Rel, str]:
        written, quoted = node.name, bool(node.this.args.get("quoted"))
        if self.catalog.broken.find(written, quoted) is not None:
            raise BrokenDependency
        found = self.catalog.relations.find(written, quoted)
        if found is None:
            hint = nearest(written, self.catalog.relations)
            raise error("E021", f"there is no stream or view {written}", span_of(node.this), hint)
        rel = self.catalog.relations[found]
        return (mmpl.Ref(rel.name, span=span_of(node)) if isinstance(rel, mmpl.Ref) else rel), found

    def _function(self, node: lang.StreamFunction) -> tuple[mmpl.Rel, str]:
        if node.kind == "merge":
            return self._merge(node), "merge"
        source = self.pipeline(node.relations[0])
        assert node.column is not None
        on = source.expressions().column(node.column)
        sizes = [interval_ticks(i) for i in node.intervals]
        kind: Literal["tumble", "hop", "last"] = node.kind  # type: ignore[assignment]
        slide, size = (sizes[0], sizes[1]) if kind == "hop" else (None, sizes[0])
        return mmpl.Window(kind, source.rel, on, size, slide, span=span_of(node)), source.scope.items[0].alias

    def _merge(self, node: lang.StreamFunction) -> mmpl.Rel:
        """The first relation names the columns; the others' take their names by position."""
        rels = [self.pipeline(r).rel for r in node.relations]
        names = self.catalog.headings.of(rels[0]).visible
        aligned = []
        for rel, written in zip(rels, node.relations, strict=True):
            visible = self.catalog.headings.of(rel).visible
            if len(visible) != len(names):
                message = f"MERGE needs {len(names)} columns, this has {len(visible)}"
                raise error("E044", message, span_of(written))
            new = tuple((old, name) for old, name in zip(visible, names, strict=True) if old != name)
            aligned.append(mmpl.Rename(rel, new, span=span_of(written)) if new else rel)
        return mmpl.Merge(tuple(aligned), span=span_of(node))

    # ── joins ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def join(self, left: Pipeline, node: exp.Join) -> None:
        """Add one JOIN to the pipeline."""
        right = self.pipeline(node.this)
        alias = right.scope.items[0].alias
        if alias and left.scope.has_table(alias, False):
            hint = "Give one of them an alias."
            raise error("E020", f"there are two relations named {alias} in this FROM", span_of(node.this), hint)
        shared = self._shared(left, right, node)
        pairs = self._name_apart(left, right, shared, merge=_merges(node, [s.name for s in shared]))
        both = Scope([*left.scope.items, *right.scope.items], dict(left.scope.merged), left.scope.outer)
        rest: list[mmpl.Expr] = []
        if node.args.get("on") is not None:
            types = {**right.heading.columns, **left.heading.columns}
            translator = Expressions(both, lambda name, _: types[name])
            more, rest = equate(left, right, [translator.predicate(c) for c in conjuncts(node.args["on"])])
            pairs += more
        if node.method == "ASOF":
            self._asof(left, right, node, pairs, rest)
        else:
            self._plain(left, right, node, pairs, rest)
        left.scope = both
        self._merge_names(left, node, shared, pairs)

    def _shared(self, left: Pipeline, right: Pipeline, node: exp.Join) -> list["_Shared"]:
        """USING's columns, or NATURAL's."""
        columns = right.scope.items[0].columns
        if node.method == "NATURAL":
            found = [(n, left.scope.find(None, n, False, span_of(node))) for n in columns]
            shared = [_Shared(n, a, columns[n], span_of(node)) for n, a in found if a is not None]
            if not shared:
                raise error("E022", "NATURAL JOIN of relations that share no column", span_of(node))
            return shared
        shared = []
        for column in node.args.get("using") or []:
            identifier = column.this if isinstance(column, exp.Column) else column
            written, quoted, span = identifier.name, bool(identifier.args.get("quoted")), span_of(column)
            a = left.scope.find(None, written, quoted, span)
            b = right.scope.find(None, written, quoted, span)
            if a is None or b is None:
                raise (left if a is None else right).scope.unknown_column(None, written, span)
            shared.append(_Shared(next(n for n in columns if matches(written, quoted, n)), a, b, span))
        return shared

    def _name_apart(
        self, left: Pipeline, right: Pipeline, shared: list["_Shared"], merge: bool
    ) -> list[tuple[str, str]]:
        """Rename the right side so that only merged columns have a name in common; the pairs of shared columns."""
        cast = [same_type(left, s.left, right, s.right, s.span) for s in shared]
        new = {b: a for a, b in cast} if merge else {}
        used = set(left.heading.columns) | set(right.heading.columns)
        for column in right.heading.columns:
            if column in left.heading.columns and column not in new:
                new[column] = free_name(right.scope.qualified(column), used)
                used.add(new[column])
        right.rename({old: name for old, name in new.items() if old != name})
        return [(a, new.get(b, b)) for a, b in cast]

    def _merge_names(
        self, joined: Pipeline, node: exp.Join, shared: list["_Shared"], pairs: list[tuple[str, str]]
    ) -> None:
        """A shared name means the side that is always there; after a FULL JOIN, whichever is."""
        for s, (a, b) in zip(shared, pairs, strict=False):
            column = b if node.side == "RIGHT" else a
            if node.side == "FULL" and a != b:
                whichever = mmpl.Call("coalesce", (mmpl.Column(a), mmpl.Column(b)), span=s.span)
                column = joined.extend(s.name, Typed(whichever, joined.heading.columns[a]))
            joined.scope.merged[s.name] = column

    def _plain(
        self, left: Pipeline, right: Pipeline, node: exp.Join, pairs: list[tuple[str, str]], rest: list[mmpl.Expr]
    ) -> None:
        kind: mmpl.JoinKind = node.side.lower() or "inner"  # type: ignore[assignment]
        span = span_of(node)
        if kind == "inner":
            left.rel = mmpl.Join(kind, left.rel, right.rel, tuple(pairs), span=span)
            left.restrict(rest)
            return
        when = mmpl.conjunction(rest) if rest else None
        left.rel = mmpl.Join(kind, left.rel, right.rel, tuple(pairs), when, span=span)

    def _asof(
        self, left: Pipeline, right: Pipeline, node: exp.Join, pairs: list[tuple[str, str]], rest: list[mmpl.Expr]
    ) -> None:
        at = _as_of(left, right, rest) if len(rest) == 1 else None
        if at is None:
            raise error(
                "E046", "ASOF JOIN needs one comparison of ticks besides equalities", span_of(node),
                "Write ASOF JOIN r ON l.k = r.k AND l.t >= r.t.",
            )  # fmt: skip
        kind: Literal["inner", "left"] = "left" if node.side == "LEFT" else "inner"
        left.rel = mmpl.Asof(kind, left.rel, right.rel, tuple(pairs), at, span=span_of(node))


@dataclass(frozen=True)
class _Shared:
    """A name that USING gives to a column of each side."""

    name: str
    left: str
    right: str
    span: Span | None


def _merges(node: exp.Join, names: list[str]) -> bool:
    """Whether the sides' shared columns can be one: always if both rows are there, else if no query tells them apart."""
    if not node.side:
        return True
    select = node.find_ancestor(exp.Select)
    folded = {fold(n) for n in names}
    return select is None or not any(c.table and fold(c.name) in folded for c in select.find_all(exp.Column))


def _as_of(left: Pipeline, right: Pipeline, rest: list[mmpl.Expr]) -> tuple[str, str] | None:
    """l.t >= r.t, whichever way round it is written."""
    match rest[0]:
        case mmpl.Call(">=", (mmpl.Column(a), mmpl.Column(b))) | mmpl.Call("<=", (mmpl.Column(b), mmpl.Column(a))):
            if a in left.heading.columns and b in right.heading.columns:
                return a, b
    return None
