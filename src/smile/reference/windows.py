"""Windows over time: each is [start, end), aligned at tick 0. A row whose time is NULL lies in no window."""

from dataclasses import replace
from typing import TYPE_CHECKING

from smile.algebra import mmpl
from smile.algebra.types import INT_MAX, TICKS_PER_MICROSECOND, TIMESTAMP
from smile.knowledge.mask import UNHEARD, F, Mask, T, all_of
from smile.knowledge.transfer import exactly
from smile.reference.history import END
from smile.reference.relation import Relation, key_of, same

if TYPE_CHECKING:
    from smile.reference.evaluate import Evaluation


def window(ev: "Evaluation", rel: mmpl.Window) -> Relation:
    """A row once for each window it is in: TUMBLE is a HOP that slides by its size."""
    heading = ev.type(rel).heading
    data = heading.columns[rel.on]
    unit = TICKS_PER_MICROSECOND if data == TIMESTAMP else 1
    size, slide = rel.size // unit, (rel.slide or rel.size) // unit
    result = {}
    for row in ev.of(rel.input).values():
        moment = row.cells[rel.on].now
        if moment is None:
            continue
        start = moment // slide * slide
        while start + size > moment:
            bounds = {"window_start": exactly(start, data), "window_end": exactly(min(start + size, INT_MAX), data)}
            cells = {**row.cells, **bounds}
            result[key_of(cells, heading.key)] = replace(row, cells=cells)
            start -= slide
    return result


def last(ev: "Evaluation", rel: mmpl.Window) -> Relation:
    """The horizon is the least of those of the streams that rows come from; it will pass every row."""
    horizon = min(ev.history.horizons[s] for s in ev.type(rel.input).seals)
    return {
        key: replace(row, mask=all_of(row.mask, _until(horizon, row.cells[rel.on].now + rel.size)))
        for key, row in ev.of(rel.input).items()
    }


def _until(horizon: int, tick: int) -> Mask:
    return F if horizon >= min(tick, END) else Mask.of((True, False), True)


def silence(ev: "Evaluation", rel: mmpl.Silence) -> Relation:
    """False for good once a row breaks it, true for good once the horizon has reached its end; false until then."""
    source = ev.of(rel.input)
    horizon = min(ev.history.horizons[s] for s in ev.type(rel.input).seals)
    result = {}
    for key, row in source.items():
        tick = row.cells[rel.tick].now
        until = min(tick + rel.longer_than, END)
        alike = [
            other
            for other in source.values()
            if other.mask.stays and all_of(*(same(row.cells[c], other.cells[c]) for c in rel.per)).stays
        ]
        broken = any(tick < other.cells[rel.tick].now <= until for other in alike)
        quiet = F if broken else T if horizon >= until else UNHEARD
        result[key] = replace(row, cells={**row.cells, rel.name: quiet})
    return result
