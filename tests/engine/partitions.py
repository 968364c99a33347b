"""All stages of a plan in several partitions of one process: what Spark's tasks do, without Spark.

Messages between stages are packed and unpacked, tasks of a stage run in any order, and some of them twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from smile.engine.exchange import ExchangeMessage, ExchangeMessageBuilder, merge_deltas
from smile.engine.local import BatchResult, advance_horizons, input_deltas
from smile.engine.plan import ExchangeRoute, ExecutableStage, Plan, StageResult, TransformStates
from smile.horizons import HORIZON_MIN
from smile.kernels.delta import Delta
from smile.kernels.seals import HorizonAdvance
from smile.log.input_batch import InputBatch


@dataclass
class Partitions:
    plan: Plan
    random: Random
    version: int = 0
    horizons: dict[str, int] = field(init=False)
    states: dict[tuple[int, int], TransformStates] = field(init=False)

    def __post_init__(self) -> None:
        inputs = self.plan.kernels.inputs
        self.layouts = {name: source.layout for name, source in inputs.items()}
        self.horizons = {name: HORIZON_MIN for name, source in inputs.items() if source.transform is None}
        parts = range(self.plan.partitions)
        self.states = {(work.number, p): work.empty_states() for work in self.plan.stages for p in parts}

    def advance(self, frame: InputBatch) -> BatchResult:
        moved = advance_horizons(self.horizons, frame)
        heard = input_deltas(self.plan.kernels, frame, self.horizons)
        messages: dict[tuple[int, int], list[bytes]] = {}
        view_deltas: list[tuple[Any, Delta]] = []
        for work in self.plan.stages:
            for partition in self.random.sample(range(self.plan.partitions), self.plan.partitions):
                arrived = self._arrived(messages.get((work.number, partition), []))
                made = self._task(work, partition, heard if work.number == 1 else {}, arrived, moved)
                for later in work.routes:
                    self._send(work, partition, made, later, messages)
                view_deltas += [((view,), changes) for view, changes in work.view_deltas(partition, made)]
                self.states[work.number, partition] = made.states
        self.version, self.horizons = self.version + 1, dict(moved.after)
        changes = merge_deltas(self.layouts, view_deltas)
        return BatchResult({name[0]: delta for name, delta in changes.items()}, moved.after)

    def _task(
        self,
        work: ExecutableStage,
        partition: int,
        heard: Mapping[str, Delta],
        sent: Mapping[ExchangeRoute, Delta],
        moved: HorizonAdvance,
    ) -> StageResult:
        states = self.states[work.number, partition]
        if self.random.random() < 0.2:
            work.step(partition, states, heard, sent, moved, not self.version)
        return work.step(partition, states, heard, sent, moved, not self.version)

    def _send(
        self,
        work: ExecutableStage,
        partition: int,
        made: StageResult,
        to: int,
        messages: dict[tuple[int, int], list[bytes]],
    ) -> None:
        outgoing: dict[int, ExchangeMessageBuilder] = {}
        for target, (relation, by), changes in work.routed_deltas(partition, made, to):
            outgoing.setdefault(target, ExchangeMessageBuilder()).add([relation, by], self.layouts[relation], changes)
        for target, message in outgoing.items():
            messages.setdefault((to, target), []).append(message.finish({}))

    def _arrived(self, messages: list[bytes]) -> dict[ExchangeRoute, Delta]:
        arrived = [
            ((name[0], None if name[1] is None else tuple(name[1])), changes)
            for message in messages
            for name, changes in ExchangeMessage(message).deltas(self.layouts)
        ]
        return merge_deltas(self.layouts, arrived)
