"""What tests need around processes: waiting, environments, ports, certificates, commands and terminals."""

import fcntl
import logging
import os
import pty
import random
import re
import select
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, nullcontext
from pathlib import Path
from typing import Self, TypeVar

import pytest
from typer.testing import CliRunner, Result

from smile.cli.main import app

T = TypeVar("T")

SMILE = str(Path(sys.executable).parent / "smile")
WAIT_S = 120.0
"""How long a test waits for anything that must happen. It is long because a busy machine is slow: it only delays tests
that fail."""


def wait_until(condition: Callable[[], T], what: str, seconds: float = WAIT_S) -> T:
    """Polls the condition until it is true, and returns its value. `what` completes the error message."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"after {seconds:.0f} s: {what}"
        time.sleep(0.01)
    return value


def free_port() -> int:
    """A port of this machine that nobody listens on.

    It is outside the range that the system uses for outgoing connections: otherwise a client that retries while there
    is no broker might connect to itself.
    """
    for _ in range(1000):
        port = random.SystemRandom().randint(20_000, 30_000)
        with socket.socket() as candidate:
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


def clean_environment(**variables: str) -> dict[str, str]:
    """The environment for a subprocess: without the user's settings of SMILE and size of the terminal."""
    removed = ("SMILE_", "LINES", "COLUMNS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(removed)}
    return {**kept, "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", **variables}


def run_smile(
    *words: str, cwd: Path, stdin: str | None = None, seconds: float = WAIT_S, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs the command as a process. `invoke_smile` is quicker, and enough unless the process itself is tested."""
    return subprocess.run(
        [SMILE, *words],
        cwd=cwd,
        env=clean_environment(COLUMNS="200", **variables),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def invoke_smile(*words: str, cwd: Path | None = None, stdin: str | bytes | None = None, **variables: str) -> Result:
    """Runs the command in this process. An exception that the command does not handle fails the test."""
    cleared = {name: None for name in os.environ if name.startswith("SMILE_")}
    environment = {**cleared, "NO_COLOR": "1", "COLUMNS": "200", **variables}
    with chdir(cwd) if cwd else nullcontext(), restored_logging():
        return CliRunner().invoke(app, words, input=stdin, env=environment, catch_exceptions=False)


@contextmanager
def restored_logging() -> Iterator[None]:
    """Afterwards logging is set up as it was before: `smile serve` changes it for the whole process."""
    root, own = logging.getLogger(), logging.getLogger("smile")
    before = (root.handlers[:], root.level, own.level, threading.excepthook)
    try:
        yield
    finally:
        root.handlers[:], root_level, own_level, threading.excepthook = before
        root.setLevel(root_level)  # also clears the cache of levels
        own.setLevel(own_level)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key. Skips the test where openssl is not installed."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
        "-addext subjectAltName=IP:127.0.0.1 -keyout"
    )
    try:
        words = [*command.split(), str(key), "-out", str(certificate)]
        subprocess.run(words, check=True, capture_output=True, timeout=WAIT_S)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return certificate, key


class Terminal:
    """A smile command in a terminal of a given size. Standard error is a pipe unless `with_errors` is given."""

    def __init__(
        self,
        *words: str,
        lines: int = 24,
        columns: int = 80,
        with_errors: bool = False,
        cwd: Path | None = None,
        **variables: str,
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = clean_environment(TERM="xterm-256color", **variables)
        del environment["NO_COLOR"]
        errors = theirs if with_errors else subprocess.PIPE
        self.process = subprocess.Popen(
            [SMILE, *words], cwd=cwd, env=environment, stdin=theirs, stdout=theirs, stderr=errors
        )
        os.close(theirs)
        self.text = ""

    def read_until(self, pattern: str) -> str:
        """Reads until the pattern appears in new text; returns the new text up to there, without colours."""
        deadline, begin = time.monotonic() + WAIT_S, len(self.text)
        while not (match := re.search(pattern, self.text[begin:])):
            remaining = deadline - time.monotonic()
            assert remaining > 0, f"{pattern} did not appear; the terminal shows {self.text[-1000:]!r}"
            if select.select([self._ours], [], [], remaining)[0]:
                try:
                    read = os.read(self._ours, 2**16).decode(errors="replace")
                except OSError:  # the command has ended
                    raise AssertionError(
                        f"{pattern} did not appear; the terminal shows {self.text[-1000:]!r}"
                    ) from None
                self.text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", read).replace("\r", "")
        return self.text[begin : begin + match.end()]

    def type(self, text: bytes) -> None:
        os.write(self._ours, text)

    def wait(self) -> tuple[int, str]:
        """Waits for the end; returns the exit code and the text of standard error, if that is a pipe."""
        _, errors = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, (errors or b"").decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self._ours)
