"""The Python client: `connect` for threads, `connect_async` for asyncio. Large libraries are imported on first use."""

from smile.client.asynchronous import (
    AsyncClient,
    AsyncDurableSubscription,
    AsyncSubscription,
    AsyncTable,
    connect_async,
)
from smile.client.changes import Change, Frame, Published, Schema
from smile.client.durable_feed import StreamEvent
from smile.client.knowledge import Knowledge, NotYetKnown
from smile.client.rows import Rows
from smile.client.synchronous import Client, DurableSubscription, Subscription, Table, connect
from smile.client.ticks import as_datetime, tick_of
from smile.errors import SmileError

__all__ = [
    "AsyncClient",
    "AsyncDurableSubscription",
    "AsyncSubscription",
    "AsyncTable",
    "Change",
    "Client",
    "DurableSubscription",
    "Frame",
    "Knowledge",
    "NotYetKnown",
    "Published",
    "Rows",
    "Schema",
    "SmileError",
    "StreamEvent",
    "Subscription",
    "Table",
    "as_datetime",
    "connect",
    "connect_async",
    "tick_of",
]
