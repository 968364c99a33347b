"""Groups. A member belongs to its group under a mask, since the columns it is grouped by may evolve.

While a group is not sealed, further members may appear in it.
"""

from collections.abc import Sequence
from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.functions.catalogue import type_of
from smile.algebra.types import BOOL
from smile.knowledge.aggregate_types import membership
from smile.knowledge.types import ColumnType
from smile.knowledge.values.aggregates import Member, aggregate
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import to_operand_in_domain, to_range
from smile.knowledge.values.latest import LatestValue, TickAndSource
from smile.knowledge.values.mask import MAY_APPEAR, Mask, T, all_of, any_of
from smile.knowledge.values.nested import NestedRow
from smile.knowledge.values.transfer import exact_cell
from smile.reference.evaluation import Evaluation
from smile.reference.relation import Key, ReferenceRow, Relation, key_of, not_distinct_mask, sort_key

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
    is_single = membership(ev.relation_type(rel.input), rel.per).is_single and bool(members)
    sealed = is_single or ev.is_sealed(rel, cells)
    aggregated = {name: aggregate_cell(ev, rel, name, a, members, sealed) for name, a in rel.aggregates}
    mask = _group_mask(members, sealed) if rel.per else T
    return ReferenceRow(mask, {**cells, **aggregated}, sum(row.steps for _, row in members))


def distinct(ev: Evaluation, rel: mmpl.Distinct) -> Relation:
    columns, per = ev.column_types(rel), ev.relation_type(rel).heading.key
    is_single = membership(ev.relation_type(rel.input), per).is_single
    result = {}
    for key in dict.fromkeys(key_of(row.cells, per) for row in ev.relation(rel.input).values()):
        members = _members(ev, rel.input, per, key)
        cells = {c: exact_cell(v, columns[c]) for c, v in zip(per, key, strict=True)}
        mask = _group_mask(members, is_single or ev.is_sealed(rel, cells))
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


def _group_mask(members: GroupMembers, sealed: bool) -> Mask:
    """A group is shown while one of its members is."""
    return any_of([*(row.mask for _, row in members), *([] if sealed else [MAY_APPEAR])])


# ── one aggregate ───────────────────────────────────────────────────────────────────────────────────────────────────


def aggregate_cell(
    ev: Evaluation,
    rel: mmpl.Summarize | mmpl.Over,
    name: str,
    aggregate_call: mmpl.Aggregate,
    members: GroupMembers,
    sealed: bool,
) -> CellKnowledge:
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
        )
        for _, row in members
    ]
    domain_range = to_range(ev.domains.expression_bottom(aggregate_call.arg, rel.input))
    data = type_of(aggregate_call.arg, source.heading.columns)
    result = aggregate(aggregate_call.function, value_members, sealed, domain_range.lo, domain_range.hi, data)
    return to_column_domain(result, ev.domains.bottom_row(rel)[name], ev.relation_type(rel).columns[name])


def tick_and_source(row: ReferenceRow, tick: tuple[str, ...]) -> TickAndSource | None:
    if not tick:
        return None
    tick_values = key_of(row.cells, tick)
    return tick_values[0], tick_values[1] if len(tick_values) > 1 else 0


def to_column_domain(cell: CellKnowledge, bottom: CellKnowledge, column: ColumnType) -> CellKnowledge:
    """Converts a latest value to a range unless the column's domain is `latest`: rows that may leave have no latest
    order."""
    return (
        cell
        if isinstance(cell, LatestValue) and column.domain == "latest"
        else to_operand_in_domain(cell, bottom, column.data)
    )
