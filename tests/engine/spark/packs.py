"""Several programs in one pipeline on Spark, each as a generation: starting a query costs more than a program does.

A batch takes in one frame of every program. Streams and views are renamed, since the programs share a log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from pyspark.sql import SparkSession

from smile.algebra import mmpl, trees
from smile.engine.generation import Generation
from smile.engine.local import BatchResult
from smile.engine.spark.pipeline import SparkPipeline
from smile.engine.spark.pipeline_directory import PipelineDirectory
from smile.log.durable import DurableLog
from smile.log.input_batch import InputBatch
from tests.engine.spark.beside import ONE, Told, told


@dataclass(frozen=True)
class Member:
    """A program of a pack, with the frames that it takes in."""

    program: mmpl.Program
    frames: Sequence[InputBatch]

    def with_prefix(self, prefix: str) -> "Member":
        """The same with other names of streams and views."""

        def rename(rel: mmpl.Rel) -> mmpl.Rel:
            return replace(rel, name=prefix + rel.name) if isinstance(rel, mmpl.RelationRef) else rel

        program = mmpl.Program(
            tuple(replace(stream, name=prefix + stream.name) for stream in self.program.streams),
            tuple(
                replace(view, name=prefix + view.name, body=trees.rebuild_relation(view.body, rename))
                for view in self.program.views
            ),
            tuple(prefix + view for view in self.program.subscriptions),
        )
        frames = [
            InputBatch({prefix + s: e for s, e in f.events.items()}, {prefix + s: h for s, h in f.horizons.items()})
            for f in self.frames
        ]
        return Member(program, frames)


def run_pack(
    spark: SparkSession, members: Mapping[str, Member], folder: Path, partitions: int
) -> dict[str, tuple[list[Told], Told]]:
    """What every batch tells of each member, the first one included, which has no frame; and all rows in the end."""
    generations = tuple(
        Generation(name, m.program, *[m.program.subscriptions] * 3)  # its views are compiled, wanted and kept
        for name, m in members.items()
    )
    log = DurableLog.open_or_create(
        str(folder / "log"), [s for m in members.values() for s in m.program.streams], flush=False
    )
    for frames in zip_longest(*(m.frames for m in members.values())):
        log.append_batch(_joined([frame for frame in frames if frame is not None]))
    batches: list[BatchResult] = []
    standing = PipelineDirectory(str(folder / "state"))
    job = standing.open_job(generations, partitions, log, ONE, print)
    pipeline = SparkPipeline(spark, standing, job, batches.append, print)
    pipeline.start(available_now=True)
    while not pipeline.wait():
        pass
    result = {}
    for name, member in members.items():
        kernels, views = job.plans[name].kernels, member.program.subscriptions
        of_batches = [told(kernels, views, batch) for batch in batches[: len(member.frames) + 1]]
        assert not any(told(kernels, views, batch) for batch in batches[len(member.frames) + 1 :])
        rows = BatchResult({view: pipeline.snapshot(view) for view in views}, pipeline.offset.horizons)
        result[name] = of_batches, told(kernels, views, rows)
    return result


def _joined(frames: Sequence[InputBatch]) -> InputBatch:
    """One frame of what several tell about different streams."""
    return InputBatch(
        {s: e for f in frames for s, e in f.events.items()}, {s: h for f in frames for s, h in f.horizons.items()}
    )
