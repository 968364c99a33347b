"""Encodes events for durable subscriptions, each event once for all subscriptions to its relation.

Many subscriptions receive the same events at about the same time, but in different frames. So the texts of the events
that were encoded last are kept, by relation, origin and tick, which identify an event.
"""

from itertools import repeat
from threading import Lock

import numpy as np

from smile import limits
from smile.broker.subscriptions.event_subscription import EventFrame
from smile.broker.subscriptions.selection import StreamSelection
from smile.encoding.json_events import json_events
from smile.gateway.http.response import encode

_EventKey = tuple[StreamSelection, str, int]


class EventEncoder:
    """Thread-safe. A selection is of one program, so nothing is kept for the relation when its definition changes."""

    def __init__(self, bytes_max: int = limits.encoded_events_bytes_max) -> None:
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._texts: dict[_EventKey, bytes] = {}
        """The oldest first."""
        self._bytes = 0

    def encode(self, selection: StreamSelection, frame: EventFrame) -> list[bytes]:
        """The events of a frame of the selection as JSON, in their order."""
        keys = list(zip(repeat(selection), frame.origins, frame.ticks))  # repeat has no end
        known = [self._texts.get(key) for key in keys]
        missing = [i for i, text in enumerate(known) if text is None]
        if missing:
            rows = frame.rows if len(missing) == len(keys) else frame.rows.take(np.array(missing))
            ticks, origins = [frame.ticks[i] for i in missing], [frame.origins[i] for i in missing]
            texts = [encode(event) for event in json_events(frame.source, rows, ticks, origins)]
            for i, text in zip(missing, texts, strict=True):
                known[i] = text
            self._keep({keys[i]: text for i, text in zip(missing, texts, strict=True)})
        return [text for text in known if text is not None]

    def _keep(self, texts: dict[_EventKey, bytes]) -> None:
        with self._lock:
            for key, text in texts.items():
                if key not in self._texts:
                    self._texts[key] = text
                    self._bytes += len(text)
            while self._bytes > self._bytes_max:
                self._bytes -= len(self._texts.pop(next(iter(self._texts))))
