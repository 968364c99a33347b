"""Drives one link: passes packets between its state machine and its connection, and keeps its times.

Each link has a thread, because a link reads the log, encodes rows and checks what has arrived: neither subscribers nor
other neighbours wait for it. The connection itself belongs to the gateway's event loop.
"""

import logging
import time
from collections import deque
from collections.abc import Sequence
from threading import Condition, Thread
from typing import Protocol

from smile import limits
from smile.broker.network.network import Network
from smile.errors import SmileError, error, memory_error
from smile.links.link import Link

logger = logging.getLogger("smile.gateway.links")


class LinkSocket(Protocol):
    """A connection to a neighbour. All methods may be called from any thread."""

    def send(self, packets: Sequence[bytes]) -> None:
        """Sends messages, in this order. Does nothing if the connection is closed."""

    def has_room(self) -> bool:
        """Whether so little waits to be written that more may be sent. When this becomes true again, the driver is
        woken."""

    def set_reading_paused(self, is_paused: bool) -> None: ...

    def close(self, problem: SmileError | None) -> None:
        """Closes the connection, and tells the neighbour why."""


class LinkDriver:
    """`neighbour` is the broker that was called, at `address`; None if the other side has called."""

    def __init__(self, network: Network, neighbour: str | None, principal: str, address: str = "") -> None:
        self._network = network
        self._socket: LinkSocket | None = None
        self._condition = Condition()
        self._received: deque[bytes] = deque()
        self._received_bytes = 0
        self._is_woken, self._is_reading_paused = True, False
        self._ending: SmileError | None = None
        self._has_ended = False
        self._link: Link = network.connect(neighbour, principal, time.monotonic(), self.wake, address)
        self._thread = Thread(target=self._run, name=f"link {neighbour or principal}", daemon=True)

    def start(self, socket: LinkSocket) -> None:
        self._socket = socket
        self._thread.start()

    @property
    def neighbour(self) -> str | None:
        """The name of the other broker, when it is known."""
        return self._link.neighbour

    @property
    def problem(self) -> SmileError | None:
        """Why the link has ended; None if this broker has closed it, or it has not ended."""
        return self._ending

    # ── called by the event loop, and by threads of the broker ──────────────────────────────────────────────────────

    def wake(self) -> None:
        """There may be something to send."""
        with self._condition:
            if not self._is_woken:
                self._is_woken = True
                self._condition.notify()

    def receive(self, packet: bytes) -> None:
        """A message has arrived. A neighbour that sends more than it may is not read from for a while."""
        with self._condition:
            self._received.append(packet)
            self._received_bytes += len(packet)
            if self._received_bytes > limits.link_inbox_bytes_max and not self._is_reading_paused:
                self._is_reading_paused = True
                if self._socket is not None:
                    self._socket.set_reading_paused(True)
            if not self._is_woken:
                self._is_woken = True
                self._condition.notify()

    def end(self, problem: SmileError | None) -> None:
        """The connection has ended, or is to be ended."""
        with self._condition:
            if not self._has_ended:
                self._has_ended, self._ending = True, problem
            self._is_woken = True
            self._condition.notify()

    def join(self, seconds: float) -> None:
        if self._thread.ident is not None:
            self._thread.join(seconds)

    # ── the thread of the link ──────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        assert self._socket is not None
        try:
            while self._wait():
                self._step(self._socket)
        except SmileError as problem:
            self.end(problem)
        except MemoryError:
            self.end(memory_error())
        except Exception as problem:
            logger.exception("a link has failed")
            self.end(error("E121", f"the link has failed: {problem!r}"))
        try:
            self._network.disconnect(self._link, self._ending, time.monotonic())
        finally:
            self._socket.close(self._ending)

    def _wait(self) -> bool:
        """Waits until there is something to do. Returns False at the end."""
        with self._condition:
            while not self._is_woken and (wait_s := self._link.deadline - time.monotonic()) > 0:
                self._condition.wait(wait_s)
            self._is_woken = False
            return not self._has_ended

    def _step(self, socket: LinkSocket) -> None:
        for packet in self._take_received():
            self._link.receive(packet, time.monotonic())
        self._link.poll(time.monotonic(), socket.has_room())
        if packets := self._link.take_packets():
            socket.send(packets)

    def _take_received(self) -> Sequence[bytes]:
        with self._condition:
            packets, self._received, self._received_bytes = self._received, deque(), 0
            if self._is_reading_paused:
                self._is_reading_paused = False
                assert self._socket is not None
                self._socket.set_reading_paused(False)
        return packets
