"""Both clients against a broker that misbehaves, over real sockets: nothing is doubled, nothing is lost."""

import asyncio
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from smile import limits
from smile.client import Change, Client, SmileError, connect, connect_async
from tests.client.fake import BEGIN, Fake, row
from tests.processes import WAIT_S, make_certificate
from tests.repeatable import scaled


@pytest.fixture
def client(fake: Fake) -> Iterator[Client]:
    with connect(fake.url) as connected:
        yield connected


def code_of(problem: pytest.ExceptionInfo[SmileError]) -> str:
    return problem.value.diagnostics[0].code


# ── publishing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_publishing_returns_ticks(client: Client, fake: Fake) -> None:
    first = client.publish("S", {"k": "a"})
    more = client.publish("S", [{"k": "b"}, '{"k":"c"}'])
    assert (tuple(first), more.tick, more.stream, more.repeated) == ((BEGIN,), BEGIN + 2048, "S", 0)
    assert fake.store.counts({}) == {"a": 1, "b": 1, "c": 1}


def test_a_lost_acknowledgement_does_not_double(client: Client, fake: Fake) -> None:
    cut: list[int] = []

    def once(message: dict[str, Any]) -> dict[str, Any] | None:
        if "published" in message and not cut:
            cut.append(message["id"])
            return None
        return message

    fake.wrong.answer = once
    published = client.publish("S", [{"k": "a"}, {"k": "b"}])
    assert (cut, published.repeated) == ([1], 2)
    assert tuple(published) == (BEGIN, BEGIN + 1024)
    assert fake.store.counts({}) == {"a": 1, "b": 1}
    assert fake.store.received == 4


@pytest.mark.parametrize("seed", range(scaled(5)))
def test_publications_survive_cuts_and_restarts(client: Client, fake: Fake, seed: int) -> None:
    random = Random(seed)
    fake.wrong.answer = lambda message: None if random.random() < 0.02 else message
    sent = [f"{i}" for i in range(300)]
    futures = []
    for i, k in enumerate(sent):
        futures.append(client.submit("S", {"k": k}))
        if i in (100, 200):
            fake.restart()
    ticks = [future.result(timeout=WAIT_S).tick for future in futures]
    assert [k for _, k in fake.store.events] == sent
    assert ticks == [tick for tick, _ in fake.store.events]


def test_a_refusal_is_raised_and_the_rest_goes_on(client: Client, fake: Fake) -> None:
    futures = [client.submit("S", [{"k": k}]) for k in ("a", 7, "b")]
    futures[0].result(timeout=WAIT_S)
    with pytest.raises(SmileError, match=r"event 1: S\.k: not a string") as problem:
        futures[1].result(timeout=WAIT_S)
    assert (code_of(problem), problem.value.diagnostics[0].hint) == ("E078", "Write text.")
    futures[2].result(timeout=WAIT_S)
    with pytest.raises(SmileError) as problem:
        client.publish("T", {"k": "a"})
    assert code_of(problem) == "E076"
    assert fake.store.counts({}) == {"a": 1, "b": 1}


def test_what_is_not_guaranteed_is_sent_once(client: Client, fake: Fake) -> None:
    """The connection is cut after the event is logged and before the answer."""
    assert client.publish("S", {"k": "a"}, "non-guaranteed").tick == BEGIN
    fake.wrong.answer = lambda message: None if "published" in message else message
    with pytest.raises(SmileError) as problem:
        client.publish("S", {"k": "b"}, reliability="non-guaranteed")
    assert code_of(problem) == "E103"
    fake.wrong.answer = lambda message: message
    client.publish("S", {"k": "c"})
    assert fake.store.counts({}) == {"a": 1, "b": 1, "c": 1}
    assert fake.store.received == 3
    with pytest.raises(SmileError, match="'perhaps' is not a reliability"):
        client.publish("S", {"k": "d"}, reliability="perhaps")  # type: ignore[arg-type]  # a mistake of a user


def test_a_broker_that_stops_is_waited_for(client: Client, fake: Fake) -> None:
    fake.wrong.stopping = True
    future = client.submit("S", {"k": "a"})
    with pytest.raises(TimeoutError):
        future.result(timeout=0.2)
    fake.wrong.stopping = False
    fake.restart()
    assert future.result(timeout=WAIT_S).tick == BEGIN


