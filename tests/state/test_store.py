"""Versions that are written are read back the same; damage of any byte is found, and never served."""

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from smile import limits
from smile.columns import values as v
from smile.columns.values import ValueColumn
from smile.errors import SmileError
from smile.state import file
from smile.state.file import StateFile
from smile.state.run import TableSchema
from smile.state.store import StateStore, VersionId
from smile.state.table import StateTable

SHAPE = TableSchema(
    ("k", "s"),
    {"k": pa.int64(), "s": pa.string(), "n": pa.int64(), "f": pa.float64(), "b": pa.bool_(), "d": pa.decimal128(38, 0)},
    (("s",),),
    ("n",),
)
SHAPES = {"t/rows": SHAPE}
Plain = dict[tuple[int, str | None], tuple[object, ...]]


def random_rows(random: Random, count: int) -> dict[str, ValueColumn]:
    keys = random.sample(range(60), count)
    wide = random.random() < 0.3
    return {
        "k": ValueColumn(np.array(keys, np.int64)),
        "s": v.from_arrow_text(pa.array([None if k % 7 == 0 else "é" * (k % 5) for k in keys], pa.string())),
        "n": ValueColumn(np.array([k // 3 for k in keys], np.int64)),
        "f": ValueColumn(np.array([random.random() for _ in keys]), np.array([random.random() < 0.8 for _ in keys])),
        "b": ValueColumn(np.array([random.random() < 0.5 for _ in keys])),
        "d": ValueColumn(v.ints([random.choice([-1, 5, -(10**30)] if wide else [-1, 5]) for _ in keys])),
    }


def content(table: StateTable) -> set[tuple[str, ...]]:
    rows = table.scan()
    columns = [v.to_arrow(rows[name], kind).to_pylist() for name, kind in SHAPE.columns.items()]
    return {tuple(map(repr, row)) for row in zip(*columns, strict=True)}


def random_tables(random: Random, versions: int) -> list[StateTable]:
    tables = [StateTable(SHAPE)]
    for _ in range(versions):
        count = random.randint(1, 30)
        gone = np.array([random.random() < 0.3 for _ in range(count)])
        tables.append(tables[-1].with_rows(random_rows(random, count), gone))
    return tables[1:]


@pytest.fixture(autouse=True, params=[1, 10**9], ids=["indexes written", "indexes made again"])
def _indexed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "INDEXED_ROWS_MIN", request.param)


def new_store(folder: Path) -> StateStore:
    return StateStore.open(str(folder), "p")


@pytest.mark.parametrize("seed", range(20))
def test_what_is_read_is_what_was_written(tmp_path: Path, seed: int) -> None:
    tables = random_tables(Random(seed), 12)
    store = new_store(tmp_path)
    for number, table in enumerate(tables):
        store.save(number, {"A": number}, {"t/rows": table})
    assert len(list(tmp_path.glob("*.new"))) == 0
    for number in range(len(tables) - limits.state_versions_kept, len(tables)):
        saved = new_store(tmp_path).read(VersionId.from_horizons(number, {"A": number}), SHAPES)
        assert saved.horizons == {"A": number}
        assert content(saved.tables["t/rows"]) == content(tables[number])


def test_a_resumed_store_goes_on_where_it_was(tmp_path: Path) -> None:
    tables = random_tables(Random(1), 20)
    new_store(tmp_path).save(0, {}, {"t/rows": tables[9]})
    store = new_store(tmp_path)
    saved = store.read(VersionId.from_horizons(0, {}), SHAPES)
    before = {p.name for p in tmp_path.iterdir()}
    store.save(1, {}, saved.tables)
    (added,) = {p.name for p in tmp_path.iterdir()} - before
    assert (tmp_path / added).stat().st_size < 2_000, "nothing new, so nothing but names is written"
    assert content(new_store(tmp_path).read(VersionId.from_horizons(1, {}), SHAPES).tables["t/rows"]) == content(
        tables[9]
    )


def test_files_that_no_version_needs_are_deleted(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    for number, table in enumerate(random_tables(Random(2), 200)):
        store.save(number, {}, {"t/rows": table})
    assert len(list(tmp_path.iterdir())) < 30


def test_every_damaged_byte_is_found(tmp_path: Path) -> None:
    table = random_tables(Random(3), 3)[-1]
    new_store(tmp_path).save(7, {}, {"t/rows": table})
    (path,) = tmp_path.glob("*.state")
    whole = path.read_bytes()
    used = _used(tmp_path)
    random = Random(4)
    for place in [*random.sample(used, 60), len(whole) - 1, len(whole) - 12, len(whole) - 20]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << random.randrange(8))]) + whole[place + 1 :])
        with pytest.raises(SmileError, match="damaged"):
            new_store(tmp_path).read(VersionId.from_horizons(7, {}), SHAPES)
    for length in random.sample(range(len(whole)), 30):
        path.write_bytes(whole[:length])
        with pytest.raises(SmileError, match="damaged"):
            new_store(tmp_path).read(VersionId.from_horizons(7, {}), SHAPES)


