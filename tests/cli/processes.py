"""Commands as their users run them: in a pipe, or in a terminal."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Self

from typer.testing import CliRunner, Result

from smile.cli.main import app

SMILE = str(Path(sys.executable).parent / "smile")
WAIT_S = 20


def environment(**more: str) -> dict[str, str]:
    """Without a broker of the user's own, and without a size that would be believed instead of the terminal's."""
    given = ("SMILE_", "LINES", "COLUMNS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(given)}
    return {**kept, "PYTHONUNBUFFERED": "1", **more}


def run(*args: str, stdin: str | bytes | None = None, **more: str) -> Result:
    """In this process, which is quicker."""
    cleared = {name: None for name in os.environ if name.startswith("SMILE_")}
    return CliRunner().invoke(app, args, input=stdin, env={**cleared, **more}, catch_exceptions=False)


class Terminal:
    """A command in a terminal of so many lines and columns."""

    def __init__(self, *args: str, lines: int = 24, columns: int = 80) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        env = environment(TERM="xterm-256color")
        self.process = subprocess.Popen([SMILE, *args], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=env)
        os.close(theirs)
        self.text = ""

    def until(self, pattern: str) -> str:
        """Reads until the pattern has appeared since the last one; what was read, without colours."""
        end, begin = time.monotonic() + WAIT_S, len(self.text)
        while not (found := re.search(pattern, self.text[begin:])):
            left = end - time.monotonic()
            assert left > 0, f"{pattern} did not appear; at last it was {self.text[-1000:]!r}"
            if select.select([self._ours], [], [], left)[0]:
                read = os.read(self._ours, 2**16).decode(errors="replace")
                self.text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", read).replace("\r", "")
        return self.text[begin : begin + found.end()]

    def type(self, text: bytes) -> None:
        os.write(self._ours, text)

    def end(self) -> tuple[int, str]:
        """The exit code, and what was said as an error."""
        _, said = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, said.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self._ours)
