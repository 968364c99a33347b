"""Who may do what: against a plain model with random histories, from other processes, and on files that are damaged."""

import random
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from smile.errors import SmileError
from smile.gateway import access as access_module
from smile.gateway.access import RIGHTS_ON_PROGRAM, Access, AccessDatabase, Grant, Right, token_hash
from tests.processes import WAIT_S
from tests.repeatable import scaled


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "access.db"


@pytest.fixture
def accounts(path: Path) -> Iterator[AccessDatabase]:
    made = AccessDatabase(path, create=True)
    yield made
    made.close()


def test_nobody_may_do_anything_at_first(path: Path) -> None:
    access = Access(path)
    assert access.principal(None) is None
    assert access.principal("") is None
    assert access.principal("smile_x") is None
    assert not any(access.is_allowed("alice", right, name) for right in Right for name in ("Matchable", "*", "program"))
    access.close()


def test_where_no_token_is_asked_for_everybody_may_do_everything(path: Path) -> None:
    access = Access(path, requires_tokens=False)
    assert access.principal(None) == access.principal("smile_x") == "local"
    assert access.is_allowed("local", Right.admin, "program")
    assert not path.exists()
    access.close()


def test_a_token_is_kept_as_its_hash_only(path: Path, accounts: AccessDatabase) -> None:
    tokens = [accounts.add_token("alice") for _ in range(20)]
    assert len(set(tokens)) == 20
    assert all(len(token) == len("smile_") + 43 for token in tokens)
    stored = b"".join(file.read_bytes() for file in path.parent.iterdir())
    for token in tokens:
        assert token.encode() not in stored
        assert token[6:].encode() not in stored
        assert token_hash(token).encode() in stored
    access = Access(path)
    assert {access.principal(token) for token in tokens} == {"alice"}
    assert [
        access.principal(t) for t in (tokens[0][:-1], tokens[0] + "A", token_hash(tokens[0]), tokens[0].lower())
    ] == [None] * 4
    assert access.principal("\ud800") is None
    access.close()


def test_only_its_owner_reads_the_file(path: Path, accounts: AccessDatabase) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    AccessDatabase(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("seed", range(scaled(10)))
def test_a_random_history_against_a_plain_model(path: Path, accounts: AccessDatabase, seed: int) -> None:
    chance = random.Random(seed)
    clock = Clock()
    access = Access(path, clock=clock)
    tokens: dict[str, str] = {}
    grants: set[Grant] = set()
    gone: list[str] = []
    principals, names = ["alice", "bob@example.org", "c"], ["Matchable", "BuyBids", "program", "*", "matchable"]
    for _ in range(60):
        principal = chance.choice(principals)
        right = chance.choice(list(Right))
        grant = Grant(right, "program" if right in RIGHTS_ON_PROGRAM else chance.choice(names), principal)
        match chance.randrange(5):
            case 0:
                tokens[accounts.add_token(principal)] = principal
            case 1:
                of_it = [token for token, owner in tokens.items() if owner == principal]
                assert accounts.revoke_tokens(principal) == len(of_it)
                gone += of_it
                tokens = {token: owner for token, owner in tokens.items() if owner != principal}
            case 2:
                assert accounts.revoke(grant) == (grant in grants)
                grants.discard(grant)
            case _:
                assert accounts.grant(grant) == (grant not in grants)
                grants.add(grant)
        clock.now += 0.5
        assert all(access.principal(token) == owner for token, owner in tokens.items())
        assert not any(access.principal(token) for token in gone)
        for asked in (Grant(r, n, p) for r in Right for n in names for p in [*principals, "d"]):
            is_on_program = asked.right in RIGHTS_ON_PROGRAM
            wanted = {Grant(asked.right, "program" if is_on_program else asked.name, asked.principal)}
            wanted |= set() if is_on_program else {Grant(asked.right, "*", asked.principal)}
            assert access.is_allowed(asked.principal, asked.right, asked.name) == bool(wanted & grants), asked
    assert accounts.read_entries().grants == grants
    access.close()


def test_it_looks_at_the_file_no_more_than_twice_a_second(path: Path, accounts: AccessDatabase) -> None:
    clock = Clock()
    access = Access(path, clock=clock)
    token = accounts.add_token("alice")
    assert access.principal(token) == "alice"
    accounts.revoke_tokens("alice")
    clock.now = 0.49
    assert access.principal(token) == "alice"
    clock.now = 0.5
    assert access.principal(token) is None
    access.close()


def test_it_sees_what_another_process_does(path: Path) -> None:
    clock = Clock()
    access = Access(path, clock=clock)
    script = (
        "import sys; from pathlib import Path; from smile.gateway.access import *; a = AccessDatabase(Path(sys.argv[1]));"
        "a.grant(Grant('SUBSCRIBE', 'Matchable', 'alice')); print(a.add_token('alice'))"
    )
    process = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    clock.now = 0.5
    assert access.principal(process.stdout.strip()) == "alice"
    assert access.is_allowed("alice", "SUBSCRIBE", "Matchable")
    access.close()


def test_threads_may_ask_while_another_process_writes(path: Path, accounts: AccessDatabase) -> None:
    access = Access(path)
    token = accounts.add_token("alice")
    accounts.grant(Grant("PUBLISH", "*", "alice"))
    access._refreshed_at = -1  # as if a moment had passed
    denied: list[int] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            access._refreshed_at = -1  # every question looks at the file
            if access.principal(token) != "alice" or not access.is_allowed("alice", "PUBLISH", "BuyBids"):
                denied.append(1)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(100):
        accounts.grant(Grant("PUBLISH", f"S{number}", "bob"))
    done.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert denied == []
    access.close()


def test_a_writer_that_takes_its_time_stops_nobody(path: Path, accounts: AccessDatabase) -> None:
    clock = Clock()
    access = Access(path, clock=clock)
    token = accounts.add_token("alice")
    assert access.principal(token) == "alice"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    clock.now = 0.5
    assert access.principal(token) == "alice"
    other.execute("DELETE FROM tokens")
    other.execute("COMMIT")
    other.close()
    clock.now = 1.0
    assert access.principal(token) is None
    access.close()


@pytest.mark.parametrize(
    "grant",
    [
        Grant("ADMIN", "Matchable", "alice"),
        Grant("ADMIN", "*", "alice"),
        Grant("PUBLISH", "", "alice"),
        Grant("PUBLISH", "a\nb", "alice"),
        Grant("PUBLISH", "BuyBids", ""),
        Grant("PUBLISH", "BuyBids", "a b"),
        Grant("PUBLISH", "BuyBids", "a" * 201),
    ],
)
def test_grants_that_make_no_sense(accounts: AccessDatabase, grant: Grant) -> None:
    with pytest.raises(SmileError) as caught:
        accounts.grant(grant)
    assert caught.value.diagnostics[0].code == "E093"
    assert accounts.read_entries().grants == frozenset()


def filled(path: Path) -> str:
    accounts = AccessDatabase(path, create=True)
    accounts.grant(Grant("PUBLISH", "BuyBids", "alice"))
    accounts.grant(Grant("SUBSCRIBE", "*", "bob"))
    token = accounts.add_token("alice")
    accounts.close()
    return token


@pytest.mark.parametrize("seed", range(scaled(40)))
def test_a_flipped_bit_gives_nobody_a_right(path: Path, seed: int) -> None:
    """Either nothing has changed, or the broker says that the file is damaged, or a right is lost: never gained."""
    chance = random.Random(seed)
    token = filled(path)
    whole = AccessDatabase(path).read_entries()
    damaged = bytearray(path.read_bytes())
    used = [i for i, byte in enumerate(damaged) if byte]  # most of the file is empty
    for _ in range(chance.choice([1, 1, 5])):
        damaged[chance.choice(used)] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(damaged))
    try:
        access = Access(path)
    except SmileError as problem:
        codes = [d.code for d in problem.diagnostics]
        assert codes == ["E105"]
        return
    known = access._current_entries()
    assert known.tokens.items() <= whole.tokens.items()
    assert known.grants <= whole.grants
    assert access.principal(token) in ("alice", None)
    access.close()


