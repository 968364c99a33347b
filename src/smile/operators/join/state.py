"""The state of a join: the rows of each side, as long as rows of the other side can match them."""

from collections.abc import Mapping

from smile.algebra import mmpl
from smile.algebra.heading import is_key_equated
from smile.knowledge.join_types import has_evolving_keys, match_constraints
from smile.knowledge.seals import Seal
from smile.knowledge.state_retention import (
    StateRetention,
    UnboundedState,
    format_columns,
    has_open_seal,
    seal_condition,
    unbounded_columns,
    unsealed_stream,
)
from smile.operators.operator import StateLookup


def join_state(rel: mmpl.Join, lookup: StateLookup) -> list[StateRetention]:
    retentions = [_side_state(rel, rel.left, rel.right, [a for a, _ in rel.on], lookup)]
    if rel.kind in ("semi", "anti", "match") and _can_count_matches(rel, lookup):
        return [*retentions, _count_state(rel, lookup)]
    source = lookup.resolve_ref(rel.right)
    while isinstance(source, mmpl.Project | mmpl.Rename):
        source = lookup.resolve_ref(source.input)
    if isinstance(source, mmpl.Summarize) and _is_lookup_side(rel, rel.right, lookup):
        source_state, is_open = lookup.state_of(source), has_open_seal(lookup.relation_type(source).seals)
        if source_state and all(is_open or s.until == "the end" for s in source_state):
            # One row for each group, kept as long as the group itself.
            return retentions
    return [*retentions, _side_state(rel, rel.right, rel.left, [b for _, b in rel.on], lookup)]


def is_joined_to_one_row(group: mmpl.Rel, join: mmpl.Join, lookup: StateLookup) -> bool:
    """Whether each group is joined to one row of the left side, which comes only once."""
    left = lookup.relation_type(join.left)
    on_key = {a for a, _ in join.on} == set(left.heading.key)
    return on_key and _has_one_row_per_left(join, lookup) and lookup.resolve_ref(join.left) != group


def _has_one_row_per_left(join: mmpl.Join, lookup: StateLookup) -> bool:
    """Whether each row of the join belongs to one row of its left side, which comes only once, and has come. A row of
    the join can come before that row of a total relation: it then has the default row."""
    left, right = lookup.relation_type(join.left), lookup.relation_type(join.right)
    on_right_key = is_key_equated(right.heading, [b for _, b in join.on])
    has_default_rows = left.heading.total and is_key_equated(left.heading, [a for a, _ in join.on])
    return join.kind in ("inner", "left") and left.is_append_only and on_right_key and not has_default_rows


def _side_state(
    rel: mmpl.Join, side: mmpl.Rel, other_rel: mmpl.Rel, joined: list[str], lookup: StateLookup
) -> StateRetention:
    """The rows of one side, until no row of the other side can match them any more."""
    own, other = lookup.relation_type(side), lookup.relation_type(other_rel)
    description = f"each row of {_side_name(rel, side)}" + (f" by {format_columns(joined)}" if joined else "")
    fixed = [c for c, t in own.columns.items() if not t.evolves]
    constraints = match_constraints(rel, lookup.relation_type(rel.left), lookup.relation_type(rel.right))
    seals = {s: constraints.express_seal(seal, fixed) for s, seal in other.seals.items()}
    is_lookup_side = _is_lookup_side(rel, side, lookup)
    if is_lookup_side:
        # A row is needed until it is final and nothing can look it up any more.
        for stream, seal in own.seals.items():
            own_seal = seal if seal.columns <= {*fixed} else Seal.NEVER
            seals[stream] = seals[stream].latest(own_seal) if stream in seals else own_seal
    if not has_open_seal(seals):
        return StateRetention(description, seal_condition(seals))
    must_report_deletion = rel.kind != "inner" and is_key_equated(own.heading, joined)
    if lookup.is_transient(side) and not (is_lookup_side and must_report_deletion):
        return StateRetention(description, "it is hidden for good")
    if side is rel.left:
        if rel.kind in ("semi", "anti") and lookup.relation_type(rel).mask.falls_for_good:
            return StateRetention(description, "it is hidden for good")
        hiding_condition = lookup.hiding_condition(rel) if _has_one_row_per_left(rel, lookup) else None
        if hiding_condition is not None:
            return StateRetention(description, hiding_condition)
    unbounded = None if lookup.has_stored_groups(side) else unbounded_columns(own, own.heading.key, "")
    if unbounded is not None:
        unbounded = _unbounded_distance(unbounded.column, seals, "change" if is_lookup_side else "match")
    return StateRetention(description, "the end", unbounded)


def _side_name(rel: mmpl.Join, side: mmpl.Rel) -> str:
    source = side
    while isinstance(source, mmpl.Project | mmpl.Rename):
        source = source.input
    if isinstance(source, mmpl.RelationRef):
        return source.name
    return "the left side" if side is rel.left else "the right side"


def _is_lookup_side(rel: mmpl.Join, side: mmpl.Rel, lookup: StateLookup) -> bool:
    """Whether each row of the other side looks up one row of this side by its key, and is kept without a match."""
    key_and_total = {}
    for which, position in ((rel.left, 0), (rel.right, 1)):
        heading = lookup.relation_type(which).heading
        on_key = is_key_equated(heading, [pair[position] for pair in rel.on])
        key_and_total[position] = (on_key, on_key and heading.total)
    on_key, is_total = key_and_total[0 if side is rel.left else 1]
    if rel.kind == "full":
        return key_and_total[0][0] and key_and_total[1][0]
    return (rel.kind == "inner" and is_total) or (rel.kind == ("right" if side is rel.left else "left") and on_key)


def _can_count_matches(rel: mmpl.Join, lookup: StateLookup) -> bool:
    """Whether a test depends only on equated values that are fixed: then counts are kept instead of right rows."""
    left, right = lookup.relation_type(rel.left), lookup.relation_type(rel.right)
    fixed = not has_evolving_keys(rel.on, left, right)
    join_columns = {b for _, b in rel.on}
    key_only = not is_key_equated(right.heading, join_columns) or join_columns == set(right.heading.key)
    return rel.when is None and not rel.null_aware and fixed and key_only


def _count_state(rel: mmpl.Join, lookup: StateLookup) -> StateRetention:
    left, right = lookup.relation_type(rel.left), lookup.relation_type(rel.right)
    on = list(dict.fromkeys(b for _, b in rel.on))
    description = f"a count of the rows of {_side_name(rel, rel.right)}" + (
        f" for each {format_columns(on)}" if on else ""
    )
    constraints = match_constraints(rel, left, right)
    seals = {s: constraints.express_seal(seal, on) for s, seal in left.seals.items()}
    if not has_open_seal(seals):
        return StateRetention(description, seal_condition(seals))
    if lookup.is_transient(rel.right) and not is_key_equated(right.heading, on):
        return StateRetention(description, "the last of them is hidden for good")
    unbounded = None if lookup.has_stored_groups(rel.right) else unbounded_columns(right, on, "")
    if unbounded is not None:
        unbounded = _unbounded_distance(unbounded.column, seals, "look up")
    return StateRetention(description, "the end", unbounded)


def _unbounded_distance(column: str, seals: Mapping[str, Seal], effect: str) -> UnboundedState:
    reason = f"an event of {unsealed_stream(seals)} can {effect} it at any later tick"
    remedy = "Bound the distance of the ticks (… AND p <= o + INTERVAL '10' MINUTE), or use LAST"
    return UnboundedState(column, reason, remedy)
