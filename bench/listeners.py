"""Many subscribers of a broker or of NATS in one process. Prints the received bytes and the latency as JSON.

Only a few of them parse ticks to measure the latency. The others count bytes: parsing the same changes a thousand times
would measure Python, not the sender.
"""

import asyncio
import base64
import json
import os
import re
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

SAMPLERS = 10
_TICK = re.compile(rb'"at":"(\d+)"')
TICKS_PER_SECOND = 1_000_000 * 1024


@dataclass
class ListenerMetrics:
    received_bytes: int = 0
    latencies: list[float] = field(default_factory=list)
    ready_count: int = 0
    measuring: bool = False


class Listener(asyncio.Protocol):
    """Sends `handshake`, waits for `start_marker`, and then counts what it receives."""

    def __init__(
        self, handshake: list[bytes], start_marker: bytes, metrics: ListenerMetrics, samples_latency: bool
    ) -> None:
        self.handshake, self.start_marker, self.metrics, self.samples_latency = (
            handshake,
            start_marker,
            metrics,
            samples_latency,
        )
        self.buffer = b""
        self.has_started = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self.handshake.pop(0))

    def data_received(self, data: bytes) -> None:
        if self.has_started:
            if self.metrics.measuring:
                self.metrics.received_bytes += len(data)
                if self.samples_latency:
                    self._sample_latency(data)
            return
        self.buffer += data
        if self.handshake:
            if b"\r\n\r\n" in self.buffer or self.buffer.startswith(b"INFO"):
                self.buffer = b""
                for part in self.handshake:
                    self.transport.write(part)
                self.handshake = []
        elif self.start_marker in self.buffer:
            self.has_started = True
            self.buffer = b""
            self.metrics.ready_count += 1

    def _sample_latency(self, data: bytes) -> None:
        now = time.time()
        data = self.buffer + data
        for tick in _TICK.finditer(data):
            self.metrics.latencies.append(now - int(tick[1]) / TICKS_PER_SECOND)
        self.buffer = data[-64:] if not data.endswith(b"}") and b'"at"' in data[-64:] else b""


def handshake_messages(kind: str, url: str, view: str) -> tuple[list[bytes], bytes]:
    if kind == "nats":
        return [b'CONNECT {"verbose":false}\r\n', f"SUB {view} 1\r\nPING\r\n".encode()], b"PONG"
    url_parts = urlsplit(url)
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = f"GET /ws HTTP/1.1\r\nHost: {url_parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    upgrade += f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    return [upgrade.encode(), _websocket_frame(json.dumps({"subscribe": view, "id": 1}).encode())], b'"progress"'


def _websocket_frame(text: bytes) -> bytes:
    """A client's frame must be masked; the mask here is zero."""
    assert len(text) < 126
    return bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text


async def listen(kind: str, url: str, view: str, count: int, seconds: float) -> ListenerMetrics:
    metrics, loop = ListenerMetrics(), asyncio.get_running_loop()
    url_parts = urlsplit(url)
    assert url_parts.hostname is not None
    assert url_parts.port is not None
    transports = []
    for number in range(count):
        handshake, start_marker = handshake_messages(kind, url, view)
        samples_latency = number % max(1, count // SAMPLERS) == 0
        create_listener = partial(Listener, handshake, start_marker, metrics, samples_latency)
        transport, _ = await loop.create_connection(create_listener, url_parts.hostname, url_parts.port)
        transports.append(transport)
    while metrics.ready_count < count:
        await asyncio.sleep(0.05)
    print("ready", flush=True)
    await asyncio.sleep(2)
    metrics.measuring = True
    await asyncio.sleep(seconds)
    metrics.measuring = False
    for transport in transports:
        transport.close()
    return metrics


def main() -> None:
    kind, url, view, count, seconds = sys.argv[1:]
    metrics = asyncio.run(listen(kind, url, view, int(count), float(seconds)))
    ordered = sorted(metrics.latencies)
    latency = {
        s: ordered[min(int(float(s) * len(ordered)), len(ordered) - 1)] if ordered else None for s in ("0.5", "0.99")
    }
    print(json.dumps({"received": metrics.received_bytes, "samples": len(ordered), "latency": latency}))


if __name__ == "__main__":
    main()
