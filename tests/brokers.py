"""Brokers for tests: `InProcessBroker` in this process, and `BrokerProcess`, which is `smile serve`.

Both have the methods of `Broker` to talk to them. Use a process only where the process itself is tested, because it takes
two seconds to start.
"""

import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
from websockets.sync.client import ClientConnection, connect

from smile import limits
from smile.broker import broker as smile_broker
from smile.gateway.access import ACCESS_FILE, Access, AccessDatabase
from smile.gateway.links.description_client import DescriptionClient
from smile.gateway.serve import GatewayServer, open_listener, quiet_libraries
from smile.log.clock import Clock, wall_clock
from smile.settings import Settings
from smile.source import Source
from tests.processes import WAIT_S, clean_environment, free_port, wait_until

Json = dict[str, Any]
ROOT = str(Path(__file__).parent.parent)

PROGRAM = """
CREATE STREAM Bids (bidid: time -> issue: string, price: int CHECK (price >= 0), big: bool, weight: float);
CREATE STREAM Trades (t: time -> bidid: time, traded: int);

CREATE VIEW Totals AS SELECT issue, SUM(price) AS total, COUNT(*) AS bids FROM Bids GROUP BY issue;
CREATE VIEW Dear AS SELECT bidid, issue, price, big, weight FROM Bids WHERE price > 100;
CREATE VIEW Inner1 AS SELECT issue, COUNT(*) AS n FROM Bids GROUP BY issue;

SUBSCRIBE Totals, Dear;
"""


def bid(issue: str = "IBM", price: int = 120, big: bool | None = None, weight: float | None = None) -> Json:
    """An event of the stream Bids of `PROGRAM`."""
    return {"issue": issue, "price": price, "big": big, "weight": weight}


@contextmanager
def open_broker(
    data: Path, program: Source | None, clock: Clock = wall_clock, **settings: Any
) -> Iterator[smile_broker.Broker]:
    """A broker with the engine in this process, and without a gateway: nobody can connect to it."""
    chosen = Settings(data=str(data), **{"engine": "local", **settings})
    broker = smile_broker.Broker.open(data, program, chosen, clock, DescriptionClient(chosen.brokers).fetch)
    try:
        yield broker
    finally:
        broker.stop()


