"""GROUP: a group's members as a relation within its row. All members of a group that changes are read, point by point:
what is shown is in proportion to the group, and so is the work."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from smile.algebra.types import DataType
from smile.columns import knowledge as k, masks
from smile.columns.knowledge import Column, Objects
from smile.columns.values import Bools
from smile.kernels.aggregates.accumulator import Absorbed, Accumulator, Place
from smile.kernels.aggregates.parts import Batch
from smile.kernels.layout import Layout
from smile.knowledge.masked import Masked
from smile.knowledge.nested import Key, Nested, Row
from smile.state.run import Rows


class Collected(Accumulator):
    reads_members = True
    columns: Mapping[str, pa.DataType] = {}

    def __init__(self, collected: tuple[str, ...], layout: Layout) -> None:
        self.collected, self.layout = collected, layout
        self.types: dict[str, DataType] = layout.types

    def absorb(self, rows: Rows, batch: Batch, place: Place) -> Absorbed:
        return Absorbed({})

    def render(self, rows: Rows, sealed: Bools | None, place: Place) -> Column:
        count = len(place)
        collections: list[dict[Key, Masked]] = [{} for _ in range(count)]
        who, fixed, version = place.members(place, np.arange(count))
        for i, group in enumerate(who.tolist()):
            key = tuple(orderable(fixed[c].at(i, self.types[c])) for c in self.layout.key)
            cells = {
                c: k.known(fixed[c] if c in self.layout.fixed else version.columns[c], i, self.types[c])
                for c in self.collected
            }
            collections[group][key] = Masked(masks.known(int(version.mask[i])), Row(cells))
        found = np.empty(count, object)
        for group, members in enumerate(collections):
            found[group] = Nested(members, sealed is not None and bool(sealed[group]))
        return Objects(found)


def orderable(part: object) -> tuple[bool, object]:
    """A part of a key as one that can be compared even with NULL, which comes last."""
    return part is None, False if part is None else part
