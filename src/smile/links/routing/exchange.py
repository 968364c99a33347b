"""Keeps the routing table that a neighbour has of this broker equal to the one that this broker has for it, over one
link. A state machine without input and output.

Each direction sends one update at a time, and repeats it until it is confirmed: lost, repeated and reordered messages
are harmless. A link begins with the digest of the table. If the neighbour has another one, it is sent the whole table:
so two brokers agree again whatever was missed before.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from smile import limits
from smile.errors import error
from smile.links.messages import AdvertisementEntry, RoutingEntry, RoutingKey, RoutingReceived, RoutingUpdate

RESEND_S: Final = 1.0
"""An update that is not confirmed after this time is sent again."""
REFRESH_S: Final = 2.0
"""The table is computed again after this time even if no version has changed: grants may have."""

RoutingTable = Mapping[RoutingKey, RoutingEntry]


class RoutingExchange:
    """`find_table` returns the table for the neighbour, and `find_version` a number that changes with it. `find_known`
    returns the neighbour's table as it was on an earlier link. `on_table` is called with the neighbour's table when it
    is complete and may have changed."""

    def __init__(
        self,
        find_table: Callable[[], RoutingTable],
        find_version: Callable[[], int],
        find_known: Callable[[], RoutingTable],
        on_table: Callable[[RoutingTable], None],
    ) -> None:
        self._find_table, self._find_version = find_table, find_version
        self._find_known, self._on_table = find_known, on_table
        self._table: RoutingTable = {}
        self._table_version: int | None = None
        self._refresh_at = 0.0
        self._sent: dict[RoutingKey, RoutingEntry] = {}
        """What the neighbour has, or will have when it confirms."""
        self._unconfirmed: RoutingUpdate | None = None
        self._last_number = 0
        self._is_complete = False
        self._offered: RoutingTable = {}
        """The table whose digest was sent."""
        self._resend_at = 0.0
        self._has_known = False
        """Whether the neighbour's table is the one of an earlier link."""
        self._received: dict[RoutingKey, RoutingEntry] = {}
        self._received_number = 0

    @property
    def deadline(self) -> float:
        """When `poll` has something to do. Until an update is confirmed, that is only to repeat it."""
        return self._refresh_at if self._unconfirmed is None else self._resend_at

    def poll(self, now: float) -> list[RoutingUpdate]:
        """The updates that are to be sent now."""
        if self._unconfirmed is not None:
            if now < self._resend_at:
                return []
            self._resend_at = now + RESEND_S
            return [self._unconfirmed]
        version = self._find_version()
        if version != self._table_version or now >= self._refresh_at:
            self._table, self._table_version = self._find_table(), version
            self._refresh_at = now + REFRESH_S
        update = self._next_update()
        if update is None:
            return []
        self._unconfirmed, self._last_number, self._resend_at = update, update.n, now + RESEND_S
        return [update]

    def _next_update(self) -> RoutingUpdate | None:
        if not self._last_number:
            self._offered = self._table
            return RoutingUpdate(1, is_complete=False, digest=table_digest(self._table))
        changed = [(key, entry) for key, entry in self._table.items() if self._sent.get(key) != entry]
        removed = [key for key in self._sent if key not in self._table][: limits.routing_update_entries_max]
        if not changed and not removed and self._is_complete:
            return None
        chosen, size = list[RoutingEntry](), 0
        for key, entry in changed[: limits.routing_update_entries_max]:
            size += len(entry.description) if isinstance(entry, AdvertisementEntry) else 0
            if chosen and size > limits.routing_update_chars_max:
                break
            chosen.append(entry)
            self._sent[key] = entry
        for key in removed:
            del self._sent[key]
        self._is_complete = len(chosen) == len(changed) and self._sent.keys() == self._table.keys()
        return RoutingUpdate(self._last_number + 1, tuple(chosen), tuple(removed), self._is_complete)

    def receive_confirmation(self, message: RoutingReceived) -> None:
        if self._unconfirmed is not None and message.n == self._unconfirmed.n:
            self._unconfirmed = None
            if message.n == 1 and message.has_table:
                self._sent, self._is_complete = dict(self._offered), True

    def receive(self, update: RoutingUpdate) -> RoutingReceived | None:
        """Applies an update. Returns its confirmation; None if an earlier update is missing."""
        if update.n > self._received_number + 1:
            return None
        if update.n == self._received_number + 1:
            self._received_number = update.n
            if update.digest:
                self._receive_digest(update.digest)
            for key in update.removed:
                self._received.pop(key, None)
            self._received.update({entry.key: entry for entry in update.entries})
            if len(self._received) > limits.routing_entries_max:
                raise error("E120", f"the neighbour has more than {limits.routing_entries_max:,} routing entries")
            if update.is_complete:
                self._on_table(dict(self._received))
        return RoutingReceived(update.n, update.n == 1 and self._has_known)

    def _receive_digest(self, digest: str) -> None:
        known = self._find_known()
        if table_digest(known) == digest:
            self._received, self._has_known = dict(known), True
            self._on_table(dict(known))


def table_digest(table: RoutingTable) -> str:
    entries = msgspec.json.encode([table[key] for key in sorted(table)])
    return hashlib.sha256(entries).hexdigest()
