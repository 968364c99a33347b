"""How connections through the proxy begin and end: TLS, passwords, limits, and sides that disappear."""

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from smile.errors import SmileError
from smile.postgres.proxy.messages import message
from smile.postgres.proxy.proxy import CANCEL_REQUEST, GSS_REQUEST, TLS_REQUEST
from smile.postgres.proxy.session import ProxySession
from smile.postgres.proxy.target import ProxyTarget, parse_target
from tests.postgres.private_server import MD5_USER, PASSWORD, SCRAM_USER, PrivateServer, private_server
from tests.postgres.proxy.cancellation import assert_cancellable
from tests.postgres.proxy.raw_client import SYNC, RawClient, bind, execute, fields, parse, query, startup
from tests.postgres.proxy.running_proxy import RunningProxy
from tests.processes import WAIT_S, free_port, make_certificate, wait_until

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def server_context(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    return context


@contextmanager
def tls_server(server: PrivateServer, certificate: tuple[Path, Path]) -> Iterator[int]:
    """A port at which the server seems to have TLS, which the tested one is built without."""
    context = server_context(certificate)
    listener = socket.create_server(("127.0.0.1", 0))
    sockets: list[socket.socket] = [listener]

    def copy(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(2**16):
                sink.sendall(data)
        except OSError:
            pass
        for side in (source, sink):
            end(side)

    def end(side: socket.socket) -> None:
        with suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            assert plain.recv(8) == struct.pack("!ii", 8, TLS_REQUEST)
            plain.sendall(b"S")
            try:
                client = context.wrap_socket(plain, server_side=True)
            except OSError:
                plain.close()
                continue
            target = socket.create_connection(("127.0.0.1", server.port))
            sockets.extend((client, target))
            for pair in ((client, target), (target, client)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    for side in sockets:
        side.close()


@slow
@pytest.mark.parametrize("user", [SCRAM_USER, MD5_USER])
def test_passwords_are_relayed(server: PrivateServer, proxy: RunningProxy, user: str) -> None:
    with server.connect(proxy.port, user=user, password=PASSWORD) as connection:
        assert connection.execute("SELECT current_user").fetchone() == (user,)
        assert connection.execute("PUBLISH Quote('x', 1)").statusmessage == "PUBLISH"
    with pytest.raises(psycopg.OperationalError, match=f'password authentication failed for user "{user}"'):
        server.connect(proxy.port, user=user, password="wrong")


@slow
def test_tls_on_both_sides_with_scram(server: PrivateServer, certificate: tuple[Path, Path]) -> None:
    with tls_server(server, certificate) as port:
        url = f"postgresql://127.0.0.1:{port}?sslmode=verify-full&sslrootcert={certificate[0]}"
        with RunningProxy(url, server_context(certificate)) as proxy:
            options = {"user": SCRAM_USER, "password": PASSWORD, "sslrootcert": str(certificate[0])}
            with server.connect(proxy.port, sslmode="verify-full", **options) as connection:
                assert connection.pgconn.ssl_in_use
                assert connection.execute("PUBLISH Quote('tls', 1)").statusmessage == "PUBLISH"
                large = connection.execute("SELECT repeat('x', 5000000)").fetchone()
                assert large == ("x" * 5_000_000,)
                assert_cancellable(server, connection)
            with pytest.raises(psycopg.OperationalError, match="channel binding"):
                server.connect(proxy.port, sslmode="require", channel_binding="require", **options)


@slow
def test_a_wrong_certificate_of_the_server(server: PrivateServer, certificate: tuple[Path, Path]) -> None:
    with (
        tls_server(server, certificate) as port,
        RunningProxy(f"postgresql://127.0.0.1:{port}?sslmode=verify-full") as proxy,
        pytest.raises(
            psycopg.OperationalError, match=r"the proxy cannot reach the server .* certificate verify failed"
        ),
    ):
        server.connect(proxy.port)


@slow
def test_a_server_without_tls(server: PrivateServer, proxy: RunningProxy) -> None:
    strict = RunningProxy(f"{server.url}?sslmode=require")
    with strict, pytest.raises(psycopg.OperationalError, match="it does not offer TLS"):
        server.connect(strict.port)
    with pytest.raises(psycopg.OperationalError, match="does not support SSL"):
        server.connect(proxy.port, sslmode="require")
    with (
        RunningProxy(f"postgresql:///?host={server.folder}&port={server.port}") as local,
        server.connect(local.port) as connection,
    ):
        assert connection.execute("SELECT inet_server_addr()").fetchone() == (None,)


@slow
def test_questions_about_encryption(server: PrivateServer, proxy: RunningProxy, certificate: tuple[Path, Path]) -> None:
    with RawClient(proxy.port, struct.pack("!ii", 8, GSS_REQUEST)) as client:
        assert client.socket.recv(1) == b"N"
        client.send(struct.pack("!ii", 8, TLS_REQUEST))
        assert client.socket.recv(1) == b"N"
        client.send(startup())
        assert client.start()[-1] == (b"Z", b"I")
    with (
        RunningProxy(server.url, server_context(certificate)) as tls,
        RawClient(tls.port, struct.pack("!ii", 8, TLS_REQUEST) + startup()) as client,
    ):
        kind, body = client.receive() or (b"", b"")
        assert (kind, fields(body)["C"]) == (b"E", "08P01")
        assert "unencrypted data" in fields(body)["M"]
        assert client.receive() is None


@slow
@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        struct.pack("!ii", 4, 0),
        struct.pack("!ii", 10**6, 3 << 16),
    ],
)
def test_what_is_not_the_protocol(server: PrivateServer, proxy: RunningProxy, first: bytes) -> None:
    with RawClient(proxy.port, first) as client:
        kind, body = client.receive() or (b"", b"")
        assert (kind, fields(body)["C"], fields(body)["S"]) == (b"E", "08P01", "FATAL")
        assert client.receive() is None
    with RawClient(proxy.port, struct.pack("!ii", 9, 4 << 16) + b"\0") as client:
        kind, body = client.receive() or (b"", b"")
        assert "unsupported frontend protocol" in fields(body)["M"]
    with server.connect(proxy.port) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@slow
def test_a_limit_on_connections(server: PrivateServer) -> None:
    with RunningProxy(server.url, connections_max=2) as proxy:
        both = server.connect(proxy.port), server.connect(proxy.port)
        with pytest.raises(psycopg.OperationalError, match="the proxy has 2 connections already"):
            server.connect(proxy.port)
        for connection in both:
            connection.close()

        def is_free() -> bool:
            try:
                server.connect(proxy.port).close()
            except psycopg.OperationalError:
                return False
            return True

        wait_until(is_free, "a connection is free again")


@slow
def test_a_half_closed_connection_gets_its_answer(server: PrivateServer, proxy: RunningProxy) -> None:
    with RawClient(proxy.port) as client:
        client.start()
        client.send(query("SELECT pg_sleep(0.3)") + parse("PUBLISH Quote('half', 1)") + bind() + execute() + SYNC)
        client.socket.shutdown(socket.SHUT_WR)
        kinds = b"".join(kind for kind, _ in client.receive_all())
    assert kinds == b"TDCZ12NCZ"


@slow
def test_a_client_that_disappears_ends_its_session(server: PrivateServer, proxy: RunningProxy) -> None:
    client = RawClient(proxy.port, startup(application_name="disappears"))
    client.start()
    client.send(query("BEGIN; PUBLISH Quote('lost', 1)"))
    client.receive_until(b"Z")
    client.socket.setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )  # close resets the connection
    client.socket.close()
    with server.connect() as observer:
        count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'disappears'"
        wait_until(lambda: observer.execute(count).fetchone() == (0,), "the session has ended")
        lost = "SELECT count(*) FROM smile.call WHERE arguments[1] = 'lost'"
        assert observer.execute(lost).fetchone() == (0,)


