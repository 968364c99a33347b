"""A pipeline on Spark beside the in-process engine: the same frames, and every batch tells the same."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from smile.algebra import mmpl
from smile.engine.generation import Generation
from smile.engine.local import Batch, LocalEngine
from smile.engine.messages import messages
from smile.engine.spark.pipeline import Pipeline
from smile.engine.spark.standing import Standing
from smile.graph.build import build
from smile.graph.objects import Graph
from smile.kernels.compile import Kernels, compile_graph, shown
from smile.kernels.shown import Shown
from smile.knowledge.analysis import Analysis
from smile.log.durable import DurableLog
from smile.log.frame import Frame
from smile.log.position import Limit, Log

ONE = Limit(None, None, 1)
"""A commit is a batch."""

Told = list[str]


def graph_of(program: mmpl.Program) -> Graph:
    return build(program, Analysis(program))


def told(kernels: Kernels, views: Sequence[str], batch: Batch) -> Told:
    """What a batch changed, in an order that does not depend on partitions."""
    found: Told = []
    for view in views:
        source = kernels.inputs[view]
        if view in batch.changes:
            of = messages(view, source.type, source.layout, batch.changes[view], batch.horizons)
            found += [msgspec.json.encode(message).decode() for message in of]
    return sorted(found)


def locally(program: mmpl.Program, frames: Iterable[Frame]) -> tuple[list[Told], Told]:
    """What each frame tells, and all rows in the end."""
    kernels = compile_graph(graph_of(program), program.streams).keeping(program.subscriptions)
    engine = LocalEngine(kernels)
    found = [told(kernels, program.subscriptions, engine.advance(frame)) for frame in [Frame({}, {}), *frames]]
    rows = {}
    for view in program.subscriptions:
        kept = kernels.transforms[shown(view)]
        assert isinstance(kept, Shown)
        rows[view] = kept.rows(engine.remembered.states[shown(view)])
    return found, told(kernels, program.subscriptions, Batch(rows, engine.remembered.horizons))


def recorded(program: mmpl.Program, frames: Iterable[Frame], path: Path) -> DurableLog:
    log = DurableLog.at(str(path), program.streams, flush=False)
    for frame in frames:
        log.append_frame(frame)
    return log


def on_spark(
    spark: SparkSession, program: mmpl.Program, frames: Iterable[Frame], folder: Path, partitions: int
) -> tuple[list[Told], Told]:
    log = recorded(program, frames, folder / "log")
    return run(spark, program, log, folder / "state", partitions, ONE)


def run(
    spark: SparkSession, program: mmpl.Program, log: DurableLog, state: Path, partitions: int, limit: Limit
) -> tuple[list[Told], Told]:
    """To the end of the log, from wherever the state is."""
    found: list[Told] = []
    pipeline = pipeline_of(spark, program, log, state, partitions, limit, found)
    pipeline.start(available_now=True)
    while not pipeline.wait():
        pass
    return found, rows_of(pipeline, program.subscriptions)


def pipeline_of(
    spark: SparkSession,
    program: mmpl.Program,
    log: Log,
    state: Path,
    partitions: int,
    limit: Limit,
    found: list[Told],
    trouble: Callable[[str], None] = print,
) -> Pipeline:
    """From wherever the state is; what it delivers is put into `found`."""
    views = program.subscriptions
    standing = Standing(str(state))
    job = standing.job((Generation("0", program, views, views, views),), partitions, log, limit, trouble)
    kernels = job.plans["0"].kernels
    return Pipeline(spark, standing, job, lambda batch: found.append(told(kernels, views, batch)), trouble)


def rows_of(pipeline: Pipeline, views: Sequence[str]) -> Told:
    rows = Batch({view: pipeline.rows(view) for view in views}, pipeline.offset.horizons)
    return told(pipeline.job.plans["0"].kernels, views, rows)
