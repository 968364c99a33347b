"""As-of joins: each left row with the latest right row that is equated and not later. The match is provisional while a
later one may come."""

from dataclasses import replace

from smile.algebra import mmpl
from smile.knowledge.values.aggregates import Member, aggregate
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.cells import equality_mask, to_range
from smile.knowledge.values.mask import MAY_APPEAR, all_of, any_of
from smile.knowledge.values.range import NEVER
from smile.reference.evaluation import Evaluation
from smile.reference.grouping import tick_and_source
from smile.reference.join_sides import ReferenceJoinSides
from smile.reference.relation import ReferenceRow, Relation, at_most_mask


def asof(ev: Evaluation, rel: mmpl.Asof) -> Relation:
    """The columns of the right side come from its latest row that is equated and not later than the left row."""
    not_later = mmpl.Call("<=", (mmpl.ColumnRef(rel.ticks[1]), mmpl.ColumnRef(rel.ticks[0])))
    sides = ReferenceJoinSides(ev, mmpl.Join("left", rel.left, rel.right, rel.on, not_later))
    source, result_type = ev.relation_type(rel.right), ev.relation_type(rel)
    order, result = source.heading.order_by(rel.ticks[1]), {}
    for key, row in sides.left.rows.items():
        matches = []
        for other in sides.right.rows.values():
            if sides.have_conflicting_keys(row.cells, other.cells):
                continue
            match_mask = all_of(
                *(equality_mask(row.cells[a], other.cells[b]) for a, b in rel.on),
                at_most_mask(other.cells[rel.ticks[1]], row.cells[rel.ticks[0]]),
            ).null_as_false()
            if not match_mask.is_permanently_hidden:
                matches.append((all_of(other.mask, match_mask), other))
        left_time = row.cells[rel.ticks[0]]
        has_no_time = left_time.is_final and left_time.now is None
        can_gain_match = not has_no_time and sides.can_gain_match(
            row, sides.left, replace(sides.right, is_unique=False, is_total=False)
        )
        cells = dict(row.cells)
        for name in result_type.heading.columns:
            if name not in cells:
                members = [Member(mask, other.cells[name], tick_and_source(other, order)) for mask, other in matches]
                cells[name] = _latest_match(ev, rel, name, members, not can_gain_match)
        exists = any_of([*(mask for mask, _ in matches), *([MAY_APPEAR] if can_gain_match else [])])
        mask = row.mask if rel.kind == "left" else all_of(row.mask, exists)
        result[key] = ReferenceRow(mask, cells, row.steps + sum(other.steps for _, other in matches))
    return result


def _latest_match(ev: Evaluation, rel: mmpl.Asof, name: str, members: list[Member], sealed: bool) -> CellKnowledge:
    """A column of the latest match."""
    data = ev.column_types(rel.right)[name]
    if data.name == "relation":
        return to_range(aggregate("latest", members, sealed, None, None, data))
    domain = to_range(ev.domains.bottom_row(rel.right)[name])
    return aggregate("latest", members, sealed, domain.lo, domain.hi, data, nullable=domain.nulls is not NEVER)
