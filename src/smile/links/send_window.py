"""Flow control: a sender has a bounded number of bytes under way.

Data messages are numbered, and the receiver says up to which number it has stored them. Everything up to it is stored
or lost.

After a small message, the sender waits until it is stored, as TCP does by Nagle's algorithm. Changes that come
meanwhile are sent together in the next message. So a receiver that lacks processor time gets few, larger messages.
"""

from collections import deque
from typing import Final

SMALL_BYTES_MAX: Final = 2**16
"""After a larger message, the next one is sent at once."""

HOLD_S_MAX: Final = 0.2
"""After a small message, the sender waits for at most this time."""


class SendWindow:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._under_way: deque[tuple[int, int, float]] = deque()
        """The number, the size and the time of each message."""
        self._bytes = 0
        self.delay_s: float | None = None
        """The time from the last confirmed message to its confirmation."""
        self.last_number = 0
        """The number of the last message that was sent."""

    @property
    def is_open(self) -> bool:
        return self._bytes < self._bytes_max

    @property
    def is_waiting(self) -> bool:
        """Whether something is under way."""
        return bool(self._under_way)

    @property
    def held_until(self) -> float | None:
        """Until when nothing is to be sent, unless what is under way is stored before; None if that is not so."""
        if not self._under_way:
            return None
        _, size, sent_at = self._under_way[-1]
        return sent_at + HOLD_S_MAX if size <= SMALL_BYTES_MAX else None

    def next_number(self) -> int:
        return self.last_number + 1

    def sent(self, size: int, now: float) -> None:
        self.last_number += 1
        self._under_way.append((self.last_number, size, now))
        self._bytes += size

    def stored(self, number: int, now: float) -> None:
        while self._under_way and self._under_way[0][0] <= number:
            _, size, sent_at = self._under_way.popleft()
            self._bytes -= size
            self.delay_s = now - sent_at
