"""The connection of a session. When it is lost, it is made again, with increasing delays between attempts.

It fails permanently only if the broker refuses the client (`PERMANENT_STATUSES`) or its certificate is not trusted.
"""

import asyncio
import json
import os
import random
import ssl
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from smile import limits
from smile.client.address import BrokerAddress
from smile.client.session import ClientSession, decode_error
from smile.errors import SmileError, error

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

CLOSE_MESSAGE_TOO_BIG = 1009
PERMANENT_STATUSES = (400, 401, 403, 404)
"""Responses to the handshake that a retry would not change."""


def retry_delays() -> Iterator[float]:
    """Seconds between attempts. They are random, so that clients of a lost broker do not all return at once."""
    delay = limits.client_pause_s_min
    while True:
        yield delay * random.uniform(0.5, 1.0)
        delay = min(2 * delay, limits.client_pause_s_max)


class BrokerConnection:
    """Runs in one event loop. Its session may be used from any thread."""

    def __init__(self, address: BrokerAddress) -> None:
        self.address = address
        self.session = ClientSession(self._signal_outgoing, self._signal_reconnect)
        self._loop = asyncio.get_running_loop()
        self._outgoing_available = asyncio.Event()
        self._reconnect_requested = asyncio.Event()
        self._tls_context = address.tls_context()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    async def close(self) -> None:
        self.session.on_disconnected(error("E103", "the client was closed"), permanent=True)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _signal_outgoing(self) -> None:
        self._set_threadsafe(self._outgoing_available)

    def _signal_reconnect(self) -> None:
        self._set_threadsafe(self._reconnect_requested)

    def _set_threadsafe(self, event: asyncio.Event) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(event.set)

    async def _run(self) -> None:
        from websockets.exceptions import InvalidStatus, WebSocketException  # noqa: PLC0415  # it takes a while to load

        delays = retry_delays()
        while True:
            problem = error("E103", f"{self.address.url}: the connection was lost")
            try:
                if await self._run_connection():
                    delays = retry_delays()
            except InvalidStatus as rejection:
                code = rejection.response.status_code
                problem = response_error(self.address, code, bytes(rejection.response.body or b""))
                if code in PERMANENT_STATUSES:
                    self.session.on_disconnected(problem, permanent=True)
                    return
            except ssl.SSLCertVerificationError as untrusted:
                # A retry would not make the certificate valid.
                reason = untrusted.verify_message
                hint = "Name the file of certificates to trust: --ca FILE, or SMILE_CA."
                self.session.on_disconnected(error("E103", f"{self.address.url}: {reason}", hint=hint), permanent=True)
                return
            except (OSError, WebSocketException) as failure:  # the handshake may also raise ConnectionClosed
                problem = unreachable_error(self.address, failure)
            self.session.on_disconnected(problem)
            await asyncio.sleep(next(delays))

    async def _run_connection(self) -> bool:
        """Runs one connection until it is lost. Returns whether a message was received."""
        from websockets.asyncio.client import connect  # noqa: PLC0415
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415

        options: dict[str, Any] = {} if self._tls_context is None else {"ssl": self._tls_context}
        options |= {"proxy": None} if self.address.is_loopback else {}
        async with connect(
            self.address.websocket_url,
            additional_headers=self.address.headers,
            compression=None,
            max_size=limits.client_received_bytes_max,
            open_timeout=limits.client_timeout_s,
            ping_interval=limits.client_ping_s,
            ping_timeout=limits.client_ping_s,
            close_timeout=1,
            **options,
        ) as socket:
            self._reconnect_requested.clear()
            self.session.on_connected()
            received = [False]
            tasks = [
                asyncio.create_task(self._read(socket, received)),
                asyncio.create_task(self._write(socket)),
                asyncio.create_task(self._reconnect_requested.wait()),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, ConnectionClosed):
                    if outcome.sent and outcome.sent.code == CLOSE_MESSAGE_TOO_BIG and not outcome.rcvd_then_sent:
                        self.session.fail_feeds_as_too_large()
                        break
                    if outcome.rcvd and outcome.rcvd.code == CLOSE_MESSAGE_TOO_BIG:
                        self.session.fail_largest_request()
                        break
                if isinstance(outcome, Exception) and not isinstance(outcome, ConnectionClosed):
                    raise outcome
        return received[0]

    async def _read(self, socket: "ClientConnection", received: list[bool]) -> None:
        while True:
            text = await socket.recv()
            received[0] = True
            try:
                self.session.receive(text)
            except (ValueError, TypeError, KeyError, AttributeError) as problem:
                # The message breaks the protocol. A new connection starts from a defined state.
                raise ConnectionError(f"a message cannot be decoded: {problem!r}") from problem

    async def _write(self, socket: "ClientConnection") -> None:
        while True:
            self._outgoing_available.clear()
            for text in self.session.take_outgoing():
                await socket.send(text)
            await self._outgoing_available.wait()


