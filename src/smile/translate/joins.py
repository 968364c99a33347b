"""Translates JOINs. Each adds one entry of FROM to the pipeline. Both sides share only the names of merged columns."""

from dataclasses import dataclass, replace
from typing import Literal

from sqlglot import exp

from smile.algebra import mmpl, trees
from smile.algebra.functions.catalogue import type_of
from smile.algebra.heading import Heading
from smile.algebra.types import INTERVAL, TIME
from smile.analysis.headings import Headings
from smile.errors import error
from smile.lang import span_of
from smile.source import Span
from smile.translate.alignment import BRANCH_COLUMN
from smile.translate.expressions import ExpressionTranslator, TypedExpr
from smile.translate.null_safe import nulls_among
from smile.translate.pipeline import QueryPipeline, cast_to_common_type, split_conjunction, split_equalities
from smile.translate.scope import MergedColumn, Scope, fold_case, free_name
from smile.translate.tables import check_table_join, hide_deleted_rows


@dataclass(frozen=True)
class _UsingColumn:
    """A name in USING, with the MMPL columns of both sides."""

    name: str
    left: str
    right: str
    span: Span | None


def add_join(left: QueryPipeline, right: QueryPipeline, node: exp.Join) -> None:
    """Adds one JOIN to the pipeline."""
    alias = right.scope.from_items[0].alias
    if alias and left.scope.has_table(alias, False):
        hint = "Give one of them an alias."
        raise error("E020", f"there are two relations named {alias} in this FROM", span_of(node.this), hint)
    conditions = split_conjunction(node.args["on"]) if node.args.get("on") is not None else []
    has_marked_side = node.method != "ASOF" and _distinguish_null_keys(left, right, node, conditions)
    using = _using_columns(left, right, node)
    same_columns, conditions = _split_same_names(left, right, node, conditions)
    can_merge = not has_marked_side and _can_merge(left, right, node, using)
    pairs = _rename_right_side(left, right, using, same_columns, merge=can_merge)
    scope = Scope(
        [*left.scope.from_items, *right.scope.from_items],
        list(left.scope.merged_columns),
        left.scope.outer,
        left.scope.closed,
    )
    types = {**right.heading.columns, **left.heading.columns}
    translator = ExpressionTranslator(scope, lambda name, _: types[name])
    equal_pairs, other_predicates = split_equalities(
        left, right, [translator.translate_predicate(c) for c in conditions]
    )
    on = tuple(dict.fromkeys([*pairs, *((c, c) for c in same_columns), *equal_pairs]))
    if node.method == "ASOF":
        _add_asof_join(left, right, node, on, other_predicates)
    else:
        _add_plain_join(left, right, node, on, other_predicates)
    left.scope = scope
    if right.table is not None:
        hide_deleted_rows(left, right.table, node.side == "LEFT", span_of(node))
    _add_merged_columns(left, alias, node, using, pairs)


def _distinguish_null_keys(
    left: QueryPipeline, right: QueryPipeline, node: exp.Join, conditions: list[exp.Expr]
) -> bool:
    """Gives a side a column of the key that is never NULL, if two rows could have the same key otherwise: a row without
    a match has NULL for the key of the other side, and so has a row with a match, if all columns of that key can be
    NULL. Returns whether it did."""
    optional = {"LEFT": [right], "RIGHT": [left], "FULL": [right, left]}.get(node.side, [])
    nullable = [side for side in optional if all(nulls_among(side, side.heading.key))]
    using = _using_columns(left, right, node)
    marked = [
        side
        for side in nullable
        if not _equates_key(side, conditions, {u.left if side is left else u.right for u in using})
    ]
    if len(nullable) == 2 and not marked:  # two rows without a match
        marked = nullable[:1] if not right.heading.total else [left]
    marked = [side for side in marked if not side.heading.total]
    taken = {*left.heading.columns, *right.heading.columns, BRANCH_COLUMN}
    for side in marked:
        if BRANCH_COLUMN in side.heading.columns:
            side.rename({BRANCH_COLUMN: free_name(f"{BRANCH_COLUMN}_", taken)})
        side.rel = mmpl.Union((side.rel,), span=span_of(node))
        name = free_name("present", taken)
        side.rename({BRANCH_COLUMN: name})
        taken.add(name)
    return bool(marked)


