"""Column pruning: what no later operator reads is not computed, and is dropped before it would be remembered."""

from collections.abc import Iterable
from dataclasses import replace

from smile.algebra import mmpl, trees
from smile.algebra.heading import Headings
from smile.algebra.rules.apply import to_bodies


def prune_columns(program: mmpl.Program) -> mmpl.Program:
    return to_bodies(program, lambda body, headings: _prune(body, set(headings.of(body).columns), headings))


def _prune(rel: mmpl.Rel, needed: set[str], headings: Headings) -> mmpl.Rel:
    """The expression without columns that are neither needed nor key."""
    match rel:
        case mmpl.Ref():
            return rel
        case mmpl.Project():
            key = headings.of(rel).key
            columns = tuple(c for c in rel.columns if c in needed or c in key)
            source = _prune(rel.input, needed & set(rel.columns), headings)
            return source if columns == headings.of(source).visible else replace(rel, input=source, columns=columns)
        case mmpl.Extend():
            kept = tuple((n, e) for n, e in rel.assignments if n in needed)
            below = (needed - {n for n, _ in kept}) | _named(e for _, e in kept)
            source = _prune(rel.input, below, headings)
            return replace(rel, input=source, assignments=kept) if kept else source
        case mmpl.Rename():
            old = {new: old for old, new in rel.pairs}
            source = _prune(rel.input, {old.get(c, c) for c in needed}, headings)
            present = headings.of(source).columns
            return replace(rel, input=source, pairs=tuple((o, n) for o, n in rel.pairs if o in present))
        case mmpl.Restrict():
            return replace(rel, input=_prune(rel.input, needed | trees.columns_in(rel.predicate), headings))
        case mmpl.Summarize():
            return _summarize(rel, needed, headings)
        case mmpl.Over():
            return _over(rel, needed, headings)
        case mmpl.Join() | mmpl.Asof():
            return _join(rel, needed, headings)
        case mmpl.Best():
            below = needed | set(rel.per) | _named(e for e, _ in rel.by)
            return replace(rel, input=_narrowed(rel.input, below, headings))
        case mmpl.Window():
            return replace(rel, input=_prune(rel.input, needed | {rel.on}, headings))
        case mmpl.Silence():
            if rel.name not in needed:
                return _prune(rel.input, needed, headings)
            return replace(rel, input=_prune(rel.input, needed | {rel.tick, *rel.per}, headings))
        case mmpl.Distinct():
            return replace(rel, input=_prune(rel.input, set(headings.of(rel.input).visible), headings))
        case mmpl.Merge() | mmpl.Union():
            visible = set(headings.of(rel.inputs[0]).visible)
            return replace(rel, inputs=tuple(_prune(i, visible, headings) for i in rel.inputs))
    raise AssertionError(rel)


def _named(expressions: Iterable[mmpl.Expr]) -> set[str]:
    return {c for e in expressions for c in trees.columns_in(e)}


def _aggregated(aggregates: Iterable[tuple[str, mmpl.Aggregate]]) -> set[str]:
    named = _named(a.arg for _, a in aggregates if a.arg is not None)
    return named | {c for _, a in aggregates for c in a.columns}


def _summarize(rel: mmpl.Summarize, needed: set[str], headings: Headings) -> mmpl.Rel:
    """At least one aggregate stays: without any it would be another operator, which is not total."""
    kept = tuple((n, a) for n, a in rel.aggregates if n in needed) or rel.aggregates[:1]
    source = _prune(rel.input, set(rel.per) | _aggregated(kept), headings)
    return replace(rel, input=source, aggregates=kept)


def _over(rel: mmpl.Over, needed: set[str], headings: Headings) -> mmpl.Rel:
    kept = tuple((n, a) for n, a in rel.aggregates if n in needed)
    if not kept:
        return _prune(rel.input, needed, headings)
    below = (needed - {n for n, _ in kept}) | {*rel.per, rel.by} | _aggregated(kept)
    return replace(rel, input=_narrowed(rel.input, below, headings), aggregates=kept)


def _join(rel: mmpl.Join | mmpl.Asof, needed: set[str], headings: Headings) -> mmpl.Rel:
    pairs = (*rel.on, rel.at) if isinstance(rel, mmpl.Asof) else rel.on
    when = trees.columns_in(rel.when) if isinstance(rel, mmpl.Join) and rel.when is not None else frozenset()
    left = (needed | when) & set(headings.of(rel.left).columns) | {a for a, _ in pairs}
    right = (needed | when) & set(headings.of(rel.right).columns) | {b for _, b in pairs}
    if isinstance(rel, mmpl.Join) and rel.kind in ("semi", "anti", "match"):
        right = {b for _, b in pairs} | (when & set(headings.of(rel.right).columns))
    return replace(rel, left=_narrowed(rel.left, left, headings), right=_narrowed(rel.right, right, headings))


def _narrowed(rel: mmpl.Rel, needed: set[str], headings: Headings) -> mmpl.Rel:
    """An input that will be remembered: columns nobody needs are projected away. Its key always stays."""
    pruned = _prune(rel, needed, headings)
    heading = headings.of(pruned)
    kept = tuple(c for c in heading.visible if c in needed or c in heading.key)
    return pruned if kept == heading.visible else mmpl.Project(pruned, kept, span=rel.span)