@slow
def test_a_server_that_dies() -> None:
    with private_server() as server, RunningProxy(server.url) as proxy:
        with RawClient(proxy.port) as client:
            client.start()
            client.send(query("SELECT pg_sleep(600)"))
            server.restart()
            client.receive_all()
        with server.connect(proxy.port) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    with RunningProxy(f"postgresql://127.0.0.1:{free_port()}") as alone:
        with pytest.raises(psycopg.OperationalError, match="the proxy cannot reach the server"):
            server.connect(alone.port)
        # A cancel request has no answer.
        with RawClient(alone.port, struct.pack("!iiii", 16, CANCEL_REQUEST, 1, 2)) as client:
            client.socket.settimeout(WAIT_S)
            client.receive_all()


# ── without a server ────────────────────────────────────────────────────────────────────────────────────────────────


def offer(*mechanisms: bytes) -> bytes:
    return message(b"R", struct.pack("!i", 10) + b"".join(name + b"\0" for name in mechanisms) + b"\0")


def response(mechanism: bytes, first: bytes) -> bytes:
    return message(b"p", mechanism + b"\0" + struct.pack("!i", len(first)) + first)


def test_the_offer_of_channel_binding_is_removed() -> None:
    session = ProxySession("result")
    assert session.from_server.feed(offer(b"SCRAM-SHA-256-PLUS", b"SCRAM-SHA-256")) == offer(b"SCRAM-SHA-256")
    answer = response(b"SCRAM-SHA-256", b"n,,n=,r=x")
    assert session.from_client.feed(answer) == answer
    later = message(b"p", b"y,,")  # the second message has no such beginning
    assert session.from_client.feed(later) == later


