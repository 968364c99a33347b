"""Compares a pipeline on Spark with the local engine: the same batches give the same messages."""

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
from smile.log.storage.reading import read_batches

COMMIT_PER_BATCH = BatchLimit(None, None, 1)
"""A commit is a batch."""

BatchMessages = list[str]


def graph_of(program: mmpl.Program) -> KnowledgeGraph:
    return build_graph(program, TypeAnalysis(program))


def batch_messages(kernels: Kernels, views: Sequence[str], batch: BatchResult) -> BatchMessages:
    """What a batch changed, in an order that does not depend on partitions."""
    messages: BatchMessages = []
    for view in views:
        source = kernels.inputs[view]
        if view in batch.deltas:
            of = json_changes(source, batch.deltas[view], batch.horizons)
            messages += [msgspec.json.encode(message).decode() for message in of]
    return sorted(messages)


def run_locally(program: mmpl.Program, frames: Iterable[InputBatch]) -> tuple[list[BatchMessages], BatchMessages]:
    """The messages of each batch, and all rows at the end."""
    kernels = compile_graph(graph_of(program), program.log_streams).with_materialized_views(program.subscriptions)
    engine = LocalEngine(kernels)
    outputs = [
        batch_messages(kernels, program.subscriptions, engine.advance(frame)) for frame in [InputBatch({}, {}), *frames]
    ]
    rows = {}
    for view in program.subscriptions:
        materialized = kernels.transforms[materialized_name(view)]
        assert isinstance(materialized, MaterializedView)
        rows[view] = materialized.read_rows(engine.state.states[materialized_name(view)])
    return outputs, batch_messages(kernels, program.subscriptions, BatchResult(rows, engine.state.horizons))


def recorded(program: mmpl.Program, frames: Iterable[InputBatch], path: Path) -> DurableLog:
    log = DurableLog.open_or_create(str(path), program.log_streams, flush=False)
    for frame in frames:
        log.append_batch(frame)
    return log


def on_spark(
    spark: SparkSession, program: mmpl.Program, frames: Iterable[InputBatch], folder: Path, partitions: int
) -> tuple[list[BatchMessages], BatchMessages]:
    log = recorded(program, frames, folder / "log")
    return run(spark, program, log, folder / "state", partitions, COMMIT_PER_BATCH)


def run(
    spark: SparkSession, program: mmpl.Program, log: DurableLog, state: Path, partitions: int, limit: BatchLimit
) -> tuple[list[BatchMessages], BatchMessages]:
    """To the end of the log, from wherever the state is."""
    outputs: list[BatchMessages] = []
    pipeline = make_pipeline(spark, program, log, state, partitions, limit, outputs)
    pipeline.start(available_now=True)
    while not pipeline.wait():
        pass
    return outputs, rows_of(pipeline, program.subscriptions)


def compare_logged_imports(
    spark: SparkSession, program: mmpl.Program, log_path: Path, state: Path, partitions: int
) -> bool:
    """Asserts that a log with imported changes gives the same on Spark as in this process. Returns whether it has any."""
    log = DurableLog(str(log_path), program.log_streams)
    batches = list(read_batches(log, COMMIT_PER_BATCH))
    has_changes = any(name.endswith("//changes") for batch in batches for name in batch.events)
    if has_changes:
        expected_outputs, expected_rows = run_locally(program, batches)
        outputs, rows = run(spark, program, log, state, partitions, COMMIT_PER_BATCH)
        assert rows == expected_rows
        assert [output for output in outputs if output] == [output for output in expected_outputs if output]
    log.close()
    return has_changes


def make_pipeline(
    spark: SparkSession,
    program: mmpl.Program,
    log: Log,
    state: Path,
    partitions: int,
    limit: BatchLimit,
    outputs: list[BatchMessages],
    trouble: Callable[[str], None] = print,
) -> SparkPipeline:
    """From wherever the state is; what it delivers is put into `outputs`."""
    views = program.subscriptions
    directory = PipelineDirectory(str(state))
    job = directory.open_job((Generation("0", program, views, views, views),), partitions, log, limit, trouble)
    kernels = job.plans["0"].kernels
    return SparkPipeline(
        spark, directory, job, lambda batch: outputs.append(batch_messages(kernels, views, batch)), trouble
    )


def rows_of(pipeline: SparkPipeline, views: Sequence[str]) -> BatchMessages:
    rows = BatchResult({view: pipeline.snapshot(view) for view in views}, pipeline.offset.horizons)
    return batch_messages(pipeline.job.plans["0"].kernels, views, rows)
