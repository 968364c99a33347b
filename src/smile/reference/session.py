"""SESSION: the rows of a group that follow each other with gaps of at most some time."""

from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.types import TIME
from smile.knowledge.values.mask import Mask, T
from smile.knowledge.values.transfer import exact_cell
from smile.reference.evaluation import Evaluation
from smile.reference.relation import Relation, key_of


def session(ev: Evaluation, rel: mmpl.Session) -> Relation:
    """Each row with the start of its session, which is the tick of the first row. The start can become lower until
    everything up to the row is known; the row with the former start is then absent."""
    source_type, heading = ev.relation_type(rel.input), ev.relation_type(rel).heading
    horizon = min(ev.history.horizons[s] for s in source_type.seals)
    rows = [row for row in ev.relation(rel.input).values() if row.mask.is_permanently_shown]
    rows.sort(key=lambda row: row.cells[rel.tick].now)
    last_rows: dict[tuple[object, ...], tuple[int, int]] = {}
    result = {}
    for row in rows:
        tick, group = row.cells[rel.tick].now, key_of(row.cells, rel.per)
        last, start = last_rows.get(group, (None, tick))
        if last is not None and tick > last + rel.gap:
            start = tick
        last_rows[group] = (tick, start)
        cells = {**row.cells, "window_start": exact_cell(start, TIME)}
        is_known = source_type.is_sealed_on_arrival or tick <= horizon
        mask = T if is_known else Mask.from_truths((True, False), True)
        result[key_of(cells, heading.key)] = replace(row, mask=mask, cells=cells)
    return result
