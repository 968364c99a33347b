"""Spark's session, with the settings that a pipeline of small batches needs."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from smile.engine.spark.figures import Listener
from smile.engine.spark.source import SmileSource
from smile.java import java_home

LOCAL = "local"

SETTINGS = {
    # State is named by partition: none may be split or joined.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    # What a batch waits for.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "smile.engine.spark.daemon",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # No checksums, and no process started to set permissions.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.locality.wait": "0s",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
}
LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.host": "127.0.0.1",
}


def session(master: str, name: str, log: Path | None) -> SparkSession:
    """The session of this process; there is one. What Java and the workers say goes to `log`, or to standard error."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    is_local = master.startswith(LOCAL)
    builder = SparkSession.builder.master(_retrying(master) if is_local else master).appName(name)
    for key, value in {**SETTINGS, **(LOCAL_SETTINGS if is_local else {})}.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    with _said_to(log):
        found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR" if log is not None else "WARN")
    found.dataSource.register(SmileSource)
    return found


_listeners: dict[SparkSession, Listener] = {}


def listener(spark: SparkSession) -> Listener:
    """Of a session; it has one."""
    if spark not in _listeners:
        _listeners[spark] = Listener()
        spark.streams.addListener(_listeners[spark])
    return _listeners[spark]


def _retrying(master: str) -> str:
    """A task that fails is tried again, as on a cluster: `local[2]` becomes `local[2,4]`."""
    cores = master.removeprefix(LOCAL).strip("[]") or "1"
    return master if "," in cores else f"local[{cores},4]"


@contextmanager
def _said_to(log: Path | None) -> Iterator[None]:
    """Java takes over the standard error that it finds when it is started."""
    if log is None:
        yield
        return
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
