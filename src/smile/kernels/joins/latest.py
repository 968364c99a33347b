"""The latest of rows as a column: of each row that asks, what is shown now and the bound that a settled row is."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from smile.algebra.types import BOOL
from smile.columns import knowledge as k, values as v
from smile.columns.knowledge import Column, Kind, Latests, Masks, Ranges
from smile.columns.values import Array, Bools, Indices, Values
from smile.kernels.layout import Evolving
from smile.knowledge.cells import as_operand, range_of
from smile.knowledge.known import Known
from smile.knowledge.latest import Latest
from smile.knowledge.types import ColumnType

Columns = Mapping[str, Column]


@dataclass(frozen=True)
class Chosen:
    """For each row that asks the numbers of other rows, -1 for none: the last that is shown, the last that stays and
    whose value is settled, the last that may be there at all. `tick` and `source` are of the other rows."""

    shown: Indices
    settled: Indices
    present: Indices
    tick: Array
    source: Array


def kind_of_latest(column: ColumnType) -> Kind:
    if column.data.name == "relation":
        return "object"
    return "latest" if column.domain == "latest" else "mask" if column.data == BOOL else "range"


def column_of_latest(chosen: Chosen, column: Column, sealed: Bools, evolving: Evolving, bottom: Known) -> Column:
    """`column` is of the other rows. What may be replaced is known by its domain alone where its type says range."""
    if evolving.kind == "object":
        return _points(chosen, column, sealed, evolving, bottom)
    plain = k.now_of(column)
    now, value = _picked(plain, chosen.shown), _picked(plain, chosen.settled)
    sealed = sealed & (chosen.settled == chosen.present)
    if evolving.kind == "latest":
        tick, source = _picked(Values(chosen.tick), chosen.settled), _picked(Values(chosen.source), chosen.settled)
        return Latests(value, tick, source.data, sealed, now)
    if evolving.kind == "mask":
        bits = np.where(now.there(), np.where(now.data, 1, 2), 4).astype(np.uint8)
        return Masks(np.where(sealed, bits, np.uint8(7)), bits)
    around = range_of(bottom)
    lo, hi = (v.constant(end, evolving.data, len(now)) for end in (around.lo, around.hi))
    nulls = np.where(sealed, np.where(value.there(), 0, 2), 1).astype(np.uint8)
    return Ranges(now, v.where(sealed, value, lo), v.where(sealed, value, hi), nulls)


def _picked(values: Values, at: Indices) -> Values:
    """NULL where there is none."""
    if not len(values):
        return v.empty_like(values, len(at))
    there = at >= 0
    found = values.take(np.maximum(at, 0))
    return found if there.all() else Values(found.data, found.there() & there)


def _points(chosen: Chosen, column: Column, sealed: Bools, evolving: Evolving, bottom: Known) -> Column:
    """A nested relation, row by row."""
    points = []
    for i, last in enumerate(chosen.settled):
        shown = chosen.shown[i]
        now = k.known(column, shown, evolving.data).now if shown >= 0 else None
        is_sealed = bool(sealed[i] and last == chosen.present[i])
        if last < 0:
            found = Latest(sealed=is_sealed, now=now)
        else:
            at = (int(chosen.tick[last]), int(chosen.source[last]))
            found = Latest(k.known(column, last, evolving.data).now, at, is_sealed, now)
        points.append(as_operand(found, bottom, evolving.data))
    return k.of_points(points, "object", evolving.data)
