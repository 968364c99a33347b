"""A log read over Arrow Flight answers as the durable log it stands for, whatever was appended, and whoever is lost."""

import pickle
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyarrow import flight

from smile import limits
from smile.algebra import mmpl
from smile.algebra.types import INT
from smile.errors import SmileError, error
from smile.gateway.access import Access, AccessDatabase, Grant
from smile.gateway.flight_server import FlightServer
from smile.gateway.rate_limiter import RateLimiter
from smile.log import remote
from smile.log.durable import DurableLog
from smile.log.input_batch import END, HORIZON_MIN
from smile.log.pieces import StreamPiece
from smile.log.position import BatchLimit, Log, Position
from smile.log.reading import read_batches
from smile.log.remote import TOKEN_VARIABLE, RemoteLog, ServedLog
from smile.settings import Settings
from tests.log.test_durable import STREAMS, batch


@dataclass
class Holder:
    """Of a broker, what reading its log takes."""

    log: DurableLog
    views: dict[str, Any] = field(default_factory=dict)
    log_token: str = field(default_factory=lambda: f"smile_{secrets.token_urlsafe(32)}")


def served(log: DurableLog, access: Access, port: int = 0) -> FlightServer:
    settings = Settings(flight=f"127.0.0.1:{port}")
    return FlightServer(Holder(log), settings, access, RateLimiter(0, "requests"), RateLimiter(0, "events"))  # type: ignore[arg-type]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DurableLog]:
    made = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS, flush=False)
    yield made
    made.close()


@pytest.fixture
def access(tmp_path: Path) -> Iterator[Access]:
    made = Access(tmp_path / "access.db", requires_tokens=True)
    yield made
    made.close()


@pytest.fixture
def server(log: DurableLog, access: Access) -> Iterator[FlightServer]:
    made = served(log, access)
    yield made
    made.stop()


@pytest.fixture
def far(server: FlightServer) -> Iterator[RemoteLog]:
    made = RemoteLog(server.location, STREAMS, server.calls.log_token)
    yield made
    made.close()


def answer(question: Any) -> Any:
    """Or the error that is the answer."""
    try:
        return question()
    except SmileError as problem:
        return [(d.code, d.message, d.hint) for d in problem.diagnostics]


# ── the same answers ────────────────────────────────────────────────────────────────────────────────────────────────


def appended(random: Random, log: DurableLog, horizons: dict[tuple[str, str], int]) -> None:
    """Some commit: several origins, some of them new, some far ahead of others, some silent."""
    pieces = []
    for stream in log.streams:
        least = min((h for (s, _), h in horizons.items() if s == stream), default=HORIZON_MIN)
        for number, origin in enumerate(["0", "a", "b"][: random.randint(1, 3)]):
            lo = horizons.get((stream, origin), least)
            hi = lo + random.randrange(1, 60)
            found = [t for t in range(lo + 1, hi + 1) if t % 3 == number and random.random() < 0.5]
            horizons[stream, origin] = hi
            pieces.append(
                StreamPiece(stream, origin, lo, hi, batch(*found) if found or random.random() < 0.5 else None)
            )
    log.append(pieces)


def some_limit(random: Random, newest: int) -> BatchLimit:
    return BatchLimit(
        rows=random.choice([None, 1, 20, 100]),
        bytes=random.choice([None, None, 500, 5000]),
        commits=random.choice([None, 1, 3]),
        last=random.choice([None, None, random.randrange(newest + 2)]),
    )


@pytest.mark.parametrize("seed", range(12))
def test_it_answers_as_the_log_it_stands_for(seed: int, log: DurableLog, far: RemoteLog) -> None:
    random = Random(seed)
    horizons: dict[tuple[str, str], int] = {}
    assert far.streams == log.streams
    assert far.start() == log.start()
    positions = [log.start(), Position(10**6, log.start().horizons)]
    for _ in range(12):
        appended(random, log, horizons)
        assert far.newest() == log.newest()
        positions.append(log.newest())
        for _ in range(3):
            told = {s: random.randrange(-1, 100) for s in random.sample(log.streams, random.randrange(3))}
            positions.append(log.resume_position(told))
            assert far.resume_position(told) == positions[-1]
            start, limit = random.choice(positions), some_limit(random, log.newest().commit)
            assert answer(lambda: far.backlog(start)) == answer(lambda: log.backlog(start))  # noqa: B023
            end = answer(lambda: log.after(start, limit))  # noqa: B023
            assert answer(lambda: far.after(start, limit)) == end  # noqa: B023
            if isinstance(end, Position):
                positions.append(end)
        start, end = random.choice(positions), random.choice(positions)
        for stream in log.streams:
            here = answer(lambda: log.read(stream, start, end))  # noqa: B023
            there = answer(lambda: far.read(stream, start, end))  # noqa: B023
            assert there == here
    closed = Position(log.newest().commit + 1, {s: dict.fromkeys(o, END) for s, o in log.newest().horizons.items()})
    for stream in log.streams:
        assert far.read(stream, log.start(), closed).equals(log.read(stream, log.start(), closed))


