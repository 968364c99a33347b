"""A table tells what a plain dictionary does, under any updates; and every version goes on telling it."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from smile.algebra.types import INT, STRING
from smile.columns import hashing, values as v
from smile.columns.values import ValueColumn
from smile.log.input_batch import END
from smile.state.row_lookup import RowLookup
from smile.state.run import TableSchema
from smile.state.table import StateTable

Key = tuple[int, str | None]
Row = tuple[str | None, int | None, int, int]
"""Columns a and b, which rows are found by, the tick t, and a number that changes."""
Plain = dict[Key, Row]

SHAPE = TableSchema(
    (".k", ".s"),
    {".k": pa.int64(), ".s": pa.string(), "a": pa.string(), "b": pa.int64(), "t": pa.int64(), "n": pa.int64()},
    (("a", "b"), ("b",)),
    ("t",),
)
TICKS = (0, 3, 3, 5, 8, 13, END)


@pytest.fixture(params=[False, True], ids=["hashes", "equal-hashes"])
def clashing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once with hashes as they are, once with few different ones, so that different keys share them."""
    if request.param:
        for module in ("smile.state.run", "smile.state.table"):
            monkeypatch.setattr(f"{module}.hashes", lambda c, n: hashing.hashes(c, n) % np.uint64(5))
        monkeypatch.setattr("smile.state.run.is_injective", lambda _: False)


def rows_of(rows: Plain) -> dict[str, ValueColumn]:
    keys, cells = list(rows), list(rows.values())
    return {
        ".k": v.from_python([k for k, _ in keys], INT),
        ".s": v.from_python([s for _, s in keys], STRING),
        "a": v.from_python([a for a, _, _, _ in cells], STRING),
        "b": v.from_python([b for _, b, _, _ in cells], INT),
        "t": v.from_python([t for _, _, t, _ in cells], INT),
        "n": v.from_python([n for _, _, _, n in cells], INT),
    }


def told(found: RowLookup, at: range | None = None) -> list[tuple[Key, Row]]:
    columns = [found[c] for c in SHAPE.columns]
    types = (INT, STRING, STRING, INT, INT, INT)
    rows = []
    for i in range(len(found)) if at is None else at:
        k, s, a, b, t, n = (column.value_at(i, data) for column, data in zip(columns, types, strict=True))
        rows.append(((k, s), (a, b, t, n)))
    return rows  # type: ignore[return-value]


def fixed_cells(key: Key) -> tuple[str | None, int | None, int]:
    """What a row is found by is the same in all its versions."""
    k, s = key
    return (None if k % 11 == 0 else "xyz"[k % 3], None if k % 13 == 0 else k % 4, TICKS[(k + len(s or "")) % 7])


def update(random: Random, plain: Plain) -> tuple[Plain, list[bool]]:
    keys = [(random.randrange(40), random.choice([None, "", "é"])) for _ in range(random.randint(1, 12))]
    keys += random.sample(sorted(plain, key=str), min(len(plain), random.randint(0, 5)))
    rows = {key: (*fixed_cells(key), random.randrange(100)) for key in keys}
    return rows, [random.random() < 0.3 for _ in rows]


def check(random: Random, table: StateTable, plain: Plain) -> None:
    assert dict(told(table.scan())) == plain
    assert table.row_count == len(plain)
    asked = [(random.randrange(40), random.choice([None, "", "é"])) for _ in range(random.randint(1, 20))]
    there, found = table.find([v.from_python([k for k, _ in asked], INT), v.from_python([s for _, s in asked], STRING)])
    assert there.tolist() == [key in plain for key in asked]
    for i, key in enumerate(asked):
        if key in plain:
            assert told(found, range(i, i + 1)) == [(key, plain[key])]
        else:
            assert found["n"].value_at(i, INT) is None
    check_match(random, table, plain)
    low, high = sorted(random.choices([-1, 0, 2, 3, 4, 8, 20, END], k=2))
    within = told(table.rows_between("t", low, high))
    assert len(within) == len(dict(within))
    assert dict(within) == {key: row for key, row in plain.items() if low < row[2] <= high}


def check_match(random: Random, table: StateTable, plain: Plain) -> None:
    wanted = [(random.choice(["x", "y", None, "é"]), random.choice([0, 1, 2, None])) for _ in range(6)]
    columns = [v.from_python([a for a, _ in wanted], STRING), v.from_python([b for _, b in wanted], INT)]
    for on, asked, ordered in ((("a", "b"), columns, True), (("b",), columns[1:], False)):
        who, found = table.match(on, asked, ordered)
        if ordered:
            assert who.tolist() == sorted(who.tolist())
        pairs = [(n, *row) for n, row in zip(who.tolist(), told(found), strict=True)]
        right = []
        for n, (a, b) in enumerate(wanted):
            ask = (a, b) if len(on) == 2 else (b,)
            right += [(n, key, row) for key, row in plain.items() if None not in ask and ask == row[2 - len(on) : 2]]
        assert sorted(pairs, key=str) == sorted(right, key=str)


@pytest.mark.parametrize("seed", range(6))
def test_any_updates(seed: int, clashing: None) -> None:
    random = Random(seed)
    versions: list[tuple[StateTable, Plain]] = [(StateTable(SHAPE), {})]
    for _ in range(20):
        # Now and then an older version is gone on from, as a batch that is run again does.
        table, plain = versions[-1] if random.random() < 0.8 else random.choice(versions)
        rows, gone = update(random, plain)
        rest, new = table.split_and_update(rows_of(rows), np.array(gone))
        assert dict(told(rest.scan())) == {key: row for key, row in plain.items() if key not in rows}
        kept = {key: row for (key, row), lost in zip(rows.items(), gone, strict=True) if not lost}
        versions.append((new, {key: row for key, row in plain.items() if key not in rows} | kept))
    for table, plain in versions:
        check(random, table, plain)
        check(random, StateTable(SHAPE, table.runs), plain)


def test_rows_of_no_key() -> None:
    shape = TableSchema((), {"n": pa.int64()})
    table = StateTable(shape)
    assert not table.find([])[0].any()
    for n in range(20):
        table = table.with_rows({"n": ValueColumn(np.array([n]))})
    there, found = table.find([])
    assert there.tolist() == [True]
    assert found["n"].data.tolist() == [19]
    assert table.row_count == 1


def test_few_runs() -> None:
    """However many updates there are, a row is looked for in a few places."""
    table = StateTable(TableSchema(("k",), {"k": pa.int64()}))
    for n in range(2000):
        table = table.with_rows({"k": ValueColumn(np.array([n * 7919 % 2000]))})
    assert len(table.runs) < 15
    assert table.row_count == 2000
