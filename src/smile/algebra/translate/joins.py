"""JOINs: each adds one entry of FROM to the pipeline. Only columns that the join makes one have a name in common."""

from dataclasses import dataclass, replace
from typing import Literal

from sqlglot import exp

from smile.algebra import mmpl, trees
from smile.algebra.heading import Heading, Headings
from smile.algebra.translate.expressions import Expressions, Typed
from smile.algebra.translate.pipeline import Pipeline, conjuncts, equate, same_type
from smile.algebra.translate.scope import Merged, Scope, fold, free_name
from smile.errors import error
from smile.lang import span_of
from smile.source import Span


@dataclass(frozen=True)
class _Shared:
    """A name that USING gives to a column of each side, with the MMPL columns."""

    name: str
    left: str
    right: str
    span: Span | None


def join(left: Pipeline, right: Pipeline, node: exp.Join) -> None:
    """Add one JOIN to the pipeline."""
    alias = right.scope.items[0].alias
    if alias and left.scope.has_table(alias, False):
        hint = "Give one of them an alias."
        raise error("E020", f"there are two relations named {alias} in this FROM", span_of(node.this), hint)
    conditions = conjuncts(node.args["on"]) if node.args.get("on") is not None else []
    shared = _using(left, right, node)
    same, conditions = _same_names(left, right, node, conditions)
    pairs = _name_apart(left, right, shared, same, merge=_merges(node, shared))
    both = Scope([*left.scope.items, *right.scope.items], list(left.scope.merged), left.scope.outer, left.scope.closed)
    types = {**right.heading.columns, **left.heading.columns}
    translator = Expressions(both, lambda name, _: types[name])
    more, rest = equate(left, right, [translator.predicate(c) for c in conditions])
    on = tuple(dict.fromkeys([*pairs, *((c, c) for c in same), *more]))
    if node.method == "ASOF":
        _asof(left, right, node, on, rest)
    else:
        _plain(left, right, node, on, rest)
    left.scope = both
    _merge_names(left, alias, node, shared, pairs)


def _using(left: Pipeline, right: Pipeline, node: exp.Join) -> list[_Shared]:
    shared: list[_Shared] = []
    for column in node.args.get("using") or []:
        span = span_of(column)
        a, b = left.scope.find(column, span), right.scope.find(column, span)
        if a is None or b is None:
            raise (left if a is None else right).scope.unknown_column(column, span)
        name = next(n for n, c in right.scope.items[0].columns.items() if c == b)
        if any(s.name == name for s in shared):
            raise error("E020", f"{name} is twice in USING", span)
        shared.append(_Shared(name, a, b, span))
    return shared


def _same_names(
    left: Pipeline, right: Pipeline, node: exp.Join, conditions: list[exp.Expr]
) -> tuple[list[str], list[exp.Expr]]:
    """The columns that `l.c = r.c` makes one where both rows are always there, and the other conditions."""
    same: list[str] = []
    rest: list[exp.Expr] = []
    for condition in conditions:
        column = None if node.side else _same_name(left, right, condition)
        if column is None:
            rest.append(condition)
        elif column not in same:
            same.append(column)
    return same, rest


def _same_name(left: Pipeline, right: Pipeline, condition: exp.Expr) -> str | None:
    a, b = condition.this, condition.args.get("expression")
    if not (isinstance(condition, exp.EQ) and isinstance(a, exp.Column) and isinstance(b, exp.Column)):
        return None
    if not (a.table and b.table):
        return None
    for first, second in ((a, b), (b, a)):
        on_left, on_right = left.scope.find(first, span_of(first)), right.scope.find(second, span_of(second))
        if on_left is not None and on_left == on_right:
            alike = left.heading.columns[on_left] == right.heading.columns[on_right]
            return on_left if alike and left.heading.columns[on_left].is_ordered else None
    return None


def _name_apart(
    left: Pipeline, right: Pipeline, shared: list[_Shared], same: list[str], merge: bool
) -> list[tuple[str, str]]:
    """Rename the right side so that only merged columns have a name in common; the pairs of shared columns."""
    cast = [same_type(left, s.left, right, s.right, s.span) for s in shared]
    new = {b: a for a, b in cast} if merge else {}
    used = {*left.heading.columns, *right.heading.columns}
    for column in right.heading.columns:
        if column in left.heading.columns and column not in new and column not in same:
            new[column] = free_name(right.scope.qualified(column), used)
            used.add(new[column])
    right.rename({old: name for old, name in new.items() if old != name})
    return [(a, new.get(b, b)) for a, b in cast]


