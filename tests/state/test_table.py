"""After any updates, a table has the rows that a plain dictionary has; older versions of it keep their rows."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from smile.algebra.types import INT, STRING
from smile.columns import hashing, values as v
from smile.columns.values import ValueColumn
from smile.horizons import END
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable
from tests.repeatable import scaled

Key = tuple[int, str | None]
Row = tuple[str | None, int | None, int, int]
"""The indexed columns a and b, the tick t, and a number that changes."""
RowDict = dict[Key, Row]

SCHEMA = TableSchema(
    (".k", ".s"),
    {".k": pa.int64(), ".s": pa.string(), "a": pa.string(), "b": pa.int64(), "t": pa.int64(), "n": pa.int64()},
    (("a", "b"), ("b",)),
    ("t",),
)
TICKS = (0, 3, 3, 5, 8, 13, END)


@pytest.fixture(params=[False, True], ids=["hashes", "equal-hashes"])
def colliding_hashes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with the normal hashes, and with only five different ones, so that keys collide."""
    if request.param:
        for module in ("smile.state.run", "smile.state.table"):
            monkeypatch.setattr(f"{module}.hashes", lambda c, n: hashing.hashes(c, n) % np.uint64(5))
        monkeypatch.setattr("smile.state.run.is_injective", lambda _: False)


def to_columns(rows: RowDict) -> dict[str, ValueColumn]:
    keys, cells = list(rows), list(rows.values())
    return {
        ".k": v.from_python([k for k, _ in keys], INT),
        ".s": v.from_python([s for _, s in keys], STRING),
        "a": v.from_python([a for a, _, _, _ in cells], STRING),
        "b": v.from_python([b for _, b, _, _ in cells], INT),
        "t": v.from_python([t for _, _, t, _ in cells], INT),
        "n": v.from_python([n for _, _, _, n in cells], INT),
    }


def to_list(lookup: RowLookup, indices: range | None = None) -> list[tuple[Key, Row]]:
    columns = [lookup[c] for c in SCHEMA.columns]
    types = (INT, STRING, STRING, INT, INT, INT)
    rows = []
    for i in range(lookup.row_count) if indices is None else indices:
        k, s, a, b, t, n = (column.value_at(i, data) for column, data in zip(columns, types, strict=True))
        rows.append(((k, s), (a, b, t, n)))
    return rows  # type: ignore[return-value]


def fixed_cells(key: Key) -> tuple[str | None, int | None, int]:
    """The indexed cells of a key, which never change."""
    k, s = key
    return (None if k % 11 == 0 else "xyz"[k % 3], None if k % 13 == 0 else k % 4, TICKS[(k + len(s or "")) % 7])


def random_update(random: Random, expected_rows: RowDict) -> tuple[RowDict, list[bool]]:
    keys = [(random.randrange(40), random.choice([None, "", "é"])) for _ in range(random.randint(1, 12))]
    keys += random.sample(sorted(expected_rows, key=str), min(len(expected_rows), random.randint(0, 5)))
    rows = {key: (*fixed_cells(key), random.randrange(100)) for key in keys}
    return rows, [random.random() < 0.3 for _ in rows]


def check(random: Random, table: StateTable, expected_rows: RowDict) -> None:
    assert dict(to_list(table.scan())) == expected_rows
    assert table.row_count == len(expected_rows)
    asked = [(random.randrange(40), random.choice([None, "", "é"])) for _ in range(random.randint(1, 20))]
    is_present, lookup = table.find(
        [v.from_python([k for k, _ in asked], INT), v.from_python([s for _, s in asked], STRING)]
    )
    assert is_present.tolist() == [key in expected_rows for key in asked]
    for i, key in enumerate(asked):
        if key in expected_rows:
            assert to_list(lookup, range(i, i + 1)) == [(key, expected_rows[key])]
        else:
            assert lookup["n"].value_at(i, INT) is None
    check_match(random, table, expected_rows)
    check_lookups(random, table)
    low, high = sorted(random.choices([-1, 0, 2, 3, 4, 8, 20, END], k=2))
    within = to_list(table.rows_between("t", low, high))
    assert len(within) == len(dict(within))
    assert dict(within) == {key: row for key, row in expected_rows.items() if low < row[2] <= high}


def check_lookups(random: Random, table: StateTable) -> None:
    rows = table.scan()
    parts = (
        [rows.take(np.array(random.choices(range(rows.row_count), k=5))) for _ in range(2)] if rows.row_count else []
    )
    union = RowLookup.union(table, parts)
    assert sorted(union.row_ids.tolist()) == sorted({i for part in parts for i in part.row_ids.tolist()})
    missing = table.find([v.from_python([99], INT), v.from_python([None], STRING)])[1]
    assert missing.positions_in(rows).tolist() == [-1]
    assert rows.without(missing).row_count == rows.row_count
    for part in parts:
        removed = dict(to_list(part))
        assert dict(to_list(rows.without(part))) == {k: r for k, r in to_list(rows) if k not in removed}
        positions = part.positions_in(union)
        assert union.take(positions).row_ids.tolist() == part.row_ids.tolist()
        assert (rows.without(part).positions_in(part) == -1).all()


