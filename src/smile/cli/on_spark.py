"""`smile replay` on Spark: the events go into a log, a pipeline reads it, and what it tells is written as it comes.

However it ends, Java is gone then, and its workers, and every folder that was made for the while.
"""

import logging
import signal
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType

from pyspark.sql import SparkSession

from smile import limits
from smile.cli.recording import Recording
from smile.cli.replay import Figures, OnSpark, Replay, say, write, write_rows
from smile.engine.generation import Generation
from smile.engine.local import Batch
from smile.engine.spark.pipeline import Pipeline
from smile.engine.spark.session import TROUBLE, Java
from smile.engine.spark.standing import Standing
from smile.errors import SmileError, error
from smile.log.durable import DurableLog
from smile.log.frame import Frame
from smile.log.position import Limit
from smile.program import Compiled

Begin = Callable[[], Pipeline]


def on_spark(compiled: Compiled, asked: Replay, where: OnSpark, recorded: Recording, figures: Figures) -> None:
    with _ended_by_signals(), _temporary() as folder, _starting(where, folder) as spark:
        log = recorded.log or DurableLog.at(f"{folder}/log", compiled.rewritten.streams, flush=False)
        limit = _limit(asked.batch, recorded)
        views = tuple(asked.views)
        only = Generation("0", compiled.rewritten, views, views, () if asked.changes else views)
        # While Spark starts: what is wrong with the state is said soon.
        standing = Standing(asked.state or f"{folder}/state")
        job = standing.job((only,), where.partitions, log, limit, say)
        kernels = job.plans["0"].kernels

        def deliver(batch: Batch) -> None:
            write(asked, kernels, batch, figures)

        def begin() -> Pipeline:
            return Pipeline(spark.result(), standing, job, deliver, say)

        if isinstance(log, DurableLog) and recorded.log is None:
            # Of what comes before a line that is refused, only changes and state would be seen.
            pipeline = _fed(spark, begin, log, recorded, until_refused=asked.changes or asked.state is not None)
        else:
            pipeline = begin()
            pipeline.start(available_now=True)
            while not pipeline.wait():
                pass
            pipeline.stop()
        if not asked.changes:
            for view in asked.views:
                write_rows(kernels, view, pipeline.rows(view), pipeline.offset.horizons)
        figures.state_bytes = pipeline.figures.state_bytes


def _limit(batch: int | None, recorded: Recording) -> Limit:
    """Lines are put into the log so many to a commit as are to be a batch."""
    if batch is not None and recorded.log is None:
        return Limit(commits=1)
    return Limit(batch or limits.spark_batch_rows_max, limits.spark_batch_bytes_max)


def _fed(
    spark: "Future[SparkSession]", begin: Begin, log: DurableLog, recorded: Recording, until_refused: bool
) -> Pipeline:
    """Events are read while Spark starts, and then while it works. With `until_refused`, what comes before a line that
    is refused is taken in all the same."""
    pipeline: Pipeline | None = None
    refused: SmileError | None = None
    for frame in _frames(recorded):
        if isinstance(frame, SmileError):
            if not until_refused:
                raise frame
            refused = frame
            break
        log.append_frame(frame)
        if pipeline is None and spark.done():
            pipeline = begin()
            pipeline.start()
        if pipeline is not None:
            pipeline.look()
    if pipeline is None:
        pipeline = begin()
        pipeline.start()
    pipeline.finish()
    pipeline.stop()
    if refused is not None:
        raise refused
    return pipeline


def _frames(recorded: Recording) -> Iterator[Frame | SmileError]:
    """The last may be the reason why a line is refused."""
    try:
        yield from recorded.frames()
    except SmileError as problem:
        yield problem


@contextmanager
def _starting(where: OnSpark, folder: Path) -> Iterator["Future[SparkSession]"]:
    """Spark, as soon as it is there; it goes with whoever asked for it."""
    java = Java(where.master, None if where.verbose else folder / "spark.log")
    with ThreadPoolExecutor(1) as pool, _quiet() if not where.verbose else nullcontext():
        try:
            yield pool.submit(java.session, "smile")
        except TROUBLE as problem:
            raise java.told(problem) or problem from None
        finally:
            with _undisturbed():
                java.end()


@contextmanager
def _quiet() -> Iterator[None]:
    """What PySpark raises it also logs, to standard error unless there is another place."""
    nowhere = logging.NullHandler()
    logging.getLogger().addHandler(nowhere)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(nowhere)


@contextmanager
def _temporary() -> Iterator[Path]:
    """A folder in which all others are made meanwhile."""
    before = tempfile.tempdir
    try:
        made = tempfile.TemporaryDirectory(prefix="smile-")
    except OSError as problem:
        raise error("E063", f"no temporary folder can be made: {problem}", hint="TMPDIR says where.") from None
    with made as folder:
        tempfile.tempdir = folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = before


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Whoever asks this process to end has it end in order."""
    if current_thread() is not main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """An impatient user must not make us leave things behind; what is done takes a moment only."""
    if current_thread() is not main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
