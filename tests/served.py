"""Brokers as processes: `smile serve` with the in-process engine, on ports that are free, in a directory of the test's."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

SMILE = str(Path(sys.executable).parent / "smile")
START_S_MAX = 180
"""Spark takes a minute on a machine that has much else to do."""
STOP_S_MAX = 30


def clean_environment(**variables: str) -> dict[str, str]:
    """Without settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SMILE_")}
    return kept | {"NO_COLOR": "1", "COLUMNS": "200"} | variables


def smile(*words: str, cwd: Path, text: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = clean_environment(**variables)
    return subprocess.run(
        [SMILE, *words], cwd=cwd, env=environment, input=text, capture_output=True, text=True, timeout=START_S_MAX
    )


class Served:
    """One that listens when it is made; it is killed at the end if it still runs."""

    def __init__(self, *words: str, cwd: Path, **variables: str) -> None:
        self.errors = cwd / f"broker-{time.monotonic_ns()}.err"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [SMILE, "serve", "--engine", "local", "--listen", "127.0.0.1:0", "--flight", "", *words],
                cwd=cwd,
                env=clean_environment(**variables),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.said: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.url = self.line("listening on ").removeprefix("listening on ")
        except BaseException:
            self.kill()
            raise

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line(self, beginning: str) -> str:
        """The next one on standard output that begins so."""
        end = time.monotonic() + START_S_MAX
        while (left := end - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left)
            except queue.Empty:
                break
            if line is None:
                break
            self.said.append(line)
            if line.startswith(beginning):
                return line
        raise AssertionError(f"no line {beginning!r} in {self.said}; {self.errors.read_text()}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(STOP_S_MAX)
        self._reader.join(STOP_S_MAX)
        while (line := self._lines.get(timeout=STOP_S_MAX)) is not None:
            self.said.append(line)
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(STOP_S_MAX)
        self._reader.join(STOP_S_MAX)
        if self.process.stdout:
            self.process.stdout.close()

    def __enter__(self) -> "Served":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
