"""A remote log returns what the durable log behind it returns, whatever was appended, and after lost connections."""

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
from smile.gateway.connection_counts import ConnectionCounts
from smile.gateway.flight.server import FlightServer
from smile.gateway.rate_limiter import RateLimiter
from smile.horizons import END, HORIZON_MIN
from smile.log.position import BatchLimit, Log, Position
from smile.log.storage import remote
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece
from smile.log.storage.reading import read_batches
from smile.log.storage.remote import TOKEN_VARIABLE, RemoteLog, ServedLog
from smile.settings import Settings
from tests.log.test_durable import STREAMS, batch
from tests.repeatable import scaled


@dataclass
class FakeBroker:
    """The part of a broker that reading its log needs."""

    log: DurableLog
    views: dict[str, Any] = field(default_factory=dict)
    log_token: str = field(default_factory=lambda: f"smile_{secrets.token_urlsafe(32)}")


def start_server(log: DurableLog, access: Access, port: int = 0) -> FlightServer:
    settings = Settings(flight=f"127.0.0.1:{port}")
    limiters = RateLimiter(0, "requests"), RateLimiter(0, "events")
    return FlightServer(FakeBroker(log), settings, access, *limiters, ConnectionCounts(999, 999))  # type: ignore[arg-type]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DurableLog]:
    durable_log = DurableLog.open_or_create(str(tmp_path / "log"), STREAMS, flush=False)
    yield durable_log
    durable_log.close()


@pytest.fixture
def access(tmp_path: Path) -> Iterator[Access]:
    access = Access(tmp_path / "access.db", requires_tokens=True)
    yield access
    access.close()


@pytest.fixture
def server(log: DurableLog, access: Access) -> Iterator[FlightServer]:
    server = start_server(log, access)
    yield server
    server.stop()


@pytest.fixture
def remote_log(server: FlightServer) -> Iterator[RemoteLog]:
    remote_log = RemoteLog(server.location, STREAMS, server.calls.log_token)
    yield remote_log
    remote_log.close()


def outcome(call: Any) -> Any:
    """The result, or the diagnostics of the error."""
    try:
        return call()
    except SmileError as problem:
        return [(d.code, d.message, d.hint) for d in problem.diagnostics]


# ── the same results ────────────────────────────────────────────────────────────────────────────────────────────────


def append_random_commit(random: Random, log: DurableLog, horizons: dict[tuple[str, str], int]) -> None:
    """Several origins: some new, some far ahead of others, some silent."""
    pieces = []
    for stream in log.streams:
        least = min((h for (s, _), h in horizons.items() if s == stream), default=HORIZON_MIN)
        for number, origin in enumerate(["0", "a", "b"][: random.randint(1, 3)]):
            lo = horizons.get((stream, origin), least)
            hi = lo + random.randrange(1, 60)
            ticks = [t for t in range(lo + 1, hi + 1) if t % 3 == number and random.random() < 0.5]
            horizons[stream, origin] = hi
            events = batch(*ticks) if ticks or random.random() < 0.5 else None
            pieces.append(StreamPiece(stream, origin, lo, hi, events))
    log.append(pieces)


def some_limit(random: Random, positions: list[Position]) -> BatchLimit:
    return BatchLimit(
        rows=random.choice([None, 1, 20, 100]),
        bytes=random.choice([None, None, 500, 5000]),
        commits=random.choice([None, 1, 3]),
        last=random.choice([None, None, random.choice(positions)]),
    )


@pytest.mark.parametrize("seed", range(scaled(12)))
def test_it_returns_what_the_durable_log_returns(seed: int, log: DurableLog, remote_log: RemoteLog) -> None:
    random = Random(seed)
    horizons: dict[tuple[str, str], int] = {}
    assert remote_log.streams == log.streams
    assert remote_log.start() == log.start()
    positions = [log.start(), Position(10**6, log.start().horizons)]
    for _ in range(12):
        append_random_commit(random, log, horizons)
        assert remote_log.newest() == log.newest()
        positions.append(log.newest())
        for _ in range(3):
            state_horizons = {s: random.randrange(-1, 100) for s in random.sample(log.streams, random.randrange(3))}
            positions.append(log.resume_position(state_horizons))
            assert remote_log.resume_position(state_horizons) == positions[-1]
            start, limit = random.choice(positions), some_limit(random, positions)
            assert outcome(lambda: remote_log.backlog(start)) == outcome(lambda: log.backlog(start))  # noqa: B023
            end = outcome(lambda: log.after(start, limit))  # noqa: B023
            assert outcome(lambda: remote_log.after(start, limit)) == end  # noqa: B023
            if isinstance(end, Position):
                positions.append(end)
        start, end = random.choice(positions), random.choice(positions)
        for stream in log.streams:
            expected = outcome(lambda: log.read(stream, start, end))  # noqa: B023
            assert outcome(lambda: remote_log.read(stream, start, end)) == expected  # noqa: B023
    closed = Position(log.newest().commit + 1, {s: dict.fromkeys(o, END) for s, o in log.newest().horizons.items()})
    for stream in log.streams:
        assert remote_log.read(stream, log.start(), closed).equals(log.read(stream, log.start(), closed))


