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
from smile.kernels.changes import Changes, Version
from smile.kernels.compile import Kernels
from smile.kernels.seals import Moved
from smile.kernels.transform import State
from smile.log.frame import NOTHING, Frame
from smile.state.run import Shape
from smile.state.store import Store
from smile.state.table import Table


@dataclass(frozen=True)
class Remembered:
    """All state after `version` frames: of every transform its tables, and how far every stream is known."""

    version: int
    horizons: Mapping[str, int]
    states: Mapping[str, State]


@dataclass(frozen=True)
class Batch:
    """What a frame changed, of every relation of the program that changed at all."""

    changes: Mapping[str, Changes]
    horizons: Mapping[str, int]


def nothing(kernels: Kernels) -> Remembered:
    """Before anything is heard."""
    streams = [name for name, source in kernels.inputs.items() if source.transform is None]
    states = {name: {n: Table(shape) for n, shape in shapes.items()} for name, shapes in kernels.shapes.items()}
    return Remembered(0, dict.fromkeys(streams, NOTHING), states)


def advanced(kernels: Kernels, remembered: Remembered, frame: Frame) -> tuple[Remembered, Batch]:
    """The next version, and what changed. `remembered` stays as it is. What is known already changes nothing."""
    before = remembered.horizons
    moved = Moved(before, {s: max(h, frame.horizons.get(s, h)) for s, h in before.items()})
    changes: dict[str, Changes] = {}
    for name, events in frame.events.items():
        heard = _heard(events, before[name])
        if len(heard):
            changes[name] = heard
    states = dict(remembered.states)
    for name, transform in kernels.transforms.items():
        inputs = [changes.get(i) for i in kernels.reads[name]]
        woken = (moved.at_all or not remembered.version) and transform.is_woken(moved)
        if not woken and all(i is None for i in inputs):
            continue
        state, found = transform.step(states.get(name, {}), inputs, moved)
        if transform.shapes:
            states[name] = state
        if found is not None and len(found):
            changes[name] = found
    for forgetful in kernels.forgetful:
        forgetful.forget(states, changes)
    return Remembered(remembered.version + 1, moved.after, states), Batch(changes, moved.after)


def _heard(events: pa.RecordBatch, horizon: int) -> Changes:
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
    """Advanced by frames. With a store, `checkpoint` writes the present version, and `resume` goes back to one."""

    kernels: Kernels
    store: Store | None = None
    remembered: Remembered = field(init=False)
    _merges: Merges = field(default_factory=Merges)

    def __post_init__(self) -> None:
        self.remembered = nothing(self.kernels)

    def advance(self, frame: Frame) -> Batch:
        states = self._merges.taken_in(self.remembered.states)
        self.remembered, batch = advanced(self.kernels, replace(self.remembered, states=states), frame)
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
                for name, shapes in self.kernels.shapes.items()
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
        kept = self.kernels.shapes
        return {f"{name}/{table}": shape for name, shapes in kept.items() for table, shape in shapes.items()}
