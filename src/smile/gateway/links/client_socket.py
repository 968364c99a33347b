"""The connection to a neighbour that this broker has called: a WebSocket client."""

import asyncio
from collections import deque
from collections.abc import Sequence

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from smile import limits
from smile.errors import SmileError, error
from smile.gateway.delivery_scheduler import call_on_loop
from smile.gateway.links.close_reason import close_reason, closed_error
from smile.gateway.links.link_driver import LinkDriver


class ClientLinkSocket:
    def __init__(self, driver: LinkDriver, neighbour: str, connection: ClientConnection) -> None:
        self._driver, self._neighbour, self._connection = driver, neighbour, connection
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes] = deque()
        self._has_queued, self._may_read, self._closed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._may_read.set()
        self._closing: SmileError | None = None
        self._sent_bytes = 0
        """Changed by the driver's thread only."""
        self._written_bytes = 0
        """Changed by the event loop only."""

    # ── called by the driver's thread ───────────────────────────────────────────────────────────────────────────────

    def send(self, packets: Sequence[bytes]) -> None:
        self._sent_bytes += sum(map(len, packets))
        call_on_loop(self._loop, lambda: self._enqueue(packets))

    def has_room(self) -> bool:
        return self._sent_bytes - self._written_bytes < limits.link_queue_bytes_max

    def set_reading_paused(self, is_paused: bool) -> None:
        call_on_loop(self._loop, self._may_read.clear if is_paused else self._may_read.set)

    def close(self, problem: SmileError | None) -> None:
        call_on_loop(self._loop, lambda: self._close(problem))

    # ── called by the event loop ────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Returns when the link has ended."""
        tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._write())]
        try:
            await asyncio.wait(
                [*tasks, closed := asyncio.ensure_future(self._closed.wait())], return_when="FIRST_COMPLETED"
            )
            if not self._closed.is_set():
                self._driver.end(self._find_problem(tasks))
                await closed
        finally:
            for task in (*tasks, closed):
                task.cancel()
            await asyncio.gather(*tasks, closed, return_exceptions=True)
            await self._connection.close(*close_reason(self._closing))

    async def _read(self) -> None:
        while True:
            await self._may_read.wait()
            message = await self._connection.recv()
            if isinstance(message, str):
                raise error("E120", "the neighbour sent text; messages of a link are binary")
            self._driver.receive(message)

    async def _write(self) -> None:
        while True:
            await self._has_queued.wait()
            self._has_queued.clear()
            while self._queue:
                packet = self._queue.popleft()
                await self._connection.send(packet)
                had_room = self.has_room()
                self._written_bytes += len(packet)
                if not had_room and self.has_room():
                    self._driver.wake()

    def _enqueue(self, packets: Sequence[bytes]) -> None:
        self._queue.extend(packets)
        self._has_queued.set()

    def _close(self, problem: SmileError | None) -> None:
        self._closing = problem
        self._closed.set()

    def _find_problem(self, tasks: Sequence["asyncio.Future[None]"]) -> SmileError:
        for task in tasks:
            problem = task.exception() if task.done() else None
            if isinstance(problem, SmileError):
                return problem
            if isinstance(problem, ConnectionClosed) and problem.rcvd is not None:
                return closed_error(self._neighbour, problem.rcvd.code, problem.rcvd.reason)
        return closed_error(self._neighbour, None, "")
