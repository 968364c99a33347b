"""The events of Trade-Floor: determined by the seed, independent of batch sizes, according to the rules of the market."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bench import workload
from bench.workload import (
    ISSUES,
    MATCH,
    PRICES,
    PROGRAM,
    count_open_bids,
    input_batches,
    load_blocks,
    rebatch,
    stream_schemas,
    tradefloor_batches,
    tradefloor_blocks,
)
from smile.program import read_source

SEED = 7
EVENTS = 100_000
SCHEMAS = stream_schemas(read_source(str(PROGRAM)))


@pytest.fixture(scope="module")
def events() -> pa.Table:
    return pa.Table.from_batches(tradefloor_blocks(EVENTS, SEED))


def test_every_event_follows_the_rules(events: pa.Table) -> None:
    """A match is of two open bids on the two sides of a level, for the smaller remainder."""
    bids: dict[int, tuple[int, int, int, int]] = {}
    for stream, tick, one, other, shares in zip(*(c.to_pylist() for c in events.columns), strict=True):
        if stream == MATCH:
            buy, sell = bids[one], bids[other]
            assert (buy[0], sell[0]) == (0, 1)
            assert buy[1:3] == sell[1:3]
            assert shares == min(buy[3], sell[3])
            for bid, (side, issue, price, rest) in ((one, buy), (other, sell)):
                bids[bid] = (side, issue, price, rest - shares)
        else:
            assert shares in range(100, 1001, 100)
            bids[tick] = (stream, one, other, shares)
    assert all(rest >= 0 for *_, rest in bids.values())
    assert len({bid[1:3] for bid in bids.values()}) == ISSUES * PRICES


def test_ticks_count_over_all_streams(events: pa.Table) -> None:
    assert np.array_equal(events["tick"], np.arange(1, EVENTS + 1) * 1024)


def test_about_a_third_of_each(events: pa.Table) -> None:
    shares = np.bincount(events["stream"]) / EVENTS
    assert shares == pytest.approx([1 / 3] * 3, abs=0.1)
    assert shares[0] == pytest.approx(shares[1], abs=0.01)


def test_a_seed_gives_the_same_events_again_and_fewer_events_are_a_prefix_of_more(events: pa.Table) -> None:
    assert pa.Table.from_batches(tradefloor_blocks(70_001, SEED)).equals(events.slice(0, 70_001))
    assert not pa.Table.from_batches(tradefloor_blocks(1000, SEED + 1)).equals(events.slice(0, 1000))


def test_open_bids_begin_as_measured() -> None:
    assert 14_000 < count_open_bids(tradefloor_blocks(EVENTS, SEED)) < 20_000


@pytest.mark.slow
def test_open_bids_grow_less_and_less() -> None:
    assert 30_000 < count_open_bids(tradefloor_blocks(600_000, SEED)) < 45_000


@pytest.mark.slow
@pytest.mark.nightly
def test_open_bids_level_off() -> None:
    """Without `WAITING_MAX` there would be 71,000."""
    assert 35_000 < count_open_bids(tradefloor_blocks(2_000_000, SEED)) < 45_000


def test_no_side_of_a_level_has_more_waiting_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a low limit, so that many levels reach it soon."""
    monkeypatch.setattr(workload, "WAITING_MAX", 8)
    bids: dict[int, tuple[tuple[int, int, int], int]] = {}
    for block in tradefloor_blocks(EVENTS, SEED):
        for stream, tick, one, other, shares in zip(*(c.to_pylist() for c in block.columns), strict=True):
            if stream != MATCH:
                bids[tick] = ((stream, one, other), shares)
            else:
                bids.update({bid: (bids[bid][0], bids[bid][1] - shares) for bid in (one, other)})
    assert max(Counter(side_of_level for side_of_level, rest in bids.values() if rest).values()) == 8


@pytest.mark.parametrize("batch_size", [1, 999, 10_000, 65_536, EVENTS + 1])
def test_batches_have_all_events_in_order(events: pa.Table, batch_size: int) -> None:
    selected = events.slice(0, 2_000 if batch_size == 1 else EVENTS)
    batches = list(input_batches(selected.to_batches(), batch_size))
    ends = [batch.horizons["Matches"] for batch in batches]
    sizes = [sum(rows.num_rows for rows in batch.events.values()) for batch in batches]
    assert all(batch.horizons == dict.fromkeys(SCHEMAS, end) for batch, end in zip(batches, ends, strict=True))
    assert sizes[:-1] == [batch_size] * (len(batches) - 1)
    assert sum(sizes) == selected.num_rows
    assert ends == [int(n) * 1024 for n in np.cumsum(sizes)]
    for name, schema in SCHEMAS.items():
        parts = [batch.events[name] for batch in batches if name in batch.events]
        assert all(rows.num_rows for rows in parts)
        table = pa.Table.from_batches(parts, schema)
        table.validate(full=True)
        assert table.num_rows == (np.asarray(selected["stream"]) == list(SCHEMAS).index(name)).sum()
        assert all(a < b for a, b in pairwise(table[0].to_pylist()))
    for before, batch in pairwise(batches):
        assert all(rows.column(0)[0].as_py() > before.horizons[name] for name, rows in batch.events.items())


def test_batches_are_made_of_the_events(events: pa.Table) -> None:
    batch = next(iter(tradefloor_batches(1000, 1000, SEED)))
    rows = sorted(
        (tick, shares)
        for part in batch.events.values()
        for tick, shares in zip(part[0].to_pylist(), part[3].to_pylist(), strict=True)
    )
    assert [shares for _, shares in rows] == events["shares"].slice(0, 1000).to_pylist()
    assert batch.events["BuyBids"].schema.names == ["buyid", "issue", "price", "#bid"]
    assert {len(issue) for issue in batch.events["BuyBids"]["issue"].to_pylist()} == {4}
    bought = set(batch.events["BuyBids"]["buyid"].to_pylist())
    assert bought >= set(batch.events["Matches"]["buyid"].to_pylist())


def test_a_recording_is_written_once_and_again_if_it_has_too_few_events(tmp_path: Path, events: pa.Table) -> None:
    path = tmp_path / "tradefloor.arrow"
    first = pa.Table.from_batches(load_blocks(path, 1000, SEED))
    assert first.select(range(5)).equals(events.slice(0, 1000))
    written_at = path.stat().st_mtime_ns
    assert sum(block.num_rows for block in load_blocks(path, 900, SEED)) == 900
    assert path.stat().st_mtime_ns == written_at
    assert pa.Table.from_batches(load_blocks(path, 70_000, SEED)).equals(events.slice(0, 70_000))
    other = pa.Table.from_batches(load_blocks(path, 1000, SEED + 1))
    assert not other.equals(first)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_rebatching_keeps_rows_and_their_order() -> None:
    blocks = [pa.record_batch({"n": list(range(start, end))}) for start, end in pairwise((0, 5, 5, 6, 20))]
    for rows in range(1, 22):
        parts = [part["n"].to_pylist() for part in rebatch(blocks, rows)]
        assert parts == [list(range(n, min(n + rows, 20))) for n in range(0, 20, rows)]
