"""Runs several programs in one Spark pipeline, as its generations, because every streaming query costs a second.

Programs do not see each other: `PackedProgram.of` prefixes the names of all streams and views with the name of the
program. Batch N of the pipeline has batch N of every program.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession

from smile.algebra import mmpl, trees
from smile.engine.generation import Generation
from smile.engine.local import BatchResult
from smile.engine.spark.pipeline import SparkPipeline
from smile.engine.spark.pipeline_directory import PipelineDirectory
from smile.log.input_batch import InputBatch
from tests.engine.spark.comparison import COMMIT_PER_BATCH, BatchMessages, batch_messages, recorded, run_locally

Result = tuple[list[BatchMessages], BatchMessages]
"""The messages of each batch, and all rows at the end."""


@dataclass(frozen=True)
class PackedProgram:
    """A program with its frames, at least one. No other program of the pack has a stream or view of the same name."""

    name: str
    program: mmpl.Program
    frames: Sequence[InputBatch]

    @staticmethod
    def of(name: str, program: mmpl.Program, frames: Sequence[InputBatch]) -> "PackedProgram":
        """`name` must be a valid start of an identifier, and unique in the pack."""
        prefixed = [
            InputBatch(
                {f"{name}_{stream}": events for stream, events in frame.events.items()},
                {f"{name}_{stream}": horizon for stream, horizon in frame.horizons.items()},
            )
            for frame in frames
        ]
        return PackedProgram(name, prefix_names(program, f"{name}_"), prefixed)

    @cached_property
    def expected(self) -> Result:
        """The result of the in-process engine, which runs this program alone."""
        return run_locally(self.program, self.frames)


def prefix_names(program: mmpl.Program, prefix: str) -> mmpl.Program:
    """The same program; the names of its streams and views begin with `prefix`."""

    def renamed(rel: mmpl.Rel) -> mmpl.Rel:
        return replace(rel, name=prefix + rel.name) if isinstance(rel, mmpl.RelationRef) else rel

    return mmpl.Program(
        tuple(replace(stream, name=prefix + stream.name) for stream in program.streams),
        tuple(
            replace(view, name=prefix + view.name, body=trees.rebuild_relation(view.body, renamed))
            for view in program.views
        ),
        tuple(prefix + view for view in program.subscriptions),
    )


def run_on_spark(
    spark: SparkSession, programs: Sequence[PackedProgram], folder: Path, partitions: int
) -> dict[str, Result]:
    """The result of each program, by its name. A program that has fewer frames than others changes nothing later."""
    if not programs:
        return {}
    frames = [_merged(programs, number) for number in range(max(len(one.frames) for one in programs))]
    streams = tuple(stream for one in programs for stream in one.program.streams)
    log = recorded(mmpl.Program(streams, (), ()), frames, folder / "log")
    generations = tuple(_generation(one) for one in programs)
    directory = PipelineDirectory(str(folder / "state"))
    job = directory.open_job(generations, partitions, log, COMMIT_PER_BATCH, print)
    batches: list[BatchResult] = []
    pipeline = SparkPipeline(spark, directory, job, batches.append, print)
    pipeline.start(available_now=True)
    while not pipeline.wait():
        pass
    assert len(batches) == len(frames) + 1
    results = {}
    for one in programs:
        kernels, views = job.plans[one.name].kernels, one.program.subscriptions
        messages = [batch_messages(kernels, views, batch) for batch in batches]
        assert not any(messages[len(one.frames) + 1 :]), f"{one.name}: a batch of other programs changed its views"
        rows = BatchResult({view: pipeline.snapshot(view) for view in views}, pipeline.offset.horizons)
        results[one.name] = (messages[: len(one.frames) + 1], batch_messages(kernels, views, rows))
    log.close()
    return results


def _merged(programs: Sequence[PackedProgram], number: int) -> InputBatch:
    """Frame `number` of every program that has so many."""
    events = {s: rows for one in programs for f in one.frames[number : number + 1] for s, rows in f.events.items()}
    last = [one.frames[min(number, len(one.frames) - 1)] for one in programs]
    return InputBatch(events, {stream: horizon for frame in last for stream, horizon in frame.horizons.items()})


def _generation(one: PackedProgram) -> Generation:
    views = one.program.subscriptions
    return Generation(one.name, one.program, views, views, views)
