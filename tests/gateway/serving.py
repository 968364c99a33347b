"""A broker with its gateway, in this process, on a real socket."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from smile.broker.broker import Broker
from smile.gateway.access import Access
from smile.gateway.serve import GatewayServer, open_listener, quiet_libraries
from smile.settings import Settings
from smile.source import Source

WAIT_S = 10.0

PROGRAM = """
CREATE STREAM Bids (bidid: time -> issue: string, price: int CHECK (price >= 0), big: bool, weight: float);
CREATE STREAM Trades (t: time -> bidid: time, traded: int);

CREATE VIEW Totals AS SELECT issue, SUM(price) AS total, COUNT(*) AS bids FROM Bids GROUP BY issue;
CREATE VIEW Dear AS SELECT bidid, issue, price, big, weight FROM Bids WHERE price > 100;
CREATE VIEW Inner1 AS SELECT issue, COUNT(*) AS n FROM Bids GROUP BY issue;

SUBSCRIBE Totals, Dear;
"""
TIMED = """
CREATE STREAM Clock (at: time -> n: int) WITH (TICKS = PUBLISHER);
CREATE VIEW Sums AS SELECT n, COUNT(*) AS seen FROM Clock GROUP BY n;
"""


def bid(issue: str = "IBM", price: int = 120, big: bool | None = None, weight: float | None = None) -> dict[str, Any]:
    return {"issue": issue, "price": price, "big": big, "weight": weight}


class Serving:
    def __init__(self, broker: Broker, access: Access, settings: Settings) -> None:
        self.broker, self.access, self.settings = broker, access, settings
        self.served = GatewayServer(broker, settings, access)
        listens = open_listener(settings)
        self.port: int = listens.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self.served.run, kwargs={"sockets": [listens]})
        self._thread.start()
        assert self.served.ready.wait(WAIT_S)

    def stop(self) -> None:
        self.served.stop()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def http(self, token: str | None = None, **options: Any) -> httpx.Client:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=WAIT_S, trust_env=False, **options)

    def ws(self, token: str | None = None, **options: Any) -> "Talk":
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return Talk(connect(f"ws://127.0.0.1:{self.port}/ws", additional_headers=headers, proxy=None, **options))

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), WAIT_S)


class Talk:
    """A WebSocket, message by message."""

    def __init__(self, opening: AbstractContextManager[ClientConnection]) -> None:
        self._open = ExitStack()
        self.connection = self._open.enter_context(opening)

    def __enter__(self) -> "Talk":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def send(self, message: object) -> None:
        self.connection.send(message if isinstance(message, str | bytes) else json.dumps(message))

    def next(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.connection.recv(WAIT_S))
        return found

    def ask(self, message: object) -> dict[str, Any]:
        """The answer, which is the next message that is no frame."""
        self.send(message)
        return self.until(lambda told: "n" not in told)

    def until(self, met: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            told = self.next()
            if met(told):
                return told
        raise AssertionError("it never came")

    def table(self, rows: dict[str, Any], met: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """What the frames come to, once it is so."""

        def taken(told: dict[str, Any]) -> bool:
            take_in(rows, told)
            return met(rows)

        if not met(rows):
            self.until(taken)
        return rows


def take_in(rows: dict[str, Any], frame: dict[str, Any]) -> None:
    """A frame, into the rows by their keys."""
    if frame.get("reset"):
        rows.clear()
    for row in frame.get("rows", ()):
        key = json.dumps(row["key"])
        if row.get("deleted"):
            rows.pop(key, None)
        else:
            rows[key] = row


@contextmanager
def serving(folder: Path, program: str = PROGRAM, tokens: bool = False, **settings: Any) -> Iterator[Serving]:
    quiet_libraries()
    chosen = Settings(
        data=str(folder / "data"), listen="127.0.0.1:0", flight="", engine="local", flush=False, auth=tokens, **settings
    )
    access = Access(folder / "access.db", requires_tokens=tokens)
    broker = Broker.open(folder / "data", Source("floor.smile", program), chosen)
    try:
        found = Serving(broker, access, chosen)
        try:
            yield found
        finally:
            found.stop()
    finally:
        broker.stop()
        access.close()
