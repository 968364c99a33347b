"""The in-process engine: all stages of a program in this process, in one partition.

What it remembers is one immutable version after another; a frame makes the next from the last.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from smile.columns import masks
from smile.columns.values import Values, from_arrow
from smile.engine.merges import Merges
from smile.engine.plan import States, Work, fused
from smile.kernels.changes import Changes, Version
from smile.kernels.compile import Kernels, shown
from smile.kernels.seals import Moved
from smile.kernels.shown import Shown
from smile.log.frame import NOTHING, Frame
from smile.state.run import Shape
from smile.state.store import Store
from smile.state.table import Table


@dataclass(frozen=True)
class Remembered:
    """All state after `version` frames: of every transform its tables, and how far every stream is known."""

    version: int
    horizons: Mapping[str, int]
    states: States


@dataclass(frozen=True)
class Batch:
    """What a frame changed, of every relation of the program that changed at all."""

    changes: Mapping[str, Changes]
    horizons: Mapping[str, int]


def advanced(work: Work, remembered: Remembered, frame: Frame) -> tuple[Remembered, Batch]:
    """The next version, and what changed. `remembered` stays as it is. What is known already changes nothing."""
    before = remembered.horizons
    moved = Moved(before, {s: max(h, frame.horizons.get(s, h)) for s, h in before.items()})
    heard = {name: found for name, events in frame.events.items() if len(found := heard_of(events, before[name]))}
    made = work.step(0, remembered.states, heard, {}, moved, not remembered.version)
    return Remembered(remembered.version + 1, moved.after, made.states), Batch(made.changes, moved.after)


def heard_of(events: pa.RecordBatch, horizon: int) -> Changes:
    """Events as changes of their stream: rows nobody had heard of, shown for good. The tick is the first column."""
    fixed = {name: _told(events.column(name)) for name in events.schema.names}
    ticks = fixed[events.schema.names[0]].data
    count = len(ticks)
    found = Changes(fixed, None, Version({}, masks.full(masks.T, count), np.ones(count, np.int64)))
    if count and ticks[0] <= horizon:
        return found.take(np.flatnonzero(ticks > horizon))
    return found


def _told(column: pa.Array) -> Values:
    """A column of events. There is one zero: minus zero, which equals it, would be another key to whoever reads it."""
    values = from_arrow(column)
    return Values(values.data + 0.0, values.valid) if pa.types.is_floating(column.type) else values


@dataclass
class LocalEngine:
    """Advanced by frames. With a store, `checkpoint` writes the present version, and `resume` goes back to one. `work`
    is all that the kernels do, or what is wanted of it."""

    kernels: Kernels
    store: Store | None = None
    work: Work | None = None
    remembered: Remembered = field(init=False)
    _merges: Merges = field(default_factory=Merges)
    _work: Work = field(init=False)

    def __post_init__(self) -> None:
        self._work = self.work or fused(self.kernels, ())
        streams = [name for name, source in self.kernels.inputs.items() if source.transform is None]
        self.remembered = Remembered(0, dict.fromkeys(streams, NOTHING), self._work.nothing())

    def advance(self, frame: Frame) -> Batch:
        states = self._merges.taken_in(self.remembered.states)
        self.remembered, batch = advanced(self._work, replace(self.remembered, states=states), frame)
        self._merges.begin(self.remembered.states)
        return batch

    def checkpoint(self) -> int:
        """Writes what the store does not have yet; gives the number of bytes."""
        assert self.store is not None
        return self.store.save(self.remembered.version, self.remembered.horizons, self.tables)

    def resume(self) -> list[str]:
        """Goes on from the newest version in the store that is whole; says what is wrong with newer ones."""
        assert self.store is not None
        saved, problems = self.store.newest(self.shapes)
        if saved is not None:
            states = {
                name: {table: saved.tables[f"{name}/{table}"] for table in shapes}
                for name, shapes in self._work.shapes.items()
            }
            self.remembered = Remembered(saved.number, saved.horizons, states)
        return [str(problem) for problem in problems]

    @property
    def tables(self) -> dict[str, Table]:
        """Everything that is remembered."""
        states = self.remembered.states
        return {f"{name}/{table}": found for name, state in states.items() for table, found in state.items()}

    @property
    def shapes(self) -> dict[str, Shape]:
        kept = self._work.shapes
        return {f"{name}/{table}": shape for name, shapes in kept.items() for table, shape in shapes.items()}

    def rows(self, view: str) -> Changes:
        """All rows that a view that is kept shows now, as if all of them were new."""
        kept = self.kernels.transforms[shown(view)]
        assert isinstance(kept, Shown)
        return kept.rows(self.remembered.states[shown(view)])