def unreachable_error(address: BrokerAddress, failure: Exception) -> SmileError:
    if _has_cause(failure, ssl.SSLError):
        message = f"{address.url}: what listens there does not speak TLS"
        return error("E103", message, hint="A broker without TLS has a URL that begins with http://.")
    # The libraries' messages do not say why a connection failed; the underlying OSError does.
    cause: BaseException | None = failure
    while cause is not None and not (isinstance(cause, OSError) and (cause.errno or 0) > 0):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, OSError) and cause.errno:
        reason = os.strerror(cause.errno)
    else:
        reason = str(failure) or type(failure).__name__
    hint = "Is it running? `smile serve PROGRAM` starts a broker; --url or SMILE_URL sets its address."
    if not isinstance(cause, OSError) and address.url.startswith("http://"):
        hint = "Is it a broker with TLS? Then its URL begins with https://."
    return error("E103", f"{address.url}: {reason}", hint=hint)


def _has_cause(failure: BaseException | None, kind: type[BaseException]) -> bool:
    while failure is not None and not isinstance(failure, kind):
        failure = failure.__cause__ or failure.__context__
    return failure is not None


def response_error(address: BrokerAddress, status: int, body: bytes) -> SmileError:
    """The error that a broker's response contains, or else one for its status."""
    try:
        decoded = json.loads(body)
    except ValueError:
        decoded = None
    if isinstance(decoded, dict) and isinstance(decoded.get("error"), dict):
        return decode_error(decoded["error"] | ({"errors": decoded["errors"]} if "errors" in decoded else {}))
    if status == 401:
        return error("E091", "the broker requires a token", hint="Set SMILE_TOKEN.")
    if status == 403:
        return error("E090", "the broker denied access")
    return error("E103", f"{address.url}: it answered with status {status}", hint="Is that the URL of a SMILE broker?")


async def http_request(
    address: BrokerAddress,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """The body of the response."""
    return await asyncio.to_thread(_request, address, method, path, body, headers)


def _request(address: BrokerAddress, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
    """Sends one request with the standard library, which waits for the response."""
    from http.client import HTTPException  # noqa: PLC0415  # slow to import, and rarely needed
    from urllib.error import HTTPError, URLError  # noqa: PLC0415
    from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener  # noqa: PLC0415

    proxies = ProxyHandler({} if address.is_loopback else None)
    opener = build_opener(proxies, HTTPSHandler(context=address.tls_context()), _no_redirects())
    content_type = {} if body is None else {"Content-Type": "application/json"}
    request = Request(f"{address.url}{path}", body, {**content_type, **headers, **address.headers}, method=method)
    try:
        with opener.open(request, timeout=limits.client_timeout_s) as response:
            content: bytes = response.read()
    except HTTPError as refusal:
        with refusal:
            raise response_error(address, refusal.code, refusal.read()) from None
    except URLError as failure:
        cause = failure.reason if isinstance(failure.reason, Exception) else failure
        raise unreachable_error(address, cause) from None
    except (HTTPException, OSError, ValueError) as failure:
        raise unreachable_error(address, failure) from None
    return content


def _no_redirects() -> Any:  # Any: a subclass of a handler, which is slow to import
    """A redirection would send the token elsewhere."""
    from urllib.request import HTTPRedirectHandler  # noqa: PLC0415

    class NoRedirects(HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    return NoRedirects()
