"""A broker in a process of its own, started by `smile serve`. It is stopped when its owner is done, and ends with an
owner that is killed (`child.py`)."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from smile.errors import error

START_S_MAX = 60.0
READY_S_MAX = 300.0
STOP_S_MAX = 30.0
_LISTENING_LINE = re.compile(r"listening on (\S+)")


@dataclass
class BrokerProcess:
    """`listening` is set when `url` is known, and `ready` when the views are maintained. Both are also set when the
    process has ended; then `lines`, its output, says why."""

    program: Path | None
    data: Path
    options: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment."""
    url: str = ""
    lines: list[str] = field(default_factory=list)
    listening: Event = field(default_factory=Event)
    ready: Event = field(default_factory=Event)

    @property
    def has_started(self) -> bool:
        return hasattr(self, "popen")

    @property
    def command(self) -> list[str]:
        program_args = [] if self.program is None else [str(self.program)]
        return [
            sys.executable,
            "-m",
            "smile.demo.child",
            "serve",
            *program_args,
            "--data",
            str(self.data),
            *self.options,
        ]

    def start(self) -> None:
        with (self.data / "broker.log").open("ab") as log:
            self.popen = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,  # it ends with this process
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self.variables},
                process_group=0,  # Ctrl-C in the terminal does not reach it
            )
        Thread(target=self._read_output, args=(self.popen,), daemon=True).start()
        try:
            self._wait(self.listening, START_S_MAX)
        except BaseException:
            self.kill()
            raise

    def wait_until_ready(self, seconds: float = READY_S_MAX) -> None:
        self._wait(self.ready, seconds)

    def _wait(self, event: Event, seconds: float) -> None:
        if not event.wait(seconds) or self.popen.poll() is not None or not self.url:
            last_lines = [*self.lines, *(self.data / "broker.log").read_text(errors="replace").splitlines()][-5:]
            raise error("E103", f"the broker did not start: {' '.join(last_lines) or 'it printed nothing'}")

    def _read_output(self, popen: "subprocess.Popen[str]") -> None:
        assert popen.stdout is not None
        with popen.stdout as lines:
            for line in lines:
                self.lines.append(line.rstrip())
                match = _LISTENING_LINE.search(line)
                if match:
                    self.url = match[1]
                    self.listening.set()
                if line.strip() == "ready":
                    self.ready.set()
        if popen.stdin is not None:
            popen.stdin.close()
        self.listening.set()
        self.ready.set()

    def stop(self) -> int:
        """Stops the broker cleanly, or kills it if that takes too long. Returns its exit code."""
        self.popen.send_signal(signal.SIGTERM)
        try:
            return self.popen.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.popen.wait()

    def stop_if_running(self) -> None:
        if self.has_started and self.popen.poll() is None:
            self.stop()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.popen.kill()
        self.popen.wait()


def example_program(name: str) -> Path:
    """The path of an example program, in the repository or in the installed package."""
    package = Path(__file__).resolve().parent.parent
    candidates = [package.parent.parent / "programs" / name, package / "programs" / name]
    return next((candidate for candidate in candidates if candidate.exists()), candidates[-1])


@contextmanager
def running_broker(program: Path | None, data: Path, options: Sequence[str] = ()) -> Iterator[BrokerProcess]:
    process = BrokerProcess(program, data, options)
    process.start()
    try:
        yield process
    finally:
        process.stop_if_running()
