"""The seal index finds each row when the horizons seal it, and only then."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from smile.algebra.types import TIME
from smile.columns.values import ValueColumn
from smile.horizons import END, HORIZON_MIN
from smile.kernels.seals import LEAST, HorizonAdvance, SealIndex, all_or_never
from smile.knowledge.seals import Seal
from smile.state.run import TableSchema
from smile.state.table import StateTable
from tests.random_programs import SEED_ID, seeds

TYPES = {"a": TIME, "b": TIME}
SEALS = [
    {"S": Seal.from_column("a", 3)},
    {"S": Seal.from_column("a", 3), "T": Seal.from_column("a").latest(Seal.from_column("b", -2))},
    {"S": Seal.from_column("b"), "T": Seal.NEVER},
    {"S": Seal.NEVER, "T": Seal.NEVER},
]


def make_table(index: SealIndex, random: Random, count: int) -> tuple[StateTable, dict[str, ValueColumn]]:
    valid = np.array([random.random() < 0.8 for _ in range(count)])
    columns = {
        "a": ValueColumn(np.array([random.randrange(40) for _ in range(count)])),
        "b": ValueColumn(np.array([random.choice((random.randrange(40), END)) for _ in range(count)]), valid),
    }
    schema = TableSchema(("k",), {"k": pa.int64(), **index.column_types}, tick_indexes=tuple(index.column_types))
    rows = {"k": ValueColumn(np.arange(count)), **index.tick_values(columns, count)}
    table, cut = StateTable(schema), random.randrange(count)
    for part in (np.arange(cut), np.arange(cut, count)):
        table = table.with_rows({name: column.take(part) for name, column in rows.items()})
    return table, columns


def later(random: Random, horizon: int) -> int:
    if random.random() < 0.3:
        return horizon
    return END if horizon > 30 else max(horizon, 0) + random.randrange(9)


@pytest.mark.parametrize("seals", SEALS, ids=lambda seals: ", ".join(f"{s} {seal}" for s, seal in seals.items()))
@pytest.mark.parametrize("seed", seeds(5), ids=SEED_ID)
def test_finds_each_row_when_it_is_sealed(seed: int, seals: dict[str, Seal]) -> None:
    random = Random(seed)
    index, count = SealIndex(seals, TYPES, "until "), 30
    table, columns = make_table(index, random, count)
    horizons = dict.fromkeys(seals, HORIZON_MIN)
    while any(h < END for h in horizons.values()):
        after = {s: later(random, h) for s, h in horizons.items()}
        advance = HorizonAdvance(horizons, after)
        was_sealed, is_sealed = (index.is_sealed(h, columns, count) for h in (horizons, after))
        rows = index.find_sealed_rows(table, advance)
        assert sorted(rows["k"].data.tolist()) == np.flatnonzero(is_sealed & ~was_sealed).tolist()
        assert index.can_seal_rows(advance) or not rows.row_count
        assert sorted(index.keep_sealed(table.scan(), after)["k"].data.tolist()) == np.flatnonzero(is_sealed).tolist()
        horizons = after
    assert index.has_ended(horizons)


def test_no_ticks_are_stored_if_a_stream_never_seals() -> None:
    seals = {"S": Seal.from_column("a"), "T": Seal.NEVER}
    assert SealIndex(seals, TYPES, "@").tick_columns == {"S": "@S"}
    index = SealIndex(all_or_never(seals), TYPES, "@")
    assert not index.tick_columns
    assert not index.can_be_sealed({"S": 50, "T": END})
    assert index.can_be_sealed({"S": END, "T": END})
    assert all_or_never(SEALS[1]) == SEALS[1]


def test_least_horizon() -> None:
    least = HorizonAdvance({"S": 3, "T": 5}, {"S": 9, "T": 6}).least(["S", "T"])
    assert (least.before, least.after) == ({LEAST: 3}, {LEAST: 6})
