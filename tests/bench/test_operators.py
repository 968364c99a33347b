"""Benchmarks of single operators: the programs compile, and the events fit the columns of their streams."""

from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest

from bench.operators import (
    EVENTS_PER_KEY,
    KEYS,
    NAMES,
    OPERATORS,
    OperatorBenchmark,
    order_and_offer_batches,
    reading_batches,
)
from bench.workload import stream_schemas
from smile.log.input_batch import InputBatch
from smile.source import Source


def stream_table(batches: list[InputBatch], name: str) -> pa.Table:
    return pa.Table.from_batches([batch.events[name] for batch in batches if name in batch.events])


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_batches_fit_the_program_and_their_events_do_not_depend_on_the_batch_size(operator: OperatorBenchmark) -> None:
    schemas = stream_schemas(Source(f"{operator.name}.smile", operator.program))
    batches = list(operator.make_batches(30_000, 1000, 3))
    large_batches = list(operator.make_batches(40_000, 20_000, 3))
    assert len(batches) == 30
    for batch in batches:
        assert sum(rows.num_rows for rows in batch.events.values()) == 1000
        assert batch.horizons == dict.fromkeys(schemas, max(r[0][-1].as_py() for r in batch.events.values()))
    for name, schema in schemas.items():
        table = stream_table(batches, name)
        table.validate(full=True)
        assert table.schema == schema
        assert all(a < b for a, b in pairwise(table[0].to_pylist()))
        assert table.equals(stream_table(large_batches, name).slice(0, table.num_rows))


def test_operators_have_names_of_their_own() -> None:
    assert len({operator.name for operator in OPERATORS}) == len(OPERATORS) == 5


def test_readings_spread_over_all_keys_and_names() -> None:
    table = stream_table(list(reading_batches(200_000, 50_000)), "Readings")
    keys = table["k"].to_pylist()
    assert min(keys) >= 0
    assert max(keys) < KEYS
    # of 100,000 keys, 200,000 draws leave a share of 1/e² untouched
    assert len(set(keys)) / KEYS == pytest.approx(0.865, abs=0.01)
    assert len(set(table["s"].to_pylist())) == NAMES
    seconds = table["t"][-1].as_py() / 1024e6
    assert seconds == pytest.approx(200, rel=0.02)


def test_an_item_has_few_orders_and_offers_however_long_the_run() -> None:
    batches = list(order_and_offer_batches(200_000, 50_000))
    orders, offers = (Counter(stream_table(batches, name)["item"].to_pylist()) for name in ("Orders", "Offers"))
    assert set(orders.values()) == set(offers.values()) == {EVENTS_PER_KEY}
    assert orders == offers
