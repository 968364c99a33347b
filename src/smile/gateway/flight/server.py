"""The Arrow Flight server: gRPC, behind a proxy that limits connections and messages.

gRPC limits the calls of a connection, and a call is admitted before it gets a thread (`calls.py`).
"""

import logging
import ssl
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc

from smile import limits
from smile.broker.broker import Broker
from smile.errors import error
from smile.gateway.access import Access
from smile.gateway.connection_counts import ConnectionCounts
from smile.gateway.flight.calls import FlightCalls
from smile.gateway.flight.proxy import FlightProxy
from smile.gateway.flight.service import FlightService
from smile.gateway.rate_limiter import RateLimiter
from smile.settings import Settings, parse_address

_OVERSIZE_FACTOR: Final = 2
"""A batch that is too large is refused with its size and number; beyond this factor the connection is ended."""
_REFUSAL_THREADS: Final = 4
"""Threads besides those of admitted calls."""

_SOCKET_FOLDER_CHARS_MAX: Final = 80

logger = logging.getLogger("smile.gateway.flight")


class FlightServer:
    """Serves from its creation until `stop`."""

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        access: Access,
        request_limiter: RateLimiter,
        event_limiter: RateLimiter,
        counts: ConnectionCounts,
    ) -> None:
        """The limiters and the counts of connections are those of all interfaces together."""
        tls = _tls_context(settings)
        self.calls = FlightCalls(access, request_limiter, broker.log_token)
        self.service = FlightService(broker, settings, self.calls, event_limiter)
        bytes_max = _OVERSIZE_FACTOR * max(settings.bulk_bytes_max, limits.flight_request_bytes_max)
        self._threads = ThreadPoolExecutor(2 * limits.flight_calls_max + _REFUSAL_THREADS, "flight")
        self._grpc = grpc.server(self._threads, handlers=[self.service], options=_grpc_options(bytes_max))
        # gRPC itself listens on a socket that only this process uses.
        # The path of a socket has at most 107 characters, so a deep TMPDIR cannot hold it.
        folder = None if len(tempfile.gettempdir()) <= _SOCKET_FOLDER_CHARS_MAX else "/tmp"
        self._directory = tempfile.TemporaryDirectory(prefix="smile-", dir=folder)
        inner_path = f"{self._directory.name}/flight"
        self._grpc.add_insecure_port(f"unix:{inner_path}")
        self._grpc.start()
        host, port = parse_address(settings.flight)
        try:
            self.proxy = FlightProxy((host, port), inner_path, tls, bytes_max, counts)
        except OSError as problem:
            self._stop_grpc()
            reason = problem.strerror or str(problem)
            hint = 'Is another broker running? Choose another port with --flight, or --flight "" for none.'
            raise error("E106", f"Arrow Flight cannot listen on {settings.flight}: {reason}", hint=hint) from None
        shown_host = f"[{host}]" if ":" in host else host
        self.location = f"{'grpc+tls' if settings.tls else 'grpc'}://{shown_host}:{self.proxy.port}"

    def every_second(self) -> None:
        self.calls.cancel_overdue()
        self.proxy.abort_stalled()

    def stop(self) -> None:
        """Ends subscriptions, acknowledges batches in progress, and disconnects clients that do not read."""
        if self.calls.stopping.is_set():
            return
        self.calls.stopping.set()
        self.proxy.stop_listening()
        self.service.wake_all()
        self._stop_grpc()
        self.proxy.stop()

    def _stop_grpc(self) -> None:
        """Gives calls some time to end, and cancels them then."""
        if not self._grpc.stop(limits.flight_stop_s_max).wait(2 * limits.flight_stop_s_max):
            logger.error("Arrow Flight calls do not end", extra={"calls": self.calls.count})
        self._threads.shutdown(wait=False)
        self.service.close()
        self._directory.cleanup()


def _grpc_options(message_bytes_max: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_concurrent_streams", limits.flight_streams_max),
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", limits.flight_headers_bytes_max),
        ("grpc.absolute_max_metadata_size", limits.flight_headers_bytes_max),
        ("grpc.max_connection_idle_ms", 1000 * limits.keep_alive_s),
        ("grpc.server_handshake_timeout_ms", 1000 * limits.request_s_max),
        ("grpc.compression_enabled_algorithms_bitset", 1),  # none
        ("grpc.so_reuseport", 0),
    ]


def _tls_context(settings: Settings) -> ssl.SSLContext | None:
    if not settings.tls:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["h2"])
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as problem:  # includes errors of the certificate
        raise error("E100", f"tls_cert and tls_key cannot be used: {problem.strerror or problem}") from None
    return context
