"""Publishes the rows of DataFrames to a stream: each micro-batch, and each named batch of `df.write`, once.

Tasks only collect their rows. When all have succeeded, the driver's process publishes them, with sequence numbers that
follow from the query and the batch: the last row of batch `b` has the last of its BATCH_NUMBERS numbers. So the broker
recognizes a repeated batch. One that fits in one publication is logged as a whole or not at all, and its first attempt
counts, whatever rows the repetition has. A larger one is exact if it has the same rows in the same order each time.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from smile import limits
from smile.client.connection import http_request, retry_delays
from smile.errors import SmileError, error
from smile.spark.options import SourceOptions, shown_errors

BATCH_NUMBERS = 2**32
"""The sequence numbers of one batch."""
BATCHES_MAX = 2**31 - 1
QUERY_PROPERTY = "sql.streaming.queryId"
"""The id of a streaming query in the properties of its tasks. It is that of the checkpoint: a restart does not change
it."""
_WRONG_NUMBER = "E096"
_TRANSIENT = ("E092", "E098", "E103")
"""The broker is overloaded, is being restarted, or cannot be reached."""

Post = Callable[[bytes, dict[str, str]], None]


@dataclass
class WrittenRows(WriterCommitMessage):
    """The rows of a task as an Arrow stream, and the query that the task belongs to."""

    arrow: bytes
    query: str | None


def collect_rows(batches: Iterator[pa.RecordBatch]) -> WrittenRows:
    out, rows = pa.BufferOutputStream(), list(batches)
    if rows:
        with pa.ipc.new_stream(out, rows[0].schema) as writer:
            for batch in rows:
                writer.write_batch(batch)
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_PROPERTY)
    return WrittenRows(out.getvalue().to_pybytes(), query)


@dataclass
class StreamWriter(DataSourceArrowWriter):
    """`df.write`. With the option `batch`, what was published under its name is not published again."""

    options: SourceOptions

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return collect_rows(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        producer = f"spark-batch-{self.options.batch or uuid4().hex}"
        with shown_errors():
            publish_rows(self.options, _rows_of(messages), producer, 0)


@dataclass
class MicroBatchWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`."""

    options: SourceOptions

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return collect_rows(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        queries = {m.query for m in messages if isinstance(m, WrittenRows)}
        with shown_errors():
            if not queries:
                return
            if None in queries or len(queries) > 1:
                raise error("E172", "Spark does not say which query a batch belongs to")
            publish_rows(self.options, _rows_of(messages), f"spark-query-{queries.pop()}", batchId)


def _rows_of(messages: Sequence[WriterCommitMessage | None]) -> pa.Table | None:
    """The rows of all tasks, in the order of partitions; None if there are none."""
    tables = []
    for message in messages:
        if isinstance(message, WrittenRows) and message.arrow:
            with pa.ipc.open_stream(message.arrow) as reader:
                tables.append(reader.read_all())
    table = pa.concat_tables(tables) if tables else None
    return table if table is not None and table.num_rows else None


def publish_rows(options: SourceOptions, rows: pa.Table | None, producer: str, batch: int) -> None:
    if rows is None:
        return
    if rows.num_rows > BATCH_NUMBERS or batch >= BATCHES_MAX:
        raise error("E172", f"batch {batch} has {rows.num_rows:,} rows: there are no sequence numbers for them")
    stream = options.required_stream
    description = json.loads(asyncio.run(http_request(options.address, "GET", f"/streams/{quote(stream, safe='')}")))
    if description["publisher_timed"]:
        tick = next(column["name"] for column in description["columns"] if column["role"] == "tick")
        # Ticks ascend in a stream, whatever partition a row was in.
        rows = rows.sort_by(tick) if tick in rows.column_names else rows
    path = f"/streams/{quote(stream, safe='')}/events"

    def post(body: bytes, headers: dict[str, str]) -> None:
        asyncio.run(http_request(options.address, "POST", path, body, headers))

    first_number = (batch + 1) * BATCH_NUMBERS - rows.num_rows
    publish_parts(divide_rows(rows, options.message_bytes_max), producer, first_number, post)


@dataclass(frozen=True)
class RowsPart:
    """Rows that are one publication. `first` is the index of the first one in its batch."""

    first: int
    body: bytes


def divide_rows(rows: pa.Table, bytes_max: int) -> list[RowsPart]:
    """As few parts as possible, within the limits of a publication."""
    body = _arrow_stream(rows)
    if rows.num_rows <= limits.publication_events_max and len(body) <= bytes_max:
        return [RowsPart(0, body)]
    if rows.num_rows == 1:
        hint = "Raise the setting message_bytes_max of the broker, and the option of this name."
        raise error("E092", f"a row takes {len(body):,} bytes; {bytes_max:,} are allowed", hint=hint)
    half = rows.num_rows // 2
    later = [RowsPart(half + part.first, part.body) for part in divide_rows(rows.slice(half), bytes_max)]
    return [*divide_rows(rows.slice(0, half), bytes_max), *later]


def publish_parts(parts: Sequence[RowsPart], producer: str, first_number: int, post: Post) -> None:
    for part in parts:
        headers = {
            "Content-Type": "application/vnd.apache.arrow.stream",
            "Smile-Producer": producer,
            "Smile-Sequence": str(first_number + part.first),
        }
        try:
            _post_with_retries(post, part.body, headers)
        except SmileError as problem:
            if problem.code != _WRONG_NUMBER:
                raise
            if len(parts) > 1:
                hint = (
                    "Make the order of its rows the same each time (sort within partitions), or its batches smaller: "
                    "one that fits in one publication is published as a whole."
                )
                reason = problem.diagnostics[0].message
                message = f"the batch was published before, at least in part, and now has other rows: {reason}"
                raise error("E172", message, hint=hint) from None
            # The number was used, so the whole batch was published before, with other rows or in another order.


def _post_with_retries(post: Post, body: bytes, headers: dict[str, str]) -> None:
    deadline = time.monotonic() + limits.spark_publish_s_max
    for delay_s in retry_delays():
        try:
            post(body, headers)
            return
        except SmileError as problem:
            if problem.code not in _TRANSIENT or time.monotonic() > deadline:
                raise
        time.sleep(delay_s)


def _arrow_stream(rows: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    return bytes(out.getvalue().to_pybytes())
