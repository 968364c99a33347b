"""OVER … ROWS: aggregates over the rows at some positions before and after a row."""

from dataclasses import replace

from smile.algebra import mmpl
from smile.knowledge.values.cell_knowledge import CellKnowledge
from smile.knowledge.values.mask import Mask
from smile.knowledge.values.range import Range
from smile.reference.evaluation import Evaluation
from smile.reference.grouping import aggregate_cell
from smile.reference.history import END
from smile.reference.relation import Key, ReferenceRow, Relation, key_of


def over_rows(ev: Evaluation, rel: mmpl.OverRows) -> Relation:
    """Until the frame of a row is known, its aggregates have the current values, and no bounds."""
    source_type = ev.relation_type(rel.input)
    horizon = min(ev.history.horizons[s] for s in source_type.seals)
    groups: dict[tuple[object, ...], list[tuple[Key, ReferenceRow]]] = {}
    for key, row in ev.relation(rel.input).items():
        if row.mask.is_permanently_shown:
            groups.setdefault(key_of(row.cells, rel.per), []).append((key, row))
    bottoms = ev.domains.every_row.bottom_row(rel)
    result = {}
    for rows in groups.values():
        rows.sort(key=lambda member: member[1].cells[rel.by].now)
        for position, (key, row) in enumerate(rows):
            frame = rows[max(0, position + rel.first) : max(0, position + rel.last + 1)]
            last = position + max(rel.last, 0)
            is_known = last < len(rows) and rows[last][1].cells[rel.by].now <= horizon
            is_known = is_known or horizon >= END or (rel.last <= 0 and source_type.is_sealed_on_arrival)
            exact = {name: aggregate_cell(ev, rel, name, a, frame, True) for name, a in rel.aggregates}
            cells = {n: c if is_known else with_current_value(bottoms[n], c) for n, c in exact.items()}
            others = sum(r.steps for k, r in frame if k != key)
            result[key] = ReferenceRow(row.mask, {**row.cells, **cells}, row.steps + others)
    return result


def with_current_value(bottom: CellKnowledge, exact: CellKnowledge) -> CellKnowledge:
    assert isinstance(bottom, Mask | Range)
    return replace(bottom, now=exact.now)
