"""A proxy that runs in a thread of the tests."""

import asyncio
import ssl
import threading
from typing import Self

from smile.postgres.proxy.proxy import PostgresProxy
from smile.postgres.proxy.target import parse_target
from tests.processes import free_port


class RunningProxy:
    """Listens at `port` of 127.0.0.1."""

    def __init__(self, url: str, tls: ssl.SSLContext | None = None, connections_max: int = 100) -> None:
        self.port = free_port()
        self._loop = asyncio.new_event_loop()
        self._proxy = PostgresProxy(parse_target(url), tls, connections_max)
        self._thread = threading.Thread(target=self._loop.run_forever, name="postgres proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        listening = self._proxy.listen("127.0.0.1", self.port)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        await self._proxy.stop()