def test_it_has_only_the_streams_that_it_was_created_for(log: DurableLog, remote_log: RemoteLog) -> None:
    random, horizons = Random(1), dict[tuple[str, str], int]()
    some_remote = RemoteLog(remote_log.location, STREAMS[1:], remote_log._token)
    some_local = DurableLog(log.path, STREAMS[1:])
    append_random_commit(random, log, horizons)
    before = remote_log.newest()
    log.add_streams([mmpl.StreamDef("T", "t", STREAMS[0].columns)])
    for _ in range(10):
        append_random_commit(random, log, horizons)
    assert content(some_remote) == content(some_local) != content(remote_log)
    assert remote_log.after(before, BatchLimit()) == DurableLog(log.path, STREAMS).after(before, BatchLimit())
    all_remote = RemoteLog(remote_log.location, [schema.stream for schema in log.schemas.values()], remote_log._token)
    assert content(all_remote) == content(log) != content(remote_log)
    log.truncate(dict.fromkeys(log.streams, log.newest().stream_horizons()["T"]))
    for remote_one, local_one in ((some_remote, some_local), (all_remote, log)):
        assert outcome(lambda: content(remote_one)) == outcome(lambda: content(local_one))  # noqa: B023
        assert outcome(remote_one.newest) == outcome(local_one.newest)
    with pytest.raises(SmileError) as failure:
        content(all_remote)
    assert code(failure) == "E097"
    for opened in (some_remote, some_local, all_remote):
        opened.close()


def content(log: Log) -> list[Any]:
    return [
        (input_batch.horizons, {stream: events.to_pylist() for stream, events in input_batch.events.items()})
        for input_batch in read_batches(log, BatchLimit(rows=50))
    ]


@pytest.mark.parametrize("seed", range(scaled(3)))
def test_several_threads_read_while_it_is_written(seed: int, log: DurableLog, remote_log: RemoteLog) -> None:
    random, horizons = Random(seed), dict[tuple[str, str], int]()
    done, results = threading.Event(), list[bool]()

    def read() -> None:
        position, rows = remote_log.start(), 0
        while not (done.is_set() and remote_log.after(position, BatchLimit()) == position):
            end = remote_log.after(position, BatchLimit(commits=2))
            rows += remote_log.read("R", position, end).num_rows
            position = end
        results.append(rows == log.read("R", log.start(), log.newest()).num_rows)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(40):
        append_random_commit(random, log, horizons)
    done.set()
    for reader in readers:
        reader.join(300)
    assert results == [True] * 3
    assert content(remote_log) == content(log)


