"""What SUMMARIZE and DISTINCT have in common: groups of rows that agree on some columns."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from smile.algebra import mmpl
from smile.algebra.printer import print_expression
from smile.knowledge.aggregate_types import (
    group_closing_seals,
    grouped_sessions,
    membership,
    value_count,
    value_count_with_null,
)
from smile.knowledge.expression_types import expression_type
from smile.knowledge.state_retention import (
    StateRetention,
    UnboundedState,
    format_columns,
    has_open_seal,
    seal_condition,
    unbounded_columns,
    unsealed_stream,
)
from smile.knowledge.symbolic import ONE, tighter_bound
from smile.knowledge.types import ColumnType, Direction, MaskDirection, MaskType, RelationType
from smile.operators.aggregates import AGGREGATES
from smile.operators.operator import Operator, StateLookup, TypeLookup

Aggregates = Sequence[tuple[str, mmpl.Aggregate]]
G = TypeVar("G", mmpl.Summarize, mmpl.Distinct)


class GroupingOperator(Operator[G]):
    stores_groups = True

    def has_expiring_rows(self, rel: G, inputs: Sequence[bool]) -> bool:
        """A group stays, however its members expire."""
        return False


def key_columns(source: RelationType, per: tuple[str, ...]) -> dict[str, ColumnType]:
    return {
        c: replace(
            source.columns[c],
            domain="key",
            direction=Direction.FIXED,
            evolves=False,
            steps=ONE,
            has_default=True,
            follows_group_key=True,
        )
        for c in per
    }


def group_type(
    rel: mmpl.Summarize | mmpl.Distinct, per: tuple[str, ...], columns: Mapping[str, ColumnType], lookup: TypeLookup
) -> RelationType:
    """A group is shown while one of its members is. Without grouping there is always one row."""
    source = lookup.relation_type(rel.input)
    group = membership(source, per)
    if not per:
        mask = MaskType()
    elif group.is_single:
        mask = source.mask
    else:
        # A member enters and leaves as its own mask changes and as the columns it is grouped by evolve. Such changes
        # are not only caused by events.
        steps = source.mask.steps
        for column in per:
            if source.columns[column].evolves:
                steps = steps + source.columns[column].steps + ONE
        mask = MaskType() if not group.can_leave else MaskType(MaskDirection.EITHER, group.members * steps)
        if group.displacement is not None:
            mask = MaskType(MaskDirection.RISES)
    rows = ONE
    for column in per:
        rows = rows * value_count_with_null(columns[column])
    rows = tighter_bound(rows, source.rows)
    fixed = [c for c in per if not source.columns[c].evolves]
    seals = {s: source.constraints.express_seal(seal, fixed) for s, seal in source.seals.items()}
    constraints, reach = source.constraints.project(fixed), source.constraints.extend_reach(source.reach, fixed)
    can_become_absent = bool(per) and (source.can_become_absent or len(fixed) < len(per))
    return RelationType(
        lookup.heading_of(rel), columns, mask, rows, group.steps, source.events, seals, constraints, reach,
        can_become_absent, source.dependencies.project(fixed, source.nullable_columns),
        shares_ticks=source.shares_ticks, has_early_rows=source.has_early_rows,
    )  # fmt: skip


# ── state ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def group_state(
    rel: mmpl.Summarize | mmpl.Distinct,
    per: tuple[str, ...],
    aggregates: Aggregates,
    description: str,
    lookup: StateLookup,
) -> list[StateRetention]:
    """`description` is that of the state of one group."""
    source, group = lookup.relation_type(rel.input), lookup.relation_type(rel)
    if any(source.columns[c].evolves for c in per):
        # A row may move to another group, so the rows themselves are kept.
        description = f"each row, to group it by {format_columns(per)}"
        return [lookup.row_state(description, rel.input, unsealed_stream(group.seals))]
    if membership(source, per).is_single:
        return []
    per_group = f"for each {format_columns(per)}" if per else "once"
    member_state = _member_state(rel, aggregates, lookup)
    if member_state:
        group_description = f"{description}, with {member_state.description}, {per_group}"
    else:
        group_description = f"{description} {per_group}" if per else f"{description}, once"
    closing_seals = group_closing_seals(source, per)
    if per and not has_open_seal(closing_seals):
        return [StateRetention(group_description, seal_condition(closing_seals))]
    if grouped_sessions(source, per) is not None:
        return [StateRetention(group_description, "its session is over")]
    if per and lookup.is_transient(rel.input) and not (member_state and member_state.unbounded):
        return [StateRetention(group_description, "its last member is hidden for good")]
    hiding_condition = None if member_state else lookup.hiding_condition(rel, of_group=True)
    if hiding_condition is not None:
        return [StateRetention(group_description, hiding_condition)]
    unbounded = member_state.unbounded if member_state else None
    if not lookup.has_stored_groups(rel.input):
        unbounded = unbounded_columns(group, per, unsealed_stream(group.seals)) or unbounded
    return [StateRetention(group_description, "the end", unbounded)]


def _member_state(
    rel: mmpl.Summarize | mmpl.Distinct, aggregates: Aggregates, lookup: StateLookup
) -> StateRetention | None:
    """The state of a group's members that is kept beside the row of the group."""
    source = lookup.relation_type(rel.input)
    stream = unsealed_stream(lookup.relation_type(rel).seals)
    calls = [a for _, a in aggregates]
    if any(a.function == "group" for a in calls):
        # A permanently hidden member must be distinguished from an absent one.
        return StateRetention("all members", "the end", lookup.unbounded_rows(rel.input, stream))
    members = lookup.row_state("all members", rel.input, stream)
    reads_members = any(_needs_members(a, source) for a in calls)
    if reads_members and members.unbounded is not None:
        return members
    for call in calls:
        if AGGREGATES[call.function].stores == "values" and call.arg is not None:
            unbounded = None if lookup.is_transient(rel.input) else _unbounded_values(call.arg, source, stream)
            return StateRetention("all members" if reads_members else "the values counted", "the end", unbounded)
    return members if reads_members else None


def _needs_members(call: mmpl.Aggregate, source: RelationType) -> bool:
    function = AGGREGATES[call.function]
    return function.stores == "members" or (function.reads_members and _can_change(call, source))


def _can_change(call: mmpl.Aggregate, source: RelationType) -> bool:
    """Whether members can leave, or the values that the aggregate reads of them can change."""
    return not source.never_leaves or (call.arg is not None and expression_type(call.arg, source.columns).evolves)


def _unbounded_values(arg: mmpl.Expr, source: RelationType, stream: str) -> UnboundedState | None:
    if value_count(expression_type(arg, source.columns)).is_finite:
        return None
    value = print_expression(arg)
    reason = f"{stream} may have one more event with another {value} at any time"
    remedy = f"Group by a window as well, give {value} a domain with bounds, or use LAST"
    return UnboundedState(value, reason, remedy)
