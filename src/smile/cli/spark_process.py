"""Starts Spark for a command that runs one pipeline or several, and then ends.

However the command ends, Java and its workers are stopped.
"""

import logging
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType

from pyspark.sql import SparkSession

from smile.engine.spark.session import SPARK_ERRORS, JavaProcess


@contextmanager
def start_spark(master: str, verbose: bool, folder: Path) -> Iterator["Future[SparkSession]"]:
    """Starts Spark in another thread, and stops it at the end. Its output goes to a file in the folder, or with
    `verbose` to standard error."""
    java = JavaProcess(master, None if verbose else folder / "spark.log")
    with ThreadPoolExecutor(1) as pool, _discard_logs() if not verbose else nullcontext():
        try:
            yield pool.submit(java.session, "smile")
        except SPARK_ERRORS as problem:
            raise java.explain_failure(problem) or problem from None
        finally:
            with _ignore_signals():
                java.stop()


@contextmanager
def _discard_logs() -> Iterator[None]:
    """PySpark also logs what it raises: to standard error, unless there is a handler."""
    null_handler = logging.NullHandler()
    logging.getLogger().addHandler(null_handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(null_handler)


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """SIGTERM raises SystemExit, so that everything is cleaned up."""
    if current_thread() is not main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    old_handler = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old_handler)


@contextmanager
def _ignore_signals() -> Iterator[None]:
    """Ignores signals during the short cleanup, so that a second Ctrl-C leaves nothing behind."""
    if current_thread() is not main_thread():
        yield
        return
    old_handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
