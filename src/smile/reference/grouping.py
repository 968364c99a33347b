"""Groups. A member belongs to its group under a mask, since the columns it is grouped by may evolve.

While a group is not sealed, further members may appear in it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.functions.catalogue import type_of
from smile.algebra.types import BOOL, Value
from smile.knowledge.aggregate_types import (
    Membership,
    argument_domain,
    displaced_value,
    distinct_values_max,
    group_closing_seals,
    grouped_sessions,
    membership,
)
from smile.knowledge.expression_types import expression_type
from smile.knowledge.types import Direction
from smile.knowledge.value_seals import VALUE, passed_value
from smile.knowledge.values.aggregates import Member, aggregate
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import to_range
from smile.knowledge.values.latest import LatestValue, TickAndSource
from smile.knowledge.values.mask import MAY_APPEAR, Mask, T, all_of, any_of
from smile.knowledge.values.nested import NestedRow
from smile.knowledge.values.range import MAYBE, NEVER, ONLY, Range, max_lower_bound, min_upper_bound
from smile.knowledge.values.transfer import exact_cell, to_operand
from smile.reference.evaluation import Evaluation
from smile.reference.history import END
from smile.reference.relation import (
    Cells,
    Key,
    ReferenceRow,
    Relation,
    is_seal_reached,
    is_sealed,
    key_of,
    not_distinct_mask,
    sort_key,
)

GroupMembers = Sequence[tuple[Key, ReferenceRow]]
"""The rows of one group with their keys. The mask of each says whether it is shown and belongs to the group."""


def summarize(ev: Evaluation, rel: mmpl.Summarize) -> Relation:
    source = ev.relation(rel.input)
    keys = dict.fromkeys(key_of(row.cells, rel.per) for row in source.values()) if rel.per else {(): None}
    return {key: _group_row(ev, rel, key, _members(ev, rel.input, rel.per, key)) for key in keys}


def summarize_default(ev: Evaluation, rel: mmpl.Summarize, key: Key) -> ReferenceRow:
    """The row of a group without members."""
    return _group_row(ev, rel, key, [])


def _group_row(ev: Evaluation, rel: mmpl.Summarize, key: Key, members: GroupMembers) -> ReferenceRow:
    columns = ev.column_types(rel)
    cells: dict[str, CellKnowledge] = {c: exact_cell(v, columns[c]) for c, v in zip(rel.per, key, strict=True)}
    # A group whose key identifies its only row gets no other member, even before it is sealed.
    group = membership(ev.relation_type(rel.input), rel.per)
    is_single = group.is_single and bool(members)
    sealed = is_single or ev.is_sealed(rel, cells) or _is_closed(ev, rel.input, rel.per, members)
    sealed = sealed or _is_full_for_good(group, members)
    aggregated = {
        name: _displaced_cell(
            ev,
            rel,
            a,
            group,
            members,
            aggregate_cell(ev, rel, name, a, members, sealed, _passed_values(ev, rel, a, cells)),
        )
        for name, a in rel.aggregates
    }
    mask = _group_mask(members, sealed, group) if rel.per else T
    return ReferenceRow(mask, {**cells, **aggregated}, sum(row.steps for _, row in members))


def distinct(ev: Evaluation, rel: mmpl.Distinct) -> Relation:
    columns, per = ev.column_types(rel), ev.relation_type(rel).heading.key
    group = membership(ev.relation_type(rel.input), per)
    result = {}
    for key in dict.fromkeys(key_of(row.cells, per) for row in ev.relation(rel.input).values()):
        members = _members(ev, rel.input, per, key)
        cells = {c: exact_cell(v, columns[c]) for c, v in zip(per, key, strict=True)}
        is_closed = group.is_single or ev.is_sealed(rel, cells) or _is_closed(ev, rel.input, per, members)
        mask = _group_mask(members, is_closed, group)
        result[key] = ReferenceRow(mask, cells, sum(row.steps for _, row in members))
    return result


def _members(ev: Evaluation, source: mmpl.Rel, per: tuple[str, ...], key: Key) -> GroupMembers:
    """The members of a group. If the columns it is grouped by evolve, rows that have left it are included, permanently
    hidden and without steps."""
    types = ev.column_types(source)
    has_evolving_keys = any(ev.relation_type(source).columns[c].evolves for c in per)
    group_cells = {c: exact_cell(v, types[c]) for c, v in zip(per, key, strict=True)}
    members = []
    for member_key, row in ev.relation(source).items():
        belongs = all_of(*(not_distinct_mask(row.cells[c], cell) for c, cell in group_cells.items()))
        if not belongs.is_permanently_hidden:
            members.append((member_key, replace(row, mask=all_of(row.mask, belongs))))
        elif has_evolving_keys:
            members.append((member_key, replace(row, mask=belongs, steps=0)))
    return members


def _is_closed(ev: Evaluation, source: mmpl.Rel, per: tuple[str, ...], members: GroupMembers) -> bool:
    """Whether no member can be added or changed: by columns on which all members of the group agree, or because the
    group is a session that is over."""
    if not members:
        return False
    source_type, (_, row) = ev.relation_type(source), members[0]
    sessions = grouped_sessions(source_type, per)
    if sessions is not None:
        end = max(member.cells[sessions.tick].now for _, member in members) + sessions.gap
        return all(ev.history.horizons[s] >= min(end, END) for s in source_type.seals)
    seals = group_closing_seals(source_type, per)
    return is_sealed(seals, row.cells, ev.column_types(source), ev.history.horizons)


def _is_full_for_good(group: Membership, members: GroupMembers) -> bool:
    """Whether the group has as many members as it can have, and all of them stay."""
    rows_max = None if group.displacement is None else group.displacement.rows_max
    return sum(row.mask.is_permanently_shown for _, row in members) == rows_max


def _group_mask(members: GroupMembers, sealed: bool, group: Membership) -> Mask:
    """A group is shown while one of its members is. A member that leaves by displacement leaves another one there."""
    if group.displacement is not None and any(row.is_shown for _, row in members):
        return T
    return any_of([*(row.mask for _, row in members), *([] if sealed else [MAY_APPEAR])])


def _passed_values(
    ev: Evaluation, rel: mmpl.Summarize, call: mmpl.Aggregate, group_cells: Cells
) -> Callable[[Value], bool]:
    """Whether no new member of the group can affect the aggregate if it has this value. Each stream has passed either
    the value or the whole group."""
    deciding = passed_value(call, ev.relation_type(rel.input))
    if deciding is None:
        return lambda _: False
    group_seals, types = ev.relation_type(rel).seals, {**ev.column_types(rel), VALUE: deciding.type}

    def is_passed(value: Value) -> bool:
        cells = {**group_cells, VALUE: exact_cell(value, deciding.type)}
        return all(
            is_seal_reached(group_seals[stream], cells, types, ev.history.horizons[stream])
            or is_seal_reached(seal, cells, types, ev.history.horizons[stream])
            for stream, seal in deciding.seals.items()
        )

    return is_passed


# ── one aggregate ───────────────────────────────────────────────────────────────────────────────────────────────────


def aggregate_cell(
    ev: Evaluation,
    rel: mmpl.Summarize | mmpl.Over | mmpl.OverRows,
    name: str,
    aggregate_call: mmpl.Aggregate,
    members: GroupMembers,
    sealed: bool,
    is_passed: Callable[[Value], bool] = lambda _: False,
) -> CellKnowledge:
    """`is_passed`: whether no member that appears later can affect the aggregate if it has this value."""
    source = ev.relation_type(rel.input)
    if aggregate_call.function == "group":
        nested_members = [
            Member(row.mask, NestedRow({c: row.cells[c] for c in aggregate_call.columns}), None, sort_key(key))
            for key, row in members
        ]
        return aggregate("group", nested_members, sealed, None, None, BOOL)
    if aggregate_call.arg is None:
        return aggregate(aggregate_call.function, [Member(row.mask) for _, row in members], sealed, None, None, BOOL)
    value_members = [
        Member(
            row.mask,
            ev.expression_knowledge(aggregate_call.arg, row.cells, rel.input),
            tick_and_source(row, source.heading.tick),
            sort_key(key),
            tuple(row.cells[c] for c in aggregate_call.columns),
        )
        for key, row in members
    ]
    argument = expression_type(aggregate_call.arg, source.columns)
    domain_range = argument_domain(
        to_range(ev.domains.shown_rows.expression_bottom(aggregate_call.arg, rel.input)), argument
    )
    data = type_of(aggregate_call.arg, source.heading.columns)
    nullable = domain_range.nulls is not NEVER
    can_overflow = ev.relation_type(rel).columns[name].nullable
    values_max = distinct_values_max(argument, domain_range)
    result = aggregate(
        aggregate_call.function, value_members, sealed, domain_range.lo, domain_range.hi, data, is_passed, nullable,
        can_overflow, values_max, aggregate_call,
    )  # fmt: skip
    return result if isinstance(result, LatestValue) else to_operand(result, ev.column_types(rel)[name])


def _displaced_cell(
    ev: Evaluation,
    rel: mmpl.Summarize,
    call: mmpl.Aggregate,
    group: Membership,
    members: GroupMembers,
    cell: CellKnowledge,
) -> CellKnowledge:
    """The aggregate in a group whose members leave only by displacement."""
    displaced = displaced_value(call, ev.relation_type(rel.input), group)
    if displaced is None or not isinstance(cell, Range) or cell.now is None or cell.nulls is ONLY:
        return cell
    if cell.nulls is MAYBE and not displaced.never_null:
        return cell  # a sum that can overflow
    lo, hi, now = cell.lo, cell.hi, cell.now
    shown = sum(row.is_shown for _, row in members)
    if not displaced.must_be_full or (group.displacement is not None and shown == group.displacement.rows_max):
        lo = max_lower_bound(lo, now) if displaced.direction is Direction.UP else lo
        hi = min_upper_bound(hi, now) if displaced.direction is Direction.DOWN else hi
    return Range(lo, min_upper_bound(hi, displaced.most), NEVER if displaced.never_null else cell.nulls, now)


def tick_and_source(row: ReferenceRow, tick: tuple[str, ...]) -> TickAndSource | None:
    if not tick:
        return None
    tick_values = key_of(row.cells, tick)
    return tick_values[0], tick_values[1] if len(tick_values) > 1 else 0
