"""Groups: a member belongs to its group under a mask, since what it is grouped by may evolve.

While a group is not sealed, members nobody has heard of may appear in it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from smile.algebra import mmpl
from smile.algebra.scalars import type_of
from smile.algebra.types import BOOL
from smile.knowledge.aggregate_types import membership
from smile.knowledge.aggregates import Member, aggregate
from smile.knowledge.cells import as_operand, range_of
from smile.knowledge.known import Known
from smile.knowledge.latest import At, Latest
from smile.knowledge.mask import UNHEARD, Mask, T, all_of, any_of
from smile.knowledge.nested import Row as NestedRow
from smile.knowledge.transfer import exactly
from smile.knowledge.types import ColumnType
from smile.reference.relation import Key, Relation, Row, key_of, orderable, same

if TYPE_CHECKING:
    from smile.reference.evaluate import Evaluation

Members = Sequence[tuple[Key, Row]]
"""Rows of one group with their keys; the mask of each says whether it is there and belongs to the group."""


def summarize(ev: "Evaluation", rel: mmpl.Summarize) -> Relation:
    source = ev.of(rel.input)
    keys = dict.fromkeys(key_of(row.cells, rel.per) for row in source.values()) if rel.per else {(): None}
    return {key: group_row(ev, rel, key, _members(ev, rel.input, rel.per, key)) for key in keys}


def group_row(ev: "Evaluation", rel: mmpl.Summarize, key: Key, members: Members) -> Row:
    columns = ev.data(rel)
    cells: dict[str, Known] = {c: exactly(v, columns[c]) for c, v in zip(rel.per, key, strict=True)}
    # A group whose key says which row is in it has no other member, sealed or not.
    only = membership(ev.type(rel.input), rel.per).single and bool(members)
    sealed = only or ev.is_sealed(rel, cells)
    aggregated = {name: aggregate_cell(ev, rel, name, a, members, sealed) for name, a in rel.aggregates}
    mask = _mask(members, sealed) if rel.per else T
    return Row(mask, {**cells, **aggregated}, sum(row.steps for _, row in members))


def distinct(ev: "Evaluation", rel: mmpl.Distinct) -> Relation:
    columns, per = ev.data(rel), ev.type(rel).heading.key
    only = membership(ev.type(rel.input), per).single
    result = {}
    for key in dict.fromkeys(key_of(row.cells, per) for row in ev.of(rel.input).values()):
        members = _members(ev, rel.input, per, key)
        cells = {c: exactly(v, columns[c]) for c, v in zip(per, key, strict=True)}
        mask = _mask(members, only or ev.is_sealed(rel, cells))
        result[key] = Row(mask, cells, sum(row.steps for _, row in members))
    return result


def _members(ev: "Evaluation", source: mmpl.Rel, per: tuple[str, ...], key: Key) -> Members:
    """Where what is grouped by evolves, rows that have moved on are among them, hidden for good and without steps."""
    types = ev.data(source)
    moving = any(ev.type(source).columns[c].evolves for c in per)
    wanted = {c: exactly(v, types[c]) for c, v in zip(per, key, strict=True)}
    members = []
    for own, row in ev.of(source).items():
        belongs = all_of(*(same(row.cells[c], w) for c, w in wanted.items()))
        if not belongs.gone:
            members.append((own, replace(row, mask=all_of(row.mask, belongs))))
        elif moving:
            members.append((own, replace(row, mask=belongs, steps=0)))
    return members


def _mask(members: Members, sealed: bool) -> Mask:
    """A group is shown while one of its members is."""
    return any_of([*(row.mask for _, row in members), *([] if sealed else [UNHEARD])])


def over(ev: "Evaluation", rel: mmpl.Over) -> Relation:
    """To each row, aggregates over the rows of its group that are not after it, and not longer ago than the range."""
    source = ev.of(rel.input)
    result = {}
    for key, row in source.items():
        now = row.cells[rel.by].now
        members = []
        for own, other in source.items():
            then = other.cells[rel.by].now
            within = then <= now and (rel.range is None or then >= now - rel.range)
            belongs = all_of(*(same(other.cells[c], row.cells[c]) for c in rel.per)) if own != key else T
            if within and not belongs.gone:
                members.append((own, replace(other, mask=all_of(other.mask, belongs))))
        sealed = ev.is_sealed(rel, row.cells)
        added = {name: aggregate_cell(ev, rel, name, a, members, sealed) for name, a in rel.aggregates}
        result[key] = Row(row.mask, {**row.cells, **added}, sum(r.steps for _, r in members))
    return result


# ── one aggregate ───────────────────────────────────────────────────────────────────────────────────────────────────


def aggregate_cell(
    ev: "Evaluation",
    rel: mmpl.Summarize | mmpl.Over,
    name: str,
    wanted: mmpl.Aggregate,
    members: Members,
    sealed: bool,
) -> Known:
    source = ev.type(rel.input)
    if wanted.function == "group":
        rows = [
            Member(row.mask, NestedRow({c: row.cells[c] for c in wanted.columns}), None, orderable(key))
            for key, row in members
        ]
        return aggregate("group", rows, sealed, None, None, BOOL)
    if wanted.arg is None:
        return aggregate(wanted.function, [Member(row.mask) for _, row in members], sealed, None, None, BOOL)
    values = [
        Member(row.mask, ev.know(wanted.arg, row.cells, rel.input), at_of(row, source.heading.tick))
        for _, row in members
    ]
    around = range_of(ev.domains.of_expression(wanted.arg, rel.input))
    data = type_of(wanted.arg, source.heading.columns)
    found = aggregate(wanted.function, values, sealed, around.lo, around.hi, data)
    return as_typed(found, ev.domains.of(rel)[name], ev.type(rel).columns[name])


def at_of(row: Row, tick: tuple[str, ...]) -> At | None:
    if not tick:
        return None
    at = key_of(row.cells, tick)
    return at[0], at[1] if len(at) > 1 else 0


def as_typed(known: Known, bottom: Known, column: ColumnType) -> Known:
    """The latest of rows that may leave has no order of its own: its type says range, and then it is one."""
    return known if isinstance(known, Latest) and column.domain == "latest" else as_operand(known, bottom, column.data)
