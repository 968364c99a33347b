"""SMILE: a stateful publish/subscribe system with monotonic knowledge.

The names of the client can be imported from here. They are loaded on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smile.client import Client, Knowledge, connect, connect_async
    from smile.errors import SmileError

__version__ = "0.1.0"

__all__ = ["Client", "Knowledge", "SmileError", "connect", "connect_async"]


def __getattr__(name: str) -> Any:  # Any: whatever the client exports
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from smile import client  # noqa: PLC0415  # the broker and its workers import this package without the client

    return getattr(client, name)
