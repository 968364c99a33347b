"""The rows of a view that are shown, remembered for whoever asks for all of them."""

from collections.abc import Sequence

import numpy as np

from smile.columns import masks
from smile.kernels.changes import Changes
from smile.kernels.seals import Moved
from smile.kernels.stored import columns_of, fixed_of, flat, stored, version_of
from smile.kernels.transform import Input, State, Transform
from smile.state.run import Shape

ROWS = "rows"


class Shown(Transform):
    """Has no changes of its own: nobody reads it but by `rows`."""

    def __init__(self, source: Input) -> None:
        self.layout = source.layout
        self.shapes = {ROWS: Shape(tuple(map(stored, source.layout.key)), columns_of(source.layout))}

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        (changes,) = inputs
        if changes is None:
            return state, None
        told = np.flatnonzero(masks.shown(changes.new.mask) | masks.shown(changes.old_mask()))
        if not len(told):
            return state, None
        changes = changes.take(told)
        rows = flat(self.layout, changes.fixed, changes.new)
        return {ROWS: state[ROWS].updated(rows, ~masks.shown(changes.new.mask))}, None

    def is_woken(self, moved: Moved) -> bool:
        return False

    def rows(self, state: State) -> Changes:
        """All rows, as if all of them were new."""
        found = state[ROWS].scan()
        return Changes(fixed_of(self.layout, found), None, version_of(self.layout, found))
