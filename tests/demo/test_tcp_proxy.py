"""A proxy passes bytes on, holds them while it is cut, and delays them."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from smile.demo.tcp_proxy import TcpProxy
from tests.processes import WAIT_S, wait_until


@contextmanager
def echo_server() -> Iterator[int]:
    """The port of a server that sends back what it receives."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve(connection: socket.socket) -> None:
            with connection:
                while data := connection.recv(2**16):
                    connection.sendall(data)

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@contextmanager
def connected(proxy: TcpProxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", int(proxy.url.rpartition(":")[2])), WAIT_S) as client:
        yield client


def test_bytes_arrive_in_order() -> None:
    data = bytes(range(256)) * 4_000
    with echo_server() as port, TcpProxy(port) as proxy, connected(proxy) as client:
        threading.Thread(target=client.sendall, args=(data,), daemon=True).start()
        received = b""
        while len(received) < len(data):
            received += client.recv(2**16)
        assert received == data
        wait_until(lambda: proxy.passed_bytes == 2 * len(data), "not all bytes are counted")


def test_a_cut_holds_bytes_until_it_is_healed() -> None:
    with echo_server() as port, TcpProxy(port) as proxy, connected(proxy) as client:
        client.sendall(b"before")
        assert client.recv(100) == b"before"
        proxy.cut()
        wait_until(lambda: proxy.is_cut, "it is not cut")
        client.sendall(b"during")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(100)
        with connected(proxy) as other:  # connects, but nobody answers
            other.sendall(b"other")
            proxy.heal()
            client.settimeout(WAIT_S)
            assert client.recv(100) == b"during"
            assert other.recv(100) == b"other"


def test_a_delay_is_added_each_way() -> None:
    with echo_server() as port, TcpProxy(port, delay_s=0.05) as proxy, connected(proxy) as client:
        start = time.monotonic()
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        assert time.monotonic() - start >= 0.1


def test_an_end_is_passed_on() -> None:
    with echo_server() as port, TcpProxy(port) as proxy, connected(proxy) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        client.shutdown(socket.SHUT_WR)
        assert_closed(client)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with TcpProxy(port) as proxy, connected(proxy) as client:
        assert_closed(client)  # nobody listens behind the proxy


def assert_closed(client: socket.socket) -> None:
    with suppress(ConnectionResetError):
        assert client.recv(1) == b""
