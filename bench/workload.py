"""Generates the events of Trade-Floor. No match takes more than its two bids have left, so remainders are never
negative.

There are 200 issues at 20 prices each. A bid of 100 to 1,000 shares, in round lots, is placed on a random side of a
random level (an issue at a price). Then, while both sides of that level have open bids, with probability 0.9 a match
follows: of a random open bid of each side, for the smaller remainder. Of 600,000 events about 28 % are buys, 28 % sells
and 44 % matches. A match nearly always closes one bid and seldom two. So if few bids are to stay open, there must be
nearly as many matches as bids.

With this rule alone the number of open bids would grow with the square root of the number of events (39,000 after
600,000, 71,000 after 2 million), because the buys and sells of a level drift apart like a random walk. So if
`WAITING_MAX` bids are open on the side that was drawn, the bid is placed on the other side. Then the number of open
bids converges: 17,000 after 100,000 events, 35,000 after 600,000, 41,000 after 2 million, 42,000 after 10 million.

An event gives no knowledge of other streams. The publishers of all three streams also publish silence: every batch ends
with a silence of all streams up to its last tick.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from smile.algebra.arrow_types import stream_schema
from smile.log.input_batch import InputBatch
from smile.program import compile_program, read_source
from smile.source import Source

PROGRAM = Path(__file__).parent.parent / "programs" / "tradefloor.smile"
ISSUES = 200
PRICES = 20
LOT = 100
LOTS_MAX = 10
MATCH_PROBABILITY = 0.9
WAITING_MAX = 20
TICK_STEP = 1024
"""The distance between ticks, as a broker's clock has it at least. It is also the first tick."""

BUY, SELL, MATCH = range(3)

EVENT_SCHEMA = pa.schema(
    [("stream", pa.int8()), ("tick", pa.int64()), ("one", pa.int64()), ("other", pa.int64()), ("shares", pa.int64())]
)
"""All three streams in order of ticks. For a bid, `one` is the number of the issue and `other` the price. For a match,
they are the ticks of the buy and of the sell."""

_BLOCK = 65_536
_ISSUE_NAMES = pa.array([f"S{n:03}" for n in range(ISSUES)])
_PRICE_CENTS_MIN = 10_000
_PRICE_CENTS_STEP = 25


def tradefloor_blocks(events: int, seed: int = 1) -> Iterator[pa.RecordBatch]:
    """This number of events, with EVENT_SCHEMA. Fewer events of the same seed are a prefix of more events."""
    return first_rows(events, _generate_blocks(seed))


def tradefloor_batches(events: int, batch: int, seed: int = 1) -> Iterator[InputBatch]:
    """The same events, `batch` in each batch except the last."""
    return input_batches(tradefloor_blocks(events, seed), batch)


def input_batches(blocks: Iterable[pa.RecordBatch], batch: int) -> Iterator[InputBatch]:
    """Batches of events that were generated or recorded before."""
    schemas = stream_schemas(read_source(str(PROGRAM)))
    for part in rebatch(blocks, batch):
        last = part.column("tick")[-1].as_py()
        yield InputBatch(_split_by_stream(part, schemas), dict.fromkeys(schemas, last))


def load_blocks(path: Path, events: int, seed: int = 1) -> list[pa.RecordBatch]:
    """The events of `tradefloor_blocks`, from a memory-mapped Arrow file. The file is written if it does not exist, has
    fewer events, or has another seed."""
    metadata = {b"seed": str(seed).encode(), b"rule": _RULE}
    if not _has_recording(path, events, metadata):
        temporary_path = path.with_name(f"{path.name}.new")
        with (
            pa.OSFile(str(temporary_path), "wb") as sink,
            pa.ipc.new_file(sink, EVENT_SCHEMA.with_metadata(metadata)) as writer,
        ):
            for block in tradefloor_blocks(events, seed):
                writer.write_batch(block)
        temporary_path.replace(path)
    return list(first_rows(events, pa.ipc.open_file(pa.memory_map(str(path))).read_all().to_batches()))


def count_open_bids(blocks: Iterable[pa.RecordBatch]) -> int:
    """The number of bids with a remainder after these events, which must begin with the first one."""
    remaining: dict[int, int] = {}
    for block in blocks:
        for stream, tick, one, other, shares in zip(*(column.to_pylist() for column in block.columns), strict=True):
            if stream != MATCH:
                remaining[tick] = shares
                continue
            for bid in (one, other):
                remaining[bid] -= shares
                if not remaining[bid]:
                    del remaining[bid]
    return len(remaining)


