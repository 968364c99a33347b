"""As-of joins: every left row with the latest right row that is equated and not after it; provisional while one nearer
may come."""

from dataclasses import replace
from typing import TYPE_CHECKING

from smile.algebra import mmpl
from smile.knowledge.aggregates import Member, aggregate
from smile.knowledge.cells import equal
from smile.knowledge.mask import UNHEARD, all_of, any_of
from smile.reference.groups import as_typed, at_of
from smile.reference.joins import Sides
from smile.reference.relation import Relation, Row, at_most

if TYPE_CHECKING:
    from smile.reference.evaluate import Evaluation


def asof(ev: "Evaluation", rel: mmpl.Asof) -> Relation:
    """The columns of the right side are the latest of its rows that are equated and not after the left row."""
    upto = mmpl.Call("<=", (mmpl.Column(rel.at[1]), mmpl.Column(rel.at[0])))
    sides = Sides(ev, mmpl.Join("left", rel.left, rel.right, rel.on, upto))
    source, result_type = ev.type(rel.right), ev.type(rel)
    result = {}
    for key, row in sides.left.rows.items():
        found = []
        for other in sides.right.rows.values():
            if sides.are_at_odds(row.cells, other.cells):
                continue
            matched = all_of(
                *(equal(row.cells[a], other.cells[b]) for a, b in rel.on),
                at_most(other.cells[rel.at[1]], row.cells[rel.at[0]]),
            ).filter()
            if not matched.gone:
                found.append((all_of(other.mask, matched), other))
        moment = row.cells[rel.at[0]]
        timeless = moment.is_final and moment.now is None
        more = not timeless and sides.may_come(row, sides.left, replace(sides.right, whole=False, total=False))
        cells = dict(row.cells)
        for name in result_type.heading.columns:
            if name not in cells:
                members = [Member(mask, other.cells[name], at_of(other, source.heading.tick)) for mask, other in found]
                latest = aggregate("latest", members, not more, None, None, source.columns[name].data)
                cells[name] = as_typed(latest, ev.domains.of(rel)[name], result_type.columns[name])
        exists = any_of([*(mask for mask, _ in found), *([UNHEARD] if more else [])])
        mask = row.mask if rel.kind == "left" else all_of(row.mask, exists)
        result[key] = Row(mask, cells, row.steps + sum(other.steps for _, other in found))
    return result
