"""The deliveries of a frame of events that are not made yet. An event is encoded and sent once for all of them."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

import msgspec

from smile.broker.subscriptions.event_subscription import EventFrame
from smile.encoding.json_events import json_events
from smile.postgres.database import Connection

CALL_DELIVERIES: Final = 5_000
"""Deliveries of one call, which flushes once."""


class PendingDeliveries:
    """`events` are indexes of the frame's events, in ascending order; each is delivered to the subscription at the same
    place in `subscriptions`."""

    def __init__(self, frame: EventFrame, events: Sequence[int], subscriptions: Sequence[int]) -> None:
        encoded = json_events(frame.source, frame.rows, frame.ticks, frame.origins)
        messages = [
            {"origin": origin, "tick": str(tick), "sequence": None, "event": event["event"]}
            for origin, tick, event in zip(frame.origins, frame.ticks, encoded, strict=True)
        ]
        self._texts = [msgspec.json.encode(message).decode() for message in messages]
        self._refused = {n: message for n, message in enumerate(messages) if _has_zero(message["event"])}
        """Events that the database cannot represent."""
        self._events, self._subscriptions = events, subscriptions
        self._made = 0

    def __bool__(self) -> bool:
        return self._made < len(self._events)

    def deliver(self, connection: Connection) -> int:
        """Makes the next deliveries. Returns how many."""
        refused = self._refused.get(self._events[self._made])
        if refused is not None:
            _refuse_zero(connection, self._subscriptions[self._made], refused)
            self._made += 1
            return 1
        events = self._events[self._made : self._made + CALL_DELIVERIES]
        if self._refused:
            events = list(takewhile(lambda event: event not in self._refused, events))
        subscriptions = self._subscriptions[self._made : self._made + len(events)]
        first, last = events[0], events[-1]
        texts = ",".join(self._texts[first : last + 1])
        connection.execute(
            "CALL smile.deliver(%s::json, %s::integer[], %s::integer[])",
            (f"[{texts}]", _array(event - first + 1 for event in events), _array(subscriptions)),
        )
        self._made += len(events)
        return len(events)


def _has_zero(event: Mapping[str, Any]) -> bool:
    """Whether a text of the event has the character U+0000, which no text in PostgreSQL can have."""
    return any(isinstance(value, str) and "\0" in value for value in event.values())


def _refuse_zero(connection: Connection, subscription: int, refused: Mapping[str, Any]) -> None:
    """Adds an event that the database cannot represent to the exception queue, with a replacement character."""
    event = {
        name: value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value
        for name, value in refused["event"].items()
    }
    message = "a text of the event has the character U+0000, which PostgreSQL cannot store; it is replaced here"
    connection.execute(
        "SELECT smile.add_exception(%s, %s, %s, NULL, %s::json, 'SM078', %s, '', '', 1)",
        (subscription, refused["origin"], int(refused["tick"]), msgspec.json.encode(event).decode(), message),
    )


def _array(numbers: Iterable[int]) -> str:
    """An array as text, which is much faster than a list."""
    return "{" + ",".join(map(str, numbers)) + "}"
