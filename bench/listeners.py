"""Many subscribers in one process, of a broker or of NATS: they read what they are sent, and a few of them look at when
it was published. Prints what they found, as JSON.

The others only count bytes: to parse a thousand times the same would measure Python, not who sends it.
"""

import asyncio
import base64
import json
import os
import re
import sys
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

LOOKERS = 10
_TICK = re.compile(rb'"at":"(\d+)"')
TICKS_PER_SECOND = 1_000_000 * 1024


@dataclass
class Found:
    received: int = 0
    latencies: list[float] = field(default_factory=list)
    ready: int = 0
    measuring: bool = False


class Listener(asyncio.Protocol):
    """`hello` is what it sends first; what it is sent after `begun` is what counts."""

    def __init__(self, hello: list[bytes], begun: bytes, found: Found, looks: bool) -> None:
        self.hello, self.begun, self.found, self.looks = hello, begun, found, looks
        self.rest = b""
        self.is_begun = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self.hello.pop(0))

    def data_received(self, data: bytes) -> None:
        if self.is_begun:
            if self.found.measuring:
                self.found.received += len(data)
                if self.looks:
                    self._look(data)
            return
        self.rest += data
        if self.hello:
            if b"\r\n\r\n" in self.rest or self.rest.startswith(b"INFO"):
                self.rest = b""
                for part in self.hello:
                    self.transport.write(part)
                self.hello = []
        elif self.begun in self.rest:
            self.is_begun = True
            self.rest = b""
            self.found.ready += 1

    def _look(self, data: bytes) -> None:
        now = time.time()
        data = self.rest + data
        for tick in _TICK.finditer(data):
            self.found.latencies.append(now - int(tick[1]) / TICKS_PER_SECOND)
        self.rest = data[-64:] if not data.endswith(b"}") and b'"at"' in data[-64:] else b""


def greeting(kind: str, url: str, view: str) -> tuple[list[bytes], bytes]:
    if kind == "nats":
        return [b'CONNECT {"verbose":false}\r\n', f"SUB {view} 1\r\nPING\r\n".encode()], b"PONG"
    place = urlsplit(url)
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = f"GET /ws HTTP/1.1\r\nHost: {place.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    upgrade += f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    return [upgrade.encode(), _frame(json.dumps({"subscribe": view, "id": 1}).encode())], b'"progress"'


def _frame(text: bytes) -> bytes:
    """As clients send it: masked, though by nothing."""
    assert len(text) < 126
    return bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text


async def listen(kind: str, url: str, view: str, count: int, seconds: float) -> Found:
    found, loop = Found(), asyncio.get_running_loop()
    place = urlsplit(url)
    assert place.hostname is not None
    assert place.port is not None
    transports = []
    for number in range(count):
        hello, begun = greeting(kind, url, view)
        looks = number % max(1, count // LOOKERS) == 0
        listener = Listener(hello, begun, found, looks)
        transport, _ = await loop.create_connection(lambda one=listener: one, place.hostname, place.port)  # type: ignore[misc]
        transports.append(transport)
    while found.ready < count:
        await asyncio.sleep(0.05)
    print("ready", flush=True)
    await asyncio.sleep(2)
    found.measuring = True
    await asyncio.sleep(seconds)
    found.measuring = False
    for transport in transports:
        transport.close()
    return found


def main() -> None:
    kind, url, view, count, seconds = sys.argv[1:]
    found = asyncio.run(listen(kind, url, view, int(count), float(seconds)))
    ordered = sorted(found.latencies)
    share = {
        s: ordered[min(int(float(s) * len(ordered)), len(ordered) - 1)] if ordered else None for s in ("0.5", "0.99")
    }
    print(json.dumps({"received": found.received, "looked": len(ordered), "latency": share}))


if __name__ == "__main__":
    main()