def _merge_names(
    joined: Pipeline, alias: str, node: exp.Join, shared: list[_Shared], pairs: list[tuple[str, str]]
) -> None:
    """A shared name means the side that is always there; after a FULL JOIN, whichever is."""
    scope = joined.scope
    for s, (a, b) in zip(shared, pairs, strict=True):
        column = b if node.side == "RIGHT" else a
        if node.side == "FULL" and a != b:
            whichever = mmpl.Call("coalesce", (mmpl.Column(a), mmpl.Column(b)), span=s.span)
            column = joined.extend(s.name, Typed(whichever, joined.heading.columns[a]))
        earlier = [m for m in scope.merged if m.column == s.left]
        parts = {(i.alias, n) for i in scope.items for n, c in i.columns.items() if c in (s.left, a, b)}
        parts |= {(alias, s.name)}.union(*(m.parts for m in earlier))
        scope.merged = [m for m in scope.merged if m not in earlier]
        scope.merged.append(Merged(s.name, column, frozenset(parts)))


def _merges(node: exp.Join, shared: list[_Shared]) -> bool:
    """Whether the sides' shared columns can be one: if both rows are always there, or nothing tells them apart."""
    if not node.side:
        return True
    select = node.find_ancestor(exp.Select)
    names = {fold(s.name) for s in shared}
    named = select.find_all(exp.Column) if select is not None else ()
    return not any(c.table and (isinstance(c.this, exp.Star) or fold(c.name) in names) for c in named)


def _plain(
    left: Pipeline, right: Pipeline, node: exp.Join, on: tuple[tuple[str, str], ...], rest: list[mmpl.Expr]
) -> None:
    kind: mmpl.JoinKind = node.side.lower() or "inner"  # type: ignore[assignment]
    if kind == "inner":
        fixed = tuple(p for p in on if not _evolves(left.heading, p[0]) and not _evolves(right.heading, p[1]))
        rest = [*rest, *(mmpl.Call("=", (mmpl.Column(a), mmpl.Column(b))) for a, b in on if (a, b) not in fixed)]
        left.rel = mmpl.Join(kind, left.rel, right.rel, fixed, span=span_of(node))
        left.restrict(rest)
    else:
        when = trees.conjunction(rest) if rest else None
        left.rel = mmpl.Join(kind, left.rel, right.rel, on, when, span=span_of(node))


def _evolves(heading: Heading, column: str) -> bool:
    """Of a column known to be computed of groups: rows are better compared by it once they have met."""
    return heading.total and column not in heading.key


def _asof(
    left: Pipeline, right: Pipeline, node: exp.Join, on: tuple[tuple[str, str], ...], rest: list[mmpl.Expr]
) -> None:
    """What else is said of the right side alone restricts it before the greatest tick is looked for."""
    own = [p for p in rest if trees.columns_in(p) <= set(right.heading.columns)]
    ticks = [p for p in rest if p not in own]
    at = _as_of(left, right, ticks[0]) if len(ticks) == 1 else None
    if at is None:
        message = "ASOF JOIN needs one comparison of ticks besides equalities"
        raise error("E046", message, span_of(node), "Write ASOF JOIN r ON l.k = r.k AND l.t >= r.t.")
    right.restrict(own)
    kind: Literal["inner", "left"] = "left" if node.side == "LEFT" else "inner"
    left.rel = mmpl.Asof(kind, left.rel, right.rel, on, at, span=span_of(node))


def _as_of(left: Pipeline, right: Pipeline, predicate: mmpl.Expr) -> tuple[str, str] | None:
    """l.t >= r.t, whichever way round it is written."""
    match predicate:
        case mmpl.Call(">=", (mmpl.Column(a), mmpl.Column(b))) | mmpl.Call("<=", (mmpl.Column(b), mmpl.Column(a))):
            if a in left.heading.columns and b in right.heading.columns:
                return a, b
    return None


# ── equalities of WHERE ─────────────────────────────────────────────────────────────────────────────────────────────


def tied(rel: mmpl.Rel, predicate: mmpl.Expr, headings: Headings) -> mmpl.Rel | None:
    """`FROM l, r WHERE l.a = r.b` is `l JOIN r ON l.a = r.b`: the relation with an equality of WHERE in its join.

    It matters for what an aggregate is: total, a row for every value of its key, where a join equates that key.
    """
    match predicate:
        case mmpl.Call("=", (mmpl.Column(a), mmpl.Column(b))) if a != b:
            return _tied(rel, a, b, headings)
    return None


def _tied(rel: mmpl.Rel, a: str, b: str, headings: Headings) -> mmpl.Rel | None:
    match rel:
        case mmpl.Restrict() | mmpl.Extend():
            below = _tied(rel.input, a, b, headings)
            return None if below is None else replace(rel, input=below)
        case mmpl.Join(kind="inner" | "left" | "semi" | "anti" | "match"):
            left, right = headings.of(rel.left), headings.of(rel.right)
            if {a, b} <= set(left.columns):
                below = _tied(rel.left, a, b, headings)
                return None if below is None else replace(rel, left=below)
            first, second = (a, b) if a in left.columns else (b, a)
            met = first in left.columns and second in right.columns
            if rel.kind == "inner" and met and not _evolves(left, first) and not _evolves(right, second):
                return replace(rel, on=tuple(dict.fromkeys((*rel.on, (first, second)))))
    return None