@pytest.mark.parametrize(
    ("event", "code"),
    [({"k": float("nan")}, "E078"), ({"k": object()}, "E078"), ("[1]", "E074"), ("{", "E073"), ('{"k":NaN}', "E073"),
     ('{"k":"a"},{"k":"b"}', "E073"), ({"k": "\ud800"}, "E078"), ({"k": "x" * 2**20}, "E092")],
)  # fmt: skip
def test_what_can_be_no_event_is_refused_here(client: Client, fake: Fake, event: Any, code: str) -> None:
    with pytest.raises(SmileError) as problem:
        client.publish("S", event)
    assert code_of(problem) == code
    assert fake.store.received == 0
    assert client.publish("S", {"k": "a"}).tick == BEGIN


def test_a_message_too_large_for_this_broker_is_refused_and_not_sent_for_ever(fake: Fake) -> None:
    fake.wrong.message_bytes_max = 1000
    fake.restart()
    with connect(fake.url) as client:
        small, large = client.submit("S", {"k": "a"}), client.submit("S", {"k": "b" * 1000})
        with pytest.raises(SmileError) as problem:
            large.result(timeout=WAIT_S)
        assert code_of(problem) == "E092"
        assert small.result(timeout=WAIT_S).tick == BEGIN


def test_a_message_too_large_for_the_client_ends_the_subscription(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "client_received_bytes_max", 2_000)
    fake.publish("a", "b" * 2_000)
    with connect(fake.url) as client:
        with pytest.raises(SmileError) as problem:
            client.table("Counts")
        assert code_of(problem) == "E092"
        with pytest.raises(SmileError) as problem:
            next(iter(client.subscribe("Counts")))
        assert code_of(problem) == "E092"
        assert client.publish("S", {"k": "a"}).tick == BEGIN + 2048
        assert len(client.table("Counts", where={"k": "a"})) == 1


def test_many_threads_share_a_client(client: Client, fake: Fake) -> None:
    def publish(name: int) -> None:
        for i in range(20):
            client.publish("S", {"k": f"{name}-{i}"})

    threads = [threading.Thread(target=publish, args=(name,)) for name in range(5)]
    for thread in threads:
        thread.start()
    fake.cut()
    for thread in threads:
        thread.join(WAIT_S)
    assert fake.store.counts({}) == {f"{name}-{i}": 1 for name in range(5) for i in range(20)}


def test_silence(client: Client) -> None:
    client.silence("S", 500)


def test_leaving_waits_for_what_was_submitted(fake: Fake) -> None:
    with connect(fake.url) as client:
        futures = [client.submit("S", {"k": "a"}) for _ in range(100)]
        fake.cut()
    assert all(future.done() for future in futures)
    assert fake.store.counts({}) == {"a": 100}


# ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_changes(client: Client, fake: Fake) -> None:
    fake.publish("a", "b", "a")
    with client.subscribe("Counts") as subscription:
        first = [next(subscription) for _ in range(2)]
        assert [(c.key, c.row, str(c["n"]), c.final, c.stays, c.deleted, c.steps) for c in first] == [
            ({"k": "a"}, {"n": 2}, "≥2", False, True, False, 2),
            ({"k": "b"}, {"n": 1}, "≥1", False, True, False, 1),
        ]
        assert first[0].to_json() == row("a", 2)
        assert first[0]["k"] == "a"
        fake.publish("b")
        assert str(next(subscription)) == "Counts k b: n ≥2"
        fake.publish("c")
        frame = subscription.frame(WAIT_S)
        assert frame.progress == {"S": fake.store.horizon}
        assert subscription.schema.key == ("k",)


def test_a_subscription_resumes_with_its_token(client: Client, fake: Fake) -> None:
    fake.publish("a")
    subscription = client.subscribe("Counts")
    subscription.frame(WAIT_S)
    fake.stop()
    fake.store.publish("another", 99, [{"k": "b"}])
    fake.start()
    changes = [str(change) for change in subscription.frame(WAIT_S).changes]
    assert "Counts k b: n ≥1" in changes
    assert [m.get("resume") for m in fake.subscriptions] == [None, str(BEGIN)]


def test_a_row_gone_meanwhile_is_told_as_deleted(client: Client, fake: Fake) -> None:
    """The broker begins again with a snapshot that lacks the row."""
    fake.publish("a", "b")
    subscription, table = client.subscribe("Counts"), client.table("Counts")
    received: list[Change] = []
    anew = threading.Event()
    table.changed(received.extend)
    table.changed(lambda _: anew.set())
    subscription.frame(WAIT_S)
    fake.stop()
    fake.wrong.forget_tokens = True
    fake.store.events = [(tick, "b") for tick, _ in fake.store.events]
    fake.start()
    changes = subscription.frame(WAIT_S).changes
    assert [str(c) for c in changes] == ["Counts k b: n ≥2", "Counts k a: deleted"]
    assert anew.wait(WAIT_S)
    assert [str(c) for c in received] == ["Counts k b: n ≥2", "Counts k a: deleted"]
    assert [(row.key["k"], row.row["n"]) for row in table] == [("b", 2)]


