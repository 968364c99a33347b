"""The client: `connect` for plain threads, `connect_async` for asyncio. What is large is loaded when asked for."""

from smile.client.asynchronous import AsyncClient, AsyncSubscription, AsyncTable, connect_async
from smile.client.changes import Change, Frame, Published, Schema
from smile.client.knowledge import Knowledge, NotYetKnown
from smile.client.rows import Rows
from smile.client.synchronous import Client, Subscription, Table, connect
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
    "connect",
    "connect_async",
]
