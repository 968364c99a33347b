"""A flipped bit in any kind of file of a data directory is reported or harmless. Nothing false is shown, and every
acknowledged event is in the log."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from smile.errors import SmileError
from smile.gateway.access import Access, AccessDatabase, Grant, Right
from tests.brokers import BrokerProcess
from tests.processes import wait_until
from tests.random_programs import SEED_ID, seeds
from tests.torture import floor
from tests.torture.flipped import assert_damage_is_reported, flip, kinds, recorded_at, start_and_check
from tests.torture.left import Left, false_views, has_come_to, left, opened, publish, shown
from tests.torture.witness import name_of

pytestmark = pytest.mark.slow

FLIPS = pytest.mark.parametrize("flips", [1, pytest.param(4, marks=pytest.mark.nightly)])
"""How many bits are flipped, one at a time, in every kind of file."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Left:
    return left(tmp_path_factory.mktemp("left"), Random(1))


def outcome(folder: Path, left: Left, cut: bool = False) -> str:
    """What a broker does on such a directory. It asserts that nothing false is shown. If the log may be `cut`, its
    newest commits may be missing as a whole."""
    tick = None
    try:
        with opened(folder) as broker:
            last = {stream: of["horizon"] for stream, of in broker.status()["streams"].items()}
            wait_until(lambda: broker.failure is not None or has_come_to(broker, last), "it neither goes on nor fails")
            try:
                tick = publish(broker, "Bids", [{"who": "new", "n": 1, "issue": "A", "price": 1, "size": 1}]).ticks[0]
            except SmileError as problem:
                assert_damage_is_reported(problem)
            assert tick is None or tick > left.last["Bids"]
            if broker.failure is not None:
                assert assert_damage_is_reported(broker.failure)
            elif tick is not None:
                wait_until(lambda: broker.failure is not None or has_come_to(broker, {"Bids": tick}), "it stands still")
            shown_views = shown(broker)
            recorded = recorded_at(folder)
            assert recorded is None or false_views(shown_views, recorded) == []
    except SmileError as problem:
        assert_damage_is_reported(problem)
        return "refused"
    if recorded is None:
        return "unreadable"
    for stream, batch in recorded.events.items():
        names = [name_of(row) for row in batch.to_pylist() if row["who"] != "new"]
        wanted = [name_of(event) for event in left.events[stream]]
        assert names == (wanted[: len(names)] if cut else wanted), f"{stream} lacks events"
    assert tick is None or tick in recorded.events["Bids"].column(0).to_pylist()
    return "failed" if broker.failure is not None else "passed over" if broker.warnings else "harmless"


@pytest.mark.parametrize("seed", seeds(1), ids=SEED_ID)
@pytest.mark.parametrize("how", ["crashed", "stopped", "without state"])
@FLIPS
def test_a_flipped_bit_is_told_of_or_harmless(directory: Left, tmp_path: Path, how: str, seed: int, flips: int) -> None:
    random = Random(seed)
    source = directory.crashed if how == "crashed" else directory.stopped
    outcomes: dict[str, list[str]] = {}
    for kind, paths in kinds(source).items():
        if how == "without state" and kind.startswith("state"):
            continue
        for _ in range(flips * (3 if kind == "log" else 1)):
            folder = directory.copied(source, tmp_path / "copy")
            if how == "without state":
                shutil.rmtree(folder / "state")
            at, bit = flip(folder / random.choice(paths).relative_to(source), random)
            with place(f"{kind}, byte {at}, bit {bit}; SMILE_SEEDS={seed} repeats it"):
                outcomes.setdefault(kind, []).append(outcome(folder, directory, kind == "log-wal"))
    wanted = {"broker.json", "log"} | ({"log-wal", "log-shm"} if how == "crashed" else set())
    assert wanted <= {*outcomes}, outcomes
    assert {*outcomes["broker.json"]} == {"refused"}


@contextmanager
def place(where: str) -> Iterator[None]:
    try:
        yield
    except (AssertionError, SmileError) as problem:
        raise AssertionError(f"{where}: {problem!r}") from problem


