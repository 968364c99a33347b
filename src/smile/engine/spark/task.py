"""A task: one partition of one stage takes a batch in. It runs in one of Spark's Python workers.

Of each version it makes a file before it answers. Whoever runs the same task again, here or elsewhere, reads the same
version before it and makes the same one after it. A worker keeps what it has in memory: given the next batch of the
same partition it need not read, and if it has missed some it reads what is new.
"""

import gc
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from smile.engine.exchange import Incoming, Outgoing, gathered
from smile.engine.local import heard_of
from smile.engine.merges import Merges
from smile.engine.plan import Made, Route, States, Work
from smile.engine.spark.job import Job
from smile.engine.spark.planning import Offset
from smile.engine.spark.sealed import forget_all_but
from smile.kernels.changes import Changes
from smile.kernels.seals import Moved
from smile.state.run import Shape
from smile.state.store import Mark, Store, Tables
from smile.state.table import Table

ROWS = pa.schema([("target", pa.int32()), ("stage", pa.int32()), ("message", pa.binary())])
DRIVER = 0
"""The stage of messages for whoever runs the pipeline."""

Row = tuple[int, int, bytes | pa.Buffer]


@dataclass
class Held:
    """A partition's state as this worker last had it: of each generation what its transforms remember."""

    works: Mapping[str, Work]
    shapes: Mapping[str, Shape]
    store: Store
    mark: Mark | None = None
    states: Mapping[str, States] = field(default_factory=dict)
    merges: dict[str, Merges] = field(default_factory=dict)

    def at(self, offset: Offset) -> Mapping[str, States]:
        """The version that a batch begins with."""
        mark = Mark.of(offset.number, offset.horizons)
        if mark != self.mark:
            self.states = self._read(mark) if offset.number else {g: work.nothing() for g, work in self.works.items()}
            self.mark = mark
        self.states = {g: self.merges[g].taken_in(of) if g in self.merges else of for g, of in self.states.items()}
        return self.states

    def _read(self, mark: Mark) -> Mapping[str, States]:
        found = self.store.read(mark, self.shapes, whole=False, known=tables_of(self.states)).tables
        return states_of(self.works, found)

    def save(self, offset: Offset, states: Mapping[str, States]) -> int:
        """Writes the next version, which is the one that is held from now on. How many bytes were written."""
        written = self.store.save(offset.number, offset.horizons, tables_of(states))
        self.mark, self.states = Mark.of(offset.number, offset.horizons), states
        for generation, of in states.items():
            self.merges.setdefault(generation, Merges()).begin(of)
        return written

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in tables_of(self.states).values())


def tables_of(states: Mapping[str, States]) -> dict[str, Table]:
    """All that a partition remembers, as the store has it."""
    return {
        f"{generation}/{name}/{table}": found
        for generation, of in states.items()
        for name, state in of.items()
        for table, found in state.items()
    }


def states_of(works: Mapping[str, Work], tables: Tables) -> dict[str, States]:
    return {
        generation: {
            name: {table: tables[f"{generation}/{name}/{table}"] for table in of} for name, of in work.shapes.items()
        }
        for generation, work in works.items()
    }


_held: dict[str, dict[tuple[int, int], Held]] = {}
"""By run, stage and partition."""


def _held_by(job: Job, stage: int, partition: int) -> Held:
    """What this worker holds."""
    if job.run not in _held:
        _held[job.run] = {}
        forget_all_but(_held)
        _ = job.layouts
        # Spark collects garbage after every task; what stays for good need not be looked at each time.
        gc.collect()
        gc.freeze()
    held = _held[job.run]
    if (stage, partition) not in held:
        held[stage, partition] = Held(job.works(stage), job.shapes(stage), job.store(stage, partition))
    return held[stage, partition]


def first_stage(job: Job, partition: int, start: Offset, end: Offset) -> Iterator[Row]:
    """Reads the log between two offsets."""
    begun = time.perf_counter()
    held = _held_by(job, 1, partition)
    heard = {}
    for stream in dict.fromkeys(s for work in held.works.values() for s in work.streams):
        events = job.log.read(stream, start.position, end.position)
        if events.num_rows:
            heard[stream] = heard_of(events, start.horizons[stream])
    yield from _taken_in(job, held, Batch(1, partition, start, end, begun), heard, {})