def _used(folder: Path) -> list[int]:
    """Places of bytes that say something: between columns there are gaps."""
    (path,) = folder.glob("*.state")
    opened = StateFile(new_store(folder).filesystem, str(path))
    parts = [part for _, parts in opened.footer["runs"] for part in parts if part is not None]
    return [place for _, start, length, _ in parts for place in range(start, start + length)]


def test_a_damaged_version_is_passed_over_and_said(tmp_path: Path) -> None:
    tables = random_tables(Random(5), 3)
    store = new_store(tmp_path)
    for number, table in enumerate(tables):
        store.save(number, {}, {"t/rows": table})
    (newest,) = tmp_path.glob(f"{2:012}*.state")
    newest.write_bytes(newest.read_bytes()[:-5])
    saved, problems = new_store(tmp_path).read_newest(SHAPES)
    assert saved is not None
    assert saved.number == 1
    assert len(problems) == 1
    assert content(saved.tables["t/rows"]) == content(tables[1])


def test_versions_that_all_are_damaged_are_cleared_away(tmp_path: Path) -> None:
    """Else a later run, which counts from the first number again, would write new files under old versions."""
    tables = random_tables(Random(11), 4)
    store = new_store(tmp_path)
    for number, table in enumerate(tables):
        store.save(number, {}, {"t/rows": table})
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    saved, problems = new_store(tmp_path).read_newest(SHAPES)
    assert saved is None
    assert problems
    assert not new_store(tmp_path).versions()


def test_a_task_that_is_run_twice_harms_nothing(tmp_path: Path) -> None:
    """Both go on from one version, each with runs of its own; whoever builds on one of them does not meet the other."""
    tables = random_tables(Random(12), 8)
    store = new_store(tmp_path)
    store.save(0, {}, {"t/rows": tables[0]})
    other = new_store(tmp_path)
    again = other.read(VersionId.from_horizons(0, {}), SHAPES).tables["t/rows"]
    store.save(1, {}, {"t/rows": tables[1]})
    other.save(1, {}, {"t/rows": again.with_rows(random_rows(Random(13), 5))})
    store.save(2, {}, {"t/rows": tables[2]})
    assert content(new_store(tmp_path).read(VersionId.from_horizons(2, {}), SHAPES).tables["t/rows"]) == content(
        tables[2]
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_reader_catches_up(tmp_path: Path, seed: int) -> None:
    """It has read some versions and missed others; what it finds is what a reader finds that has read nothing."""
    random = Random(seed)
    store, reader = new_store(tmp_path), new_store(tmp_path)
    known: dict[str, StateTable] = {}
    for number, table in enumerate(random_tables(random, 40)):
        store.save(number, {}, {"t/rows": table})
        if random.random() < 0.5:
            found = reader.read(VersionId.from_horizons(number, {}), SHAPES, whole=False, known_tables=known)
            known = dict(found.tables)
            assert content(known["t/rows"]) == content(table)


def test_state_of_another_program_is_refused(tmp_path: Path) -> None:
    new_store(tmp_path).save(0, {}, {"t/rows": StateTable(SHAPE)})
    with pytest.raises(SmileError, match="another program"):
        StateStore.open(str(tmp_path), "q").read_newest(SHAPES)


def test_columns_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    table = random_tables(Random(6), 1)[-1]
    new_store(tmp_path).save(0, {}, {"t/rows": table})
    saved = new_store(tmp_path).read(VersionId.from_horizons(0, {}), SHAPES, whole=False)
    (run,) = saved.tables["t/rows"].runs
    there, rows = saved.tables["t/rows"].find([ValueColumn(np.array([1])), v.from_arrow_text(pa.array(["é"]))])
    assert {"f", "b", "d"}.isdisjoint(run.rows.cache)  # type: ignore[attr-defined]
    if there[0]:
        assert rows["n"].data[0] == 0


def test_a_full_disk_leaves_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = random_tables(Random(8), 3)
    store = new_store(tmp_path)
    store.save(0, {}, {"t/rows": tables[0]})
    monkeypatch.setattr(store, "root", str(tmp_path / "no" / "such" / "folder"))
    with pytest.raises(SmileError, match="cannot be written"):
        store.save(1, {}, {"t/rows": tables[1]})
    monkeypatch.undo()
    store.save(2, {}, {"t/rows": tables[2]})
    saved, problems = new_store(tmp_path).read_newest(SHAPES)
    assert not problems
    assert saved is not None
    assert content(saved.tables["t/rows"]) == content(tables[2])