def _equates_key(side: QueryPipeline, conditions: list[exp.Expr], using: set[str]) -> bool:
    """Whether an equality of the join compares a column of the key: in a row with a match, it is not NULL."""
    operands = [o for c in conditions if isinstance(c, exp.EQ) for o in (c.this, c.expression)]
    columns = using | {side.scope.find(o, span_of(o)) for o in operands if isinstance(o, exp.Column)}
    return not columns.isdisjoint(side.heading.key)


def _using_columns(left: QueryPipeline, right: QueryPipeline, node: exp.Join) -> list[_UsingColumn]:
    using: list[_UsingColumn] = []
    for column in _natural_columns(left, right, node) if node.method == "NATURAL" else node.args.get("using") or []:
        span = span_of(column) or span_of(node)
        a, b = left.scope.find(column, span), right.scope.find(column, span)
        if a is None or b is None:
            raise (left if a is None else right).scope.unknown_column_error(column, span)
        name = next(n for n, c in right.scope.from_items[0].columns.items() if c == b)
        if any(s.name == name for s in using):
            raise error("E020", f"{name} occurs twice in USING", span)
        using.append(_UsingColumn(name, a, b, span))
    return using


def _natural_columns(left: QueryPipeline, right: QueryPipeline, node: exp.Join) -> list[exp.Expr]:
    """The columns that NATURAL JOIN equates: those whose names both sides have."""
    on_left: dict[str, None] = dict.fromkeys(n for item in left.scope.from_items for n in item.columns)
    common = [n for n in right.scope.from_items[0].columns if n in on_left]
    if not common:
        hint = "Use CROSS JOIN for all pairs of rows, or JOIN … ON."
        raise error("E022", "NATURAL JOIN needs a column that both sides have", span_of(node), hint)
    return [exp.to_identifier(name, quoted=True) for name in common]


def _split_same_names(
    left: QueryPipeline, right: QueryPipeline, node: exp.Join, conditions: list[exp.Expr]
) -> tuple[list[str], list[exp.Expr]]:
    """The columns that `l.c = r.c` merges, and the other conditions. Only inner joins merge them."""
    same_columns: list[str] = []
    other_conditions: list[exp.Expr] = []
    for condition in conditions:
        column = None if node.side else _same_named_column(left, right, condition)
        if column is None:
            other_conditions.append(condition)
        elif column not in same_columns:
            same_columns.append(column)
    return same_columns, other_conditions


def _same_named_column(left: QueryPipeline, right: QueryPipeline, condition: exp.Expr) -> str | None:
    a, b = condition.this, condition.args.get("expression")
    if not (isinstance(condition, exp.EQ) and isinstance(a, exp.Column) and isinstance(b, exp.Column)):
        return None
    if not (a.table and b.table):
        return None
    for first, second in ((a, b), (b, a)):
        on_left, on_right = left.scope.find(first, span_of(first)), right.scope.find(second, span_of(second))
        is_evolving = on_left is not None and on_right is not None and _any_evolves(left, on_left, right, on_right)
        if on_left is not None and on_left == on_right and not is_evolving:
            has_same_type = left.heading.columns[on_left] == right.heading.columns[on_right]
            return on_left if has_same_type and left.heading.columns[on_left].is_comparable else None
    return None


