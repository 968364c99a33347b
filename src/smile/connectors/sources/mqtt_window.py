"""The messages of an MQTT session that are in the log, but may be delivered again: so a repeated message is recognized.

An MQTT broker repeats what was not acknowledged when the connection was lost, with the same packet identifier and the
flag DUP. The window is logged with the events: a message and the knowledge that it was logged are on the disk together.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import msgspec

ENTRIES_MAX: Final = 300

Entry = tuple[int, str]
"""The packet identifier and the digest of a message."""


class MessageWindow:
    """The newest messages in the log."""

    def __init__(self, note: str = "[]") -> None:
        self._messages = OrderedDict(msgspec.json.decode(note, type=list[Entry]))

    def contains(self, entry: Entry) -> bool:
        return self._messages.get(entry[0]) == entry[1]

    def add(self, entries: Iterable[Entry]) -> None:
        for packet, digest in entries:
            self._messages.pop(packet, None)
            self._messages[packet] = digest
        while len(self._messages) > ENTRIES_MAX:
            self._messages.popitem(last=False)

    def clear(self) -> None:
        self._messages.clear()

    def note(self) -> str:
        return msgspec.json.encode(list(self._messages.items())).decode()


def message_digest(topic: str, payload: bytes) -> str:
    return hashlib.sha256(topic.encode() + b"\0" + payload).hexdigest()[:12]
