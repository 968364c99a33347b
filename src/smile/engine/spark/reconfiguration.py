"""Adds and drops views while a pipeline runs.

A second pipeline backfills an added view from the log while the main one continues. When it has caught up, both stop
at the same position, their states are merged, and one pipeline continues from there. Dropping a view also drops the
state that no other view needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from smile.engine.generation import Generation, remaining_generations
from smile.engine.spark.pipeline import SparkPipeline
from smile.engine.spark.pipeline_directory import JobStates, PipelineDirectory, read_states
from smile.engine.spark.planning import Offset
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
        """Handles failures of the backfill. Returns whether it has caught up."""
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
        """The main pipeline continues, also after an error of `merge`."""
        self.backfill_pipeline.stop()
        self.backfill_pipeline.directory.clear()
        if not self.main_pipeline.is_running:
            self.main_pipeline.start()


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
    pipeline.stop()
    try:
        generations = remaining_generations(pipeline.job.generations, views)
        states = read_states(pipeline.job, pipeline.offset)
        pipeline.job = pipeline.directory.switch_job(pipeline.job, pipeline.offset, generations, states)
    finally:
        pipeline.start()


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
