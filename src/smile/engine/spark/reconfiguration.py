"""Views come and go while a pipeline runs.

A view that is added is filled from the log by a pipeline of its own, beside the one that goes on. Once it has caught
up, both stop where the other is, their states become one, and one pipeline goes on from there. A view that is dropped
takes with it what no other needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from smile.engine.generation import Generation
from smile.engine.spark.pipeline import SparkPipeline
from smile.engine.spark.pipeline_directory import JobStates, PipelineDirectory, read_states
from smile.engine.spark.planning import Offset
from smile.errors import error
from smile.log.position import Log, Position

BACKFILL_DIRECTORY = "filling"


@dataclass
class Backfill:
    """Views on their way to a pipeline that goes on meanwhile: `own` is the pipeline that fills them."""

    main_pipeline: SparkPipeline
    generation: Generation
    backfill_pipeline: SparkPipeline

    @staticmethod
    def prepare(pipeline: SparkPipeline, generation: Generation) -> "Backfill":
        """It goes on from where an earlier try to fill the same views had come."""
        directory, job = PipelineDirectory(f"{pipeline.directory.uri}/{BACKFILL_DIRECTORY}"), pipeline.job
        if directory.generations() not in (None, (generation,)):
            # Left by one that was given up.
            directory.clear()
        backfill_job = directory.open_job((generation,), job.partitions, job.log, job.limit, pipeline.on_warning)
        backfill_pipeline = SparkPipeline(
            pipeline.spark, directory, backfill_job, pipeline.deliver, pipeline.on_warning, pipeline.delivery_lock
        )
        return Backfill(pipeline, generation, backfill_pipeline)

    def poll(self) -> bool:
        """Whether it has caught up; trouble of either pipeline is met."""
        self.main_pipeline.poll()
        self.backfill_pipeline.poll()
        return self.backfill_pipeline.is_caught_up

    def merge(self) -> None:
        """Both stop where the other is, and one goes on for both."""
        pipeline, backfill_pipeline = self.main_pipeline, self.backfill_pipeline
        backfill_pipeline.stop()
        pipeline.stop()
        target = max(
            (pipeline.offset.position, backfill_pipeline.offset.position), key=lambda position: position.commit
        )
        for p in (pipeline, backfill_pipeline):
            _run_to_position(p, target)
        assert pipeline.offset.horizons == backfill_pipeline.offset.horizons, "both have taken in the same commits"
        states = _merge_states(
            read_states(pipeline.job, pipeline.offset), read_states(backfill_pipeline.job, backfill_pipeline.offset)
        )
        generations = (*pipeline.job.generations, self.generation)
        pipeline.job = pipeline.directory.switch_job(pipeline.job, pipeline.offset, generations, states)
        pipeline.start()
        backfill_pipeline.directory.clear()

    def abandon(self) -> None:
        self.backfill_pipeline.stop()
        self.backfill_pipeline.directory.clear()


def add_generation(pipeline: SparkPipeline, generation: Generation) -> None:
    """The pipeline goes on with these views too. What they come to is delivered while they are filled; the others go on
    meanwhile, but for a moment in the end."""
    refuse_duplicates(pipeline.job.generations, generation)
    backfill = Backfill.prepare(pipeline, generation)
    backfill.backfill_pipeline.start()
    try:
        while not backfill.poll():
            backfill.backfill_pipeline.wait_for_batch(0.2)
        backfill.merge()
    finally:
        backfill.backfill_pipeline.stop()
        if not pipeline.is_running:
            pipeline.start()


def refuse_duplicates(generations: Sequence[Generation], generation: Generation) -> None:
    """A view, or a generation's name, that there is already."""
    duplicates = sorted({view for g in generations for view in g.views} & set(generation.views))
    if duplicates or generation.name in {g.name for g in generations}:
        raise error("E020", f"the pipeline has {', '.join(duplicates) or generation.name} already")


def replace_log(pipeline: SparkPipeline, log: Log) -> None:
    """The pipeline goes on with this log, which may have more streams."""
    pipeline.job = replace(pipeline.job, log=log)
    if set(log.streams) == set(pipeline.offset.position.horizons):
        return
    pipeline.stop()
    offset = pipeline.offset
    pipeline.offset = Offset(offset.number, log.resume_position(offset.horizons) if offset.number else log.start())
    pipeline.start()


def drop_views(pipeline: SparkPipeline, views: Sequence[str]) -> None:
    """The pipeline goes on without these views."""
    unknown = sorted(set(views) - set(pipeline.views))
    if unknown:
        raise error("E021", f"the pipeline has no view {', '.join(unknown)}")
    pipeline.stop()
    try:
        generations, states = (
            remaining_generations(pipeline.job.generations, views),
            read_states(pipeline.job, pipeline.offset),
        )
        pipeline.job = pipeline.directory.switch_job(pipeline.job, pipeline.offset, generations, states)
    finally:
        pipeline.start()


def remaining_generations(generations: Sequence[Generation], views: Sequence[str]) -> tuple[Generation, ...]:
    """What is left of generations once these views are dropped."""
    remaining = []
    for generation in generations:
        remaining_views = tuple(view for view in generation.views if view not in views)
        if remaining_views:
            stored_views = tuple(view for view in generation.stored_views if view in remaining_views)
            remaining.append(replace(generation, views=remaining_views, stored_views=stored_views))
    return tuple(remaining)


def _run_to_position(pipeline: SparkPipeline, position: Position) -> None:
    """To this commit, and no further."""
    if not pipeline.offset.number or pipeline.offset.position.commit < position.commit:
        pipeline.job = replace(pipeline.job, until=position.commit)
        try:
            pipeline.start(available_now=True)
            while not pipeline.wait():
                pass
        finally:
            pipeline.job = replace(pipeline.job, until=None)


def _merge_states(a: JobStates, b: JobStates) -> JobStates:
    return {partition: {**a.get(partition, {}), **b.get(partition, {})} for partition in {*a, *b}}
