"""Writes the recorded events in the form that is fastest for peers: one table of all three streams, ordered by tick.

Its columns are `kind` (0 buy, 1 sell, 2 match), `issue`, `price`, `buyid`, `sellid` and `shares`. The tick of a bid is
its `buyid` or `sellid`. Values that an event does not have are 0 or an empty string, so peers need not handle NULLs.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from bench.by_hand import TradeFloorByHand
from bench.peers.protocol import BUY, MATCH, SELL, canonical_lines
from bench.workload import input_batches
from smile.log.input_batch import InputBatch

SCHEMA = pa.schema(
    [
        ("kind", pa.int8()),
        ("issue", pa.string()),
        ("price", pa.int64()),
        ("buyid", pa.int64()),
        ("sellid", pa.int64()),
        ("shares", pa.int64()),
    ]
)


def write_event_files(blocks: Sequence[pa.RecordBatch], folder: Path, batch: int) -> None:
    """Writes `plain/events.csv`, `headed/events.csv` with a header line, and `parquet/*.parquet` with `batch` events a
    file."""
    tables = list(_event_tables(input_batches(blocks, batch)))
    for name, header in (("plain", False), ("headed", True)):
        path = folder / name / "events.csv"
        path.parent.mkdir(parents=True)
        options = pcsv.WriteOptions(include_header=header, quoting_style="none")
        pcsv.write_csv(pa.concat_tables(tables), path, options)
    (folder / "parquet").mkdir()
    for n, table in enumerate(tables):
        path = folder / "parquet" / f"{n:06}.parquet"
        pq.write_table(table, path)
        os.utime(path, (n, n))  # Spark reads files in order of modification, and these may have the same time


def expected_matchable(blocks: Sequence[pa.RecordBatch]) -> list[str]:
    """The canonical lines of Matchable after all these events."""
    floor = TradeFloorByHand()
    for input_batch in input_batches(blocks, 10_000):
        for event in floor.ordered_events(input_batch):
            floor.apply_event(*event)
    return canonical_lines(matchable_rows(floor))


def matchable_rows(floor: TradeFloorByHand) -> Iterator[tuple[str, int, int, int, int, int]]:
    for (buy, sell), (buy_remaining, sell_remaining) in floor.matchable.items():
        issue, price, _ = floor.buys[buy]
        yield issue, price, buy, buy_remaining, sell, sell_remaining


def _event_tables(batches: Iterable[InputBatch]) -> Iterator[pa.Table]:
    for input_batch in batches:
        parts = [_event_rows(stream, batch) for stream, batch in input_batch.events.items()]
        yield pa.concat_tables(parts).sort_by("tick").drop_columns("tick")


def _event_rows(stream: str, batch: pa.RecordBatch) -> pa.Table:
    tick, one, other, shares = batch.columns
    zeros = pa.repeat(0, len(tick))
    if stream == "Matches":
        kind, issue, price, buy, sell = MATCH, pa.repeat("", len(tick)), zeros, one, other
    elif stream == "BuyBids":
        kind, issue, price, buy, sell = BUY, one, other, tick, zeros
    else:
        kind, issue, price, buy, sell = SELL, one, other, zeros, tick
    columns = [pa.repeat(pa.scalar(kind, pa.int8()), len(tick)), issue, price, buy, sell, shares]
    return pa.table(columns, schema=SCHEMA).append_column("tick", tick)
