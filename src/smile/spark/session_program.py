"""Runs a program in the user's own Spark session, over the session's streaming DataFrames.

A broker in the driver's process has the log, the state and the views, in the checkpoint folder. Each DataFrame is
published to its stream by a query of its own, and the views are computed by a pipeline in the same session. So recovery
is that of every broker, and every row is logged once, by its query and batch.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from smile.engine.spark.user_session import UserSession
from smile.errors import SmileError, did_you_mean, error
from smile.program import compile_program, read_program
from smile.settings import SETTINGS, Settings
from smile.source import Source
from smile.spark.data_source import FORMAT, SmileDataSource
from smile.spark.embedded_broker import EmbeddedBroker

MESSAGE_BYTES_MAX = 2**26
"""The largest publication of an input: a micro-batch is published as a whole if it fits."""
POLL_S = 0.05
CONNECT_MODULES = "pyspark.sql.connect"
"""The sessions of Spark Connect. They cannot be imported without packages that nothing else needs."""


class SessionProgram:
    """Created by `run`. `url` is the broker's: a console is there, and any client can use it."""

    def __init__(self, spark: SparkSession, embedded: EmbeddedBroker, checkpoint: Path) -> None:
        self._spark, self._embedded, self._checkpoint = spark, embedded, checkpoint
        self._queries: dict[str, StreamingQuery] = {}
        self._target: Mapping[str, int] | None = None
        """The horizons of the log when all inputs had ended. The log goes on with silence."""
        self.url = embedded.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<SessionProgram {', '.join(self.views)} at {self.url}>"

    @property
    def views(self) -> list[str]:
        return list(self._embedded.broker.views)

    @property
    def inputs(self) -> Mapping[str, StreamingQuery]:
        """The queries that publish the DataFrames, by stream."""
        return MappingProxyType(self._queries)

    def view(self, name: str, **options: str) -> DataFrame:
        """The rows of a view as they are now. The options are those of the data source."""
        return self._spark.read.format(FORMAT).options(url=self.url, view=name, **options).load()

    def changes(self, name: str, **options: str) -> DataFrame:
        """The rows of a view, and then every change, as a streaming DataFrame. Offsets of a checkpoint stay valid when
        the program is run again on its own checkpoint."""
        return self._spark.readStream.format(FORMAT).options(url=self.url, view=name, **options).load()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until all inputs have ended and the views include everything that they have published, but no longer
        than the timeout in seconds. Returns whether that is so. Raises the error of an input, or of the views."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            is_at_end = self._is_at_end()
            if is_at_end or (deadline is not None and time.monotonic() >= deadline):
                return is_at_end
            time.sleep(POLL_S)

    def _is_at_end(self) -> bool:
        broker = self._embedded.broker
        if broker.failure is not None:
            raise broker.failure
        is_active = False
        for stream, query in self._queries.items():
            if query.isActive:
                is_active = True
            elif (failure := query.exception()) is not None:
                raise input_error(stream, failure)
        for view in broker.views.values():
            if view.pause is not None:
                raise error("E109", f"the view {view.name} is paused: {view.pause.message}")
        if is_active:
            return False
        target = self._target = self._target or broker.log.newest().named_horizons()
        return all(view.is_reached(target) for view in broker.views.values())

    def stop(self) -> None:
        """Stops the inputs, then the views. `run` with the same checkpoint continues."""
        for query in self._queries.values():
            query.stop()
        self._embedded.stop()

    def start_input(self, stream: str, frame: DataFrame, available_now: bool) -> None:
        writer = frame.writeStream.format(FORMAT).queryName(f"{stream} ({self._embedded.broker.settings.name})")
        writer = writer.options(url=self.url, stream=stream, message_bytes_max=str(MESSAGE_BYTES_MAX))
        writer = writer.option("checkpointLocation", (self._checkpoint / "inputs" / stream).as_uri())
        self._queries[stream] = (writer.trigger(availableNow=True) if available_now else writer).start()


def run(
    spark: SparkSession,
    program: str | Path,
    inputs: Mapping[str, DataFrame],
    checkpoint: str | Path,
    available_now: bool = False,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> SessionProgram:
    """Starts a program over streaming DataFrames, one for each of its streams that has an input. `program` is the name
    of a file, or a text with semicolons. `checkpoint` is a folder on the driver's machine, where the same program
    continues when it is run again. With `available_now`, each input ends when it has published what there is.
    `settings` are those of a broker, such as `partitions`."""
    if type(spark).__module__.startswith(CONNECT_MODULES):
        hint = "Run a broker (`smile serve`), and use the data source: it works over Spark Connect."
        raise error("E173", "a program needs a session in its own process, not one over Spark Connect", hint=hint)
    folder = checkpoint_folder(checkpoint)
    source = (
        Source("program.smile", program) if isinstance(program, str) and ";" in program else read_program(str(program))
    )
    check_inputs(source, inputs)
    spark.dataSource.register(SmileDataSource)
    broker_settings = settings_of(spark, folder, settings)
    embedded = EmbeddedBroker(source, broker_settings, UserSession(spark))
    running = SessionProgram(spark, embedded, folder)
    try:
        for stream, frame in inputs.items():
            frame.sparkSession.dataSource.register(SmileDataSource)
            running.start_input(stream, frame, available_now)
    except BaseException:
        running.stop()
        raise
    return running


def settings_of(spark: SparkSession, folder: Path, given: Mapping[str, Any]) -> Settings:
    """Those of a broker on loopback, with what was given."""
    chosen: dict[str, Any] = {
        "name": "program",
        "listen": "127.0.0.1:0",
        "flight": "",
        "message_bytes_max": MESSAGE_BYTES_MAX,
        **given,
        "data": str(folder),
        "engine": "spark",
        "master": spark.sparkContext.master,
    }
    for name in given:
        if name not in SETTINGS:
            raise error("E100", f"there is no setting {name}", hint=did_you_mean(name, SETTINGS))
    return Settings(**chosen)


def checkpoint_folder(checkpoint: str | Path) -> Path:
    text = str(checkpoint).removeprefix("file://")
    if "://" in text:
        hint = "Name a folder on the driver's machine; on a cluster, one that the workers reach by the same path."
        raise error("E173", f"a checkpoint cannot be at {text}: the log is a local file", hint=hint)
    return Path(text).absolute()


def check_inputs(source: Source, inputs: Mapping[str, DataFrame]) -> None:
    streams = {stream.name: stream for stream in compile_program(source).rewritten.streams}
    for name, frame in inputs.items():
        if name not in streams:
            hint = did_you_mean(name, streams) or f"It has {', '.join(streams)}."
            raise error("E174", f"the program has no stream {name}", hint=hint)
        if not frame.isStreaming:
            hint = 'Read it with spark.readStream, or publish it to the running program: .write.format("smile").'
            raise error("E174", f"the input of {name} is not a streaming DataFrame", hint=hint)


def input_error(stream: str, failure: StreamingQueryException) -> SmileError:
    lines = [line.strip() for line in str(failure).splitlines()]
    reasons = [line.partition("DataSourceError: ")[2] for line in lines if "DataSourceError: " in line]
    reason = reasons[-1] if reasons else lines[0]
    return error("E174", f"the input of {stream} has ended: {reason}")
