"""What the subscriptions and tables of both clients share: everything except waiting.

One client waits with threads, and the other one with asyncio.
"""

from smile.client.changes import Change, Frame, Schema
from smile.client.durable_feed import DurableFeed, StreamEvent
from smile.client.feed import FrameQueue, SubscriptionFeed
from smile.client.rows import Rows
from smile.client.session import ClientSession
from smile.errors import SmileError


class SubscriptionBase:
    """A subscription to the changes of a view."""

    def __init__(self, session: ClientSession, feed: SubscriptionFeed, queue: FrameQueue) -> None:
        self._session, self._feed, self._queue = session, feed, queue
        self._changes: list[Change] = []
        """Those of the last frame that were not returned yet, the next one last."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {self._feed.view}>"

    @property
    def schema(self) -> Schema:
        assert self._feed.schema is not None
        return self._feed.schema

    @property
    def paused(self) -> SmileError | None:
        """Why the broker does not maintain the view at present (E109), or None."""
        return self._feed.paused

    def _has_frame(self) -> bool:
        """Whether `_take_frame` need not wait."""
        return bool(self._queue.frames) or self._feed.error is not None

    def _take_frame(self) -> Frame:
        """The next frame. Raises an error if the subscription has ended."""
        if not self._queue.frames:
            assert self._feed.error is not None
            raise self._feed.error
        frame = self._queue.frames.popleft()
        self._session.consume_frame(self._feed)
        return frame


class DurableSubscriptionBase:
    """A durable subscription to events."""

    def __init__(self, session: ClientSession, feed: DurableFeed) -> None:
        self._session, self._feed = session, feed

    @property
    def token(self) -> str | None:
        """Stands for what is acknowledged, at every broker that has the stream."""
        return self._feed.token

    @property
    def ready(self) -> int:
        """The number of events that have arrived and were not taken."""
        return len(self._feed.events)

    def _has_event(self) -> bool:
        """Whether `_take_event` need not wait."""
        return bool(self._feed.events) or self._feed.error is not None

    def _next_event(self) -> StreamEvent:
        """The next event, which is not taken yet. Raises an error if the subscription has ended."""
        if not self._feed.events:
            assert self._feed.error is not None
            raise self._feed.error
        return self._feed.events[0]

    def _take_event(self) -> StreamEvent:
        """The next event. Raises an error if the subscription has ended."""
        self._next_event()
        return self._feed.take_event()

    def _acknowledge_taken(self) -> None:
        """Sends the acknowledgement of all events that were taken, without waiting for the answer."""
        self._session.acknowledge_events(self._feed, lambda _: None)


class TableBase(Rows):
    """The rows of a view. `feed` is set when the view has answered."""

    def __init__(self, session: ClientSession) -> None:
        super().__init__()
        self._session = session
        self.feed: SubscriptionFeed | None = None

    @property
    def error(self) -> SmileError | None:
        """Why the table is no longer updated, or None."""
        return self.feed.error if self.feed is not None else None

    @property
    def paused(self) -> SmileError | None:
        """Why the broker does not maintain the view at present (E109), or None. The rows stay as they were."""
        return self.feed.paused if self.feed is not None else None
