"""A version is read back as it was written; damage of any byte is detected, and damaged data is never returned."""

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from smile import limits
from smile.columns import values as v
from smile.columns.packed import LazyMapping
from smile.columns.values import ValueColumn
from smile.errors import SmileError
from smile.state import file
from smile.state.file import StateFile
from smile.state.run import TableSchema
from smile.state.store import StateStore, VersionId
from smile.state.table import StateTable
from tests.repeatable import scaled

SCHEMA = TableSchema(
    ("k", "s"),
    {"k": pa.int64(), "s": pa.string(), "n": pa.int64(), "f": pa.float64(), "b": pa.bool_(), "d": pa.decimal128(38, 0)},
    (("s",),),
    ("n",),
)
SCHEMAS = {"t/rows": SCHEMA}


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


def table_rows(table: StateTable) -> set[tuple[str, ...]]:
    rows = table.scan()
    columns = [v.to_arrow(rows[name], kind).to_pylist() for name, kind in SCHEMA.columns.items()]
    return {tuple(map(repr, row)) for row in zip(*columns, strict=True)}


def random_tables(random: Random, versions: int) -> list[StateTable]:
    tables = [StateTable(SCHEMA)]
    for _ in range(versions):
        count = random.randint(1, 30)
        deleted = np.array([random.random() < 0.3 for _ in range(count)])
        tables.append(tables[-1].with_rows(random_rows(random, count), deleted))
    return tables[1:]


@pytest.fixture(autouse=True, params=[1, 10**9], ids=["indexes stored", "indexes rebuilt"])
def _store_indexes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "INDEXED_ROWS_MIN", request.param)


def open_store(folder: Path) -> StateStore:
    return StateStore.open(str(folder), "p")


@pytest.mark.parametrize("seed", range(scaled(20)))
def test_what_is_read_is_what_was_written(tmp_path: Path, seed: int) -> None:
    tables = random_tables(Random(seed), 12)
    store = open_store(tmp_path)
    for number, table in enumerate(tables):
        store.save(number, {"A": number}, {"t/rows": table})
    assert len(list(tmp_path.glob("*.new"))) == 0
    for number in range(len(tables) - limits.state_versions_kept, len(tables)):
        saved = open_store(tmp_path).read(VersionId.from_horizons(number, {"A": number}), SCHEMAS)
        assert saved.horizons == {"A": number}
        assert table_rows(saved.tables["t/rows"]) == table_rows(tables[number])


def test_a_resumed_store_goes_on_where_it_was(tmp_path: Path) -> None:
    tables = random_tables(Random(1), 20)
    open_store(tmp_path).save(0, {}, {"t/rows": tables[9]})
    store = open_store(tmp_path)
    saved = store.read(VersionId.from_horizons(0, {}), SCHEMAS)
    before = {p.name for p in tmp_path.iterdir()}
    store.save(1, {}, saved.tables)
    (added,) = {p.name for p in tmp_path.iterdir()} - before
    assert (tmp_path / added).stat().st_size < 2_000, "there is no new run, so only the footer is written"
    assert table_rows(
        open_store(tmp_path).read(VersionId.from_horizons(1, {}), SCHEMAS).tables["t/rows"]
    ) == table_rows(tables[9])