def first_rows(events: int, blocks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first rows of the blocks, which may be endless."""
    for block in blocks:
        if events <= block.num_rows:
            yield block.slice(0, events)
            return
        yield block
        events -= block.num_rows


def rebatch(blocks: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows, this number in each batch except the last. Only batches that span blocks are copied."""
    parts: list[pa.RecordBatch] = []
    missing = rows
    for block in blocks:
        start = 0
        while block.num_rows - start >= missing:
            parts.append(block.slice(start, missing))
            yield parts[0] if len(parts) == 1 else pa.concat_batches(parts)
            start += missing
            parts, missing = [], rows
        if start < block.num_rows:
            parts.append(block.slice(start))
            missing -= block.num_rows - start
    if parts:
        yield pa.concat_batches(parts)


# ── generating ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _generate_blocks(seed: int) -> Iterator[pa.RecordBatch]:
    """An endless sequence. The random numbers do not depend on the size of the blocks."""
    flat: list[int] = []
    done = 0
    for drawn in _generate_events(seed):
        flat += drawn
        if len(flat) >= 4 * _BLOCK:
            block = _make_block(flat, done)
            done += block.num_rows
            flat = []
            yield block


def _generate_events(seed: int) -> Iterator[list[int]]:
    """Lists of bids, each followed by its matches. An event is four numbers: the stream; the level of a bid or the buy
    of a match; 0 or the sell of a match; the shares."""
    draw = Random(seed).random
    waiting: tuple[list[list[list[int]]], ...] = tuple([[] for _ in range(ISSUES * PRICES)] for _ in (BUY, SELL))
    tick = 0
    while True:
        flat: list[int] = []
        for _ in range(1000):
            number = int(draw() * (2 * LOTS_MAX * ISSUES * PRICES))
            side, number = number & 1, number >> 1
            level, lots = divmod(number, LOTS_MAX)
            if len(waiting[side][level]) >= WAITING_MAX:
                side = 1 - side
            tick += TICK_STEP
            shares = (lots + 1) * LOT
            flat += (side, level, 0, shares)
            waiting[side][level].append([tick, shares])
            buys, sells = waiting[BUY][level], waiting[SELL][level]
            while buys and sells and draw() < MATCH_PROBABILITY:
                b, s = int(draw() * len(buys)), int(draw() * len(sells))
                buy, sell = buys[b], sells[s]
                shares = min(buy[1], sell[1])
                tick += TICK_STEP
                flat += (MATCH, buy[0], sell[0], shares)
                _reduce_bid(buys, b, shares)
                _reduce_bid(sells, s, shares)
        yield flat


def _reduce_bid(bids: list[list[int]], index: int, shares: int) -> None:
    """Removes the bid if it has no remainder. The last bid takes its place: the order of the bids has no meaning."""
    bid = bids[index]
    bid[1] -= shares
    if not bid[1]:
        bids[index] = bids[-1]
        bids.pop()


def _make_block(flat: list[int], done: int) -> pa.RecordBatch:
    stream, one, other, shares = np.array(flat, np.int64).reshape(-1, 4).T
    ticks = (np.arange(done, done + len(stream), dtype=np.int64) + 1) * TICK_STEP
    is_bid = stream != MATCH
    level = np.where(is_bid, one, 0)
    one = np.where(is_bid, level // PRICES, one)
    other = np.where(is_bid, _PRICE_CENTS_MIN + level % PRICES * _PRICE_CENTS_STEP, other)
    columns = (stream.astype(np.int8), ticks, one, other, np.ascontiguousarray(shares))
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=EVENT_SCHEMA)


_RULE = f"{ISSUES} {PRICES} {LOT} {LOTS_MAX} {MATCH_PROBABILITY} {WAITING_MAX} {TICK_STEP} 1".encode()
"""The parameters of a recording. The last number must be raised when the generator changes otherwise."""


def _has_recording(path: Path, events: int, metadata: dict[bytes, bytes]) -> bool:
    if not path.exists():
        return False
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        event_count = sum(reader.get_batch(n).num_rows for n in range(reader.num_record_batches))
        return bool(reader.schema.metadata == metadata) and event_count >= events


# ── streams ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def stream_schemas(source: Source) -> dict[str, pa.Schema]:
    """The schemas of all streams, in the order of the program. In Trade-Floor it is the order BUY, SELL, MATCH."""
    return {stream.name: stream_schema(stream) for stream in compile_program(source).original.streams}


def _split_by_stream(part: pa.RecordBatch, schemas: Mapping[str, pa.Schema]) -> dict[str, pa.RecordBatch]:
    stream_batches = {}
    for number, (name, schema) in enumerate(schemas.items()):
        rows = part.filter(pc.equal(part.column("stream"), number))
        if rows.num_rows:
            _, tick, one, other, shares = rows.columns
            first_column = one if number == MATCH else _ISSUE_NAMES.take(one)
            stream_batches[name] = pa.RecordBatch.from_arrays([tick, first_column, other, shares], schema=schema)
    return stream_batches