def _rename_right_side(
    left: QueryPipeline, right: QueryPipeline, using: list[_UsingColumn], same_columns: list[str], merge: bool
) -> list[tuple[str, str]]:
    """Renames the right side so that only merged columns share a name. Returns the pairs of USING columns."""
    cast_pairs = [cast_to_common_type(left, s.left, right, s.right, s.span) for s in using]
    new_names = {b: a for a, b in cast_pairs} if merge else {}
    used_names = {*left.heading.columns, *right.heading.columns}
    for column in right.heading.columns:
        if column in left.heading.columns and column not in new_names and column not in same_columns:
            new_names[column] = free_name(right.scope.qualified_name(column), used_names)
            used_names.add(new_names[column])
    right.rename({old: name for old, name in new_names.items() if old != name})
    return [(a, new_names.get(b, b)) for a, b in cast_pairs]


def _add_merged_columns(
    joined: QueryPipeline, alias: str, node: exp.Join, using: list[_UsingColumn], pairs: list[tuple[str, str]]
) -> None:
    """A merged column has the value of the side that always has a row; in a FULL JOIN, of the side that has one."""
    scope = joined.scope
    for shared, (a, b) in zip(using, pairs, strict=True):
        column = b if node.side == "RIGHT" else a
        if node.side == "FULL" and a != b:
            coalesced = mmpl.Call("coalesce", (mmpl.ColumnRef(a), mmpl.ColumnRef(b)), span=shared.span)
            column = joined.extend(shared.name, TypedExpr(coalesced, joined.heading.columns[a]))
        earlier = [m for m in scope.merged_columns if m.column == shared.left]
        parts = {(i.alias, n) for i in scope.from_items for n, c in i.columns.items() if c in (shared.left, a, b)}
        parts |= {(alias, shared.name)}.union(*(m.parts for m in earlier))
        scope.merged_columns = [m for m in scope.merged_columns if m not in earlier]
        scope.merged_columns.append(MergedColumn(shared.name, column, frozenset(parts)))


def _can_merge(left: QueryPipeline, right: QueryPipeline, node: exp.Join, using: list[_UsingColumn]) -> bool:
    """Whether the USING columns can be merged: in an inner join, unless they evolve, or if the query never qualifies
    their names."""
    if not node.side:
        return not any(_any_evolves(left, s.left, right, s.right) for s in using)
    select = node.find_ancestor(exp.Select)
    names = {fold_case(s.name) for s in using}
    columns = select.find_all(exp.Column) if select is not None else ()
    return not any(c.table and (isinstance(c.this, exp.Star) or fold_case(c.name) in names) for c in columns)


def _add_plain_join(
    left: QueryPipeline,
    right: QueryPipeline,
    node: exp.Join,
    on: tuple[tuple[str, str], ...],
    predicates: list[mmpl.Expr],
) -> None:
    kind: mmpl.JoinKind = node.side.lower() or "inner"  # type: ignore[assignment]
    if kind == "inner":
        fixed_pairs = tuple(
            p for p in on if not _is_evolving(left.heading, p[0]) and not _is_evolving(right.heading, p[1])
        )
        predicates = [
            *predicates,
            *(mmpl.Call("=", (mmpl.ColumnRef(a), mmpl.ColumnRef(b))) for a, b in on if (a, b) not in fixed_pairs),
        ]
        left.rel = mmpl.Join(kind, left.rel, right.rel, fixed_pairs, span=span_of(node))
        left.restrict(predicates)
    else:
        when = trees.conjunction(predicates) if predicates else None
        left.rel = mmpl.Join(kind, left.rel, right.rel, on, when, span=span_of(node))


def _any_evolves(left: QueryPipeline, a: str, right: QueryPipeline, b: str) -> bool:
    return _is_evolving(left.heading, a) or _is_evolving(right.heading, b)


def _is_evolving(heading: Heading, column: str) -> bool:
    """Whether a column is an aggregate. A WHERE after the join compares it, because its value may still change."""
    return heading.total and column not in heading.key


