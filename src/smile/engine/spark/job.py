"""A job: what every process of a pipeline has to know of it. It goes to all of them pickled, and never changes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from smile.engine.generation import Generation, Json
from smile.engine.plan import Plan, Work
from smile.engine.spark.planning import Offset, Planning
from smile.engine.spark.sealed import Sealed
from smile.kernels.layout import Layout
from smile.log.position import Limit, Log
from smile.state.run import Shape
from smile.state.store import Store


@dataclass(frozen=True)
class Job:
    """`state` is a directory that every process reaches, `log` what they read. `start` is where the pipeline goes on,
    `run` a name that no other run has, `until` the last commit that it takes in, if there is to be one."""

    generations: tuple[Generation, ...]
    partitions: int
    state: str
    log: Log
    limit: Limit
    start: Offset
    run: str
    until: int | None = None

    @cached_property
    def plans(self) -> dict[str, Plan]:
        """Of each generation."""
        return {g.name: g.plan(self.partitions) for g in self.generations}

    @cached_property
    def program(self) -> str:
        """Tells the state of these generations from that of others."""
        return hashlib.sha256(json.dumps([g.to_json() for g in self.generations]).encode()).hexdigest()

    @cached_property
    def layouts(self) -> Mapping[str, Layout]:
        """Of all relations, by the names they have in messages."""
        return {
            f"{generation}/{name}": source.layout
            for generation, of in self.plans.items()
            for name, source in of.kernels.inputs.items()
        }

    @cached_property
    def stages(self) -> int:
        return max((len(of.stages) for of in self.plans.values()), default=1)

    def works(self, stage: int) -> dict[str, Work]:
        """Of each generation that has so many stages, the work of one."""
        return {g: of.stages[stage - 1] for g, of in self.plans.items() if stage <= len(of.stages)}

    def store(self, stage: int, partition: int) -> Store:
        return Store.at(f"{self.state}/stage-{stage}/partition-{partition}", self.program)

    def stores(self) -> dict[tuple[int, int], Store]:
        """Of all partitions of all stages."""
        places = ((stage, p) for stage in range(1, self.stages + 1) for p in range(self.partitions))
        return {place: self.store(*place) for place in places}

    def shapes(self, stage: int) -> dict[str, Shape]:
        """Of all tables of a stage."""
        return {
            f"{generation}/{name}/{table}": shape
            for generation, work in self.works(stage).items()
            for name, of in work.shapes.items()
            for table, shape in of.items()
        }

    def __getstate__(self) -> Json:
        """Without what was compiled: compiling it again is quicker than pickling it."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def sealed(self) -> Sealed:
        return Sealed.of(self.run, self)

    def planning(self) -> Sealed:
        """Only what batches are planned with."""
        found = Planning(self.log, self.limit, self.start, self.until, self.partitions)
        return Sealed.of(f"{self.run}-planning", found)
