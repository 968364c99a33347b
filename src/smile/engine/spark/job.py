"""A job: the immutable description of a pipeline run. It is pickled and sent to every process of the run."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from smile.engine.generation import Generation, Json
from smile.engine.metrics import pipeline_status
from smile.engine.plan import ExecutableStage, Plan
from smile.engine.spark.pickled_job import PickledJob
from smile.engine.spark.planning import BatchPlanner, Offset
from smile.kernels.layout import Layout
from smile.log.position import BatchLimit, Log, Position
from smile.state.run import TableSchema
from smile.state.store import StateStore


@dataclass(frozen=True)
class Job:
    """`state_uri` is a directory that every process can access. `start` is the offset at which the run begins, `run_id`
    is unique, and `until` is the position at which it ends, if there is a limit."""

    generations: tuple[Generation, ...]
    partitions: int
    state_uri: str
    log: Log
    limit: BatchLimit
    start: Offset
    run_id: str
    until: Position | None = None

    @cached_property
    def plans(self) -> dict[str, Plan]:
        """The plan of each generation."""
        return {g.name: g.plan(self.partitions) for g in self.generations}

    @property
    def views(self) -> list[str]:
        return [view for generation in self.generations for view in generation.views]

    def status(self, offset: Offset, ui: str | None, metrics: Json) -> Json:
        return pipeline_status(self.log, offset.position, self.views, self.partitions, offset.number, ui, metrics)

    @cached_property
    def program_digest(self) -> str:
        """Identifies the generations, so that the state of others is refused."""
        return hashlib.sha256(json.dumps([g.to_json() for g in self.generations]).encode()).hexdigest()

    @cached_property
    def layouts(self) -> Mapping[str, Layout]:
        """The layouts of all relations, by their names in exchange messages."""
        return {
            f"{generation}/{name}": source.layout
            for generation, plan in self.plans.items()
            for name, source in plan.kernels.inputs.items()
        }

    @cached_property
    def stage_count(self) -> int:
        return max((len(plan.stages) for plan in self.plans.values()), default=1)

    def stages_by_generation(self, stage: int) -> dict[str, ExecutableStage]:
        """This stage of each generation that has it."""
        return {g: plan.stages[stage - 1] for g, plan in self.plans.items() if stage <= len(plan.stages)}

    def stage_name(self, stage: int) -> str:
        """The views that a stage produces, for Spark's page."""
        views = [view for executable in self.stages_by_generation(stage).values() for view in executable.views]
        return f"stage {stage}: {', '.join(views)}" if views else f"stage {stage}"

    @cached_property
    def description(self) -> str:
        """All stages, for Spark's page."""
        return "; ".join(map(self.stage_name, range(1, self.stage_count + 1)))

    def store(self, stage: int, partition: int) -> StateStore:
        return StateStore.open(f"{self.state_uri}/stage-{stage}/partition-{partition}", self.program_digest)

    def stores(self) -> dict[tuple[int, int], StateStore]:
        """The stores of all partitions, by stage and partition."""
        partitions = ((stage, p) for stage in range(1, self.stage_count + 1) for p in range(self.partitions))
        return {partition: self.store(*partition) for partition in partitions}

    def table_schemas(self, stage: int) -> dict[str, TableSchema]:
        """The schemas of all tables of a stage, by `generation/transform/table`."""
        return {
            f"{generation}/{name}/{table}": schema
            for generation, executable in self.stages_by_generation(stage).items()
            for name, tables in executable.table_schemas.items()
            for table, schema in tables.items()
        }

    def __getstate__(self) -> Json:
        """Omits the cached plans: compiling them again is faster than pickling them."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def pickled_job(self) -> PickledJob:
        return PickledJob.dump(self.run_id, self)

    def pickled_planner(self) -> PickledJob:
        """Only the part of the job that planning needs."""
        planner = BatchPlanner(self.log, self.limit, self.start, self.until, self.partitions)
        return PickledJob.dump(f"{self.run_id}-planning", planner)
