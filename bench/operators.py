"""One operator at a time: programs of one view, and events for them of which fewer are always the beginning of more."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.workload import cut, first, stream_schemas
from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.log.frame import Frame
from smile.source import Source

EVENTS = 1_000_000
"""What the benchmarks take; frames come of any number."""

KEYS = 100_000
NAMES = 100
VALUES = 10_000
SAME_KEY = 2
"""Of each stream of the join, how many events have the same key: four pairs a key, as many pairs as events."""

_BLOCK = 100_000
_MICROSECONDS_APART_MAX = 1_999
"""A thousand on average: a million events take a thousand seconds."""

_NAMES = pa.array([f"sensor-{n:02}" for n in range(NAMES)])

READINGS = "CREATE STREAM Readings (t: time -> k: int, v: int, s: string);\n"
ORDERS_AND_OFFERS = """\
CREATE STREAM Orders (o: time -> item: int, amount: int);
CREATE STREAM Offers (p: time -> item: int, price: int);
"""


@dataclass(frozen=True)
class Operator:
    """`frames(events, batch, seed)` are frames of so many events over all streams, each with a silence of all streams
    to its last tick."""

    name: str
    program: str
    frames: Callable[[int, int, int], Iterator[Frame]]


def readings(events: int, batch: int, seed: int = 1) -> Iterator[Frame]:
    """Keys, values and names are drawn evenly; a tick is up to two milliseconds after the last."""
    for part in cut(first(events, _reading_blocks(seed)), batch):
        yield Frame({"Readings": part}, {"Readings": part.column("t")[-1].as_py()})


def orders_and_offers(events: int, batch: int, seed: int = 1) -> Iterator[Frame]:
    """As many orders as offers. All of an item come within 100,000 events, in random order."""
    schemas = stream_schemas(Source("orders and offers", ORDERS_AND_OFFERS))
    for part in cut(first(events, _join_blocks(seed)), batch):
        found = {}
        for (name, schema), is_mine in zip(schemas.items(), (True, False), strict=True):
            rows = part.filter(pc.equal(part.column("is_order"), is_mine))
            if rows.num_rows:
                found[name] = pa.RecordBatch.from_arrays(rows.columns[1:], schema=schema)
        yield Frame(found, dict.fromkeys(schemas, part.column("tick")[-1].as_py()))


OPERATORS = (
    Operator(
        "sum by key",
        f"{READINGS}CREATE VIEW Totals AS SELECT k, SUM(v) AS total FROM Readings GROUP BY k;\nSUBSCRIBE Totals;\n",
        readings,
    ),
    Operator(
        "tumbling window",
        f"{READINGS}CREATE VIEW Windows AS\n"
        "  SELECT window_start, s, COUNT(*) AS n, SUM(v) AS total, MAX(v) AS high\n"
        "  FROM TUMBLE(Readings, t, INTERVAL '10' SECOND) GROUP BY window_start, s;\nSUBSCRIBE Windows;\n",
        readings,
    ),
    Operator(
        "join",
        f"{ORDERS_AND_OFFERS}CREATE VIEW Deals AS\n"
        "  SELECT o, p, item, amount, price FROM Orders JOIN Offers USING (item);\nSUBSCRIBE Deals;\n",
        orders_and_offers,
    ),
    Operator(
        "best 10 a group",
        f"{READINGS}CREATE VIEW Highest AS SELECT t, s, k, v FROM Readings BEST 10 BY v DESC PER s;\n"
        "SUBSCRIBE Highest;\n",
        readings,
    ),
    Operator(
        "count distinct",
        f"{READINGS}CREATE VIEW Variety AS SELECT s, COUNT(DISTINCT v) AS n FROM Readings GROUP BY s;\n"
        "SUBSCRIBE Variety;\n",
        readings,
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
            item[side] = items + random.permutation(np.arange(half) // SAME_KEY)
        items += half // SAME_KEY
        columns = [is_order, ticks, item, random.integers(VALUES, size=_BLOCK)]
        yield pa.RecordBatch.from_arrays([pa.array(c) for c in columns], ["is_order", "tick", "item", "number"])


def _ticks(random: np.random.Generator, last: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """A block of them, after the last one."""
    apart = random.integers(1, _MICROSECONDS_APART_MAX, size=_BLOCK, endpoint=True)
    return last + np.cumsum(apart * TICKS_PER_MICROSECOND, dtype=np.int64)
