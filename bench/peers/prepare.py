"""The recorded events as peers read them best: one table of all three streams in the order of their ticks.

It has `kind` (0 a buy, 1 a sell, 2 a match), `issue`, `price`, `buyid`, `sellid` and `shares`. A bid's own tick is its
`buyid` or `sellid`; what an event does not have is 0, or an empty string. So no peer has to tell NULLs from values.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from bench.by_hand import TradeFloorByHand
from bench.peers.course import BUY, MATCH, SELL, canonical
from bench.workload import frames_of
from smile.log.frame import Frame

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


def prepare(blocks: Sequence[pa.RecordBatch], folder: Path, batch: int) -> None:
    """Writes `plain/events.csv`, `headed/events.csv` with a line of names, and `parquet/*.parquet`, `batch` events to
    a file."""
    tables = list(_tables(frames_of(blocks, batch)))
    for name, header in (("plain", False), ("headed", True)):
        path = folder / name / "events.csv"
        path.parent.mkdir(parents=True)
        options = pcsv.WriteOptions(include_header=header, quoting_style="none")
        pcsv.write_csv(pa.concat_tables(tables), path, options)
    (folder / "parquet").mkdir()
    for n, table in enumerate(tables):
        path = folder / "parquet" / f"{n:06}.parquet"
        pq.write_table(table, path)
        os.utime(path, (n, n))  # Spark takes files in the order of their times, and these may be written in one moment


def truth(blocks: Sequence[pa.RecordBatch]) -> list[str]:
    """Matchable once all these events have happened, in its canonical form."""
    floor = TradeFloorByHand()
    for frame in frames_of(blocks, 10_000):
        for line in floor.lines(frame):
            floor.take(*line)
    return canonical(rows_of(floor))


def rows_of(floor: TradeFloorByHand) -> Iterator[tuple[str, int, int, int, int, int]]:
    for (buy, sell), (buy_remaining, sell_remaining) in floor.matchable.items():
        issue, price, _ = floor.buys[buy]
        yield issue, price, buy, buy_remaining, sell, sell_remaining


def _tables(frames: Iterable[Frame]) -> Iterator[pa.Table]:
    for frame in frames:
        parts = [_rows(stream, batch) for stream, batch in frame.events.items()]
        yield pa.concat_tables(parts).sort_by("tick").drop_columns("tick")


def _rows(stream: str, batch: pa.RecordBatch) -> pa.Table:
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
