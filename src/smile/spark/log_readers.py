"""Reads a stream: `spark.read` the events that the log still has, and `spark.readStream` those and all later ones.

The planning process reads the log over Arrow Flight, as the pipeline does on a cluster. An offset is a position in the
log, with a tick for each origin: the events between two of them are always the same, so each is in one batch.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructField, StructType

from smile.algebra.parser import parse_program
from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.client.connection import http_request
from smile.client.values import ViewColumn
from smile.log.position import BatchLimit, Position
from smile.log.storage.remote import RemoteLog
from smile.source import Source
from smile.spark.options import SourceOptions, shown_errors
from smile.spark.view_readers import POLL_S, RowsPartition, arrow_partition, read_partition
from smile.spark.view_schema import spark_type

Json = dict[str, Any]

BATCH_ROWS = 100_000
"""The events of one task, and of one batch."""


@dataclass
class StreamLog:
    """A stream in the log of a broker."""

    options: SourceOptions
    description: Json
    """What the broker answers about the stream."""

    def __post_init__(self) -> None:
        (stream,) = parse_program(Source("stream.mmpl", self.description["mmpl"])).streams
        self.name = stream.name
        self.columns = [ViewColumn.from_type(c["name"], c["type"]) for c in self.description["columns"]]
        address = self.options.address
        authority = None if address.ca is None else Path(address.ca).read_bytes()
        self.log = RemoteLog(self.options.flight_location, [stream], address.token or "", authority)

    @staticmethod
    def open(options: SourceOptions) -> "StreamLog":
        path = f"/streams/{quote(options.required_stream, safe='')}?newest=0"
        return StreamLog(options, json.loads(asyncio.run(http_request(options.address, "GET", path))))

    def spark_schema(self) -> StructType:
        return StructType([StructField(c.name, spark_type(c, self.options.times)) for c in self.columns])

    def end_of_batch(self, start: Position, last: Position | None) -> Position:
        return self.log.after(start, BatchLimit(rows=BATCH_ROWS, last=last))

    def read(self, start: Position, end: Position) -> pa.RecordBatch:
        events = self.log.read(self.name, start, end)
        arrays = [self._array(events.column(column.name), column) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, [column.name for column in self.columns])

    def _array(self, values: pa.Array, column: ViewColumn) -> pa.Array:
        if column.kind == "time" and self.options.times:
            values = pc.divide(values, TICKS_PER_MICROSECOND)
        elif column.kind == "date":
            values = values.cast(pa.int32())  # days since 1970
        return values.cast(column.arrow_type(self.options.times))


@dataclass
class LogReader(DataSourceReader):
    """All events that the log has at one moment."""

    stream: StreamLog

    def partitions(self) -> Sequence[InputPartition]:
        with shown_errors():
            start, newest = self.stream.log.start(), self.stream.log.newest()
            partitions = list[RowsPartition]()
            while (end := self.stream.end_of_batch(start, newest)) != start:
                partitions.append(arrow_partition(self.stream.read(start, end)))
                start = end
            return partitions or [arrow_partition(self.stream.read(start, start))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition)

    def __getstate__(self) -> Json:
        """Tasks need only `read`."""
        return {}


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Events as they are logged."""

    def __init__(self, stream: StreamLog) -> None:
        self._stream = stream
        self._target: Position | None = None
        """With the trigger `availableNow`: where the log ended."""
        self._empty: tuple[Position, Position] | None = None
        """Positions between which there are no events: only horizons have advanced."""
        self._read: tuple[Position, Position, pa.RecordBatch] | None = None
        """The batch that was read last."""

    def initialOffset(self) -> Json:  # noqa: N802  # Spark's name
        with shown_errors():
            return self._stream.log.start().to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with shown_errors():
            self._target = self._stream.log.newest()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        begin = Position.from_json(start)
        with shown_errors():
            while True:
                position = self._empty[1] if self._empty is not None and self._empty[0] == begin else begin
                end = self._stream.end_of_batch(position, self._target)
                if end == position:
                    time.sleep(POLL_S)
                    return start
                events = self._stream.read(position, end)
                if events.num_rows:
                    self._read = begin, end, events
                    return end.to_json()
                self._empty = begin, end

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        begin, last = Position.from_json(start), Position.from_json(end)
        if self._read is not None and self._read[:2] == (begin, last):
            return [arrow_partition(self._read[2])]
        with shown_errors():
            return [arrow_partition(self._stream.read(begin, last))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition)

    def stop(self) -> None:
        self._stream.log.close()

    def __getstate__(self) -> Json:
        """Tasks need only `read`."""
        return {}
