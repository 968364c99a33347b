"""Column pruning: columns that no later operator reads are not computed, and not stored in the state of transforms."""

from collections.abc import Iterable
from dataclasses import replace

from smile.algebra import mmpl, trees
from smile.analysis.headings import Headings
from smile.rules.apply import rewrite_bodies


def prune_columns(program: mmpl.Program) -> mmpl.Program:
    return rewrite_bodies(
        program, lambda body, headings: _prune(body, set(headings.heading_of(body).columns), headings)
    )


def _prune(rel: mmpl.Rel, needed: set[str], headings: Headings) -> mmpl.Rel:
    """The expression without the columns that are neither needed nor part of the key."""
    match rel:
        case mmpl.RelationRef():
            return rel
        case mmpl.Project():
            key = headings.heading_of(rel).key
            columns = tuple(c for c in rel.columns if c in needed or c in key)
            pruned_input = _prune(rel.input, needed & set(rel.columns), headings)
            return (
                pruned_input
                if columns == headings.heading_of(pruned_input).visible
                else replace(rel, input=pruned_input, columns=columns)
            )
        case mmpl.Extend():
            needed_assignments = tuple((n, e) for n, e in rel.assignments if n in needed)
            needed_below = (needed - {n for n, _ in needed_assignments}) | _columns_of(e for _, e in needed_assignments)
            pruned_input = _prune(rel.input, needed_below, headings)
            return (
                replace(rel, input=pruned_input, assignments=needed_assignments) if needed_assignments else pruned_input
            )
        case mmpl.Rename():
            old = {new: old for old, new in rel.pairs}
            pruned_input = _prune(rel.input, {old.get(c, c) for c in needed}, headings)
            present_columns = headings.heading_of(pruned_input).columns
            return replace(rel, input=pruned_input, pairs=tuple((o, n) for o, n in rel.pairs if o in present_columns))
        case mmpl.Restrict():
            return replace(rel, input=_prune(rel.input, needed | trees.columns_in(rel.predicate), headings))
        case mmpl.Summarize():
            return _prune_summarize(rel, needed, headings)
        case mmpl.Over() | mmpl.OverRows():
            return _prune_over(rel, needed, headings)
        case mmpl.Join() | mmpl.Asof():
            return _prune_join(rel, needed, headings)
        case mmpl.Best():
            needed_below = needed | set(rel.per) | _columns_of(e for e, _ in rel.by)
            return replace(rel, input=_narrow_input(rel.input, needed_below, headings))
        case mmpl.Window():
            return replace(rel, input=_prune(rel.input, needed | {rel.on}, headings))
        case mmpl.Ungroup():
            needed_below = needed - {*rel.names, rel.ordinality} | {rel.column}
            return replace(rel, input=_prune(rel.input, needed_below, headings))
        case mmpl.Session():
            return replace(rel, input=_narrow_input(rel.input, needed | {rel.tick, *rel.per}, headings))
        case mmpl.Silence():
            if rel.name not in needed:
                return _prune(rel.input, needed, headings)
            return replace(rel, input=_prune(rel.input, needed | {rel.tick, *rel.per}, headings))
    # Other operators need everything that is visible: DISTINCT, UNION and MERGE do.
    inputs = trees.inputs_of(rel)
    return trees.with_inputs(rel, tuple(_prune(i, set(headings.heading_of(i).visible), headings) for i in inputs))


def _columns_of(expressions: Iterable[mmpl.Expr]) -> set[str]:
    return {c for e in expressions for c in trees.columns_in(e)}


def _aggregated_columns(aggregates: Iterable[tuple[str, mmpl.Aggregate]]) -> set[str]:
    columns = _columns_of(a.arg for _, a in aggregates if a.arg is not None)
    return columns | {c for _, a in aggregates for c in a.columns}


def _prune_summarize(rel: mmpl.Summarize, needed: set[str], headings: Headings) -> mmpl.Rel:
    """At least one aggregate stays: without one it would be a different operator, which is not total."""
    needed_aggregates = tuple((n, a) for n, a in rel.aggregates if n in needed) or rel.aggregates[:1]
    pruned_input = _prune(rel.input, set(rel.per) | _aggregated_columns(needed_aggregates), headings)
    return replace(rel, input=pruned_input, aggregates=needed_aggregates)


def _prune_over(rel: mmpl.Over | mmpl.OverRows, needed: set[str], headings: Headings) -> mmpl.Rel:
    needed_aggregates = tuple((n, a) for n, a in rel.aggregates if n in needed)
    if not needed_aggregates:
        return _prune(rel.input, needed, headings)
    needed_below = (
        (needed - {n for n, _ in needed_aggregates}) | {*rel.per, rel.by} | _aggregated_columns(needed_aggregates)
    )
    return replace(rel, input=_narrow_input(rel.input, needed_below, headings), aggregates=needed_aggregates)


def _prune_join(rel: mmpl.Join | mmpl.Asof, needed: set[str], headings: Headings) -> mmpl.Rel:
    pairs = (*rel.on, rel.ticks) if isinstance(rel, mmpl.Asof) else rel.on
    when_columns = trees.columns_in(rel.when) if isinstance(rel, mmpl.Join) and rel.when is not None else frozenset()
    left_needed = (needed | when_columns) & set(headings.heading_of(rel.left).columns) | {a for a, _ in pairs}
    right_needed = (needed | when_columns) & set(headings.heading_of(rel.right).columns) | {b for _, b in pairs}
    if isinstance(rel, mmpl.Join) and rel.kind in ("semi", "anti", "match"):
        right_needed = {b for _, b in pairs} | (when_columns & set(headings.heading_of(rel.right).columns))
    return replace(
        rel, left=_narrow_input(rel.left, left_needed, headings), right=_narrow_input(rel.right, right_needed, headings)
    )


def _narrow_input(rel: mmpl.Rel, needed: set[str], headings: Headings) -> mmpl.Rel:
    """Prunes an input that is stored in state, and projects it to the needed columns. Its key always stays."""
    pruned = _prune(rel, needed, headings)
    heading = headings.heading_of(pruned)
    needed_columns = tuple(c for c in heading.visible if c in needed or c in heading.key)
    return pruned if needed_columns == heading.visible else mmpl.Project(pruned, needed_columns, span=rel.span)