@pytest.mark.parametrize("content", [b"no database", b"\0" * 4096, b"SQLite format 3\0" + b"\xff" * 5000])
def test_something_else_is_not_taken_for_it(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(SmileError, match=r"access\.db") as caught:
        Access(path)
    assert caught.value.diagnostics[0].code == "E105"
    assert path.read_bytes() == content


def test_another_database_and_a_newer_one(path: Path) -> None:
    filled(path)
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 2")
    database.commit()
    with pytest.raises(SmileError, match="newer version"):
        Access(path)
    database.execute("PRAGMA user_version = 1")
    database.execute("PRAGMA application_id = 7")
    database.close()
    with pytest.raises(SmileError, match="something else"):
        Access(path)


@pytest.mark.parametrize("how", ["damaged", "removed", "row"])
def test_a_file_damaged_under_a_running_broker(path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    """Everything is refused, and said once, until the file is put back."""
    clock = Clock()
    token = filled(path)
    copy = path.read_bytes()
    access = Access(path, clock=clock)
    assert access.is_allowed("alice", "PUBLISH", "BuyBids")
    if how == "row":
        database = sqlite3.connect(path)
        database.execute("UPDATE grants SET name = '*' WHERE principal = 'alice'")
        database.commit()
        database.close()
    else:
        path.unlink()
        if how == "damaged":
            path.write_bytes(b"x" * 10_000)
    for _ in range(3):
        clock.now += 0.5
        assert not access.is_allowed("alice", "PUBLISH", "BuyBids")
        assert not access.is_allowed("alice", "PUBLISH", "SellBids")
        assert access.principal(token) is None
    assert [record.levelname for record in caplog.records if record.name == access_module.logger.name] == ["ERROR"]
    path.unlink(missing_ok=True)
    path.write_bytes(copy)
    clock.now += 0.5
    assert access.is_allowed("alice", "PUBLISH", "BuyBids")
    assert access.principal(token) == "alice"
    access.close()


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SmileError, match="cannot be used: File exists"):
        Access(tmp_path / "file" / "access.db")
    with pytest.raises(SmileError, match="cannot be used: No such file"):
        AccessDatabase(tmp_path / "nothing" / "access.db")