@pytest.mark.parametrize("seed", seeds(1), ids=SEED_ID)
def test_a_flipped_bit_lets_nobody_in(tmp_path: Path, seed: int) -> None:
    """Of the file of tokens and grants: it is refused, or grants what it did."""
    random = Random(seed)
    path = tmp_path / "access.db"
    accounts = AccessDatabase(path, create=True)
    token = accounts.add_token("alice")
    accounts.grant(Grant(Right.publish, "Bids", "alice"))
    accounts.close()
    whole = path.read_bytes()
    refused = 0
    for _ in range(150):
        path.write_bytes(whole)
        flip(path, random)
        try:
            access = Access(path, True)
        except SmileError as problem:
            assert_damage_is_reported(problem)
            refused += 1
            continue
        try:
            assert access.principal(token) in ("alice", None)
            assert access.principal(token[:-1] + "x") is None
            for right, name in ((Right.publish, "Matches"), (Right.subscribe, "Totals"), (Right.admin, "program")):
                assert not access.is_allowed("alice", right, name)
        finally:
            access.close()
    assert refused


@pytest.mark.parametrize("seed", seeds(1), ids=SEED_ID)
@pytest.mark.parametrize("how", ["crashed", "without state"])
@FLIPS
def test_a_log_that_has_lost_its_end_has_whole_commits(
    directory: Left, tmp_path: Path, how: str, seed: int, flips: int
) -> None:
    """The last bytes of a log are missing although they were flushed: either its state shows this, or the broker
    continues without them."""
    random = Random(seed)
    size = (directory.crashed / "log-wal").stat().st_size
    counts = []
    for _ in range(2 * flips):
        folder = directory.copied(directory.crashed, tmp_path / "copy")
        if how == "without state":
            shutil.rmtree(folder / "state")
        (folder / "log-shm").unlink()
        length = random.choice((random.randrange(size), size - random.randrange(1, 20_000)))
        with (folder / "log-wal").open("r+b") as wal:
            wal.truncate(length)
        with place(f"cut to {length:,} bytes; SMILE_SEEDS={seed} repeats it"):
            counts.append(outcome(folder, directory, cut=True))
    assert {*counts} <= ({"harmless", "refused"} if how == "crashed" else {"harmless"}), counts


@pytest.mark.parametrize("seed", seeds(1), ids=SEED_ID)
@FLIPS
def test_a_torn_tail_takes_nothing_with_it(directory: Left, tmp_path: Path, seed: int, flips: int) -> None:
    """What was on its way to the disk when the machine stopped, and not acknowledged, may be there in part."""
    random = Random(seed)
    whole = (directory.crashed / "log-wal").stat().st_size
    longer = directory.copied(directory.crashed, tmp_path / "longer")
    (longer / "log-shm").unlink()
    with opened(longer) as broker:
        publish(broker, "Bids", [floor.bid(random, "late", n) for n in range(200)])
        wal = (longer / "log-wal").read_bytes()
    assert len(wal) > whole
    for _ in range(2 * flips):
        folder = directory.copied(directory.crashed, tmp_path / "copy")
        (folder / "log-shm").unlink()
        kept = random.randrange(whole, len(wal))
        torn = bytearray(wal[:kept])
        if random.random() < 0.5 and kept > whole:
            # Blocks reach the disk in any order.
            at = random.randrange(whole, kept)
            torn[at : at + 4096] = bytes(len(torn[at : at + 4096]))
        (folder / "log-wal").write_bytes(torn)
        with opened(folder) as broker:
            wait_until(lambda: has_come_to(broker, directory.last), "it does not go on")
            shown_views = shown(broker)
            recorded = recorded_at(folder)
            assert recorded is not None
            assert false_views(shown_views, recorded) == []
        rows = [name_of(row) for row in recorded.events["Bids"].to_pylist()]
        mine = [name_of(event) for event in directory.events["Bids"]]
        assert rows[: len(mine)] == mine
        assert len(rows) in (len(mine), len(mine) + 200)


@pytest.mark.parametrize(
    "kind",
    ["log", *(pytest.param(k, marks=pytest.mark.nightly) for k in ("log-wal", "log-shm", "broker.json", "state"))],
)
@pytest.mark.parametrize("seed", seeds(1), ids=SEED_ID)
def test_a_process_says_what_is_damaged_or_shows_what_is_so(
    directory: Left, tmp_path: Path, kind: str, seed: int
) -> None:
    random = Random(seed)
    source = directory.stopped if kind == "log" else directory.crashed
    folder = directory.copied(source, tmp_path / "smile-data")
    floor.write_program(tmp_path)
    paths = [path for name, of in kinds(folder).items() if name == kind or name.startswith(f"{kind}/") for path in of]
    flip(random.choice(paths), random)
    start_and_check(BrokerProcess(tmp_path))
