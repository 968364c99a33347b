"""The connection of a neighbour that has called: a WebSocket of the gateway's server."""

import asyncio
from collections.abc import Sequence

from smile import limits
from smile.broker.network.network import Network
from smile.errors import SmileError, error
from smile.gateway.delivery_scheduler import call_on_loop
from smile.gateway.gateway import Caller
from smile.gateway.links.close_reason import close_reason
from smile.gateway.links.link_driver import LinkDriver
from smile.gateway.uvicorn_internals import WebSocketConnection


class ServerLinkSocket:
    """A session of the gateway: it ends when the token of its caller is revoked."""

    def __init__(
        self, network: Network, caller: Caller, connection: WebSocketConnection, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.caller = caller
        self.driver = LinkDriver(network, None, caller.principal)
        self._network = network
        self._connection, self._loop = connection, loop
        self._sent_bytes = 0
        """Changed by the driver's thread only."""
        self._written_bytes = 0
        """Changed by the event loop only."""
        self.is_closed = asyncio.Event()
        connection.handler = self
        connection.set_message_bytes_max(limits.link_request_bytes_max)
        self._may_send_data = False

    # ── called by the driver's thread ───────────────────────────────────────────────────────────────────────────────

    def send(self, packets: Sequence[bytes]) -> None:
        self._sent_bytes += sum(map(len, packets))
        call_on_loop(self._loop, lambda: self._write(packets))

    def has_room(self) -> bool:
        return self._connection.is_writable and self._sent_bytes - self._written_bytes < limits.link_queue_bytes_max

    def set_reading_paused(self, is_paused: bool) -> None:
        call_on_loop(self._loop, lambda: self._connection.set_reading_paused(is_paused))

    def close(self, problem: SmileError | None) -> None:
        call_on_loop(self._loop, lambda: self._close(problem))

    # ── called by the event loop ────────────────────────────────────────────────────────────────────────────────────

    def _write(self, packets: Sequence[bytes]) -> None:
        self._connection.send_binary(packets)
        self._written_bytes += sum(map(len, packets))
        if self._connection.is_writable:
            self.driver.wake()

    def _close(self, problem: SmileError | None) -> None:
        self._connection.close(*close_reason(problem))
        self.is_closed.set()

    def receive_message(self, text: bytes | None) -> None:
        self.driver.end(error("E120", "the neighbour sent text; messages of a link are binary"))

    def receive_binary(self, data: bytes) -> None:
        """Only a neighbour that something is imported from may send large messages."""
        if not self._may_send_data and self.driver.neighbour in self._network.neighbours_wanted():
            self._may_send_data = True
            self._connection.set_message_bytes_max(limits.link_message_bytes_max)
        self.driver.receive(data)

    def on_writable(self) -> None:
        self.driver.wake()

    def end(self, problem: SmileError) -> None:
        self.driver.end(problem)
