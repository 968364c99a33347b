"""A gateway as a process: where it listens, how it ends, and that what it answered is in the log."""

import json
import logging
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from smile.errors import SmileError
from smile.gateway.serve import open_listener
from smile.settings import Settings
from tests.gateway.serving import PROGRAM, WAIT_S, bid, serving

MAIN = """
import sys
from pathlib import Path
from smile.broker.broker import Broker
from smile.gateway.access import Access
from smile.gateway.serve import run
from smile.settings import Settings
from smile.source import Source
data = Path(sys.argv[1])
settings = Settings(data=str(data), listen="127.0.0.1:0", flight="", engine="local", flush=False)
run(Broker.open(data, Source("p.smile", sys.argv[2]), settings), settings, Access(data / "access.db", asked=False))
"""


@contextmanager
def process(data: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen([sys.executable, "-c", MAIN, data, PROGRAM], stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout
            line = running.stdout.readline()
            assert line.startswith("listening on http://127.0.0.1:")
            yield running, line.split()[-1]
        finally:
            running.kill()


@pytest.mark.slow
@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(tmp_path: Path, signal_: signal.Signals) -> None:
    """Under load: whatever was answered is in the log, subscribers are told to come again, the exit is clean."""
    answered: list[str] = []
    closed: list[int | None] = []
    with process(tmp_path / "data") as (running, url):
        ready, told, heard = threading.Event(), threading.Event(), threading.Event()

        def publish() -> None:
            with connect(url.replace("http", "ws") + "/ws", proxy=None) as socket_:
                try:
                    for i in range(1_000_000):
                        socket_.send(json.dumps({"publish": "Bids", "events": bid("sig", 200), "id": i}))
                        answer = json.loads(socket_.recv(WAIT_S))
                        if "error" in answer:
                            assert answer["error"]["code"] == "E098"
                            break
                        answered.append(str(answer["published"][0]))
                        ready.set()
                except ConnectionClosed as end:
                    closed.append(end.rcvd.code if end.rcvd else None)

        def subscribe() -> None:
            with connect(url.replace("http", "ws") + "/ws", proxy=None) as socket_:
                socket_.send('{"subscribe":"Totals","id":1}')
                try:
                    while True:
                        assert "ended" not in json.loads(socket_.recv(WAIT_S))
                        told.set()
                except ConnectionClosed as end:
                    closed.append(end.rcvd.code if end.rcvd else None)

        def listen() -> None:
            with httpx.stream("GET", f"{url}/views/Totals/changes", timeout=WAIT_S, trust_env=False) as events:
                for _ in events.iter_bytes():
                    heard.set()

        threads = [threading.Thread(target=work) for work in (publish, publish, subscribe, listen)]
        for thread in threads:
            thread.start()
        assert all(event.wait(WAIT_S) for event in (ready, told, heard))
        begun = time.monotonic()
        running.send_signal(signal_)
        assert running.wait(WAIT_S) == 0
        assert time.monotonic() - begun < 5
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
    assert set(closed) <= {1012}
    assert closed
    with process(tmp_path / "data") as (_, url):
        query = {"where.issue": "sig", "after.Bids": answered[-1]}
        rows = httpx.get(f"{url}/views/Dear", params=query, timeout=WAIT_S, trust_env=False).json()["rows"]
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
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost "
        f"-addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}".split(),
        capture_output=True,
    )
    if made.returncode:
        pytest.skip("openssl is not here")
    with serving(tmp_path, tls_cert=str(certificate), tls_key=str(key)) as served:
        trusted = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(verify=trusted, trust_env=False, timeout=WAIT_S) as http:
            assert http.get(f"https://127.0.0.1:{served.port}/health").json() == {"health": "ok"}
            page = {"origin": f"https://127.0.0.1:{served.port}"}
            assert http.get(f"https://127.0.0.1:{served.port}/health", headers=page).status_code == 200
        with connect(f"wss://127.0.0.1:{served.port}/ws", ssl=trusted, proxy=None) as talk:
            talk.send('{"ping":1}')
            assert talk.recv(WAIT_S) == '{"pong":1}'
    certificate.write_text("nonsense")
    with pytest.raises(SmileError) as refused, serving(tmp_path, tls_cert=str(certificate), tls_key=str(key)):
        pass
    assert refused.value.diagnostics[0].code == "E100"


def test_nothing_secret_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = "smile_planted-secret"
    with serving(tmp_path, tokens=True) as served, caplog.at_level(logging.DEBUG):
        logging.getLogger("smile").setLevel(logging.DEBUG)
        with served.http(secret) as http:
            http.get(f"/views/Totals?where.issue={secret}")
            http.post(f"/streams/Bids/events?token={secret}", content=secret)
            http.get("/health", headers={"cookie": secret, "last-event-id": secret})
        with pytest.raises(Exception, match="401"), served.ws(subprotocols=[f"smile.token.{secret}"]):
            pass
    assert any(record.name == "smile.gateway" for record in caplog.records)
    told = "\n".join(
        f"{record.getMessage()} {record.__dict__}"
        for record in caplog.records
        if "httpx" not in record.name and "httpcore" not in record.name and "websockets.client" not in record.name
    )
    assert secret not in told
