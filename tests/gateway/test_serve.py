"""A gateway as a process: where it listens, how it ends, and that what it answered is in the log."""

import logging
import signal
import socket
import ssl
import threading
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from smile.errors import SmileError
from smile.gateway.serve import open_listener
from smile.settings import Settings
from tests.brokers import PROGRAM, BrokerProcess, InProcessBroker, bid
from tests.processes import WAIT_S, make_certificate, restored_logging


@pytest.mark.slow
@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(tmp_path: Path, signal_: signal.Signals) -> None:
    """Under load: everything that was acknowledged is in the log, subscribers are asked to reconnect, and the exit code
    is 0."""
    answered: list[str] = []
    closed: list[int | None] = []
    (tmp_path / "floor.smile").write_text(PROGRAM)
    # It would wait ten minutes for clients that it does not disconnect by itself.
    patient = ("tests.torture.launched", "waits_long_for_clients_when_it_stops")
    with BrokerProcess(tmp_path, options=["--no-flush"], module=patient) as running:
        ready, subscribed, listening = threading.Event(), threading.Event(), threading.Event()

        def publish() -> None:
            with running.websocket() as connection:
                try:
                    for i in range(1_000_000):
                        answer = connection.ask({"publish": "Bids", "events": bid("sig", 200), "id": i})
                        if "error" in answer:
                            assert answer["error"]["code"] == "E098"
                            break
                        answered.append(str(answer["published"][0]))
                        ready.set()
                except ConnectionClosed as end:
                    closed.append(end.rcvd.code if end.rcvd else None)

        def subscribe() -> None:
            with running.websocket() as connection:
                connection.send({"subscribe": "Totals", "id": 1})
                try:
                    while True:
                        assert "ended" not in connection.receive()
                        subscribed.set()
                except ConnectionClosed as end:
                    closed.append(end.rcvd.code if end.rcvd else None)

        def listen() -> None:
            with running.http() as http, http.stream("GET", "/views/Totals/changes") as events:
                for _ in events.iter_bytes():
                    listening.set()

        threads = [threading.Thread(target=work) for work in (publish, publish, subscribe, listen)]
        for thread in threads:
            thread.start()
        assert all(event.wait(WAIT_S) for event in (ready, subscribed, listening))
        assert running.stop(signal_) == 0
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
    assert set(closed) <= {1012}
    assert closed
    with InProcessBroker(tmp_path) as restarted:
        rows = restarted.rows("Dear", Bids=max(map(int, answered)))
        logged = [str(row["key"]["bidid"]) for row in rows]
        assert set(answered) <= set(logged)
        assert len(logged) == len(set(logged))


def test_an_address_that_cannot_be_used() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for listen in (f"127.0.0.1:{taken.getsockname()[1]}", "no.such.host.invalid:1"):
            with pytest.raises(SmileError) as refused:
                open_listener(Settings(listen=listen, insecure=True))
            assert refused.value.diagnostics[0].code == "E106"


def test_off_loopback_needs_tls() -> None:
    with pytest.raises(SmileError) as refused:
        open_listener(Settings(listen="0.0.0.0:0"))
    assert refused.value.diagnostics[0].code == "E107"
    open_listener(Settings(listen="0.0.0.0:0", insecure=True)).close()


def test_tls(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    with InProcessBroker(tmp_path, tls_cert=str(certificate), tls_key=str(key)) as served:
        trusted = ssl.create_default_context(cafile=str(certificate))
        with served.http(verify=trusted) as http:
            assert http.get("/ready").json() == {"health": "ok", "troubles": []}
            assert http.get("/health", headers={"origin": served.url}).status_code == 200
        with served.websocket(ssl=trusted) as connection:
            assert connection.ask({"ping": 1}) == {"pong": 1}
    certificate.write_text("nonsense")
    with pytest.raises(SmileError) as refused, InProcessBroker(tmp_path, tls_cert=str(certificate), tls_key=str(key)):
        pass
    assert refused.value.diagnostics[0].code == "E100"


def test_nothing_secret_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = "smile_planted-secret"
    with restored_logging(), InProcessBroker(tmp_path, auth=True) as served, caplog.at_level(logging.DEBUG):
        logging.getLogger("smile").setLevel(logging.DEBUG)
        with served.http(secret) as http:
            http.get(f"/views/Totals?where.issue={secret}")
            http.post(f"/streams/Bids/events?token={secret}", content=secret)
            http.get("/health", headers={"cookie": secret, "last-event-id": secret})
        with pytest.raises(Exception, match="401"), served.websocket(subprotocols=[f"smile.token.{secret}"]):
            pass
    assert any(record.name == "smile.gateway" for record in caplog.records)
    logged = "\n".join(
        f"{record.getMessage()} {record.__dict__}"
        for record in caplog.records
        if "httpx" not in record.name and "httpcore" not in record.name and "websockets.client" not in record.name
    )
    assert secret not in logged
