"""Windows over time: each is [start, end), aligned at the offset. A row whose time is NULL is in no window."""

from dataclasses import replace

from smile.algebra import mmpl
from smile.algebra.coercions import INTEGER_RANGES
from smile.algebra.types import TICKS_PER_MICROSECOND, TIMESTAMP
from smile.knowledge.values.mask import F, Mask, all_of
from smile.knowledge.values.transfer import exact_cell
from smile.reference.evaluation import Evaluation
from smile.reference.history import END
from smile.reference.relation import Relation, key_of


def window(ev: Evaluation, rel: mmpl.Window) -> Relation:
    return _last(ev, rel) if rel.kind == "last" else _tumble_or_hop(ev, rel)


def _tumble_or_hop(ev: Evaluation, rel: mmpl.Window) -> Relation:
    """Each row once for every window it is in. A TUMBLE is a HOP that slides by its size. Windows are cut off at the
    ends of time; of those that would begin before it, there is only the last."""
    heading = ev.relation_type(rel).heading
    data = heading.columns[rel.on]
    unit = TICKS_PER_MICROSECOND if data == TIMESTAMP else 1
    size, slide, offset = rel.size // unit, (rel.slide or rel.size) // unit, rel.offset // unit
    first, last = INTEGER_RANGES[data.name]
    result = {}
    for row in ev.relation(rel.input).values():
        time = row.cells[rel.on].now
        if time is None:
            continue
        start = (time - offset) // slide * slide + offset
        while start + size > time and start + slide > first:
            bounds = {
                "window_start": exact_cell(max(start, first), data),
                "window_end": exact_cell(min(start + size, last), data),
            }
            cells = {**row.cells, **bounds}
            result[key_of(cells, heading.key)] = replace(row, cells=cells)
            start -= slide
    return result


def _last(ev: Evaluation, rel: mmpl.Window) -> Relation:
    """LAST: hides each row once the horizon is `size` ticks beyond its time. The horizon is the least of the source
    streams' horizons."""
    horizon = min((ev.history.horizons[s] for s in ev.relation_type(rel.input).seals), default=END)
    return {
        key: replace(row, mask=all_of(row.mask, _mask_until(horizon, row.cells[rel.on].now + rel.size)))
        for key, row in ev.relation(rel.input).items()
    }


def _mask_until(horizon: int, tick: int) -> Mask:
    return F if horizon >= min(tick, END) else Mask.from_truths((True, False), True)
