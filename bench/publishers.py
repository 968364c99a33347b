"""Many publishers in one process, over WebSocket or HTTP: each publishes an event, waits until it is acknowledged, and
publishes the next. Prints how many were, as JSON.

They write and read bytes, and look only at where an answer ends: a client that does more would take what the broker
needs.
"""

import asyncio
import base64
import json
import os
import sys
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

EVENT = {"issue": 7, "price": 10_000}
WARM_S = 2.0


@dataclass
class Count:
    acknowledged: int = 0
    refused: int = 0
    latencies: list[float] = field(default_factory=list)
    measuring: bool = False


class Publisher(asyncio.Protocol):
    """`window` publications are under way at a time."""

    def __init__(self, count: Count, host: str, kind: str, window: int) -> None:
        self.count, self.host, self.kind, self.window = count, host, kind, window
        self.rest, self.sent = b"", list[float]()
        self.is_open = kind == "http"
        body = json.dumps(EVENT).encode()
        if kind == "http":
            head = f"POST /streams/Quotes/events HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            self.message = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        else:
            text = json.dumps({"publish": "Quotes", "events": [EVENT], "id": 1}).encode()
            assert len(text) < 126
            self.message = bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self.is_open:
            self._publish(self.window)
            return
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = f"GET /ws HTTP/1.1\r\nHost: {self.host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        self.transport.write(f"{upgrade}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())

    def _publish(self, count: int) -> None:
        self.sent += [time.perf_counter()] * count
        self.transport.write(self.message * count)

    def data_received(self, data: bytes) -> None:
        if not self.is_open:
            self.rest += data
            if b"\r\n\r\n" in self.rest:
                self.is_open, self.rest = True, b""
                self._publish(self.window)
            return
        data = self.rest + data
        answers = data.count(b'"repeated":')
        refused = data.count(b'"error":')
        # An answer may come in two pieces; its end is looked for again with the next one.
        last = max(data.rfind(b'"repeated":'), data.rfind(b'"error":'))
        self.rest = data[last + 8 :][-64:] if last >= 0 else data[-64:]
        now = time.perf_counter()
        begun, self.sent = self.sent[: answers + refused], self.sent[answers + refused :]
        if self.count.measuring:
            self.count.acknowledged += answers
            self.count.refused += refused
            self.count.latencies += [now - when for when in begun]
        if answers + refused:
            self._publish(answers + refused)


async def publish(kind: str, url: str, connections: int, window: int, seconds: float) -> Count:
    count, loop, place = Count(), asyncio.get_running_loop(), urlsplit(url)
    assert place.hostname is not None
    assert place.port is not None
    made = [
        await loop.create_connection(lambda: Publisher(count, place.netloc, kind, window), place.hostname, place.port)
        for _ in range(connections)
    ]
    await asyncio.sleep(WARM_S)
    count.measuring = True
    await asyncio.sleep(seconds)
    count.measuring = False
    for transport, _ in made:
        transport.abort()
    return count


def main() -> None:
    kind, url, connections, window, seconds = sys.argv[1:]
    found = asyncio.run(publish(kind, url, int(connections), int(window), float(seconds)))
    ordered = sorted(found.latencies) or [0.0]
    latency = {share: ordered[min(int(float(share) * len(ordered)), len(ordered) - 1)] for share in ("0.5", "0.99")}
    print(json.dumps({"acknowledged": found.acknowledged, "refused": found.refused, "latency": latency}))


if __name__ == "__main__":
    main()
