"""Benchmarks of single operators: programs of one view, and their events. Fewer events are a prefix of more events."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.workload import first_rows, rebatch, stream_schemas
from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.log.input_batch import InputBatch
from smile.source import Source

KEYS = 100_000
NAMES = 100
VALUES = 10_000
EVENTS_PER_KEY = 2
"""Events with the same key in each stream of the join: four pairs a key, so as many pairs as events."""

_BLOCK = 100_000
_TICK_GAP_US_MAX = 1_999
"""The mean is a thousand: a million events cover a thousand seconds."""

_NAMES = pa.array([f"sensor-{n:02}" for n in range(NAMES)])

READINGS = "CREATE STREAM Readings (t: time -> k: int, v: int, s: string);\n"
ORDERS_AND_OFFERS = """\
CREATE STREAM Orders (o: time -> item: int, amount: int);
CREATE STREAM Offers (p: time -> item: int, price: int);
"""


@dataclass(frozen=True)
class OperatorBenchmark:
    """`make_batches(events, batch, seed)` yields batches of `batch` events over all streams, each with a silence of all
    streams up to its last tick."""

    name: str
    program: str
    make_batches: Callable[[int, int, int], Iterator[InputBatch]]


def reading_batches(events: int, batch: int, seed: int = 1) -> Iterator[InputBatch]:
    """Keys, values and names are uniformly distributed. A tick is up to two milliseconds after the last one."""
    for part in rebatch(first_rows(events, _reading_blocks(seed)), batch):
        yield InputBatch({"Readings": part}, {"Readings": part.column("t")[-1].as_py()})


def order_and_offer_batches(events: int, batch: int, seed: int = 1) -> Iterator[InputBatch]:
    """As many orders as offers. All events of an item are within 100,000 events, in random order."""
    schemas = stream_schemas(Source("orders and offers", ORDERS_AND_OFFERS))
    for part in rebatch(first_rows(events, _join_blocks(seed)), batch):
        stream_batches = {}
        for (name, schema), wants_orders in zip(schemas.items(), (True, False), strict=True):
            rows = part.filter(pc.equal(part.column("is_order"), wants_orders))
            if rows.num_rows:
                stream_batches[name] = pa.RecordBatch.from_arrays(rows.columns[1:], schema=schema)
        yield InputBatch(stream_batches, dict.fromkeys(schemas, part.column("tick")[-1].as_py()))


OPERATORS = (
    OperatorBenchmark(
        "sum by key",
        f"{READINGS}CREATE VIEW Totals AS SELECT k, SUM(v) AS total FROM Readings GROUP BY k;\nSUBSCRIBE Totals;\n",
        reading_batches,
    ),
    OperatorBenchmark(
        "tumbling window",
        f"{READINGS}CREATE VIEW Windows AS\n"
        "  SELECT window_start, s, COUNT(*) AS n, SUM(v) AS total, MAX(v) AS high\n"
        "  FROM TUMBLE(Readings, t, INTERVAL '10' SECOND) GROUP BY window_start, s;\nSUBSCRIBE Windows;\n",
        reading_batches,
    ),
    OperatorBenchmark(
        "join",
        f"{ORDERS_AND_OFFERS}CREATE VIEW Deals AS\n"
        "  SELECT o, p, item, amount, price FROM Orders JOIN Offers USING (item);\nSUBSCRIBE Deals;\n",
        order_and_offer_batches,
    ),
    OperatorBenchmark(
        "best 10 a group",
        f"{READINGS}CREATE VIEW Highest AS SELECT t, s, k, v FROM Readings BEST 10 BY v DESC PER s;\n"
        "SUBSCRIBE Highest;\n",
        reading_batches,
    ),
    OperatorBenchmark(
        "count distinct",
        f"{READINGS}CREATE VIEW Variety AS SELECT s, COUNT(DISTINCT v) AS n FROM Readings GROUP BY s;\n"
        "SUBSCRIBE Variety;\n",
        reading_batches,
    ),
)


def _reading_blocks(seed: int) -> Iterator[pa.RecordBatch]:
    random = np.random.default_rng(seed)
    schema = stream_schemas(Source("readings", READINGS))["Readings"]
    last = 0
    while True:
        ticks = _ticks(random, last)
        last = int(ticks[-1])
        k, v = random.integers(KEYS, size=_BLOCK), random.integers(VALUES, size=_BLOCK)
        names = _NAMES.take(pa.array(random.integers(NAMES, size=_BLOCK)))
        yield pa.RecordBatch.from_arrays([pa.array(ticks), pa.array(k), pa.array(v), names], schema=schema)


def _join_blocks(seed: int) -> Iterator[pa.RecordBatch]:
    random = np.random.default_rng(seed)
    half = _BLOCK // 2
    last = items = 0
    while True:
        ticks = _ticks(random, last)
        last = int(ticks[-1])
        is_order = random.permutation(np.arange(_BLOCK) < half)
        item = np.empty(_BLOCK, np.int64)
        for side in (is_order, ~is_order):
            item[side] = items + random.permutation(np.arange(half) // EVENTS_PER_KEY)
        items += half // EVENTS_PER_KEY
        columns = [is_order, ticks, item, random.integers(VALUES, size=_BLOCK)]
        yield pa.RecordBatch.from_arrays([pa.array(c) for c in columns], ["is_order", "tick", "item", "number"])


def _ticks(random: np.random.Generator, last: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """A block of ticks after the last one."""
    gaps = random.integers(1, _TICK_GAP_US_MAX, size=_BLOCK, endpoint=True)
    return last + np.cumsum(gaps * TICKS_PER_MICROSECOND, dtype=np.int64)
