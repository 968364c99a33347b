"""The rows of the last while as of the horizon: each leaves for good when the horizon is `size` beyond it.

The horizon is the least of those of the streams that rows come from, so a row may come too old to be shown at all.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from smile.algebra import mmpl
from smile.columns import masks
from smile.columns.values import Array, Values
from smile.kernels.changes import Changes, Version, concat, differing
from smile.kernels.kept import least, under
from smile.kernels.layout import Layout
from smile.kernels.seals import Moved, later
from smile.kernels.stored import columns_of, fixed_of, flat, stored, version_of
from smile.kernels.transform import Input, Output, State, Transform
from smile.state.run import Shape

ROWS, UNTIL = "rows", "until"


class Last(Transform):
    """Remembers the rows that may be shown, each with the tick at which it leaves."""

    def __init__(self, rel: mmpl.Window, source: Input, output: Output) -> None:
        own = source.layout
        self.on, self.size = rel.on, rel.size
        self.streams = tuple(source.type.seals)
        self.layout = Layout(own.key, own.fixed, own.evolving, False, output.heeded)
        columns = {**columns_of(self.layout), UNTIL: pa.int64()}
        self.shapes = {ROWS: Shape(tuple(map(stored, own.key)), columns, orders=(UNTIL,))}

    def is_woken(self, moved: Moved) -> bool:
        return least(moved.after, self.streams) > least(moved.before, self.streams)

    def step(self, state: State, inputs: Sequence[Changes | None], moved: Moved) -> tuple[State, Changes | None]:
        before, after = least(moved.before, self.streams), least(moved.after, self.streams)
        table, parts = state[ROWS], []
        (changes,) = inputs
        if changes is not None:
            until = self._until(changes.fixed)
            old = None if changes.old is None else under(changes.old, _codes(until, before))
            found = Changes(changes.fixed, old, under(changes.new, _codes(until, after)))
            live = masks.live(found.new.mask)
            kept = np.flatnonzero(live | masks.live(found.old_mask()))
            rows = {**flat(self.layout, found.fixed, found.new), UNTIL: Values(until)}
            table = table.updated({name: column.take(kept) for name, column in rows.items()}, ~live[kept])
            parts.append(found)
        if after > before:
            # Rows that have just come are above the horizon or not kept at all: these are the ones it has passed.
            passed = table.between(UNTIL, before, after)
            if len(passed):
                table = table.updated(passed, np.ones(len(passed), bool))
                version = version_of(self.layout, passed)
                gone = Version(version.columns, masks.full(masks.F, len(passed)), version.steps)
                parts.append(Changes(fixed_of(self.layout, passed), version, gone))
        if not parts:
            return {ROWS: table}, None
        return {ROWS: table}, differing(concat(self.layout, parts), self.layout.heeded)

    def _until(self, fixed: Mapping[str, Values]) -> Array:
        return later(fixed[self.on].data, self.size)


def _codes(until: Array, horizon: int) -> Array:
    return np.where(until <= horizon, np.uint8(masks.F), np.uint8(masks.SHOWN))
