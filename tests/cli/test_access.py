"""`smile token`, `grant`, `revoke` and `grants`, as processes and on files; what they change is seen by a broker's `Access`."""

import re
import stat
import subprocess
from pathlib import Path

import pytest
from typer.testing import Result

from smile.gateway.access import Access
from tests.processes import SMILE, WAIT_S, clean_environment, invoke_smile


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "smile-data"


def smile(*words: str, code: int = 0) -> Result:
    result = invoke_smile(*words)
    assert result.exit_code == code, result.output
    return result


def token(*words: str) -> str:
    result = smile("token", *words)
    assert re.fullmatch(r"smile_[\w-]{43}\n", result.stdout)
    return result.stdout.strip()


def test_a_token_is_printed_alone_and_once(data: Path) -> None:
    first, second = token("alice"), token("alice")
    assert first != second
    access = Access(data / "access.db")
    assert access.principal(first) == access.principal(second) == "alice"
    access.close()
    assert first not in smile("grants").output
    assert stat.S_IMODE((data / "access.db").stat().st_mode) == 0o600


def test_revoked_tokens_no_longer_work(data: Path) -> None:
    of_alice, of_bob = token("alice"), token("bob")
    token("alice")
    assert smile("token", "alice", "--revoke").stderr == "smile: alice: 2 tokens revoked\n"
    access = Access(data / "access.db")
    assert access.principal(of_alice) is None
    assert access.principal(of_bob) == "bob"
    access.close()


def test_rights_are_granted_and_revoked(data: Path) -> None:
    assert smile("grant", "PUBLISH", "ON", "BuyBids", "TO", "alice").stderr == (
        "smile: PUBLISH ON BuyBids TO alice: granted\n"
    )
    assert "was granted before" in smile("grant", "publish", "on", "BuyBids", "to", "alice").stderr
    smile("grant", "SUBSCRIBE", "ON", "*", "TO", "bob")
    smile("grant", "ADMIN", "ON", "program", "TO", "bob")
    token("bob")
    assert smile("grants").stdout == (
        "alice: 0 tokens\n  PUBLISH ON BuyBids\nbob: 1 token\n  ADMIN ON program\n  SUBSCRIBE ON *\n"
    )
    access = Access(data / "access.db")
    assert access.is_allowed("alice", "PUBLISH", "BuyBids")
    assert access.is_allowed("bob", "SUBSCRIBE", "Matchable")
    assert not access.is_allowed("alice", "SUBSCRIBE", "Matchable")
    access.close()
    assert smile("revoke", "SUBSCRIBE", "ON", "*", "FROM", "bob").stderr == "smile: SUBSCRIBE ON * FROM bob: revoked\n"
    smile("revoke", "ADMIN", "ON", "program", "TO", "bob")
    assert "was not granted" in smile("revoke", "PUBLISH", "ON", "SellBids", "FROM", "alice", code=1).stderr
    assert smile("grants").stdout == "alice: 0 tokens\n  PUBLISH ON BuyBids\nbob: 1 token\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["grant", "WRITE", "ON", "a", "TO", "b"], "WRITE"),
        (["grant", "PUBLISH", "AT", "a", "TO", "b"], "write: RIGHT ON NAME TO PRINCIPAL"),
        (["grant", "PUBLISH", "ON", "a", "FROM", "b"], "write: RIGHT ON NAME TO PRINCIPAL"),
        (["revoke", "PUBLISH", "ON", "a", "AT", "b"], "write: RIGHT ON NAME FROM PRINCIPAL"),
        (["grant", "PUBLISH", "ON", "a", "TO"], "Missing argument"),
        (["grant", "ADMIN", "ON", "Matchable", "TO", "b"], "E093: ADMIN is granted on program, not on Matchable"),
        (["token", "a b"], "E093: 'a b' is not a name of a principal"),
        (["token", ""], "E093"),
        (["grants", "--config", "nothing.toml"], "E100: nothing.toml cannot be read"),
        (["grants", "--data", ""], "E100: --data: it must not be empty"),
    ],
)
def test_misuse(words: list[str], message: str) -> None:
    assert message in smile(*words, code=2).stderr


def test_nothing_there(data: Path) -> None:
    """Looking does not make a directory; nor does revoking."""
    for words in (["grants"], ["token", "a", "--revoke"], ["revoke", "PUBLISH", "ON", "a", "FROM", "b"]):
        assert "E105: smile-data/access.db cannot be used: No such file or directory" in smile(*words, code=1).stderr
    assert not data.exists()


def test_a_damaged_file(data: Path) -> None:
    data.mkdir()
    (data / "access.db").write_bytes(b"x" * 5000)
    for words in (["grants"], ["token", "a"], ["grant", "PUBLISH", "ON", "a", "TO", "b"]):
        result = smile(*words, code=1)
        assert "E105: smile-data/access.db is damaged" in result.stderr
        assert result.stdout == ""


def test_the_directory_is_the_brokers(data: Path, tmp_path: Path) -> None:
    """As a flag, the environment or the file of settings say."""
    (tmp_path / "smile.toml").write_text('data = "one"')
    token("a", "--config", "smile.toml")
    invoke_smile("token", "b", "--config", "smile.toml", SMILE_DATA="two")
    invoke_smile("token", "c", "--config", "smile.toml", "--data", "three", SMILE_DATA="two")
    assert [smile("grants", "--data", place).stdout[0] for place in ("one", "two", "three")] == ["a", "b", "c"]
    assert not data.exists()


@pytest.mark.slow
def test_as_processes_at_the_same_time(data: Path, tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    running = [
        subprocess.Popen(
            [SMILE, "token", "alice"], cwd=tmp_path, env=clean_environment(), stdout=pipe, stderr=pipe, text=True
        )
        for _ in range(4)
    ]
    outputs = [process.communicate(timeout=WAIT_S) for process in running]
    assert [(process.returncode, error) for process, (_, error) in zip(running, outputs, strict=True)] == [(0, "")] * 4
    access = Access(data / "access.db")
    assert {access.principal(out.strip()) for out, _ in outputs} == {"alice"}
    access.close()