def test_who_does_not_listen_is_told_the_present(client: Client, fake: Fake) -> None:
    subscription = client.subscribe("Counts")
    for _ in range(100):
        fake.publish("a")
    numbers: list[int] = []
    while not numbers or numbers[-1] < 100:
        numbers += [change.row["n"] for change in subscription.frame(WAIT_S).changes]
    assert len(numbers) < 50
    assert numbers == sorted(numbers)


def test_errors_of_subscriptions(client: Client, fake: Fake) -> None:
    with pytest.raises(SmileError, match="there is no view Count") as problem:
        client.subscribe("Count")
    assert (code_of(problem), problem.value.diagnostics[0].hint) == ("E021", "Did you mean Counts?")
    subscription, table = client.subscribe("Counts"), client.table("Counts")
    subscription.frame(WAIT_S)
    fake.end("E098")
    fake.publish("a")
    assert [str(c) for c in subscription.frame(WAIT_S).changes] == ["Counts k a: n ≥1"]
    table.wait_for({"S": BEGIN}, WAIT_S)
    fake.end("E095")
    for wait in (lambda: subscription.frame(WAIT_S), lambda: table.wait_for({"S": BEGIN + 1}, WAIT_S)):
        with pytest.raises(SmileError) as problem:
            wait()
        assert code_of(problem) == "E095"


# ── tables ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_table_follows(client: Client, fake: Fake) -> None:
    fake.publish("a")
    table = client.table("Counts")
    seen: list[str] = []

    @table.changed
    def note(changes: Any) -> None:
        seen.extend(str(change) for change in changes)

    published = client.publish("S", [{"k": "b"}, {"k": "b"}])
    assert table.wait_for(published, WAIT_S)["b"].row == {"n": 2}
    assert (len(table), "a" in table, "c" in table, table.get("c")) == (2, True, False, None)
    assert table[{"k": "a"}] is table["a"] is table[("a",)]
    assert seen == ["Counts k b: n ≥2"]
    with pytest.raises(SmileError) as problem:
        table.wait_for({"S": published.tick + 1}, 0.05)
    assert code_of(problem) == "E108"


