"""Serves a broker: opens the socket, runs the server, and shuts down in order.

On SIGTERM or SIGINT the server accepts nothing new, completes and answers what is in progress, and stops the broker
last.
"""

import asyncio
import logging
import resource
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from smile import limits
from smile.broker.broker import Broker
from smile.errors import error
from smile.gateway.access import Access
from smile.gateway.connection_counts import ConnectionCounts
from smile.gateway.flight.server import FlightServer
from smile.gateway.gateway import Gateway
from smile.gateway.http.app import create_app
from smile.gateway.links.service import LinkService
from smile.gateway.uvicorn_internals import HttpConnection, UvicornServer, WebSocketConnection
from smile.settings import Settings, parse_address

PrintLine = Callable[[str], None]


def open_listener(settings: Settings) -> socket.socket:
    """E107 if it is not safe to listen there, E106 if it is not possible."""
    settings.require_safe()
    host, port = parse_address(settings.listen)
    listener: socket.socket | None = None
    try:
        family, kind, protocol, _, socket_address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # The system notices peers that have vanished, and does not disturb peers that only stall. Accepted sockets
        # inherit this.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, limits.peer_idle_s)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(socket_address)
        listener.listen(limits.backlog)
        listener.setblocking(False)
    except (OSError, UnicodeError) as problem:
        if listener is not None:
            listener.close()
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else problem
        hint = "Is another broker running? Choose another port with --listen."
        raise error("E106", f"cannot listen on {settings.listen}: {reason}", hint=hint) from None
    return listener


def server_url(settings: Settings, listener: socket.socket) -> str:
    host = parse_address(settings.listen)[0]
    shown_host = f"[{host}]" if ":" in host else host
    return f"{'https' if settings.tls else 'http'}://{shown_host}:{listener.getsockname()[1]}"


class GatewayServer(UvicornServer):
    """The server of one gateway. `stop` may be called from any thread."""

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        access: Access,
        print_line: PrintLine | None = None,
        on_stopping: Callable[[], None] = lambda: None,
        url: str = "",
    ) -> None:
        """`on_stopping` is called when the server begins to stop. `url` is where it listens."""
        self._url = url
        self._broker, self._on_stopping = broker, on_stopping
        self._settings = settings
        self._access = access
        self._print_line = print_line or _print_line
        self.gateway: Gateway | None = None
        self.flight: FlightServer | None = None
        self.links: LinkService | None = None
        self.ready = threading.Event()
        self.counts = ConnectionCounts(settings.connections_max, settings.connections_per_address_max)
        try:
            config = uvicorn.Config(
                self._call,
                interface="asgi3",
                http=type("Connection", (HttpConnection,), {"counts": self.counts}),
                ws=type("WebSocket", (WebSocketConnection,), {"counts": self.counts}),
                ws_max_size=settings.message_bytes_max,
                # No pings: a subscriber may stop reading for long, and then continue where it was.
                ws_ping_interval=None,
                ws_per_message_deflate=False,
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=limits.keep_alive_s,
                timeout_graceful_shutdown=limits.stop_s_max // 2,
                ssl_certfile=settings.tls_cert or None,
                ssl_keyfile=settings.tls_key or None,
            )
            config.load()
        except (OSError, ssl.SSLError) as problem:
            raise error("E100", f"tls_cert and tls_key cannot be used: {problem}") from None
        super().__init__(config)

    async def _call(self, scope: object, receive: object, send: object) -> None:
        """The application, which is created when the event loop runs."""
        await self._application(scope, receive, send)  # type: ignore[arg-type]

    async def before_start(self) -> None:
        self.gateway = Gateway(self._broker, self._settings, self._access, asyncio.get_running_loop())
        self.gateway.connection_count = lambda: self.connection_count
        self.links = LinkService(self.gateway)
        self._application = create_app(self.gateway, self.links.accept)

    async def after_start(self) -> None:
        assert self.gateway is not None
        if self._settings.flight:
            limiters = self.gateway.request_limiter, self.gateway.event_limiter
            self.flight = FlightServer(self._broker, self._settings, self._access, *limiters, self.counts)
        self._print_line(f"listening on {self._url}")
        self._print_line(f"the console is at {self._url}/")
        if self.flight is not None:
            self._print_line(f"Arrow Flight on {self.flight.location}")
        assert self.links is not None
        self.links.start()
        self.ready.set()

    def every_second(self) -> None:
        if self.gateway is not None:
            self.gateway.end_revoked()
        if self.links is not None:
            self.links.every_second()
        if self.flight is not None:
            self.flight.every_second()

    async def before_stop(self) -> None:
        self._on_stopping()
        assert self.gateway is not None and self.links is not None
        await self.links.stop()
        if self.flight is not None:
            await asyncio.gather(self.gateway.stop(), asyncio.to_thread(self.flight.stop))
        else:
            await self.gateway.stop()


def run(
    broker: Broker,
    settings: Settings,
    access: Access,
    listener: socket.socket,
    print_line: PrintLine | None = None,
    on_stopping: Callable[[], None] = lambda: None,
) -> None:
    """Serves until SIGTERM or SIGINT. Then everything published is in the log, and the broker is stopped."""
    try:
        quiet_libraries()
        _raise_file_limit(settings.connections_max)
        url = server_url(settings, listener)
        GatewayServer(broker, settings, access, print_line, on_stopping, url).run(sockets=[listener])
    finally:
        broker.stop()


def quiet_libraries() -> None:
    """The records of uvicorn and websockets contain query strings and headers, and so secrets."""
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "websockets", "websockets.server"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _raise_file_limit(connections_max: int) -> None:
    """Every connection is an open file, and most systems allow few by default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections_max + limits.other_files_max
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