def test_files_that_no_version_needs_are_deleted(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number, table in enumerate(random_tables(Random(2), 200)):
        store.save(number, {}, {"t/rows": table})
    assert len(list(tmp_path.iterdir())) < 30


@pytest.mark.slow
def test_every_damaged_byte_is_found(tmp_path: Path) -> None:
    table = random_tables(Random(3), 3)[-1]
    open_store(tmp_path).save(7, {}, {"t/rows": table})
    (path,) = tmp_path.glob("*.state")
    content = path.read_bytes()
    used_offsets = _used_offsets(tmp_path)
    random = Random(4)
    for offset in [*random.sample(used_offsets, 60), len(content) - 1, len(content) - 12, len(content) - 20]:
        flipped = bytes([content[offset] ^ (1 << random.randrange(8))])
        path.write_bytes(content[:offset] + flipped + content[offset + 1 :])
        with pytest.raises(SmileError, match="damaged"):
            open_store(tmp_path).read(VersionId.from_horizons(7, {}), SCHEMAS)
    for length in random.sample(range(len(content)), 30):
        path.write_bytes(content[:length])
        with pytest.raises(SmileError, match="damaged"):
            open_store(tmp_path).read(VersionId.from_horizons(7, {}), SCHEMAS)


def _used_offsets(folder: Path) -> list[int]:
    """The offsets of all bytes of columns, without the padding between them."""
    (path,) = folder.glob("*.state")
    state_file = StateFile(open_store(folder).filesystem, str(path))
    parts = [part for _, parts in state_file.footer["runs"] for part in parts if part is not None]
    return [offset for _, start, length, _ in parts for offset in range(start, start + length)]


def test_a_damaged_version_is_skipped_and_reported(tmp_path: Path) -> None:
    tables = random_tables(Random(5), 3)
    store = open_store(tmp_path)
    for number, table in enumerate(tables):
        store.save(number, {}, {"t/rows": table})
    (newest,) = tmp_path.glob(f"{2:012}*.state")
    newest.write_bytes(newest.read_bytes()[:-5])
    saved, problems = open_store(tmp_path).read_newest(SCHEMAS)
    assert saved is not None
    assert saved.number == 1
    assert len(problems) == 1
    assert table_rows(saved.tables["t/rows"]) == table_rows(tables[1])


def test_versions_are_deleted_if_all_are_damaged(tmp_path: Path) -> None:
    """Otherwise a later execution, which starts again from the first number, would write among the old versions."""
    tables = random_tables(Random(11), 4)
    store = open_store(tmp_path)
    for number, table in enumerate(tables):
        store.save(number, {}, {"t/rows": table})
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    saved, problems = open_store(tmp_path).read_newest(SCHEMAS)
    assert saved is None
    assert problems
    assert not open_store(tmp_path).versions()


def test_a_task_that_is_run_twice_harms_nothing(tmp_path: Path) -> None:
    """Both tasks continue from one version with different runs. A version that builds on one does not see the other."""
    tables = random_tables(Random(12), 8)
    store = open_store(tmp_path)
    store.save(0, {}, {"t/rows": tables[0]})
    other = open_store(tmp_path)
    reread = other.read(VersionId.from_horizons(0, {}), SCHEMAS).tables["t/rows"]
    store.save(1, {}, {"t/rows": tables[1]})
    other.save(1, {}, {"t/rows": reread.with_rows(random_rows(Random(13), 5))})
    store.save(2, {}, {"t/rows": tables[2]})
    assert table_rows(
        open_store(tmp_path).read(VersionId.from_horizons(2, {}), SCHEMAS).tables["t/rows"]
    ) == table_rows(tables[2])


@pytest.mark.parametrize("seed", range(scaled(20)))
def test_a_reader_catches_up(tmp_path: Path, seed: int) -> None:
    """A reader that has read some versions and skipped others reads the same rows as a new reader."""
    random = Random(seed)
    store, reader = open_store(tmp_path), open_store(tmp_path)
    known: dict[str, StateTable] = {}
    for number, table in enumerate(random_tables(random, 40)):
        store.save(number, {}, {"t/rows": table})
        if random.random() < 0.5:
            saved = reader.read(VersionId.from_horizons(number, {}), SCHEMAS, whole=False, known_tables=known)
            known = dict(saved.tables)
            assert table_rows(known["t/rows"]) == table_rows(table)


def test_state_of_another_program_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path).save(0, {}, {"t/rows": StateTable(SCHEMA)})
    with pytest.raises(SmileError, match="another program"):
        StateStore.open(str(tmp_path), "q").read_newest(SCHEMAS)


def test_columns_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    table = random_tables(Random(6), 1)[-1]
    open_store(tmp_path).save(0, {}, {"t/rows": table})
    saved = open_store(tmp_path).read(VersionId.from_horizons(0, {}), SCHEMAS, whole=False)
    (run,) = saved.tables["t/rows"].runs
    is_present, rows = saved.tables["t/rows"].find([ValueColumn(np.array([1])), v.from_arrow_text(pa.array(["é"]))])
    assert isinstance(run.rows, LazyMapping)
    assert {"f", "b", "d"}.isdisjoint(run.rows.cache)
    if is_present[0]:
        assert rows["n"].data[0] == 0


def test_a_full_disk_leaves_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = random_tables(Random(8), 3)
    store = open_store(tmp_path)
    store.save(0, {}, {"t/rows": tables[0]})
    monkeypatch.setattr(store, "root", str(tmp_path / "no" / "such" / "folder"))
    with pytest.raises(SmileError, match="cannot be written"):
        store.save(1, {}, {"t/rows": tables[1]})
    monkeypatch.undo()
    store.save(2, {}, {"t/rows": tables[2]})
    saved, problems = open_store(tmp_path).read_newest(SCHEMAS)
    assert not problems
    assert saved is not None
    assert table_rows(saved.tables["t/rows"]) == table_rows(tables[2])