def test_a_range_comes_in_several_messages(
    log: DurableLog, remote_log: RemoteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append([StreamPiece("R", "0", HORIZON_MIN, 5000, batch(*range(5000)))])
    monkeypatch.setattr(limits, "flight_batch_bytes", 1000)
    assert remote_log.read("R", log.start(), log.newest()).equals(log.read("R", log.start(), log.newest()))


# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def code(failure: pytest.ExceptionInfo[SmileError]) -> str:
    return failure.value.diagnostics[0].code


def test_errors_are_those_of_the_log(log: DurableLog, remote_log: RemoteLog, tmp_path: Path) -> None:
    log.append([StreamPiece("R", "0", HORIZON_MIN, 5, batch(2))])
    beyond = Position(7, log.start().horizons)
    with pytest.raises(SmileError, match="has no commit 7, although it was read") as failure:
        remote_log.after(beyond, BatchLimit())
    assert code(failure) == "E089"
    assert failure.value.diagnostics[0].hint
    for path in tmp_path.glob("log*"):
        path.rename(tmp_path / f"away-{path.name}")
    with pytest.raises(SmileError, match="there is no log at") as failure:
        RemoteLog(
            remote_log.location, STREAMS[:1], remote_log._token
        ).newest()  # the broker has not opened these streams yet
    assert code(failure) == "E070"


def test_a_log_of_other_streams_is_refused(server: FlightServer) -> None:
    others = [STREAMS[0], mmpl.StreamDef("S", "t", (("v", INT),))]
    for streams in (others, [*STREAMS, mmpl.StreamDef("Q", "t", ())]):
        with pytest.raises(SmileError, match="has other streams") as failure:
            RemoteLog(server.location, streams, server.calls.log_token).newest()
        assert code(failure) == "E087"


def test_events_are_read_with_a_right_of_its_own(server: FlightServer, log: DurableLog, tmp_path: Path) -> None:
    """Neither ADMIN nor PUBLISH nor SUBSCRIBE is enough, nor READ on some of the streams."""
    accounts = AccessDatabase(tmp_path / "access.db")
    tokens = {name: accounts.add_token(name) for name in ("anna", "bert", "carl", "dora")}
    for stream in STREAMS:
        accounts.grant(Grant("READ", stream.name, "anna"))
    accounts.grant(Grant("ADMIN", "program", "bert"))
    accounts.grant(Grant("SUBSCRIBE", "*", "carl"))
    accounts.grant(Grant("PUBLISH", "*", "carl"))
    accounts.grant(Grant("READ", STREAMS[0].name, "dora"))
    accounts.close()
    server.calls.access._refreshed_at = -limits.access_age_s_max
    assert RemoteLog(server.location, STREAMS, tokens["anna"]).newest() == log.newest()
    with pytest.raises(SmileError, match="names no streams"):
        RemoteLog(server.location, [], tokens["anna"]).newest()
    unauthorized = [(tokens[name], "E090") for name in ("bert", "carl", "dora")]
    for token, expected in (*unauthorized, ("", "E091"), ("smile_wrong", "E091")):
        for call in (RemoteLog.newest, lambda remote_log: remote_log.read("R", log.start(), log.newest())):
            with pytest.raises(SmileError) as failure:
                call(RemoteLog(server.location, STREAMS, token))
            assert code(failure) == expected


# ── pickling ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_token_is_neither_pickled_nor_shown(
    server: FlightServer, log: DurableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = server.calls.log_token
    remote_log = RemoteLog(server.location, STREAMS, token)
    assert remote_log.newest() == log.newest()
    pickled = pickle.dumps(remote_log)
    for shown in (pickled, repr(remote_log).encode(), str(remote_log).encode()):
        assert token.encode() not in shown
        assert token.removeprefix("smile_").encode() not in shown
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(SmileError) as failure:
        pickle.loads(pickled).newest()
    assert code(failure) == "E091"
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    assert pickle.loads(pickled).newest() == log.newest()


def test_a_served_log_is_read_locally_or_remotely(
    log: DurableLog, remote_log: RemoteLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append([StreamPiece("R", "0", HORIZON_MIN, 5, batch(2))])
    served = ServedLog(log.path, STREAMS, remote_log)
    pickled = pickle.dumps(served)
    assert remote_log._token.encode() not in pickled
    local = pickle.loads(pickled)
    assert isinstance(local, ServedLog)
    assert isinstance(pickle.loads(pickle.dumps(local)), ServedLog)
    monkeypatch.setenv(TOKEN_VARIABLE, remote_log._token)
    boot_file = tmp_path / "another machine"
    boot_file.write_text("another boot id")
    monkeypatch.setattr(remote, "BOOT", boot_file)
    elsewhere = pickle.loads(pickled)
    assert isinstance(elsewhere, RemoteLog)
    assert content(elsewhere) == content(local) == content(served) == content(log)
    monkeypatch.undo()
    Path(log.path).rename(tmp_path / "moved")
    Path(log.path).write_bytes(b"")  # another file with the same name
    assert isinstance(pickle.loads(pickled), RemoteLog)
    for opened in (served, local, elsewhere):
        opened.close()


# ── lost connections ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_connection_that_is_lost_is_opened_again(log: DurableLog, access: Access) -> None:
    log.append([StreamPiece("R", "0", HORIZON_MIN, 5, batch(2))])
    first = start_server(log, access)
    remote_log = RemoteLog(first.location, STREAMS, first.calls.log_token)
    assert remote_log.newest() == log.newest()
    port, token = first.proxy.port, first.calls.log_token
    first.stop()
    second: list[FlightServer] = []

    def start() -> None:
        server = start_server(log, access, port)
        server.calls.log_token = token
        second.append(server)

    starting = threading.Timer(0.5, start)
    starting.start()
    try:
        assert remote_log.read("R", log.start(), log.newest()).num_rows == 1
    finally:
        starting.join()
        remote_log.close()
        second[0].stop()


def test_a_broker_that_is_gone_is_given_up(log: DurableLog, access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "remote_log_pause_s", 0.01)
    first = start_server(log, access)
    remote_log = RemoteLog(first.location, STREAMS, first.calls.log_token)
    assert remote_log.newest() == log.newest()
    first.stop()
    with pytest.raises(SmileError, match="cannot be read") as failure:
        remote_log.newest()
    assert code(failure) == "E103"
    assert first.location in str(failure.value)
    remote_log.close()


@pytest.mark.parametrize("transient_code", ["E092", "E098"])
def test_a_call_to_an_overloaded_broker_is_repeated(
    transient_code: str, log: DurableLog, remote_log: RemoteLog, server: FlightServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "remote_log_pause_s", 0.01)
    calls = 0
    answer = server.service.log_reader.answer

    def fail_twice(*args: Any) -> bytes:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise error(transient_code, "not now")
        return answer(*args)

    monkeypatch.setattr(server.service.log_reader, "answer", fail_twice)
    assert remote_log.newest() == log.newest()
    assert calls == 3
    calls = -1000  # all tries fail
    with pytest.raises(SmileError, match="not now") as failure:
        remote_log.newest()
    assert code(failure) == transient_code


def test_a_flight_error_without_a_known_code_is_not_decoded() -> None:
    for extra in (b"", b"{}", b'{"error":{"code":"E999","message":"x"}}', b"\xff", b'{"error":3}'):
        assert remote.decode_flight_error(flight.FlightServerError("x", extra)) is None
