"""Reads a view: `spark.read` its rows, and `spark.readStream` its changes.

Only Spark's planning process, which runs on the driver's machine, talks to the broker. Tasks have the rows in their
partitions: a repeated task, and a second scan of the same DataFrame's plan, has the same rows.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from smile.client.connection import http_request
from smile.client.feed import SubscriptionFeed
from smile.client.synchronous import Client, connect
from smile.spark.change_queue import ChangeBatch, ChangeOffset, ChangeQueue
from smile.spark.options import SourceOptions, shown_errors
from smile.spark.view_schema import ROW, ChangeRow, ViewSchema

Json = dict[str, Any]

PARTITION_ROWS = 10_000
"""The rows of one task."""
POLL_S = 0.1
"""How long the planning process waits for changes before it reports that there are none."""


@dataclass
class RowsPartition(InputPartition):
    """Rows as an Arrow stream."""

    arrow: bytes


@dataclass
class SnapshotReader(DataSourceReader):
    """All rows of a view at one moment."""

    options: SourceOptions
    description: Json

    def partitions(self) -> Sequence[InputPartition]:
        with shown_errors(), _connect(self.options) as client:
            rows = client.snapshot(self.options.required_view, self.options.where, final=self.options.only_final)
            schema = view_schema(self.options, self.description)
            return _divide(schema, [ChangeRow(ROW, change) for change in rows], rows.progress)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition)


class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The changes of a view. An offset has the broker's resume token. The rows of a batch are in memory until Spark has
    committed it; after a restart, they are read again from the token of its start, up to its end or later: then a row
    may be newer than it was, and the next batch may have it again."""

    def __init__(self, options: SourceOptions, description: Json) -> None:
        self._options = options
        self._schema = view_schema(options, description)
        self._client: Client | None = None
        self._queue: ChangeQueue | None = None
        self._feed: SubscriptionFeed | None = None
        self._position: ChangeOffset | None = None
        """Where the subscription continues, as Spark knows it."""
        self._batches: list[ChangeBatch] = []
        """Those that Spark has not committed."""
        self._target: Mapping[str, int] | None = None
        """With the trigger `availableNow`: what the last batch has to include."""
        self._is_at_target = False

    def initialOffset(self) -> Json:  # noqa: N802  # Spark's name
        return ChangeOffset().to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with shown_errors():
            horizons = describe_view(self._options)["horizons"]
            self._target = {stream: int(tick) for stream, tick in horizons.items() if tick is not None}

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        offset = ChangeOffset.from_json(start)
        if self._is_at_target:
            return start
        with shown_errors():
            if self._target is None:
                batch = self._take_batch(offset, POLL_S)
            else:
                batch = self._read_up_to(offset, self._target)
                self._is_at_target = True
        if batch is None or not batch.rows():
            return start
        self._batches.append(batch)
        self._position = batch.end
        return batch.end.to_json()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        begin, last = ChangeOffset.from_json(start), ChangeOffset.from_json(end)
        if begin == last:
            return []
        with shown_errors():
            batch = next((b for b in self._batches if b.start == begin and b.end == last), None)
            if batch is None:
                batch = self._read_up_to(begin, last.horizons)
                self._position = last  # what follows the batch that was read continues after its end
            return _divide(self._schema, batch.rows(), batch.end.horizons)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition)

    def commit(self, end: Json) -> None:
        committed = ChangeOffset.from_json(end)
        ends = [batch.end for batch in self._batches]
        if committed in ends:
            self._batches = self._batches[ends.index(committed) + 1 :]

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def __getstate__(self) -> Json:
        """Tasks need only `read`."""
        return {}

    # ── the subscription ────────────────────────────────────────────────────────────────────────────────────────────

    def _take_batch(self, start: ChangeOffset, wait_s: float) -> ChangeBatch | None:
        if self._position != start:
            self._subscribe(start, {})
        batch = self._take(wait_s)
        # After a batch that was read again, Spark does not know the subscription's own position.
        return None if batch is None else replace(batch, start=start)

    def _read_up_to(self, start: ChangeOffset, horizons: Mapping[str, int]) -> ChangeBatch:
        """The first batch after an offset that includes these horizons. Waits for the view to reach them."""
        self._subscribe(start, {stream: tick for stream, tick in horizons.items() if tick >= 0})
        while (batch := self._take(POLL_S, may_be_empty=True)) is None:
            if self._feed is not None and self._feed.paused is not None:
                raise self._feed.paused
        return batch

    def _take(self, wait_s: float, may_be_empty: bool = False) -> ChangeBatch | None:
        assert self._client is not None and self._queue is not None and self._feed is not None
        return self._queue.take_batch(self._client.session, self._feed, wait_s, may_be_empty)

    def _subscribe(self, start: ChangeOffset, after: Mapping[str, int]) -> None:
        if self._client is None:
            self._client = _connect(self._options)
        session = self._client.session
        if self._feed is not None:
            session.unsubscribe(self._feed)
        self._queue = queue = ChangeQueue(start)
        view, where, only_final = self._options.required_view, self._options.where, self._options.only_final
        self._feed = session.subscribe(view, where, after, queue, resume=start.resume, only_final=only_final)
        self._feed.signal.add(queue.wake)
        self._position = start


def describe_view(options: SourceOptions) -> Json:
    path = f"/views/{quote(options.required_view, safe='')}/description"
    description: Json = json.loads(asyncio.run(http_request(options.address, "GET", path)))
    return description


def view_schema(options: SourceOptions, description: Json) -> ViewSchema:
    return ViewSchema.from_description(description, options.knowledge, options.times)


def read_partition(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, RowsPartition)
    with pa.ipc.open_stream(partition.arrow) as reader:
        yield from reader


def _divide(schema: ViewSchema, rows: Sequence[ChangeRow], horizons: Mapping[str, int]) -> list[RowsPartition]:
    """At least one partition: Spark asks a reader without partitions for rows all the same."""
    partitions = []
    for begin in range(0, max(1, len(rows)), PARTITION_ROWS):
        partitions.append(arrow_partition(schema.to_arrow(rows[begin : begin + PARTITION_ROWS], horizons)))
    return partitions


def arrow_partition(batch: pa.RecordBatch) -> RowsPartition:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return RowsPartition(out.getvalue().to_pybytes())


def _connect(options: SourceOptions) -> Client:
    return connect(options.address.url, options.address.token, options.address.ca)
