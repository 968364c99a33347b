"""A TCP proxy between two brokers, whose connections can be cut and delayed.

A cut is what a network does when it loses everything: connections stay open, and nothing arrives. Brokers notice it by
the silence of their neighbour. When the cut is healed, what TCP has not delivered is delivered.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self

CHUNK_BYTES = 2**16
CHUNKS_MAX = 256
"""Chunks that wait for their delay in one direction of one connection. Then nothing is read."""


class TcpProxy:
    """Runs in a thread of its own, and listens at `url`. The methods may be called from any thread."""

    def __init__(self, port: int, delay_s: float = 0.0) -> None:
        self._target_port, self._delay_s = port, delay_s
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_open = asyncio.Event()
        self._is_open.set()
        self.passed_bytes = 0
        """In both directions."""
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._start, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def is_cut(self) -> bool:
        return not self._is_open.is_set()

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._is_open.clear)

    def heal(self) -> None:
        self._loop.call_soon_threadsafe(self._is_open.set)

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    # ── in the proxy's thread ───────────────────────────────────────────────────────────────────────────────────────

    def _start(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop(self) -> None:
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            await self._is_open.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
            writers.append(far_writer)
            async with asyncio.TaskGroup() as group:
                for source, destination in ((reader, far_writer), (far_reader, writer)):
                    group.create_task(self._pass_on(source, destination))
        except* OSError:
            pass
        finally:
            for open_writer in writers:
                open_writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Raises ConnectionError when the connection has ended, after all data was written."""
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_MAX)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write(chunks, writer))
            data = b"-"
            while data:
                data = await reader.read(CHUNK_BYTES)
                await chunks.put((self._loop.time() + self._delay_s, data))

    async def _write(self, chunks: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
        while True:
            due, data = await chunks.get()
            if (wait_s := due - self._loop.time()) > 0:
                await asyncio.sleep(wait_s)
            await self._is_open.wait()
            if not data:
                raise ConnectionResetError
            writer.write(data)
            await writer.drain()
            self.passed_bytes += len(data)
