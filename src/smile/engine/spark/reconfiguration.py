"""Adds and drops views while a pipeline runs, and separates views that cannot be computed.

A second pipeline backfills an added view from the log while the main one continues. When it has caught up, both stop
at the same position, their states are merged, and one pipeline continues from there. Dropping a view also drops the
state that no other view needs. The state of separated views is stored in a directory of their own; a backfill of these
views continues from there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from smile import limits
from smile.engine.generation import Generation, remaining_generations
from smile.engine.spark.job import Job
from smile.engine.spark.pipeline import SparkPipeline
from smile.engine.spark.pipeline_directory import JobStates, PipelineDirectory, read_states
from smile.engine.spark.planning import Offset
from smile.log.position import BatchLimit, Log, Position


@dataclass
class Backfill:
    """Views that are being added to `main_pipeline`, and the pipeline that computes them from the log."""

    main_pipeline: SparkPipeline
    generation: Generation
    backfill_pipeline: SparkPipeline

    @staticmethod
    def prepare(pipeline: SparkPipeline, generation: Generation) -> "Backfill":
        """Resumes an earlier backfill of the same views, which was interrupted, or begins with the state of separated
        views."""
        directory, job = pipeline.directory.backfill_directory(generation), pipeline.job
        if directory.generations() not in (None, (generation,)):
            # An earlier backfill of other views was abandoned.
            directory.clear()
        backfill_job = directory.open_job((generation,), job.partitions, job.log, job.limit, pipeline.on_warning)
        backfill_pipeline = SparkPipeline(
            pipeline.spark, directory, backfill_job, pipeline.deliver, pipeline.on_warning, pipeline.delivery_lock
        )
        return Backfill(pipeline, generation, backfill_pipeline)

    @property
    def is_caught_up(self) -> bool:
        """Whether it has caught up with the main pipeline or the log."""
        # While events are published all the time, neither of the pipelines is ever at the end of the log.
        target, reached = self.main_pipeline.offset, self.backfill_pipeline.offset
        has_reached = bool(target.number and reached.number) and reached.position.commit >= target.position.commit
        return has_reached or self.backfill_pipeline.is_caught_up

    def merge(self) -> None:
        """Stops both pipelines at the same position, merges their states, and continues with one."""
        pipeline, backfill_pipeline = self.main_pipeline, self.backfill_pipeline
        backfill_pipeline.stop()
        pipeline.stop()
        pipelines = [pipeline, backfill_pipeline]
        target = max((p.offset.position for p in pipelines), key=lambda position: position.commit)
        _run_to_position(pipelines, target)
        if pipeline.offset.horizons != backfill_pipeline.offset.horizons:
            # One of them may have read a part of the next commit.
            _run_to_position(pipelines, pipeline.job.log.after(pipeline.offset.position, BatchLimit(commits=1)))
        assert pipeline.offset.horizons == backfill_pipeline.offset.horizons, "both have taken in the same commits"
        states = _merge_states(
            read_states(pipeline.job, pipeline.offset), read_states(backfill_pipeline.job, backfill_pipeline.offset)
        )
        generations = (*pipeline.job.generations, self.generation)
        pipeline.job = pipeline.directory.switch_job(pipeline.job, pipeline.offset, generations, states)
        pipeline.start()
        backfill_pipeline.directory.delete()

    def stop(self) -> None:
        """Stores the state. The main pipeline continues, also after an error of `merge`."""
        self.backfill_pipeline.stop()
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


def separate_views(pipeline: SparkPipeline, views: Sequence[str], separated: Generation) -> None:
    """The pipeline continues without these views of one generation. Their state is stored for a backfill of the
    generation `separated`."""
    pipeline.stop()
    try:
        job, offset = pipeline.job, pipeline.offset
        states = read_states(job, offset)
        store_separated(pipeline.directory, job, offset, separated, states)
        pipeline.job = pipeline.directory.switch_job(job, offset, remaining_generations(job.generations, views), states)
    finally:
        pipeline.start()


def store_separated(
    directory: PipelineDirectory, job: Job, offset: Offset, separated: Generation, states: JobStates
) -> None:
    """Stores the state of views of this job for a backfill of the generation `separated`."""
    original = next(generation for generation in job.generations if generation.contains(separated))
    separated_states = {
        partition: {separated.name: partition_states[original.name]}
        for partition, partition_states in states.items()
        if original.name in partition_states
    }
    backfill_directory = directory.backfill_directory(separated)
    backfill_directory.clear()
    backfill_directory.switch_job(job, offset, (separated,), separated_states)


def shrink_batches(pipeline: SparkPipeline) -> bool:
    """Restarts a pipeline that has failed, with fewer events in a batch. Returns whether that is possible."""
    job = pipeline.job
    waiting_rows, _ = job.log.backlog(pipeline.offset.position)
    failed_rows = min(waiting_rows, job.limit.rows or waiting_rows)
    if failed_rows <= 1:
        return False
    _restart_with_limit(pipeline, max(1, failed_rows // limits.batch_shrink_factor))
    return True


def grow_batches(pipeline: SparkPipeline, limit: BatchLimit) -> None:
    """Restarts a pipeline whose batches were shrunk with more events in a batch, if the last ones have succeeded."""
    rows, rows_max = pipeline.job.limit.rows, limit.rows
    if rows is None or rows_max is None or rows >= rows_max:
        return
    if pipeline.metrics.batches - pipeline.batches_at_start >= limits.batches_before_growth:
        pipeline.stop()
        _restart_with_limit(pipeline, min(rows_max, rows * limits.batch_shrink_factor))


def _restart_with_limit(pipeline: SparkPipeline, rows: int) -> None:
    pipeline.job = replace(pipeline.job, limit=replace(pipeline.job.limit, rows=rows))
    pipeline.start()


def _run_to_position(pipelines: Sequence[SparkPipeline], position: Position) -> None:
    """Runs stopped pipelines up to this position, which need not be at the end of a commit that still exists."""
    for pipeline in pipelines:
        if pipeline.offset.number and pipeline.offset.horizons == position.named_horizons():
            continue
        pipeline.job = replace(pipeline.job, until=position)
        try:
            pipeline.start(available_now=True)
            while not pipeline.wait():
                pass
        finally:
            pipeline.job = replace(pipeline.job, until=None)


def _merge_states(a: JobStates, b: JobStates) -> JobStates:
    return {partition: {**a.get(partition, {}), **b.get(partition, {})} for partition in {*a, *b}}
