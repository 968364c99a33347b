"""Flow control: a sender has a bounded number of bytes under way.

Data messages are numbered, and the receiver says which number has arrived. Everything up to it has arrived or is lost.
"""

from collections import deque


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
    def is_empty(self) -> bool:
        """Whether everything that was sent has arrived or is lost."""
        return not self._under_way

    def next_number(self) -> int:
        return self.last_number + 1

    def sent(self, size: int, now: float) -> None:
        self.last_number += 1
        self._under_way.append((self.last_number, size, now))
        self._bytes += size

    def received(self, number: int, now: float) -> None:
        while self._under_way and self._under_way[0][0] <= number:
            _, size, sent_at = self._under_way.popleft()
            self._bytes -= size
            self.delay_s = now - sent_at