def test_of_a_log_with_more_streams_it_has_those_it_was_made_for(log: DurableLog, far: RemoteLog) -> None:
    random, horizons = Random(1), dict[tuple[str, str], int]()
    some = RemoteLog(far.location, STREAMS[1:], far._token)
    near = DurableLog(log.path, STREAMS[1:])
    appended(random, log, horizons)
    before = far.newest()
    log.add_streams([mmpl.StreamDef("T", "t", STREAMS[0].columns)])
    for _ in range(10):
        appended(random, log, horizons)
    assert content(some) == content(near) != content(far)
    assert far.after(before, BatchLimit()) == DurableLog(log.path, STREAMS).after(before, BatchLimit())
    more = RemoteLog(far.location, [shape.stream for shape in log.schemas.values()], far._token)
    assert content(more) == content(log) != content(far)
    log.truncate(dict.fromkeys(log.streams, log.newest().stream_horizons()["T"]))
    for one, other in ((some, near), (more, log)):
        assert answer(lambda: content(one)) == answer(lambda: content(other))  # noqa: B023
        assert answer(one.newest) == answer(other.newest)
    with pytest.raises(SmileError) as failure:
        content(more)
    assert code(failure) == "E097"
    for one in (some, more):
        one.close()
    near.close()


def content(log: Log) -> list[Any]:
    return [
        (f.horizons, {s: b.to_pylist() for s, b in f.events.items()}) for f in read_batches(log, BatchLimit(rows=50))
    ]


@pytest.mark.parametrize("seed", range(3))
def test_several_read_while_it_is_written(seed: int, log: DurableLog, far: RemoteLog) -> None:
    random, horizons = Random(seed), dict[tuple[str, str], int]()
    done, found = threading.Event(), list[bool]()

    def read() -> None:
        position, rows = far.start(), 0
        while not (done.is_set() and far.after(position, BatchLimit()) == position):
            end = far.after(position, BatchLimit(commits=2))
            rows += far.read("R", position, end).num_rows
            position = end
        found.append(rows == log.read("R", log.start(), log.newest()).num_rows)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(40):
        appended(random, log, horizons)
    done.set()
    for reader in readers:
        reader.join(300)
    assert found == [True] * 3
    assert content(far) == content(log)


