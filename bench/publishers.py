"""Many publishers in one process, over WebSocket or HTTP. Each publishes an event, waits for its acknowledgement, and
publishes the next. Prints the number of acknowledged events and the latency as JSON.

They only search the received bytes for answers: a client that does more would take processor time from the broker.
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
WARMUP_S = 2.0


@dataclass
class PublishMetrics:
    acknowledged: int = 0
    refused: int = 0
    latencies: list[float] = field(default_factory=list)
    measuring: bool = False


class Publisher(asyncio.Protocol):
    """Always has `window` unacknowledged publications."""

    def __init__(self, metrics: PublishMetrics, host: str, kind: str, window: int) -> None:
        self.metrics, self.host, self.kind, self.window = metrics, host, kind, window
        self.buffer, self.sent_times = b"", list[float]()
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
        self.sent_times += [time.perf_counter()] * count
        self.transport.write(self.message * count)

    def data_received(self, data: bytes) -> None:
        if not self.is_open:
            self.buffer += data
            if b"\r\n\r\n" in self.buffer:
                self.is_open, self.buffer = True, b""
                self._publish(self.window)
            return
        data = self.buffer + data
        answers = data.count(b'"repeated":')
        refused = data.count(b'"error":')
        # An answer may arrive in two parts: its beginning is searched again with the next part.
        last = max(data.rfind(b'"repeated":'), data.rfind(b'"error":'))
        self.buffer = data[last + 8 :][-64:] if last >= 0 else data[-64:]
        now = time.perf_counter()
        answered_times, self.sent_times = self.sent_times[: answers + refused], self.sent_times[answers + refused :]
        if self.metrics.measuring:
            self.metrics.acknowledged += answers
            self.metrics.refused += refused
            self.metrics.latencies += [now - sent_time for sent_time in answered_times]
        if answers + refused:
            self._publish(answers + refused)


async def run_publishers(kind: str, url: str, connections: int, window: int, seconds: float) -> PublishMetrics:
    metrics, loop, url_parts = PublishMetrics(), asyncio.get_running_loop(), urlsplit(url)
    assert url_parts.hostname is not None
    assert url_parts.port is not None
    transports = [
        await loop.create_connection(
            lambda: Publisher(metrics, url_parts.netloc, kind, window), url_parts.hostname, url_parts.port
        )
        for _ in range(connections)
    ]
    await asyncio.sleep(WARMUP_S)
    metrics.measuring = True
    await asyncio.sleep(seconds)
    metrics.measuring = False
    for transport, _ in transports:
        transport.abort()
    return metrics


def main() -> None:
    kind, url, connections, window, seconds = sys.argv[1:]
    metrics = asyncio.run(run_publishers(kind, url, int(connections), int(window), float(seconds)))
    ordered = sorted(metrics.latencies) or [0.0]
    latency = {share: ordered[min(int(float(share) * len(ordered)), len(ordered) - 1)] for share in ("0.5", "0.99")}
    print(json.dumps({"acknowledged": metrics.acknowledged, "refused": metrics.refused, "latency": latency}))


if __name__ == "__main__":
    main()
