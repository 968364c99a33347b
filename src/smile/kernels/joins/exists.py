"""Left rows by whether they have a match: one for each left row, hidden, shown, or with the answer in a column.

Where nothing but fixed columns is equated, matches are counted by value. Conditions beside that, NULL that leaves the
answer unknown, and columns that evolve are counted row by row: see `matches` and `paired`.
"""

from collections.abc import Sequence

import numpy as np

from smile.algebra import mmpl
from smile.algebra.types import BOOL
from smile.columns import masks
from smile.columns.knowledge import Column, Masks
from smile.columns.values import Array
from smile.kernels.changes import Changes, Version, concat, differing
from smile.kernels.joins.presence import Presence, Test, Tested
from smile.kernels.joins.sides import Sides
from smile.kernels.layout import Evolving, Layout
from smile.kernels.seals import Moved
from smile.kernels.transform import Input, Output, State, Transform


class Exists(Transform):
    """semi, anti and match. A group without members is no match: of a total relation only rows heard of count."""

    def __init__(self, rel: mmpl.Join, left: Input, right: Input, output: Output) -> None:
        assert rel.kind in ("semi", "anti", "match")
        sides = Sides(rel, left, right, output)
        test: Test = rel.kind
        self.mark = rel.mark
        self.presence = Presence(sides, sides.left, test, total=False)
        self.shapes, self.origins = self.presence.shapes, self.presence.origins
        own = left.layout
        evolving = {**own.evolving, **({} if rel.mark is None else {rel.mark: Evolving("mask", BOOL)})}
        self.layout = Layout(own.key, own.fixed, evolving, own.certain and rel.kind == "match", output.heeded)

    def is_woken(self, moved: Moved) -> bool:
        return self.presence.is_woken(moved)

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        left, right = inputs
        state, parts = self.presence.step(state, left, right, moved)
        if not parts:
            return state, None
        found = differing(concat(self.layout, [self._told(p) for p in parts]), self.layout.heeded)
        return state, found if len(found) else None

    def _told(self, tested: Tested) -> Changes:
        changes = tested.changes
        old = None if changes.old is None else self._version(changes.old, tested.had, tested.steps_before)
        return Changes(changes.fixed, old, self._version(changes.new, tested.has, tested.steps))

    def _version(self, version: Version, has: Masks, steps: Array) -> Version:
        columns: dict[str, Column] = {c: version.columns[c] for c in self.layout.evolving if c != self.mark}
        mask = version.mask
        if self.mark is not None:
            columns[self.mark] = has
        else:
            shown = masks.all_of(mask, self.presence.shown(has))
            mask = np.where(masks.heard(mask), shown, np.uint8(masks.ABSENT))
        return Version(columns, mask, version.steps + steps)
