"""Brokers to be killed: a real process, on a port that stays its own, on a directory that outlives it."""

import random
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

from smile.demo.broker_process import BrokerProcess

CHILDREN_S_MAX = 30.0


def free_port() -> int:
    """Not one that the system gives to outgoing connections: a client might otherwise connect to itself while no broker
    is there."""
    for _ in range(1000):
        port = random.randint(20_000, 30_000)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


@dataclass
class Victim(BrokerProcess):
    """One life of a broker. `engine` keeps the views; `planted` is a bug that it is started with."""

    engine: str = "local"
    planted: str | None = None
    port: int = field(default_factory=free_port)
    prefix: Sequence[str] = ()
    """What the command is run by."""

    @property
    def command(self) -> list[str]:
        python, _, _, *words = super().command
        module = ["smile.cli.main"] if self.planted is None else ["tests.torture.launched", self.planted]
        own = ["--engine", self.engine, "--listen", f"127.0.0.1:{self.port}", "--flight", ""]
        return [*self.prefix, python, "-m", *module, *words, *own]

    def again(self) -> "Victim":
        """Its next life."""
        return replace(self, url="", lines=[], listening=Event(), ready=Event())

    def murder(self) -> None:
        """As by `kill -9`: this process alone; what it has started must see to its own end."""
        children = descendants(self.popen.pid)
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait()
        end = time.monotonic() + CHILDREN_S_MAX
        while left := [pid for pid in children if is_alive(pid)]:
            assert time.monotonic() < end, f"{left} live on after their broker"
            time.sleep(0.05)

    @property
    def rss(self) -> int:
        """Bytes of memory that it has."""
        status = Path(f"/proc/{self.popen.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    @property
    def log_text(self) -> str:
        return (self.data / "broker.log").read_text(errors="replace")


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = [int(child) for child in (thread / "children").read_text().split()]
        except OSError:
            continue
        found += [*children, *(below for child in children for below in descendants(child))]
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
