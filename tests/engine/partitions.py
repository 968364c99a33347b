"""All stages of a plan in several partitions of one process: what Spark's tasks do, without Spark.

Messages between stages are packed and unpacked, tasks of a stage run in any order, and some of them twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from smile.engine.exchange import Incoming, Outgoing, gathered
from smile.engine.local import Batch, heard_of
from smile.engine.plan import Made, Plan, Route, States, Work
from smile.kernels.changes import Changes
from smile.kernels.seals import Moved
from smile.log.frame import NOTHING, Frame


@dataclass
class Partitions:
    plan: Plan
    random: Random
    version: int = 0
    horizons: dict[str, int] = field(init=False)
    states: dict[tuple[int, int], States] = field(init=False)

    def __post_init__(self) -> None:
        inputs = self.plan.kernels.inputs
        self.layouts = {name: source.layout for name, source in inputs.items()}
        self.horizons = {name: NOTHING for name, source in inputs.items() if source.transform is None}
        parts = range(self.plan.partitions)
        self.states = {(work.number, p): work.nothing() for work in self.plan.stages for p in parts}

    def advance(self, frame: Frame) -> Batch:
        before = self.horizons
        moved = Moved(before, {s: max(h, frame.horizons.get(s, h)) for s, h in before.items()})
        heard = {name: heard_of(events, before[name]) for name, events in frame.events.items()}
        messages: dict[tuple[int, int], list[bytes]] = {}
        told: list[tuple[Any, Changes]] = []
        for work in self.plan.stages:
            for partition in self.random.sample(range(self.plan.partitions), self.plan.partitions):
                arrived = self._arrived(messages.get((work.number, partition), []))
                made = self._task(work, partition, heard if work.number == 1 else {}, arrived, moved)
                for later in work.sends:
                    self._send(work, partition, made, later, messages)
                told += [((view,), changes) for view, changes in work.told(partition, made)]
                self.states[work.number, partition] = made.states
        self.version, self.horizons = self.version + 1, dict(moved.after)
        changes = gathered(self.layouts, told)
        return Batch({name[0]: found for name, found in changes.items()}, moved.after)

    def _task(
        self, work: Work, partition: int, heard: Mapping[str, Changes], sent: Mapping[Route, Changes], moved: Moved
    ) -> Made:
        states = self.states[work.number, partition]
        if self.random.random() < 0.2:
            work.step(partition, states, heard, sent, moved, not self.version)
        return work.step(partition, states, heard, sent, moved, not self.version)

    def _send(
        self, work: Work, partition: int, made: Made, to: int, messages: dict[tuple[int, int], list[bytes]]
    ) -> None:
        outgoing: dict[int, Outgoing] = {}
        for target, (relation, by), changes in work.sent(partition, made, to):
            outgoing.setdefault(target, Outgoing()).add([relation, by], self.layouts[relation], changes)
        for target, message in outgoing.items():
            messages.setdefault((to, target), []).append(message.finish({}))

    def _arrived(self, messages: list[bytes]) -> dict[Route, Changes]:
        found = [
            ((name[0], None if name[1] is None else tuple(name[1])), changes)
            for message in messages
            for name, changes in Incoming(message).changes(self.layouts)
        ]
        return gathered(self.layouts, found)
