"""Adds and drops views while a pipeline runs.

A second pipeline backfills an added view from the log while the main one continues. When it has caught up, both stop
at the same position, their states are merged, and one pipeline continues from there. Dropping a view also drops the
state that no other view needs.
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
    """Views that are being added to `main_pipeline`, and the pipeline that computes them from the log."""

    main_pipeline: SparkPipeline
    generation: Generation
    backfill_pipeline: SparkPipeline

    @staticmethod
    def prepare(pipeline: SparkPipeline, generation: Generation) -> "Backfill":
        """Resumes an earlier, interrupted backfill of the same views."""
        directory, job = PipelineDirectory(f"{pipeline.directory.uri}/{BACKFILL_DIRECTORY}"), pipeline.job
        if directory.generations() not in (None, (generation,)):
            # An earlier backfill of other views was abandoned.
            directory.clear()
        backfill_job = directory.open_job((generation,), job.partitions, job.log, job.limit, pipeline.on_warning)
        backfill_pipeline = SparkPipeline(
            pipeline.spark, directory, backfill_job, pipeline.deliver, pipeline.on_warning, pipeline.delivery_lock
        )
        return Backfill(pipeline, generation, backfill_pipeline)

    def poll(self) -> bool:
        """Handles failures of both pipelines. Returns whether the backfill has caught up."""
        self.main_pipeline.poll()
        self.backfill_pipeline.poll()
        return self.backfill_pipeline.is_caught_up

    def merge(self) -> None:
        """Stops both pipelines at the same position, merges their states, and continues with one."""
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
    """Adds these views to the pipeline. Their rows are delivered during the backfill. The other views continue, except
    for a short stop at the end."""
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
    """Raises an error if the generation's name, or one of its views, exists already."""
    duplicates = sorted({view for g in generations for view in g.views} & set(generation.views))
    if duplicates or generation.name in {g.name for g in generations}:
        raise error("E020", f"the pipeline already has {', '.join(duplicates) or generation.name}")


def replace_log(pipeline: SparkPipeline, log: Log) -> None:
    """The pipeline continues with this log, which may have more streams."""
    pipeline.job = replace(pipeline.job, log=log)
    if set(log.streams) == set(pipeline.offset.position.horizons):
        return
    pipeline.stop()
    offset = pipeline.offset
    pipeline.offset = Offset(offset.number, log.resume_position(offset.horizons) if offset.number else log.start())
    pipeline.start()


def drop_views(pipeline: SparkPipeline, views: Sequence[str]) -> None:
    """The pipeline continues without these views."""
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
    """The generations without these views; generations without any view are omitted."""
    remaining = []
    for generation in generations:
        remaining_views = tuple(view for view in generation.views if view not in views)
        if remaining_views:
            materialized_views = tuple(view for view in generation.materialized_views if view in remaining_views)
            remaining.append(replace(generation, views=remaining_views, materialized_views=materialized_views))
    return tuple(remaining)


def _run_to_position(pipeline: SparkPipeline, position: Position) -> None:
    """Runs a stopped pipeline up to exactly this commit."""
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