@pytest.mark.parametrize(
    ("offered", "answer", "reason"),
    [
        (
            [b"SCRAM-SHA-256-PLUS", b"SCRAM-SHA-256"],
            response(b"SCRAM-SHA-256", b"y,,n=,r=x"),
            "both support channel binding",
        ),
        (
            [b"SCRAM-SHA-256"],
            response(b"SCRAM-SHA-256-PLUS", b"p=tls-server-end-point,,n=,r=x"),
            "requires channel binding",
        ),
    ],
)
def test_channel_binding_is_refused_with_a_reason(offered: list[bytes], answer: bytes, reason: str) -> None:
    session = ProxySession("result")
    session.from_server.feed(offer(*offered))
    with pytest.raises(SmileError, match=reason) as caught:
        session.from_client.feed(answer)
    assert "channel_binding=disable" in (caught.value.diagnostics[0].hint or "")


def test_a_client_that_could_bind_channels_is_accepted_without_tls_at_the_server() -> None:
    session = ProxySession("result")
    session.from_server.feed(offer(b"SCRAM-SHA-256"))
    answer = response(b"SCRAM-SHA-256", b"y,,n=,r=x")
    assert session.from_client.feed(answer) == answer


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("postgresql://db.example.org", ProxyTarget("db.example.org", 5432)),
        ("postgres://127.0.0.1:6000/?sslmode=disable", ProxyTarget("127.0.0.1", 6000, "disable")),
        ("postgresql://?host=/run/postgresql&port=6001", ProxyTarget("/run/postgresql", 6001)),
        ("postgresql://%2Frun%2Fpostgresql", ProxyTarget("/run/postgresql")),
        ("postgresql://[::1]:7", ProxyTarget("::1", 7)),
    ],
)
def test_targets(url: str, target: ProxyTarget) -> None:
    assert parse_target(url) == target


@pytest.mark.parametrize(
    "url",
    ["http://x", "postgresql://user@x", "postgresql://u:p@x", "postgresql://x/database", "postgresql://x?sslmode=maybe", "x:5432",
     "postgresql://x?user=a", "postgresql://x:port", "postgresql://x?sslrootcert=/no/such/file", "postgresql://x?port=a",
     "postgresql://?host=/tmp&sslmode=verify-full"],
)  # fmt: skip
def test_no_targets(url: str) -> None:
    with pytest.raises(SmileError) as caught:
        parse_target(url)
    assert caught.value.diagnostics[0].code == "E100"
    assert "u:p" not in str(caught.value)
