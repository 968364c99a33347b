"""OVER: aggregates over the rows before a row."""

from dataclasses import replace

from smile.algebra import mmpl
from smile.knowledge.values.mask import T, all_of
from smile.reference.evaluation import Evaluation
from smile.reference.grouping import aggregate_cell
from smile.reference.relation import ReferenceRow, Relation, not_distinct_mask


def over(ev: Evaluation, rel: mmpl.Over) -> Relation:
    """Adds to each row aggregates over the rows of its group that are not later than it, and within the range before
    it."""
    source = ev.relation(rel.input)
    result = {}
    for key, row in source.items():
        row_time = row.cells[rel.by].now
        members = []
        for other_key, other in source.items():
            other_time = other.cells[rel.by].now
            is_in_range = other_time <= row_time and (rel.range is None or other_time >= row_time - rel.range)
            belongs = (
                all_of(*(not_distinct_mask(other.cells[c], row.cells[c]) for c in rel.per)) if other_key != key else T
            )
            if is_in_range and not belongs.is_permanently_hidden:
                members.append((other_key, replace(other, mask=all_of(other.mask, belongs))))
        sealed = ev.is_sealed(rel, row.cells)
        new_cells = {name: aggregate_cell(ev, rel, name, a, members, sealed) for name, a in rel.aggregates}
        result[key] = ReferenceRow(row.mask, {**row.cells, **new_cells}, sum(r.steps for _, r in members))
    return result
