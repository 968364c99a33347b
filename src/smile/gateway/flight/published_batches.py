"""The batches of a publication over Arrow Flight. How large a message becomes when it is decoded is checked before.

Messages that are being decoded, of all publications together, have a limit too: a publication waits until it may decode
its next message.
"""

from collections import deque
from collections.abc import Callable, Iterator
from threading import Condition
from typing import Final

import pyarrow as pa

from smile import limits
from smile.decoding.arrow_events import ARROW_PROBLEMS, not_arrow_error
from smile.decoding.arrow_messages import decoded_bytes
from smile.errors import error
from smile.gateway.flight.protocol import FlightData, parse_flight_data

_CONTINUATION: Final = b"\xff\xff\xff\xff"
"""The mark before an IPC message in a stream."""


class ByteBudget:
    """Bytes that may be used at a time. A single use may exceed them, if there is no other."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._changed = Condition()
        self.used = 0

    def acquire(self, count: int, check: Callable[[], None]) -> None:
        """Waits until the bytes are free. Calls `check` from time to time, which may raise an error."""
        with self._changed:
            while self.used and self.used + count > self._bytes_max:
                check()
                self._changed.wait(limits.flight_check_s)
            self.used += count

    def release(self, count: int) -> None:
        with self._changed:
            self.used -= count
            self._changed.notify_all()


class PublishedBatches:
    """The batches of the messages, each with its metadata, in the order of arrival. pyarrow reads the messages from it
    as from a file."""

    closed = False

    def __init__(
        self,
        first: FlightData,
        requests: Iterator[bytes],
        bytes_max: int,
        budget: ByteBudget,
        check: Callable[[], None],
    ) -> None:
        self._requests = requests
        self._bytes_max = bytes_max
        self._budget = budget
        self._check = check
        self._unread: deque[bytes | memoryview] = deque()
        self._metadata = memoryview(b"")
        self._acquired = 0
        self._add(first)

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, memoryview]]:
        try:
            with pa.ipc.open_stream(self) as reader:
                while True:
                    batch = self._read_batch(reader)
                    if batch is None:
                        return
                    yield batch, self._metadata
                    del batch
                    self.close()
        except ARROW_PROBLEMS as problem:
            raise not_arrow_error(problem) from None

    @staticmethod
    def _read_batch(reader: pa.RecordBatchReader) -> pa.RecordBatch | None:
        try:
            return reader.read_next_batch()
        except StopIteration:
            return None

    def close(self) -> None:
        """Releases the memory of the messages that were decoded."""
        self._budget.release(self._acquired)
        self._acquired = 0

    def read(self, size: int) -> bytes | memoryview:
        """The next bytes of a stream of IPC messages; none at its end."""
        while not self._unread:
            message = next(self._requests, None)
            if message is None:
                return b""
            self._add(parse_flight_data(message))
        piece = self._unread.popleft()
        if len(piece) > size:
            self._unread.appendleft(piece[size:])
        return piece[:size]

    def _add(self, message: FlightData) -> None:
        if not message.header:
            raise error("E093", "the message has no batch")
        if max(len(message.header), len(message.metadata)) > limits.flight_request_bytes_max:
            raise error("E092", f"its metadata is larger than {limits.flight_request_bytes_max:,} bytes")
        header = bytes(message.header)
        try:
            size = decoded_bytes(header, message.body)
        except ARROW_PROBLEMS as problem:
            raise not_arrow_error(problem) from None
        if size > self._bytes_max:
            text = f"it has {size:,} bytes; at most {self._bytes_max:,} are allowed"
            raise error("E092", text, hint="Send smaller batches.")
        self._budget.acquire(size, self._check)
        self._acquired += size
        self._metadata = message.metadata
        self._unread.extend((_CONTINUATION, len(header).to_bytes(4, "little"), header))
        if message.body:
            self._unread.append(message.body)