def later_stage(job: Job, stage: int, rows: Iterator[Row]) -> Iterator[Row]:
    """Takes in what the partitions of earlier stages have sent; what is for later ones goes on its way."""
    begun: float | None = None
    messages: list[Incoming] = []
    partition = 0
    for target, to, message in rows:
        begun = begun or time.perf_counter()
        if to == stage:
            partition = target
            messages.append(Incoming(message))
        else:
            yield target, to, message
    if begun is None or not messages:
        return
    held = _held_by(job, stage, partition)
    found: list[tuple[Any, Changes]] = []
    for incoming in messages:
        for (relation, by), changes in incoming.changes(job.layouts):
            found.append(((relation, None if by is None else tuple(by)), changes))
    head = messages[0].head
    batch = Batch(stage, partition, Offset.from_json(head["start"]), Offset.from_json(head["end"]), begun)
    yield from _taken_in(job, held, batch, {}, gathered(job.layouts, found))


@dataclass(frozen=True)
class Batch:
    """What a task is to take in, and when it began to."""

    stage: int
    partition: int
    start: Offset
    end: Offset
    begun: float

    @property
    def head(self) -> dict[str, Any]:
        return {"start": self.start.to_json(), "end": self.end.to_json()}


def _taken_in(
    job: Job, held: Held, batch: Batch, heard: Mapping[str, Changes], sent: Mapping[Route, Changes]
) -> Iterator[Row]:
    start, end = batch.start, batch.end
    states = held.at(start)
    read = time.perf_counter()
    moved = Moved(start.horizons, end.horizons)
    made = {}
    for generation, work in held.works.items():
        mine = {(name.partition("/")[2], by): c for (name, by), c in sent.items() if name.startswith(f"{generation}/")}
        made[generation] = work.step(batch.partition, states[generation], heard, mine, moved, not start.number)
    stepped = time.perf_counter()
    written = held.save(end, {generation: of.states for generation, of in made.items()})
    saved = time.perf_counter()
    yield from _messages(job, held.works, batch, made)
    outgoing = Outgoing()
    for generation, work in held.works.items():
        for view, changes in work.told(batch.partition, made[generation]):
            outgoing.add([f"{generation}/{view}"], job.layouts[f"{generation}/{view}"], changes)
    figures = {
        "read": read - batch.begun, "kernels": stepped - read, "save": saved - stepped,
        "pack": time.perf_counter() - saved, "events": sum(map(len, heard.values())), "written": written,
        "state": held.bytes,
    }  # fmt: skip
    told = {**batch.head, "stage": batch.stage, "partition": batch.partition, "figures": figures}
    yield batch.partition, DRIVER, outgoing.finish(told)


def _messages(job: Job, works: Mapping[str, Work], batch: Batch, made: Mapping[str, Made]) -> Iterator[Row]:
    """To every partition of the next stage goes one at least, since it has to hear of the horizons."""
    for to in range(batch.stage + 1, job.stages + 1):
        outgoing = {p: Outgoing() for p in range(job.partitions)} if to == batch.stage + 1 else {}
        for generation, work in works.items():
            for target, (relation, by), changes in work.sent(batch.partition, made[generation], to):
                name = f"{generation}/{relation}"
                outgoing.setdefault(target, Outgoing()).add([name, by], job.layouts[name], changes)
        for target, message in outgoing.items():
            yield target, to, message.finish(batch.head)


def batches_of(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Rows as Spark takes them, each as a batch of its own: a message is not copied."""
    for target, stage, message in rows:
        ends = pa.py_buffer(np.array([0, len(message)], np.int32))
        found = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(message)])
        yield pa.RecordBatch.from_arrays([_one(target), _one(stage), found], schema=ROWS)


def _one(number: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(np.array([number], np.int32))])
