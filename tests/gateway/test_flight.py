"""Arrow Flight over real sockets: what is acknowledged is published, subscribers receive what the view shows, nobody
exceeds their rights, and clients that stall or vanish do not disturb others."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from smile import limits
from smile.broker.broker import Broker
from smile.broker.views.view import View
from smile.errors import SmileError, error
from smile.gateway.access import ACCESS_FILE, Access, AccessDatabase, Grant
from smile.gateway.connection_counts import ConnectionCounts
from smile.gateway.flight.server import FlightServer
from smile.gateway.frames import frame_batch
from smile.gateway.rate_limiter import RateLimiter
from smile.log.storage.remote import decode_flight_error
from smile.settings import Settings
from tests.brokers import InProcessBroker
from tests.processes import WAIT_S, make_certificate, wait_until
from tests.repeatable import scaled

FLOOR = """
CREATE STREAM Bids (t: time -> issue: string, price: int CHECK (price >= 0));
CREATE VIEW Counts AS SELECT issue, COUNT(*) AS n, MAX(price) AS top FROM Bids GROUP BY issue;
CREATE VIEW Dear AS SELECT t, issue, price FROM Bids WHERE price > 100;
SUBSCRIBE Counts;
SUBSCRIBE Dear;
"""
COUNTS = """
CREATE STREAM Bids (t: time -> issue: string, price: int);
CREATE VIEW Counts AS SELECT issue, COUNT(*) AS n, MAX(price) AS top FROM Bids GROUP BY issue;
SUBSCRIBE Counts;
"""
Json = dict[str, Any]


@dataclass
class Floor:
    """A broker with its Arrow Flight, and a client of it."""

    broker: Broker
    server: FlightServer
    access: Access
    client: flight.FlightClient
    accounts: Path

    def options(self, token: str | None = None, seconds: float = WAIT_S) -> flight.FlightCallOptions:
        headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        return flight.FlightCallOptions(timeout=seconds, headers=headers)

    def publish(self, *batches: pa.RecordBatch, token: str | None = None, about: Any = None) -> list[Json]:
        writer, reader = self.client.do_put(STREAM, batches[0].schema, self.options(token))
        answers = []
        with writer:
            for batch in batches:
                if about is None:
                    writer.write_batch(batch)
                else:
                    writer.write_with_metadata(batch, json.dumps(about).encode())
                answers.append(json.loads(reader.read().to_pybytes()))
            writer.done_writing()
        return answers

    def get(self, token: str | None = None, seconds: float = WAIT_S, **asked: Any) -> flight.FlightStreamReader:
        return self.client.do_get(flight.Ticket(json.dumps(asked).encode()), self.options(token, seconds))

    def snapshot(self, view: str, token: str | None = None, **asked: Any) -> list[Json]:
        return rows_of(self.get(token, view=view, **asked))


STREAM = flight.FlightDescriptor.for_path("streams", "Bids")


def bids(*pairs: tuple[str, int]) -> pa.RecordBatch:
    columns = [
        pa.array([issue for issue, _ in pairs], pa.string()),
        pa.array([price for _, price in pairs], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["issue", "price"])


@contextmanager
def floor(tmp_path: Path, program: str = FLOOR, **settings: Any) -> Iterator[Floor]:
    with InProcessBroker(tmp_path, program, flight="127.0.0.1:0", idle_ms=50, **settings) as served:
        server = served.server.flight
        assert server is not None
        authority = Path(served.settings.tls_cert).read_bytes() if served.settings.tls else None
        with flight.FlightClient(server.location, tls_root_certs=authority) as client:
            yield Floor(served.broker, server, served.access, client, served.data / ACCESS_FILE)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Floor]:
    with floor(tmp_path) as made:
        yield made


def code(failure: BaseException) -> str:
    problem = decode_flight_error(failure)
    assert problem is not None, failure
    assert str(failure).startswith(problem.diagnostics[0].code)
    return problem.diagnostics[0].code


@contextmanager
def refused(expected: str, match: str | None = None) -> Iterator[None]:
    with pytest.raises((flight.FlightError, pa.ArrowException), match=match) as failure:
        yield
    assert code(failure.value) == expected


def until(condition: Callable[[], bool]) -> None:
    wait_until(condition, "the server does not come to this state")


class Subscriber:
    """Stores what it receives."""

    def __init__(self, key: tuple[str, ...]) -> None:
        self.key = key
        self.rows: dict[tuple[Any, ...], Json] = {}
        self.progress: Json = {}
        self.resume: str | None = None
        self.resets = 0

    def take(self, chunk: flight.FlightStreamChunk) -> None:
        said = json.loads(chunk.app_metadata.to_pybytes())
        if said.get("reset"):
            self.rows.clear()
            self.resets += 1
        for row in chunk.data.to_pylist():
            key = tuple(row[name] for name in self.key)
            if row["deleted"]:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
        assert ("progress" in said) == ("resume" in said)
        self.progress, self.resume = said.get("progress", self.progress), said.get("resume", self.resume)


def rows_of(reader: flight.FlightStreamReader, key: tuple[str, ...] = ("issue",)) -> list[Json]:
    subscriber = Subscriber(key)
    for chunk in reader:
        subscriber.take(chunk)
    return sorted(subscriber.rows.values(), key=lambda row: str(row[key[0]]))


def shown(view: View) -> list[Json]:
    """All rows that a view shows, asked of it directly."""
    return sorted(frame_batch(view.snapshot(view.condition({}))).to_pylist(), key=lambda row: str(row["issue"]))


# ── publishing and subscribing ──────────────────────────────────────────────────────────────────────────────────────


def test_batches_are_published_and_views_told(here: Floor) -> None:
    first, second = here.publish(bids(("IBM", 3), ("HAL", 5)), bids(("IBM", 700)))
    ticks = [int(tick) for answer in (first, second) for tick in answer["ticks"]]
    assert ticks == sorted(set(ticks))
    assert len(ticks) == 3
    after = {"Bids": ticks[-1]}
    snapshot = here.snapshot("Counts", after=after)
    assert [(row["issue"], row["n"], row["top"], row["n.at_least"], row["final"]) for row in snapshot] == [
        ("HAL", 1, 5, 1, False),
        ("IBM", 2, 700, 2, False),
    ]
    assert snapshot == shown(here.broker.view("Counts"))
    assert [row["issue"] for row in here.snapshot("Counts", after=after, where={"issue": "IBM"})] == ["IBM"]
    (dear,) = rows_of(here.get(view="Dear", after=after), ("t",))
    assert (dear["t"], dear["issue"], dear["price"], dear["final"]) == (ticks[-1], "IBM", 700, True)


def test_a_view_of_nothing_is_told_with_its_columns(here: Floor) -> None:
    reader = here.get(view="Counts")
    assert reader.read_all().num_rows == 0
    assert reader.schema.equals(here.client.get_schema(view_path("Counts"), here.options()).schema)


def test_absent_columns_are_warned_of(here: Floor) -> None:
    (answer,) = here.publish(pa.record_batch({"issue": ["a", "b"]}))
    assert [(w["column"], w["events"]) for w in answer["warnings"]] == [("price", 2)]


def test_a_batch_that_comes_again_is_not_doubled(here: Floor) -> None:
    about = {"producer": "p", "seq": 1}
    (first,) = here.publish(bids(("IBM", 3), ("IBM", 4)), about=about)
    (again,) = here.publish(bids(("IBM", 3), ("IBM", 4)), about=about)
    assert again == {"ticks": first["ticks"], "repeated": 2}
    with refused("E096", "batch 1: "):
        here.publish(bids(("IBM", 3), ("IBM", 5)), about=about)
    (row,) = here.snapshot("Counts", after={"Bids": int(first["ticks"][-1])})
    assert row["n"] == 2


def test_changes_follow_and_are_resumed(here: Floor) -> None:
    one = Subscriber(("issue",))
    (answer,) = here.publish(bids(("IBM", 3), ("HAL", 5)))
    reader = here.get(view="Counts", follow=True, after={"Bids": int(answer["ticks"][-1])})
    one.take(reader.read_chunk())
    assert {key: row["n"] for key, row in one.rows.items()} == {("HAL",): 1, ("IBM",): 1}
    here.publish(bids(("IBM", 4)))
    while one.rows["IBM",]["n"] < 2:
        one.take(reader.read_chunk())
    while one.resume is None or one.resets != 1:
        one.take(reader.read_chunk())
    reader.cancel()
    (answer,) = here.publish(bids(("IBM", 5), ("DEC", 1)))
    reader = here.get(view="Counts", follow=True, resume=one.resume, after={"Bids": int(answer["ticks"][-1])})
    chunk = reader.read_chunk()
    assert sorted(chunk.data.column("issue").to_pylist()) == ["DEC", "IBM"]
    one.take(chunk)
    assert one.resets == 1
    assert {key: row["n"] for key, row in one.rows.items()} == {("DEC",): 1, ("HAL",): 1, ("IBM",): 3}
    reader.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(scaled(4)))
def test_everybody_ends_with_what_the_view_shows(seed: int, here: Floor, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(limits, "flight_rows_max", random.choice([3, 50, 10_000]))
    monkeypatch.setattr(limits, "flight_batch_bytes", random.choice([200, 2**22]))
    ends, counts = list[int](), list[int]()
    done = threading.Event()
    tables: list[list[Json]] = []

    def publish(number: int) -> None:
        mine = Random(f"{seed} {number}")
        for _ in range(8):
            some = [(f"I{mine.randrange(40)}", mine.randrange(200)) for _ in range(mine.randrange(1, 60))]
            (answer,) = here.publish(bids(*some))
            ends.append(int(answer["ticks"][-1]))
            counts.append(len(some))

    def subscribe(number: int) -> None:
        mine, one = Random(f"{seed} s{number}"), Subscriber(("issue",))
        while not (done.is_set() and int(one.progress.get("Bids", -1)) >= max(ends)):
            reader = here.get(view="Counts", follow=True, resume=one.resume)
            for chunk in reader:
                one.take(chunk)
                if mine.random() < 0.1 or (done.is_set() and int(one.progress.get("Bids", -1)) >= max(ends)):
                    break
            if one.resume is None:
                one.rows.clear()
            reader.cancel()
        tables.append(sorted(one.rows.values(), key=lambda row: str(row["issue"])))

    publishers = [threading.Thread(target=publish, args=(n,)) for n in range(2)]
    subscribers = [threading.Thread(target=subscribe, args=(n,)) for n in range(3)]
    for thread in publishers + subscribers:
        thread.start()
    for thread in publishers:
        thread.join(WAIT_S)
    done.set()
    for thread in subscribers:
        thread.join(WAIT_S)
    now = shown(here.broker.view("Counts"))
    assert sum(row["n"] for row in now) == sum(counts)
    assert tables == [now] * 3
    until(lambda: here.server.calls.count == 0)


def view_path(name: str) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_path("views", name)


def test_what_there_is_is_listed(here: Floor) -> None:
    flights = {tuple(info.descriptor.path): info for info in here.client.list_flights(options=here.options())}
    assert set(flights) == {(b"streams", b"Bids"), (b"views", b"Counts"), (b"views", b"Dear")}
    assert flights[b"streams", b"Bids"].schema.names == ["issue", "price"]
    info = here.client.get_flight_info(view_path("Dear"), here.options())
    assert info.schema.equals(flights[b"views", b"Dear"].schema)
    here.publish(bids(("IBM", 500)))
    (endpoint,) = info.endpoints
    until(lambda: here.client.do_get(endpoint.ticket, here.options()).read_all().num_rows == 1)


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_wrong_with_a_batch_is_said_and_what_came_before_stays(here: Floor) -> None:
    wrong = pa.RecordBatch.from_arrays([pa.array(["IBM"]), pa.array([-1])], names=["issue", "price"])
    writer, reader = here.client.do_put(STREAM, wrong.schema, here.options())
    writer.write_batch(bids(("IBM", 3)))
    answer = json.loads(reader.read().to_pybytes())
    writer.write_batch(wrong)
    with refused("E080", "batch 2: "):
        reader.read()
        writer.close()
    with suppress(flight.FlightError):
        writer.close()
    (row,) = here.snapshot("Counts", after={"Bids": int(answer["ticks"][0])})
    assert row["n"] == 1
    for columns, expected in (
        ({"issue": ["IBM"], "prize": [1]}, "E077"),
        ({"issue": ["IBM"], "price": ["much"]}, "E078"),
        ({"t": [5], "issue": ["IBM"], "price": [1]}, "E077"),
    ):
        with refused(expected, "batch 1: "):
            here.publish(pa.RecordBatch.from_pydict(columns))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"view": "Cuonts"}, "E021"),
        ({"view": "Bids"}, "E021"),
        ({"view": 3}, "E093"),
        ({"view": "Counts", "wher": {}}, "E093"),
        ({"view": "Counts", "where": {"isue": "x"}}, "E099"),
        ({"view": "Counts", "where": {"n": 3}}, "E099"),
        ({"view": "Counts", "where": {"issue": {}}}, "E093"),
        ({"view": "Counts", "resume": "x"}, "E094"),
        ({"view": "Counts", "after": {"Sells": 3}}, "E076"),
        ({"view": "Counts", "after": {"Bids": "x"}}, "E093"),
        ({"log": {}}, "E093"),
        ({}, "E093"),
    ],
)
def test_a_wrong_ticket_is_refused(shared: Floor, asked: Json, expected: str) -> None:
    with refused(expected):
        shared.get(**asked).read_all()
    until(lambda: shared.broker.view("Counts").subscriber_count == 0)


def test_limits_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with floor(tmp_path, bulk_bytes_max=10_000, subscriptions_max=2, events_per_second_max=10) as here:
        with refused("E092", "batch 1: it has .* at most 10,000 are allowed"):
            here.publish(bids(*[("IBM", 1)] * 1_000))
        readers = [here.get(view="Counts", follow=True) for _ in range(2)]
        for reader in readers:
            reader.read_chunk()
        with refused("E092", "2 subscriptions already"):
            here.get(view="Counts").read_all()
        here.publish(bids(*[("IBM", 1)] * 5))
        here.publish(bids(*[("IBM", 1)] * 500))  # the last that is taken, for most of a minute
        with refused("E092", "events a second"):
            here.publish(bids(("IBM", 1)))
        with refused("E092", "the ticket is larger"):
            here.get(view="x" * (limits.flight_request_bytes_max + 1)).read_all()
        for reader in readers:
            reader.cancel()
        until(lambda: here.server.calls.count == 0)
        here.get(view="Counts").read_all()


def test_requests_are_counted(tmp_path: Path) -> None:
    with floor(tmp_path, requests_per_second_max=1) as here:
        list(here.client.list_flights(options=here.options()))
        with refused("E092", "requests a second"):
            for _ in range(1000):  # until two of them are in one second
                list(here.client.list_flights(options=here.options()))


def test_calls_are_bounded_and_readers_of_the_log_not_kept_out(here: Floor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "flight_calls_max", 3)
    readers = [here.get(view="Counts", follow=True) for _ in range(3)]
    for reader in readers:
        reader.read_chunk()
    with refused("E092", "3 calls are in progress"):
        here.publish(bids(("IBM", 1)))
    token = here.server.calls.log_token
    with refused("E093"):
        list(here.client.do_action(flight.Action("log/newest", b"{}"), here.options(token)))
    for reader in readers:
        reader.cancel()
    until(lambda: here.server.calls.count == 0)
    here.publish(bids(("IBM", 1)))


def test_an_error_of_any_length_comes_through(shared: Floor) -> None:
    for name in ("x" * 50_000, "→" * 50_000, "\x00\n" * 5000, "\U0001f600" * 3000):
        with refused("E021"):
            shared.get(view=name).read_all()
        with refused("E093"):
            list(shared.client.do_action(flight.Action(f"a{name[:1000]}", b""), shared.options()))


def test_nothing_of_the_broker_is_told_when_it_fails(
    here: Floor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("a secret of the broker")

    monkeypatch.setattr(here.server.service, "_view_info", broken)
    monkeypatch.setattr(here.server.service, "_subscribe", broken)
    monkeypatch.setattr(here.server.service, "_publish_batch", broken)
    for call in (
        lambda: here.client.get_flight_info(view_path("Dear"), here.options()),
        lambda: here.get(view="Dear").read_all(),
        lambda: here.publish(bids(("IBM", 1))),
    ):
        with pytest.raises(flight.FlightInternalError, match="the broker failed") as failure:
            call()
        assert "secret" not in str(failure.value)
        assert "Traceback" not in str(failure.value)
        assert any("secret" in str(record.exc_info) for record in caplog.records)
        caplog.clear()


@pytest.mark.parametrize("seed", range(scaled(40)))
def test_nothing_that_is_sent_makes_it_fail(seed: int, shared: Floor) -> None:
    random = Random(seed)
    texts = [b"", b"{}", b"[]", b"null", b"\xff", b'{"view":', b'{"view":"Counts"}', b'{"log":{"streams":["Bids"]}}',
             b'{"streams":["Bids"],"digest":"x","position":{"commit":1e99,"horizons":{}}}',
             b'{"stream":"Bids","to":99999999999999999999999}', b"[" * 10_000, b'{"view":"Counts","after":{"Bids":-5}}',
             b'{"view":"Counts","where":{"issue":"\\ud800"}}', b'{"view":"\\ud800"}',
             random.randbytes(random.randrange(200))]  # fmt: skip
    refusals: list[Exception] = []
    actions = ["silence", "log/start", "log/after", "log/resumed", "log/waiting", "log/", "", "\x00", "é"]
    for _ in range(6):
        body = random.choice(texts)
        path = random.choices(
            [b"streams", b"views", b"Bids", b"Counts", b"\xff", b"", b"x" * 5000], k=random.randrange(4)
        )
        descriptor = random.choice([flight.FlightDescriptor.for_path(*path), flight.FlightDescriptor.for_command(body)])
        some = random.choice(
            [
                bids(("IBM", 1)),
                pa.record_batch([pa.array([1])], names=["issue"]),
                pa.record_batch([pa.nulls(3)], names=["price"]),
            ]
        )
        try:
            match random.randrange(6):
                case 0:
                    shared.client.do_get(flight.Ticket(body), shared.options()).read_all()
                case 1:
                    list(shared.client.do_action(flight.Action(random.choice(actions), body), shared.options()))
                case 2:
                    shared.client.get_flight_info(descriptor, shared.options())
                case 3:
                    list(shared.client.list_flights(body, shared.options()))
                case 4:
                    writer, _ = shared.client.do_exchange(descriptor, shared.options())
                    writer.close()
                case 5:
                    writer, reader = shared.client.do_put(descriptor, some.schema, shared.options())
                    writer.write_with_metadata(some, body)
                    reader.read()
                    writer.close()
        except (flight.FlightError, pa.ArrowException) as failure:
            refusals.append(failure)
        except UnicodeError:
            pass  # pyarrow's client does not send it
    for refusal in refusals:
        if decode_flight_error(refusal) is None:  # gRPC itself refuses what is not even a message
            assert "the broker failed" not in str(refusal)
            assert "Traceback" not in str(refusal)
        else:
            assert code(refusal) in ("E021", "E074", "E076", "E077", "E078", "E087", "E093", "E096", "E099")
    (answer,) = shared.publish(bids(("IBM", 1)))
    assert shared.snapshot("Counts", after={"Bids": int(answer["ticks"][0])})
    until(lambda: shared.server.calls.count == 0)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    with floor(tmp_path_factory.mktemp("shared")) as made:
        yield made


# ── rights ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nobody_does_what_it_may_not(tmp_path: Path) -> None:
    with floor(tmp_path, auth=True) as here:
        accounts = AccessDatabase(here.accounts)
        anna, bert = (accounts.add_token(name) for name in ("anna", "bert"))
        accounts.grant(Grant("PUBLISH", "Bids", "anna"))
        accounts.grant(Grant("SUBSCRIBE", "Counts", "bert"))
        here.access._refreshed_at = -limits.access_age_s_max
        for token in (None, "smile_wrong", ""):
            with refused("E091"):
                here.publish(bids(("IBM", 1)), token=token)
            with refused("E091"):
                here.snapshot("Counts", token)
            with refused("E091"):
                list(here.client.list_flights(options=here.options(token)))
        here.publish(bids(("IBM", 1)), token=anna)
        with refused("E090", "anna may not subscribe to Counts"):
            here.snapshot("Counts", anna)
        here.snapshot("Counts", bert)
        for token in (bert, here.server.calls.log_token):
            with refused("E090", "may not publish to Bids"):
                here.publish(bids(("IBM", 1)), token=token)
            with refused("E090"):
                here.snapshot("Dear", token)
            with refused("E090"):
                list(here.client.do_action(flight.Action("silence", b'{"stream":"Bids","to":5}'), here.options(token)))
            with refused("E090"):
                here.client.get_flight_info(view_path("Dear"), here.options(token))
        with refused("E090", "bert may not read the events of Bids"):
            newest = flight.Action("log/newest", b'{"streams":["Bids"],"digest":""}')
            list(here.client.do_action(newest, here.options(bert)))
        for token, names in ((anna, [b"Bids"]), (bert, [b"Counts"]), (here.server.calls.log_token, [])):
            listed = [info.descriptor.path[1] for info in here.client.list_flights(options=here.options(token))]
            assert listed == names
        accounts.close()


@pytest.mark.parametrize("by", ["right", "token"])
def test_what_was_revoked_ends(tmp_path: Path, by: str) -> None:
    with floor(tmp_path, auth=True) as here:
        accounts = AccessDatabase(here.accounts)
        token = accounts.add_token("anna")
        grants = [Grant("SUBSCRIBE", "*", "anna"), Grant("PUBLISH", "*", "anna")]
        for grant in grants:
            accounts.grant(grant)
        here.access._refreshed_at = -limits.access_age_s_max
        reader = here.get(token, view="Counts", follow=True)
        reader.read_chunk()
        writer, answers = here.client.do_put(STREAM, bids(("IBM", 1)).schema, here.options(token))
        writer.write_batch(bids(("IBM", 1)))
        answers.read()
        if by == "token":
            accounts.revoke_tokens("anna")
        else:
            for grant in grants:
                accounts.revoke(grant)
        with refused("E091" if by == "token" else "E090"):
            for _ in reader:
                pass
        with refused("E091" if by == "token" else "E090"):
            writer.write_batch(bids(("IBM", 1)))
            answers.read()
            writer.close()
        with suppress(flight.FlightError):
            writer.close()
        accounts.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = make_certificate(folder)
    return str(cert), str(key)


def test_tls(tmp_path: Path, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    with floor(tmp_path, tls_cert=cert, tls_key=key) as here:
        assert here.server.location.startswith("grpc+tls://")
        (answer,) = here.publish(bids(("IBM", 1)))
        assert here.snapshot("Counts", after={"Bids": int(answer["ticks"][0])})
        for location, authority in ((here.server.location, None), (f"grpc://127.0.0.1:{here.server.proxy.port}", None)):
            with (
                flight.FlightClient(location, tls_root_certs=authority) as other,
                pytest.raises((flight.FlightError, pa.ArrowException, OSError)) as failure,
            ):
                list(other.list_flights(options=here.options(seconds=2)))
            assert decode_flight_error(failure.value) is None
        here.publish(bids(("IBM", 1)))


def test_where_it_cannot_listen_is_said(here: Floor, tmp_path: Path) -> None:
    taken = Settings(flight=f"127.0.0.1:{here.server.proxy.port}")
    with pytest.raises(SmileError, match="cannot listen on") as failure:
        FlightServer(
            here.broker,
            taken,
            here.access,
            RateLimiter(0, "requests"),
            RateLimiter(0, "events"),
            ConnectionCounts(9, 9),
        )
    assert failure.value.diagnostics[0].code == "E106"
    absent = Settings(flight="127.0.0.1:0", tls_cert=str(tmp_path / "none"), tls_key=str(tmp_path / "none"))
    with pytest.raises(SmileError, match="tls_key cannot be used: No such file") as failure:
        FlightServer(
            here.broker,
            absent,
            here.access,
            RateLimiter(0, "requests"),
            RateLimiter(0, "events"),
            ConnectionCounts(9, 9),
        )
    assert failure.value.diagnostics[0].code == "E100"


# ── clients that stall or vanish ────────────────────────────────────────────────────────────────────────────────────

CLIENT = """
import json, sys, time
from pyarrow import flight
client = flight.FlightClient(sys.argv[1])
reader = client.do_get(flight.Ticket(json.dumps({"view": "Counts", "follow": True}).encode()))
reader.read_chunk()
print("told", flush=True)
time.sleep(120)
"""


@contextmanager
def stalled(here: Floor) -> Iterator["subprocess.Popen[str]"]:
    """Another process that subscribes, takes one batch, and then nothing."""
    command = [sys.executable, "-c", CLIENT, here.server.location]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "told\n"
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_who_goes_frees_what_it_held(here: Floor) -> None:
    view = here.broker.view("Counts")
    reader = here.get(view="Counts", follow=True)
    reader.read_chunk()
    assert (view.subscriber_count, here.server.calls.count) == (1, 1)
    reader.cancel()
    until(lambda: (view.subscriber_count, here.server.calls.count) == (0, 0))
    with stalled(here) as process:
        until(lambda: view.subscriber_count == 1)
        process.kill()
        until(lambda: (view.subscriber_count, here.server.calls.count) == (0, 0))
    writer, answers = here.client.do_put(STREAM, bids(("IBM", 1)).schema, here.options(seconds=0.5))
    assert answers.read() is None  # its time is over
    until(lambda: here.server.calls.count == 0)
    with suppress(flight.FlightError):
        writer.close()


def memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def wide(random: Random) -> pa.RecordBatch:
    """A batch that changes 2,000 rows of half a kilobyte each."""
    return bids(*[(f"{number:0500}", random.randrange(10**6)) for number in range(2_000)])


@pytest.mark.slow
def test_who_does_not_listen_holds_a_thread_and_nothing_more(tmp_path: Path) -> None:
    random = Random(1)
    with floor(tmp_path, COUNTS) as here, stalled(here), stalled(here):
        view = here.broker.view("Counts")
        until(lambda: view.subscriber_count == 2)
        live = here.get(view="Counts", follow=True)
        held, sizes, horizon = list[int](), list[int](), 0
        for _ in range(60):
            (answer,) = here.publish(wide(random))
            end = int(answer["ticks"][-1])
            while horizon < end:
                said = json.loads(live.read_chunk().app_metadata.to_pybytes())
                horizon = int(said.get("progress", {"Bids": horizon})["Bids"])
            held.append(pa.total_allocated_bytes())
            sizes.append(memory())
        live.cancel()
        until(lambda: here.server.calls.count == 2)
        # Each of the two was not told of fifty megabytes of changes.
        assert max(held[-20:]) - max(held[10:30]) < 20 * 2**20
        assert max(sizes[-20:]) - max(sizes[10:30]) < 50 * 2**20
    until(lambda: (view.subscriber_count, here.server.calls.count) == (0, 0))


# ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_it_ends_with_subscribers_told_and_stalled_ones_cut(here: Floor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "flight_stop_s_max", 1.0)
    with stalled(here):
        until(lambda: here.broker.view("Counts").subscriber_count == 1)
        random = Random(1)
        for _ in range(10):  # more than sockets take in
            here.publish(wide(random), wide(random))
        listening = here.get(view="Dear", follow=True)
        listening.read_chunk()
        writer, _ = here.client.do_put(STREAM, bids(("IBM", 1)).schema, here.options())
        until(lambda: here.server.calls.count == 3)
        ending = threading.Thread(target=here.server.stop)
        ending.start()
        with refused("E098"):
            for _ in listening:
                pass
        with pytest.raises((flight.FlightError, pa.ArrowException)):
            here.snapshot("Counts")
        ending.join(WAIT_S)
        assert not ending.is_alive()
        assert here.server.calls.count == 0
        here.server.every_second()  # the broker's server may still call it
        with suppress(flight.FlightError, pa.ArrowException):
            writer.close()


def test_a_view_that_ends_is_said_to(here: Floor) -> None:
    reader = here.get(view="Counts", follow=True)
    reader.read_chunk()
    here.broker.view("Counts").end(error("E095", "Counts was dropped"))
    with refused("E095", "Counts was dropped"):
        for _ in reader:
            pass
