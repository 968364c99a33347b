"""Counts connections, in all and by address, and says which are too many."""

import asyncio
from collections import Counter
from threading import Lock

from smile import limits


class ConnectionCounts:
    """Connections of all interfaces. Thread-safe."""

    def __init__(self, connections_max: int, per_address_max: int) -> None:
        self._connections_max = connections_max
        self._per_address_max = per_address_max
        self._lock = Lock()
        self._by_address: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self._by_address.total()

    def add(self, address: str) -> tuple[str, str] | None:
        """Counts a connection, also one that is refused. If there are too many, returns the reason and a hint."""
        with self._lock:
            self._by_address[address] += 1
        if self.total > self._connections_max:
            return (f"there are {self._connections_max:,} connections already", _hint("connections_max"))
        if self._by_address[address] > self._per_address_max:
            message = f"there are {self._per_address_max:,} connections from this address already"
            return message, _hint("connections_per_address_max")
        return None

    def remove(self, address: str) -> None:
        with self._lock:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def may_answer(self, address: str) -> bool:
        """Whether there are few enough refused connections that this one is answered before it is closed."""
        excess = max(self.total - self._connections_max, self._by_address[address] - self._per_address_max)
        return excess <= limits.connections_refused_max


def peer_address(transport: asyncio.BaseTransport) -> str:
    """The IP address of the client."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""


def _hint(setting: str) -> str:
    return f"The setting {setting} is the limit."
