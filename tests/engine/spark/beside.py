"""A pipeline on Spark beside the in-process engine: the same frames, and every batch tells the same."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from smile.algebra import mmpl
from smile.analysis.type_analysis import TypeAnalysis
from smile.encoding.json_changes import json_changes
from smile.engine.generation import Generation
from smile.engine.local import BatchResult, LocalEngine
from smile.engine.spark.pipeline import SparkPipeline
from smile.engine.spark.pipeline_directory import PipelineDirectory
from smile.graph.build import build_graph
from smile.graph.knowledge_graph import KnowledgeGraph
from smile.kernels.compile import Kernels, compile_graph, materialized_name
from smile.kernels.materialized_view import MaterializedView
from smile.log.input_batch import InputBatch
from smile.log.position import BatchLimit, Log
from smile.log.storage.durable import DurableLog

ONE = BatchLimit(None, None, 1)
"""A commit is a batch."""

Told = list[str]


def graph_of(program: mmpl.Program) -> KnowledgeGraph:
    return build_graph(program, TypeAnalysis(program))


def told(kernels: Kernels, views: Sequence[str], batch: BatchResult) -> Told:
    """What a batch changed, in an order that does not depend on partitions."""
    found: Told = []
    for view in views:
        source = kernels.inputs[view]
        if view in batch.deltas:
            of = json_changes(source, batch.deltas[view], batch.horizons)
            found += [msgspec.json.encode(message).decode() for message in of]
    return sorted(found)


def locally(program: mmpl.Program, frames: Iterable[InputBatch]) -> tuple[list[Told], Told]:
    """What each frame tells, and all rows in the end."""
    kernels = compile_graph(graph_of(program), program.streams).with_materialized_views(program.subscriptions)
    engine = LocalEngine(kernels)
    found = [told(kernels, program.subscriptions, engine.advance(frame)) for frame in [InputBatch({}, {}), *frames]]
    rows = {}
    for view in program.subscriptions:
        kept = kernels.transforms[materialized_name(view)]
        assert isinstance(kept, MaterializedView)
        rows[view] = kept.read_rows(engine.state.states[materialized_name(view)])
    return found, told(kernels, program.subscriptions, BatchResult(rows, engine.state.horizons))


def recorded(program: mmpl.Program, frames: Iterable[InputBatch], path: Path) -> DurableLog:
    log = DurableLog.open_or_create(str(path), program.streams, flush=False)
    for frame in frames:
        log.append_batch(frame)
    return log


def on_spark(
    spark: SparkSession, program: mmpl.Program, frames: Iterable[InputBatch], folder: Path, partitions: int
) -> tuple[list[Told], Told]:
    log = recorded(program, frames, folder / "log")
    return run(spark, program, log, folder / "state", partitions, ONE)


def run(
    spark: SparkSession, program: mmpl.Program, log: DurableLog, state: Path, partitions: int, limit: BatchLimit
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
    limit: BatchLimit,
    found: list[Told],
    trouble: Callable[[str], None] = print,
) -> SparkPipeline:
    """From wherever the state is; what it delivers is put into `found`."""
    views = program.subscriptions
    standing = PipelineDirectory(str(state))
    job = standing.open_job((Generation("0", program, views, views, views),), partitions, log, limit, trouble)
    kernels = job.plans["0"].kernels
    return SparkPipeline(spark, standing, job, lambda batch: found.append(told(kernels, views, batch)), trouble)


def rows_of(pipeline: SparkPipeline, views: Sequence[str]) -> Told:
    rows = BatchResult({view: pipeline.snapshot(view) for view in views}, pipeline.offset.horizons)
    return told(pipeline.job.plans["0"].kernels, views, rows)
