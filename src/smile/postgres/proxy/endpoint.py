"""One side of a proxied connection: bytes are read in their order, with bounded memory, and TLS can be started."""

import asyncio
import ssl
from collections import deque
from typing import Final

READ_BYTES_MAX: Final = 2**18
"""More than this is not read ahead from a connection."""


class ProxyEndpoint(asyncio.Protocol):
    """The methods belong to one reader and one writer at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._is_ended = self._is_lost = self._is_tls = False
        self._readable, self._writable, self._lost = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._writable.set()

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    # ── called by asyncio ───────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)
        if self._size >= READ_BYTES_MAX:
            self.transport.pause_reading()
        self._readable.set()

    def eof_received(self) -> bool:
        """The other side may still read, except over TLS, which has no such state."""
        self._is_ended = True
        self._readable.set()
        return not self._is_tls

    def connection_lost(self, problem: Exception | None) -> None:
        self._is_ended = self._is_lost = True
        self._readable.set()
        self._writable.set()
        self._lost.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ── for the proxy ───────────────────────────────────────────────────────────────────────────────────────────────

    async def read(self) -> bytes:
        """What has arrived; nothing at the end."""
        while not self._chunks and not self._is_ended:
            self._readable.clear()
            await self._readable.wait()
        if not self._chunks:
            return b""
        data = self._chunks.popleft() if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        is_paused, self._size = self._size >= READ_BYTES_MAX, 0
        if is_paused and not self._is_lost:
            self.transport.resume_reading()
        return data

    async def read_exactly(self, count: int) -> bytes:
        """Raises EOFError if the connection ends before. The bytes after these can be read later."""
        data = b""
        while len(data) < count:
            chunk = await self.read()
            if not chunk:
                raise EOFError
            data += chunk
        self.unread(data[count:])
        return data[:count]

    def unread(self, data: bytes) -> None:
        if data:
            self._chunks.appendleft(data)
            self._size += len(data)

    @property
    def has_unread(self) -> bool:
        return bool(self._chunks)

    async def write(self, data: bytes) -> None:
        """Waits while the receiver is slow. Raises ConnectionError if it is gone."""
        if self._is_lost:
            raise ConnectionResetError
        self.transport.write(data)
        await self._writable.wait()

    def end_writing(self) -> None:
        if not self._is_lost and self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    async def close(self, seconds: float) -> None:
        """What was written is still sent, if the receiver reads it within this time."""
        self.transport.close()
        try:
            async with asyncio.timeout(seconds):
                await self._lost.wait()
        except TimeoutError:
            self.abort()
        except asyncio.CancelledError:
            self.abort()
            raise

    def abort(self) -> None:
        self.transport.abort()

    async def start_tls(self, context: ssl.SSLContext, server_hostname: str | None = None) -> None:
        """Raises OSError or ssl.SSLError if no encrypted connection is made."""
        loop = asyncio.get_running_loop()
        is_server = server_hostname is None
        transport = await loop.start_tls(
            self.transport, self, context, server_side=is_server, server_hostname=server_hostname
        )
        if transport is None:
            raise ConnectionResetError
        self._transport, self._is_tls = transport, True