class WebSocketClient:
    """One WebSocket connection to a broker, used message by message."""

    def __init__(self, connection: AbstractContextManager[ClientConnection]) -> None:
        self._stack = ExitStack()
        self.connection = self._stack.enter_context(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def send(self, message: object) -> None:
        self.connection.send(message if isinstance(message, str | bytes) else json.dumps(message))

    def receive(self) -> Json:
        message: Json = json.loads(self.connection.recv(WAIT_S))
        return message

    def ask(self, message: object) -> Json:
        """Sends the message and returns the answer: the next message that is not a frame of a subscription."""
        self.send(message)
        return self.receive_until(lambda received: "n" not in received)

    def receive_until(self, condition: Callable[[Json], bool]) -> Json:
        """Receives messages until one meets the condition, and returns that one."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if condition(message := self.receive()):
                return message
        raise AssertionError("no message met the condition")


def apply_frame(rows: Json, frame: Json) -> None:
    """Updates the rows, which are stored by key, with those of a frame."""
    if frame.get("reset"):
        rows.clear()
    for row in frame.get("rows", ()):
        key = json.dumps(row["key"])
        if row.get("deleted"):
            rows.pop(key, None)
        else:
            rows[key] = row


class Broker:
    """A broker that listens at `url`."""

    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def http(self, token: str | None = None, **options: Any) -> httpx.Client:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=WAIT_S, trust_env=False, **options)

    def websocket(self, token: str | None = None, path: str = "/ws", **options: Any) -> WebSocketClient:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        place = f"ws{self.url.removeprefix('http')}{path}"
        options = {"open_timeout": WAIT_S, "proxy": None, **options}
        if "ssl" in options:
            # This client reads and writes in two threads, for which Python 3.11's `ssl` takes no lock. With TLS 1.3 a
            # ticket that is read while the request is written can make the request wait for ever.
            options["ssl"].maximum_version = ssl.TLSVersion.TLSv1_2
        return WebSocketClient(connect(place, additional_headers=headers, **options))

    def raw_socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), WAIT_S)

    def publish(self, stream: str, *events: Json) -> list[str]:
        """Publishes the events over HTTP; returns their ticks."""
        with self.http() as client:
            answer = client.post(f"/streams/{stream}/events", json=list(events))
        assert answer.status_code == 200, answer.text
        ticks: list[str] = answer.json()["ticks"]
        assert len(ticks) == len(events)
        return ticks

    def rows(self, view: str, **after: object) -> list[Json]:
        """The view's rows as soon as they include everything up to the tick `after` of each stream."""
        query = {f"after.{stream}": str(tick) for stream, tick in after.items()}
        with self.http() as client:
            answer = client.get(f"/views/{view}", params={"wait_ms": str(limits.wait_ms_max), **query})
        assert answer.status_code == 200, answer.text
        rows: list[Json] = answer.json()["rows"]
        return rows

    def served_program(self) -> str:
        with self.http() as client:
            return client.get("/program").text


class InProcessBroker(Broker):
    """A broker with its gateway in this process, on real sockets. It listens when it is constructed.

    Its data are in `folder`/smile-data, where a broker that is constructed later continues. `program` may be None if the
    directory has one already. Other arguments are settings.
    """

    def __init__(
        self,
        folder: Path,
        program: str | None = PROGRAM,
        name: str = "floor.smile",
        broker_name: str = "broker",
        **settings: Any,
    ) -> None:
        quiet_libraries()
        self.data = folder / "smile-data"
        given = {"listen": "127.0.0.1:0", "flight": "", "engine": "local", "flush": False, "name": broker_name}
        chosen = {**given, **settings}
        self.settings = Settings(data=str(self.data), **chosen)
        self._stack = ExitStack()
        with ExitStack() as stack:
            self.access = Access(self.data / ACCESS_FILE, requires_tokens=self.settings.requires_tokens)
            stack.callback(self.access.close)
            source = None if program is None else Source(name, program)
            self.broker = stack.enter_context(open_broker(self.data, source, **chosen))
            self.server = GatewayServer(self.broker, self.settings, self.access, print_line=lambda _: None)
            listener = open_listener(self.settings)
            stack.callback(listener.close)
            scheme = "https" if self.settings.tls else "http"
            self.url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
            self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]})
            self._thread.start()
            stack.callback(self._stop_server)
            assert self.server.ready.wait(WAIT_S), "the broker does not listen"
            self._stack = stack.pop_all()

    def _stop_server(self) -> None:
        self.server.stop()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the broker does not stop"

    def stop(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def accounts(self) -> AccessDatabase:
        """The file of tokens and grants, as commands see it. It must be closed."""
        return AccessDatabase(self.data / ACCESS_FILE)


class DidNotStart(AssertionError):
    """A broker's process ended, or took too long, before it listened."""


@dataclass
class BrokerProcess(Broker):
    """`smile serve` as a process, in the directory `folder`. It can be started again after it was stopped or killed, and
    then has the same port and, unless `data` is changed, the same data.

    `module` is what Python runs, `prefix` the command that runs Python, if any.
    """

    folder: Path
    program: str | None = "floor.smile"
    options: Sequence[str] = ()
    data: str = "smile-data"
    engine: str = "local"
    port_given: int = field(default_factory=free_port)
    module: Sequence[str] = ("smile.cli.main",)
    prefix: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    """What it has printed to standard output since it was started."""

    url = ""

    def __post_init__(self) -> None:
        self._log_start = 0

    @property
    def port(self) -> int:
        return self.port_given

    @property
    def data_path(self) -> Path:
        return self.folder / self.data

    @property
    def log_path(self) -> Path:
        """Standard error of all starts."""
        return self.folder / "broker.log"

    @property
    def log_text(self) -> str:
        """What it has written to standard error since it was started."""
        return self.log_path.read_bytes()[self._log_start :].decode(errors="replace")

    @property
    def command(self) -> list[str]:
        program = [] if self.program is None else [self.program]
        listen = ["--engine", self.engine, "--listen", f"127.0.0.1:{self.port_given}", "--flight", ""]
        return [
            *self.prefix, sys.executable, "-m", *self.module, "serve", *program, "--data", self.data, *listen, *self.options,
        ]  # fmt: skip

    def launch(self) -> None:
        """Starts the process, and does not wait for anything."""
        self.url, self.lines = "", []
        self._ended = threading.Event()
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self.popen = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=clean_environment(PYTHONPATH=f"{ROOT}:{ROOT}/src", **self.variables),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                process_group=0,
            )
        self._reader = threading.Thread(target=self._read, args=(self.popen, self.lines, self._ended), daemon=True)
        self._reader.start()

    def start(self) -> Self:
        """Starts the process and waits until it listens. Raises DidNotStart if it does not."""
        self.launch()
        try:
            line = self.wait_for_line("listening on ")
        except BaseException:
            self.kill()
            raise
        self.url = line.removeprefix("listening on ")
        return self

    def wait_until_ready(self) -> None:
        """Waits until it says that its views are up to date."""
        self.wait_for_line("ready")

    def wait_for_line(self, beginning: str) -> str:
        """The first line of standard output that begins so."""

        def find() -> str | None:
            has_ended = self._ended.is_set()
            line = next((line for line in self.lines if line.startswith(beginning)), None)
            if line is None and has_ended:
                raise DidNotStart(f"no line {beginning!r} in {self.lines}; {self.log_text[-2000:]}")
            return line

        line = wait_until(find, f"no line {beginning!r}", 3 * WAIT_S)  # Spark takes a minute on a busy machine
        assert line is not None
        return line

    @staticmethod
    def _read(popen: "subprocess.Popen[str]", lines: list[str], ended: threading.Event) -> None:
        assert popen.stdout is not None
        with popen.stdout:
            for line in popen.stdout:
                lines.append(line.rstrip("\n"))
        ended.set()

    @property
    def is_running(self) -> bool:
        return self.popen.poll() is None

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends it by a signal, and returns its exit code."""
        self.popen.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Waits for its end, and returns its exit code. All lines are there then."""
        code = self.popen.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return code

    def kill(self) -> None:
        """Kills this process alone, as `kill -9` does: the processes that it has started must end by themselves."""
        started = descendants(self.popen.pid)
        self.popen.kill()
        self.wait()
        wait_until(lambda: not any(map(is_alive, started)), f"some of {started} outlive their broker")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def memory_bytes(self) -> int:
        """The resident memory of the process."""
        return 1024 * self._status_number("VmRSS")

    @property
    def memory_peak_bytes(self) -> int:
        """The most resident memory that the process had."""
        return 1024 * self._status_number("VmHWM")

    @property
    def thread_count(self) -> int:
        return self._status_number("Threads")

    def _status_number(self, name: str) -> int:
        status = Path(f"/proc/{self.popen.pid}/status").read_text()
        match = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
        assert match
        return int(match[1])


def descendants(pid: int) -> list[int]:
    pids: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = [int(child) for child in (thread / "children").read_text().split()]
        except OSError:
            continue
        pids += [*children, *(below for child in children for below in descendants(child))]
    return pids


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
