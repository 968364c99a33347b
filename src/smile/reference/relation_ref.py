"""A reference: the events of the stream, or the content of the view."""

from smile.algebra import mmpl
from smile.knowledge.values.mask import T
from smile.knowledge.values.transfer import exact_cell
from smile.reference.evaluation import Evaluation
from smile.reference.relation import Key, ReferenceRow, Relation


def relation_ref(ev: Evaluation, ref: mmpl.RelationRef) -> Relation:
    if ref.name in ev.bodies:
        return ev.relation(ev.bodies[ref.name])
    types = ev.column_types(ref)
    rows = ev.history.events[ref.name]
    return {
        (t,): ReferenceRow(T, {c: exact_cell(v, types[c]) for c, v in row.items()}, 1)
        for t, row in sorted(rows.items())
    }


def relation_ref_default(ev: Evaluation, ref: mmpl.RelationRef, key: Key) -> ReferenceRow:
    return ev.default_row(ev.bodies[ref.name], key)