def _add_asof_join(
    left: QueryPipeline,
    right: QueryPipeline,
    node: exp.Join,
    on: tuple[tuple[str, str], ...],
    predicates: list[mmpl.Expr],
) -> None:
    """Conditions on the right side alone restrict it before the join searches the greatest tick."""
    right_predicates = [p for p in predicates if trees.columns_in(p) <= set(right.heading.columns)]
    tick_predicates = [p for p in predicates if p not in right_predicates]
    tick_columns = _tick_comparison(left, right, tick_predicates[0]) if len(tick_predicates) == 1 else None
    if right.table is not None:
        tick_columns = check_table_join(left, right, on, predicates, tick_columns, span_of(node))
    if tick_columns is None:
        message = "ASOF JOIN needs one comparison of ticks besides equalities"
        raise error("E046", message, span_of(node), "Write ASOF JOIN r ON l.k = r.k AND l.t >= r.t.")
    right.restrict(right_predicates)
    kind: Literal["inner", "left"] = "left" if node.side == "LEFT" else "inner"
    left.rel = mmpl.Asof(kind, left.rel, right.rel, on, tick_columns, span=span_of(node))


def _tick_comparison(left: QueryPipeline, right: QueryPipeline, predicate: mmpl.Expr) -> tuple[str, str] | None:
    """The columns of `l.t >= r.t`, in either order. Ticks are whole: `l.t > r.t` is `l.t - 1 >= r.t`."""
    match predicate:
        case mmpl.Call("<=" | "<" as name, (mmpl.ColumnRef(tick), bound)):
            is_strict = name == "<"
        case mmpl.Call(">=" | ">" as name, (bound, mmpl.ColumnRef(tick))):
            is_strict = name == ">"
        case _:
            return None
    if tick not in right.heading.columns or not trees.columns_in(bound) or not _is_time_of(left, bound):
        return None
    if is_strict:
        bound = mmpl.Call("-", (bound, mmpl.Constant(1, INTERVAL)), span=predicate.span)
    return left.extend("as_of", TypedExpr(bound, TIME), right.heading.columns), tick


def _is_time_of(pipeline: QueryPipeline, expr: mmpl.Expr) -> bool:
    columns = pipeline.heading.columns
    return trees.columns_in(expr) <= set(columns) and type_of(expr, columns) == TIME


# ── equalities of WHERE ─────────────────────────────────────────────────────────────────────────────────────────────


def with_equality_in_join(rel: mmpl.Rel, predicate: mmpl.Expr, headings: Headings) -> mmpl.Rel | None:
    """Moves an equality of WHERE into the join: `FROM l, r WHERE l.a = r.b` becomes `l JOIN r ON l.a = r.b`.

    The two differ for an aggregate: default rows take part only in a join that equates its key.
    """
    match predicate:
        case mmpl.Call("=", (mmpl.ColumnRef(a), mmpl.ColumnRef(b))) if a != b:
            return _add_equality_to_join(rel, a, b, headings)
    return None


def _add_equality_to_join(rel: mmpl.Rel, a: str, b: str, headings: Headings) -> mmpl.Rel | None:
    match rel:
        case mmpl.Restrict() | mmpl.Extend():
            rewritten = _add_equality_to_join(rel.input, a, b, headings)
            return None if rewritten is None else replace(rel, input=rewritten)
        case mmpl.Join(kind="inner" | "left" | "semi" | "anti" | "match"):
            left, right = headings.heading_of(rel.left), headings.heading_of(rel.right)
            if {a, b} <= set(left.columns):
                rewritten = _add_equality_to_join(rel.left, a, b, headings)
                return None if rewritten is None else replace(rel, left=rewritten)
            first, second = (a, b) if a in left.columns else (b, a)
            is_across_join = first in left.columns and second in right.columns
            if (
                rel.kind == "inner"
                and is_across_join
                and not _is_evolving(left, first)
                and not _is_evolving(right, second)
            ):
                return replace(rel, on=tuple(dict.fromkeys((*rel.on, (first, second)))))
    return None
