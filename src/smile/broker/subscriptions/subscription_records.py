"""The records of all durable subscriptions: in memory as they are to be, and which of them are on the disk already."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import RLock

from smile import limits
from smile.broker.subscriptions.durable_request import DurableRequest
from smile.broker.subscriptions.position_store import PositionStore, SubscriptionKey, SubscriptionRecord
from smile.errors import error


class SubscriptionRecords:
    """Thread-safe. `clock` returns microseconds since 1970. Whoever reads a record in order to change it holds `lock`
    meanwhile."""

    def __init__(self, path: Path, clock: Callable[[], int], flush: bool, has_thread: bool = True) -> None:
        self.lock = RLock()
        self._clock = clock
        self._store = PositionStore(path, flush, has_thread)
        self._records = self._store.read()
        self._stored = dict(self._records)
        """As they are on the disk."""

    def close(self) -> None:
        """Returns when everything is stored."""
        self._store.close()

    def get(self, key: SubscriptionKey) -> SubscriptionRecord | None:
        return self._records.get(key)

    def find(self, key: SubscriptionKey) -> SubscriptionRecord:
        """Raises E143 if there is none."""
        record = self._records.get(key)
        if record is None:
            raise error("E143", f"{key.principal} has no durable subscription {key.name[:100]}")
        return record

    def find_requested(self, request: DurableRequest, stream: str) -> SubscriptionRecord | None:
        """The record under the name, if there is one. Raises an error if it belongs to another subscription."""
        record = self._records.get(request.key)
        if record is None:
            count = sum(key.principal == request.key.principal for key in self._records)
            if count >= limits.durable_subscriptions_max:
                hint = "Drop some: smile subscriptions --drop NAME."
                raise error("E092", f"{request.key.principal} has {count:,} durable subscriptions already", hint=hint)
            return None
        wanted = request.relation, request.conditions, request.filter, stream
        if (record.relation, record.conditions, record.filter, record.stream) != wanted:
            what = record.relation + (f" with {record.conditions}" if record.conditions != "{}" else "")
            what += f" where {record.filter}" if record.filter else ""
            what += " (events)" if record.stream else " (rows)"
            hint = f"Use another name, or drop it: smile subscriptions --drop {request.key.name}."
            raise error("E141", f"the name {request.key.name} belongs to a subscription to {what}", hint=hint)
        return record

    def all(self) -> list[SubscriptionRecord]:
        with self.lock:
            return list(self._records.values())

    def all_stored(self) -> list[SubscriptionRecord]:
        """Those that are on the disk, as they are there."""
        with self.lock:
            return list(self._stored.values())

    def write(self, record: SubscriptionRecord) -> "Future[None]":
        """Its subscriber is seen now. The future is done when the record is stored."""
        with self.lock:
            record = replace(record, seen_us=self._clock())
            self._records[record.key] = record
            future = self._store.write(record)
        future.add_done_callback(lambda done: self._note_stored(record, done))
        return future

    def _note_stored(self, record: SubscriptionRecord, done: "Future[None]") -> None:
        if done.exception() is None:
            with self.lock:
                if record.key in self._records:
                    self._stored[record.key] = record

    def delete(self, key: SubscriptionKey) -> "Future[None]":
        with self.lock:
            del self._records[key]
            self._stored.pop(key, None)
            return self._store.delete(key)
