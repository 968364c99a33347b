"""A real broker in a process of its own, with the engine in that process."""

import re
import subprocess
import sys
import threading
from pathlib import Path

SMILE = str(Path(sys.executable).parent / "smile")
WAIT_S = 30


class Broker:
    """Started again, it listens where it did."""

    def __init__(self, folder: Path, program: str, *flags: str) -> None:
        self.folder, self.listen, self.flags = folder, "127.0.0.1:0", flags
        (folder / "p.smile").write_text(program)
        self.start()

    def start(self) -> None:
        command = [SMILE, "serve", "p.smile", "--engine", "local", "--listen", self.listen, "--flight", "", *self.flags]
        with (self.folder / "errors").open("ab") as errors:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"(https?)://(127\.0\.0\.1:\d+)", line):
                self.scheme, self.listen = found[1], found[2]
                self.reader = threading.Thread(target=self.process.stdout.read, daemon=True)
                self.reader.start()
                return
        self.process.stdout.close()
        self.process.wait(WAIT_S)
        raise AssertionError((self.folder / "errors").read_text())

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.listen}"

    def kill(self) -> None:
        self.process.kill()
        self._ended()

    def close(self) -> None:
        self.process.terminate()
        self._ended()

    def _ended(self) -> None:
        self.process.wait(WAIT_S)
        self.reader.join(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
