"""The servers of the benchmark of databases: RabbitMQ and NATS from Debian's packages, in temporary directories."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

START_S_MAX = 60
_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class NotInstalled(Exception):
    """A server is missing; the message names its package."""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class MessageServer:
    """A server with a folder and a port of its own. It can be killed, and started again with what it has stored."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        raise NotImplementedError

    def _start(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        _wait_for_port(self.port, self._process)

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


class RabbitMq(MessageServer):
    """Persistent messages are flushed before they are confirmed."""

    def start(self) -> None:
        if not _RABBITMQ.exists():
            raise NotInstalled("not installed (Debian's package rabbitmq-server)")
        name, folder, port = str(self.folder), self.folder, self.port
        (folder / "enabled_plugins").write_text("[].")
        environment = {
            **os.environ,
            "HOME": name,
            "RABBITMQ_NODENAME": f"smile{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": name,
            "RABBITMQ_LOG_BASE": name,
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        self._start([str(_RABBITMQ)], environment)


class Nats(MessageServer):
    """With JetStream."""

    def start(self) -> None:
        server = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/bin")
        if server is None:
            raise NotInstalled("not installed (Debian's package nats-server)")
        command = [server, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder)]
        self._start(command, dict(os.environ))


SERVERS: Final[Mapping[str, type[MessageServer]]] = {"rabbitmq": RabbitMq, "nats": Nats}


@contextmanager
def running_server(system: str) -> Iterator[MessageServer]:
    """Raises `NotInstalled` if the machine does not have it."""
    with tempfile.TemporaryDirectory(prefix=f"smile-{system}-", ignore_cleanup_errors=True) as name:
        server = SERVERS[system](Path(name))
        try:
            server.start()
            yield server
        finally:
            server.stop()


def _wait_for_port(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"{process.args!r} does not answer")
