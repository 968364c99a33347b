"""Accepts the connections of clients, and relays each to a connection of its own with the server.

TLS ends at the proxy on both sides. Client and server authenticate each other: the proxy knows no password. The process
and the key in a cancel request are the server's, so the request is forwarded as it is.
"""

import asyncio
import logging
import secrets
import ssl
import struct
from collections.abc import Callable
from typing import Final

from smile import limits
from smile.errors import SmileError, error
from smile.postgres.proxy.endpoint import ProxyEndpoint
from smile.postgres.proxy.messages import fatal_message
from smile.postgres.proxy.session import ProxySession
from smile.postgres.proxy.target import ProxyTarget

TLS_REQUEST: Final = 80877103
GSS_REQUEST: Final = 80877104
CANCEL_REQUEST: Final = 80877102
PROTOCOL_MAJOR: Final = 3

CONNECTION_REFUSED: Final = "08001"
PROTOCOL_VIOLATION: Final = "08P01"
TOO_MANY_CONNECTIONS: Final = "53300"
FEATURE_NOT_SUPPORTED: Final = "0A000"

log = logging.getLogger("smile.postgres.proxy")


class _Refusal(Exception):
    """The connection cannot be relayed. The client is told why."""

    def __init__(self, sqlstate: str, problem: SmileError) -> None:
        super().__init__(problem.message)
        self.message = fatal_message(sqlstate, problem)