def check_match(random: Random, table: StateTable, expected_rows: RowDict) -> None:
    wanted = [(random.choice(["x", "y", None, "é"]), random.choice([0, 1, 2, None])) for _ in range(6)]
    columns = [v.from_python([a for a, _ in wanted], STRING), v.from_python([b for _, b in wanted], INT)]
    for on, asked, ordered in ((("a", "b"), columns, True), (("b",), columns[1:], False)):
        asked_indices, lookup = table.match(on, asked, ordered)
        if ordered:
            assert asked_indices.tolist() == sorted(asked_indices.tolist())
        pairs = [(n, *row) for n, row in zip(asked_indices.tolist(), to_list(lookup), strict=True)]
        expected = []
        for n, (a, b) in enumerate(wanted):
            cells = (a, b) if len(on) == 2 else (b,)
            matching = [
                item for item in expected_rows.items() if None not in cells and cells == item[1][2 - len(on) : 2]
            ]
            expected += [(n, key, row) for key, row in matching]
        assert sorted(pairs, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("seed", range(scaled(6)))
def test_any_updates(seed: int, colliding_hashes: None) -> None:
    random = Random(seed)
    versions: list[tuple[StateTable, RowDict]] = [(StateTable(SCHEMA), {})]
    for _ in range(20):
        # Sometimes continue from an older version, as a repeated batch does.
        table, expected_rows = versions[-1] if random.random() < 0.8 else random.choice(versions)
        rows, deleted = random_update(random, expected_rows)
        rest, new = table.split_and_update(to_columns(rows), np.array(deleted))
        unchanged = {key: row for key, row in expected_rows.items() if key not in rows}
        assert dict(to_list(rest.scan())) == unchanged
        stored = {key: row for (key, row), is_deleted in zip(rows.items(), deleted, strict=True) if not is_deleted}
        versions.append((new, unchanged | stored))
    for table, expected_rows in versions:
        check(random, table, expected_rows)
        check(random, StateTable(SCHEMA, table.runs), expected_rows)


@pytest.mark.parametrize("seed", range(scaled(6)))
def test_rows_are_found_by_their_newest_tick(seed: int) -> None:
    """The tick of a row changes with every update, and no two rows share one."""
    random, ticks = Random(seed), dict[int, int]()
    table = StateTable(TableSchema(("k",), dict.fromkeys("kt", pa.int64()), (), ("t",)))
    last = 0
    for _ in range(30):
        keys = random.sample(range(60), random.randint(1, 12))
        ticks |= {key: last + n for n, key in enumerate(keys, 1)}
        last += len(keys)
        table = table.with_rows({"k": v.from_python(keys, INT), "t": v.from_python([ticks[k] for k in keys], INT)})
        if random.random() < 0.2:
            gone = random.choice(sorted(ticks))
            table = table.without_rows(table.find_ticks("t", np.array([ticks.pop(gone)]))[1])
        asked = sorted(random.sample(range(last + 2), random.randint(0, last)))
        is_found, lookup = table.find_ticks("t", np.array(asked, np.int64))
        keys_by_tick = {tick: key for key, tick in ticks.items()}
        assert is_found.tolist() == [tick in keys_by_tick for tick in asked]
        keys_found = [lookup["k"].value_at(i, INT) for i in range(len(asked))]
        assert keys_found == [keys_by_tick.get(tick) for tick in asked]


def test_indexes_are_added_and_removed() -> None:
    random = Random(1)
    plain = StateTable(TableSchema(SCHEMA.key, SCHEMA.columns, (), SCHEMA.tick_indexes))
    expected_rows: RowDict = {}
    for _ in range(9):
        rows, deleted = random_update(random, expected_rows)
        plain = plain.with_rows(to_columns(rows), np.array(deleted))
        expected_rows |= rows
        for key, is_deleted in zip(rows, deleted, strict=True):
            if is_deleted:
                del expected_rows[key]
        indexed = plain.with_indexes((("b",),)).with_indexes(SCHEMA.indexes)
        check(random, indexed, expected_rows)
        plain = indexed.with_indexes(())
        assert all(not run.indexes for run in plain.runs)


def test_a_table_with_an_empty_key_has_one_row() -> None:
    table = StateTable(TableSchema((), {"n": pa.int64()}))
    assert not table.find([])[0].any()
    for n in range(20):
        table = table.with_rows({"n": ValueColumn(np.array([n]))})
    is_present, lookup = table.find([])
    assert is_present.tolist() == [True]
    assert lookup["n"].data.tolist() == [19]
    assert table.row_count == 1


def test_few_runs() -> None:
    """However many updates there are, a lookup searches only a few runs."""
    table = StateTable(TableSchema(("k",), {"k": pa.int64()}))
    for n in range(2000):
        table = table.with_rows({"k": ValueColumn(np.array([n * 7919 % 2000]))})
    assert len(table.runs) < 15
    assert table.row_count == 2000


def test_a_lookup_is_a_mapping_of_columns() -> None:
    table = StateTable(SCHEMA).with_rows(to_columns({(k, ""): (*fixed_cells((k, "")), k) for k in range(8)}))
    for lookup in (table.scan(), table.scan().take(np.arange(3)), table.no_rows()):
        assert list(lookup) == list(SCHEMA.columns)
        assert len(lookup) == len(SCHEMA.columns)
        assert [len(column) for column in lookup.values()] == [lookup.row_count] * len(lookup)
        assert lookup.get("n") is lookup["n"]
        assert lookup.get("no such column") is None
    assert [table.scan().row_count, table.no_rows().row_count] == [8, 0]


def test_a_column_that_no_run_has_is_null() -> None:
    schema = TableSchema(("k",), {"k": pa.int64(), "n": pa.int64()})
    lookup = StateTable(schema).with_rows({"k": ValueColumn(np.arange(3))}).scan()
    assert lookup["n"].is_null().tolist() == [True] * 3
    assert lookup.stored_column_or_none("n") is None
    assert lookup.stored_column_or_none("k") is lookup["k"]