def test_a_callback_that_fails_harms_nobody(client: Client, fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    table = client.table("Counts")
    table.changed(lambda _: 1 / 0)  # type: ignore[arg-type]
    table.wait_for(client.publish("S", {"k": "a"}), WAIT_S)
    table.wait_for(client.publish("S", {"k": "a"}), WAIT_S)
    assert table["a"].row["n"] == 2
    assert "a callback of the table Counts failed" in caplog.text


def test_a_table_with_a_condition(client: Client, fake: Fake) -> None:
    fake.publish("a", "b")
    assert [row.key["k"] for row in client.table("Counts", where={"k": "b"})] == ["b"]
    assert fake.subscriptions[-1]["where"] == {"k": "b"}


@pytest.mark.slow
def test_frames_of_data(client: Client, fake: Fake) -> None:
    fake.publish("a", "a", "b")
    rows = client.snapshot("Counts")
    expected = [{"k": "a", "n": Decimal(2), "final": False}, {"k": "b", "n": Decimal(1), "final": False}]
    assert rows.to_arrow().to_pylist() == expected
    assert rows.to_polars().to_dicts() == expected
    assert rows.to_pandas().to_dict("records") == expected
    assert client.snapshot("Counts", where={"k": "z"}).to_arrow().schema == rows.to_arrow().schema


@pytest.mark.parametrize("seed", range(scaled(3)))
def test_a_table_reaches_the_truth_whatever_happens(client: Client, fake: Fake, seed: int) -> None:
    random = Random(seed)
    table = client.table("Counts")
    for _ in range(60):
        match random.randrange(8):
            case 0:
                fake.cut()
            case 1:
                fake.restart()
            case 2:
                fake.wrong.forget_tokens = random.random() < 0.5
            case _:
                fake.publish(random.choice("abc"))
    published = client.publish("S", {"k": "z"})
    table.wait_for(published, WAIT_S)
    assert {row.key["k"]: row.row["n"] for row in table} == fake.store.counts({})


# ── connecting ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nobody_there(fake: Fake) -> None:
    fake.stop()
    with pytest.raises(SmileError, match="refused") as problem:
        connect(fake.url, timeout=0.2)
    assert code_of(problem) == "E103"
    assert fake.url in str(problem.value)
    fake.start()


def test_the_token_is_sent_and_never_shown(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMILE_URL", fake.url)
    monkeypatch.setenv("SMILE_TOKEN", "s3cret")
    with connect() as client:
        assert client.status() == {"program": "ok"}
        assert client.program().startswith("CREATE STREAM S")
        assert "s3cret" not in repr(vars(client._client.connection))
    assert [h["Authorization"] for h in fake.headers] == ["Bearer s3cret"] * 3


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [(401, b"", "E091"), (403, b'{"error":{"code":"E104","message":"origin refused"}}', "E104"), (404, b"?", "E103")],
)
def test_refused_at_the_door(fake: Fake, status: int, body: bytes, code: str) -> None:
    fake.wrong.refuse_status, fake.wrong.refuse_body = status, body
    with pytest.raises(SmileError) as problem:
        connect(fake.url)
    assert code_of(problem) == code


def test_a_door_that_is_closed_for_now(fake: Fake) -> None:
    fake.wrong.refuse_status = 503
    threading.Timer(0.3, lambda: setattr(fake.wrong, "refuse_status", None)).start()
    with connect(fake.url) as client:
        assert client.publish("S", {"k": "a"}).tick == BEGIN


def test_a_token_revoked_ends_everything(client: Client, fake: Fake) -> None:
    table = client.table("Counts")
    fake.wrong.refuse_status = 401
    fake.cut()
    with pytest.raises(SmileError) as problem:
        table.wait_for({"S": BEGIN}, WAIT_S)
    assert code_of(problem) == "E091"
    with pytest.raises(SmileError):
        client.publish("S", {"k": "a"})


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:7400", "http://", "http://u:p@x", "http://x:y", "http://x?q"])
def test_wrong_urls(url: str) -> None:
    with pytest.raises(SmileError) as problem:
        connect(url)
    assert code_of(problem) == "E100"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    certificate, key = make_certificate(tmp_path_factory.mktemp("tls"))
    return str(certificate), str(key)


@pytest.mark.slow
def test_tls(certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    fake = Fake(ssl=context)
    try:
        with connect(fake.url, ca=certificate[0]) as client:
            assert client.publish("S", {"k": "a"}).tick == BEGIN
            assert client.status() == {"program": "ok"}
        with pytest.raises(SmileError, match="self-signed certificate") as problem:
            connect(fake.url)
        assert code_of(problem) == "E103"
        monkeypatch.setenv("SMILE_CA", certificate[0])
        connect(fake.url).close()
        with pytest.raises(SmileError, match="cannot be read: No such file") as problem:
            connect(fake.url, ca=str(tmp_path / "none"))
        assert code_of(problem) == "E100"
    finally:
        fake.close()


def test_what_is_closed_says_so(fake: Fake) -> None:
    client = connect(fake.url)
    subscription = client.subscribe("Counts")
    subscription.frame(WAIT_S)
    client.close()
    client.close()
    for use in (lambda: subscription.frame(1), lambda: client.publish("S", {"k": "a"}), client.status):
        with pytest.raises(SmileError, match="the client was closed"):
            use()


def test_it_is_quick_to_load() -> None:
    large = "numpy pyarrow pandas polars httpx websockets pyspark sqlglot lark rich"
    code = f"import sys, smile.client; sys.exit([m for m in '{large}'.split() if m in sys.modules] or 0)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).stderr == b""


# ── asynchronously ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_asynchronously(fake: Fake) -> None:
    async def run() -> None:
        async with connect_async(fake.url) as client, asyncio.timeout(WAIT_S):
            table = await client.table("Counts")
            ticks = await asyncio.gather(*(client.publish("S", {"k": "a"}) for _ in range(50)))
            assert [t.tick for t in ticks] == [tick for tick, _ in fake.store.events]
            assert (await table.wait_for(ticks[-1]))["a"].row == {"n": 50}
            async with await client.subscribe("Counts") as subscription:
                assert str(await anext(subscription)) == "Counts k a: n ≥50"
                await asyncio.to_thread(fake.restart)
                published = await client.publish("S", {"k": "b"})
                async for change in subscription:
                    if change.key["k"] == "b":
                        break
            snapshot = await client.snapshot("Counts", where={"k": "b"}, after=published)
            assert snapshot["b"]["n"].at_least(1)
            await client.silence("S", 5)
            assert await client.status() == {"program": "ok"}
            with pytest.raises(SmileError, match="there is no view Nope"):
                await client.table("Nope")
            with pytest.raises(SmileError, match="took longer"):
                await table.wait_for({"S": BEGIN * 2}, 0.05)

    asyncio.run(run())


def test_asynchronously_nobody_there(fake: Fake) -> None:
    fake.stop()

    async def run() -> None:
        await connect_async(fake.url, timeout=0.1)

    with pytest.raises(SmileError, match="refused"):
        asyncio.run(run())
    fake.start()
