"""The Python client: `connect` for threads, `connect_async` for asyncio. Large libraries are imported on first use."""

from smile.client.asynchronous import AsyncClient, AsyncSubscription, AsyncTable, connect_async
from smile.client.changes import Change, Frame, Published, Schema
from smile.client.knowledge import Knowledge, NotYetKnown
from smile.client.rows import Rows
from smile.client.synchronous import Client, Subscription, Table, connect
from smile.client.ticks import as_datetime, tick_of
from smile.errors import SmileError

__all__ = [
    "AsyncClient",
    "AsyncSubscription",
    "AsyncTable",
    "Change",
    "Client",
    "Frame",
    "Knowledge",
    "NotYetKnown",
    "Published",
    "Rows",
    "Schema",
    "SmileError",
    "Subscription",
    "Table",
    "as_datetime",
    "connect",
    "connect_async",
    "tick_of",
]
