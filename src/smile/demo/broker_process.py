"""A broker as a user starts it: `smile serve` in a process of its own. It is gone when whoever started it is done."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from smile.errors import error

STARTS_S_MAX = 60.0
READY_S_MAX = 300.0
ENDS_S_MAX = 30.0
_LISTENING_LINE = re.compile(r"listening on (\S+)")


@dataclass
class BrokerProcess:
    """`url` is where it listens, once `listening` is set; `ready` once its views are kept up to date. Both are set too
    when it has ended, and `lines` say why."""

    program: Path | None
    data: Path
    options: Sequence[str] = ()
    url: str = ""
    lines: list[str] = field(default_factory=list)
    listening: Event = field(default_factory=Event)
    ready: Event = field(default_factory=Event)

    @property
    def command(self) -> list[str]:
        program_args = [] if self.program is None else [str(self.program)]
        return [sys.executable, "-m", "smile.cli.main", "serve", *program_args, "--data", str(self.data), *self.options]

    def start(self) -> None:
        with (self.data / "broker.log").open("ab") as log:
            self.popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                process_group=0,  # an interrupt from the terminal is not for it
            )
        Thread(target=self._read_output, args=(self.popen,), daemon=True).start()
        try:
            self._wait(self.listening, STARTS_S_MAX)
        except BaseException:
            self.kill()
            raise

    def wait_until_ready(self, seconds: float = READY_S_MAX) -> None:
        self._wait(self.ready, seconds)

    def _wait(self, event: Event, seconds: float) -> None:
        if not event.wait(seconds) or self.popen.poll() is not None or not self.url:
            last_lines = [*self.lines, *(self.data / "broker.log").read_text(errors="replace").splitlines()][-5:]
            raise error("E103", f"the broker did not start: {' '.join(last_lines) or 'it said nothing'}")

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
        self.listening.set()
        self.ready.set()

    def stop(self) -> int:
        """In order, and if that takes too long, at once. Gives its exit code."""
        self.popen.send_signal(signal.SIGTERM)
        try:
            return self.popen.wait(ENDS_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.popen.wait()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.popen.kill()
        self.popen.wait()


def example_program(name: str) -> Path:
    """An example program: of the repository, or as it was installed."""
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
        if process.popen.poll() is None:
            process.stop()