class PostgresProxy:
    """`tls` is the certificate that clients see; without it, they are told that there is no TLS."""

    def __init__(
        self,
        target: ProxyTarget,
        tls: ssl.SSLContext | None = None,
        connections_max: int = limits.proxy_connections_max,
    ) -> None:
        self._target, self._tls, self._connections_max = target, tls, connections_max
        self._target_tls = target.tls_context() if target.uses_tls else None
        self._tasks: set[asyncio.Task[None]] = set()
        self._relayed = 0
        """How many clients are connected with the server through here."""

    async def listen(self, host: str, port: int) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(self._accept, host, port)

    async def stop(self) -> None:
        """Ends all connections. Receivers that do not read what was sent are not waited for."""
        for _ in range(2):
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=limits.proxy_stop_s_max)

    def _accept(self) -> ProxyEndpoint:
        return _AcceptedEndpoint(self._start)

    def _start(self, client: ProxyEndpoint) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: ProxyEndpoint) -> None:
        try:
            async with asyncio.timeout(limits.proxy_startup_s_max):
                startup = await self._read_startup(client)
            if int.from_bytes(startup[4:8], "big") == CANCEL_REQUEST:
                await self._forward_cancel(startup)
            else:
                await self._relay(client, startup)
        except _Refusal as refusal:
            log.info("a connection was refused: %s", refusal)
            client.transport.write(refusal.message)
        except (EOFError, OSError, TimeoutError) as problem:
            log.debug("a connection ended: %r", problem)
        finally:
            await client.close(limits.proxy_close_s_max)

    # ── startup ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _read_startup(self, client: ProxyEndpoint) -> bytes:
        """The first message that is no question about encryption."""
        is_encrypted = False
        while True:
            header = await client.read_exactly(8)
            length, code = struct.unpack("!ii", header)
            if not 8 <= length <= limits.proxy_startup_bytes_max:
                hint = "Clients of PostgreSQL connect here. TLS begins with a question, not directly."
                problem = error("E160", "the first message of the connection is not PostgreSQL's protocol", hint=hint)
                raise _Refusal(PROTOCOL_VIOLATION, problem)
            startup = header + await client.read_exactly(length - 8)
            if code == TLS_REQUEST and length == 8 and not is_encrypted:
                await self._answer_tls_request(client)
                is_encrypted = self._tls is not None
            elif code == GSS_REQUEST and length == 8:
                await client.write(b"N")
            else:
                return startup

    async def _answer_tls_request(self, client: ProxyEndpoint) -> None:
        if self._tls is None:
            await client.write(b"N")
            return
        if client.has_unread:
            # Bytes that an attacker could have put before the encrypted ones must not be taken for the client's.
            problem = error("E160", "unencrypted data was received after the request for TLS")
            raise _Refusal(PROTOCOL_VIOLATION, problem)
        client.transport.pause_reading()
        await client.write(b"S")
        await client.start_tls(self._tls)

    async def _connect(self) -> ProxyEndpoint:
        try:
            async with asyncio.timeout(limits.proxy_connect_s_max):
                return await self._open_server()
        except (OSError, TimeoutError, EOFError) as problem:
            reason = str(problem) or type(problem).__name__
            failure = error("E159", f"the proxy cannot reach the server at {self._target}: {reason}")
            raise _Refusal(CONNECTION_REFUSED, failure) from None

    async def _open_server(self) -> ProxyEndpoint:
        loop = asyncio.get_running_loop()
        if (path := self._target.socket_path) is not None:
            _, server = await loop.create_unix_connection(ProxyEndpoint, path)
            return server
        _, server = await loop.create_connection(ProxyEndpoint, self._target.host, self._target.port)
        if self._target_tls is None:
            return server
        try:
            await server.write(struct.pack("!ii", 8, TLS_REQUEST))
            answer = await server.read_exactly(1)
            if answer == b"S" and not server.has_unread:
                await server.start_tls(self._target_tls, self._target.host)
            elif answer != b"N" or self._target.requires_tls:
                raise ConnectionError("it does not offer TLS")
        except BaseException:
            server.abort()
            raise
        return server

    async def _forward_cancel(self, startup: bytes) -> None:
        server = await self._connect()
        try:
            await server.write(startup)
            # The server closes the connection after it has processed the request. The client waits for that.
            while await server.read():
                pass
        finally:
            await server.close(limits.proxy_close_s_max)

    # ── relay ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _relay(self, client: ProxyEndpoint, startup: bytes) -> None:
        if self._relayed >= self._connections_max:
            text = f"the proxy has {self._connections_max} connections already"
            raise _Refusal(TOO_MANY_CONNECTIONS, error("E092", text, hint="Try again later."))
        self._relayed += 1
        try:
            server = await self._connect()
            try:
                await server.write(startup)
                await self._relay_messages(client, server, ProxySession(_result_name(), not _is_replication(startup)))
            finally:
                await server.close(limits.proxy_close_s_max)
        finally:
            self._relayed -= 1

    async def _relay_messages(self, client: ProxyEndpoint, server: ProxyEndpoint, session: ProxySession) -> None:
        """Ends when the server has closed its connection, or when either side is gone."""
        requests = asyncio.create_task(_pump(client, server, session.from_client.feed))
        responses = asyncio.create_task(_pump(server, client, session.from_server.feed))
        try:
            done, _ = await asyncio.wait((requests, responses), return_when=asyncio.FIRST_COMPLETED)
            if responses not in done:
                requests.result()
                server.end_writing()
                await responses
            responses.result()
            if requests in done:
                requests.result()
        except SmileError as problem:
            raise _Refusal(FEATURE_NOT_SUPPORTED, problem) from None
        finally:
            for task in (requests, responses):
                task.cancel()
            await asyncio.gather(requests, responses, return_exceptions=True)


class _AcceptedEndpoint(ProxyEndpoint):
    def __init__(self, start: Callable[[ProxyEndpoint], None]) -> None:
        super().__init__()
        self._start_serving = start

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._start_serving(self)


async def _pump(source: ProxyEndpoint, sink: ProxyEndpoint, convert: Callable[[bytes], bytes]) -> None:
    """Until the source ends. It reads no more while the sink is slow."""
    while data := await source.read():
        await sink.write(convert(data))


def _result_name() -> str:
    return f"smile_{secrets.token_hex(12)}"


def _is_replication(startup: bytes) -> bool:
    words = startup[8:].split(b"\0")
    parameters = dict(zip(words[::2], words[1::2], strict=False))
    return parameters.get(b"replication", b"").lower() not in (b"", b"false", b"off", b"no", b"0", b"f", b"n")