def test_a_range_comes_in_several_messages(log: DurableLog, far: RemoteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append([StreamPiece("R", "0", HORIZON_MIN, 5000, batch(*range(5000)))])
    monkeypatch.setattr(limits, "flight_batch_bytes", 1000)
    assert far.read("R", log.start(), log.newest()).equals(log.read("R", log.start(), log.newest()))


# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def code(failure: pytest.ExceptionInfo[SmileError]) -> str:
    return failure.value.diagnostics[0].code


def test_errors_are_those_of_the_log(log: DurableLog, far: RemoteLog, tmp_path: Path) -> None:
    log.append([StreamPiece("R", "0", HORIZON_MIN, 5, batch(2))])
    beyond = Position(7, log.start().horizons)
    with pytest.raises(SmileError, match="has no commit 7, though it was read") as failure:
        far.after(beyond, BatchLimit())
    assert code(failure) == "E089"
    assert failure.value.diagnostics[0].hint
    for path in tmp_path.glob("log*"):
        path.rename(tmp_path / f"away-{path.name}")
    with pytest.raises(SmileError, match="there is no log at") as failure:
        RemoteLog(far.location, STREAMS[:1], far._token).newest()  # which nobody has opened yet
    assert code(failure) == "E070"


def test_a_log_of_other_streams_is_refused(server: FlightServer) -> None:
    others = [STREAMS[0], mmpl.StreamDef("S", "t", (("v", INT),))]
    for streams in (others, [*STREAMS, mmpl.StreamDef("Q", "t", ())]):
        with pytest.raises(SmileError, match="has other streams") as failure:
            RemoteLog(server.location, streams, server.calls.log_token).newest()
        assert code(failure) == "E087"


def test_a_token_is_needed_and_admin_may_read(server: FlightServer, log: DurableLog, tmp_path: Path) -> None:
    accounts = AccessDatabase(tmp_path / "access.db")
    tokens = {name: accounts.add_token(name) for name in ("anna", "bert")}
    accounts.grant(Grant("ADMIN", "program", "anna"))
    accounts.grant(Grant("SUBSCRIBE", "*", "bert"))
    accounts.close()
    server.calls.access._refreshed_at = -limits.access_age_s_max
    assert RemoteLog(server.location, STREAMS, tokens["anna"]).newest() == log.newest()
    for token, expected in ((tokens["bert"], "E090"), ("", "E091"), ("smile_wrong", "E091")):
        for question in (RemoteLog.newest, lambda far: far.read("R", log.start(), log.newest())):
            with pytest.raises(SmileError) as failure:
                question(RemoteLog(server.location, STREAMS, token))
            assert code(failure) == expected


# ── pickled ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_token_is_neither_pickled_nor_shown(
    server: FlightServer, log: DurableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = server.calls.log_token
    far = RemoteLog(server.location, STREAMS, token)
    assert far.newest() == log.newest()
    sent = pickle.dumps(far)
    for shown in (sent, repr(far).encode(), str(far).encode()):
        assert token.encode() not in shown
        assert token.removeprefix("smile_").encode() not in shown
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(SmileError) as failure:
        pickle.loads(sent).newest()
    assert code(failure) == "E091"
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    assert pickle.loads(sent).newest() == log.newest()


def test_a_log_that_is_served_is_read_where_it_is_or_from_afar(
    log: DurableLog, far: RemoteLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append([StreamPiece("R", "0", HORIZON_MIN, 5, batch(2))])
    shared = ServedLog(log.path, STREAMS, far)
    sent = pickle.dumps(shared)
    assert far._token.encode() not in sent
    here = pickle.loads(sent)
    assert isinstance(here, ServedLog)
    assert isinstance(pickle.loads(pickle.dumps(here)), ServedLog)
    monkeypatch.setenv(TOKEN_VARIABLE, far._token)
    away = tmp_path / "another machine"
    away.write_text("booted at another time")
    monkeypatch.setattr(remote, "BOOT", away)
    there = pickle.loads(sent)
    assert isinstance(there, RemoteLog)
    assert content(there) == content(here) == content(shared) == content(log)
    monkeypatch.undo()
    Path(log.path).rename(tmp_path / "moved")
    Path(log.path).write_bytes(b"")  # another file by the same name
    assert isinstance(pickle.loads(sent), RemoteLog)
    for one in (shared, here, there):
        one.close()


# ── loss ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_connection_that_is_lost_is_opened_again(log: DurableLog, access: Access) -> None:
    log.append([StreamPiece("R", "0", HORIZON_MIN, 5, batch(2))])
    first = served(log, access)
    far = RemoteLog(first.location, STREAMS, first.calls.log_token)
    assert far.newest() == log.newest()
    port, token = first.proxy.port, first.calls.log_token
    first.stop()
    second: list[FlightServer] = []

    def start() -> None:
        made = served(log, access, port)
        made.calls.log_token = token
        second.append(made)

    starting = threading.Timer(0.5, start)
    starting.start()
    try:
        assert far.read("R", log.start(), log.newest()).num_rows == 1
    finally:
        starting.join()
        far.close()
        second[0].stop()


def test_a_broker_that_is_gone_is_given_up(log: DurableLog, access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "remote_log_pause_s", 0.01)
    first = served(log, access)
    far = RemoteLog(first.location, STREAMS, first.calls.log_token)
    assert far.newest() == log.newest()
    first.stop()
    with pytest.raises(SmileError, match="cannot be read") as failure:
        far.newest()
    assert code(failure) == "E103"
    assert first.location in str(failure.value)
    far.close()


@pytest.mark.parametrize("passing", ["E092", "E098"])
def test_a_broker_with_too_much_to_do_is_asked_again(
    passing: str, log: DurableLog, far: RemoteLog, server: FlightServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "remote_log_pause_s", 0.01)
    asked: list[int] = []
    real = server._log_reader.answer

    def busy(*args: Any) -> bytes:
        asked.append(1)
        if len(asked) < 3:
            raise error(passing, "not now")
        return real(*args)

    monkeypatch.setattr(server._log_reader, "answer", busy)
    assert far.newest() == log.newest()
    assert len(asked) == 3
    monkeypatch.setattr(server._log_reader, "answer", lambda *_: (_ for _ in ()).throw(error(passing, "not now")))
    with pytest.raises(SmileError, match="not now") as failure:
        far.newest()
    assert code(failure) == passing


def test_an_answer_that_is_no_error_of_ours_is_none() -> None:
    for extra in (b"", b"{}", b'{"error":{"code":"E999","message":"x"}}', b"\xff", b'{"error":3}'):
        assert remote.decode_flight_error(flight.FlightServerError("x", extra)) is None
