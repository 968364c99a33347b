"""Disks that are full, and have room again: a small file system of its own, or a limit on the size of files."""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.brokers import BrokerProcess

SPACE = 8 * 2**20
HELD_S = 600


class Room(Protocol):
    """Where a broker's directory is."""

    prefix: tuple[str, ...]

    def seen(self, data: Path) -> Path:
        """The same directory as the test sees it."""

    def fill(self, broker: BrokerProcess) -> None: ...

    def free(self, broker: BrokerProcess) -> None: ...


class SmallDisk:
    """A file system in memory that only the broker sees. It lasts as long as a process that holds it."""

    def __init__(self, data: Path) -> None:
        self._data = data
        mine = ["--map-root-user"] if os.getuid() else []
        script = f"mount -t tmpfs -o size={SPACE} none {data} && echo mounted && exec sleep {HELD_S}"
        self._holder = subprocess.Popen(
            ["unshare", "--mount", *mine, "sh", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._holder.stdout is not None
        self.is_there = self._holder.stdout.readline() == "mounted\n"
        users = ["--user", "--preserve-credentials"] if mine else []
        self.prefix = ("nsenter", "--target", str(self._holder.pid), "--mount", *users)

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()
        assert self._holder.stdout is not None
        self._holder.stdout.close()

    def seen(self, data: Path) -> Path:
        return Path(f"/proc/{self._holder.pid}/root{data}")

    def fill(self, broker: BrokerProcess) -> None:
        with (self.seen(self._data) / "ballast").open("wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(4096))
            except OSError:
                return

    def free(self, broker: BrokerProcess) -> None:
        (self.seen(self._data) / "ballast").unlink()


class SmallFiles:
    """No file may grow beyond what the log has now."""

    prefix: tuple[str, ...] = ()

    def seen(self, data: Path) -> Path:
        return data

    def fill(self, broker: BrokerProcess) -> None:
        size = (broker.data_path / "log-wal").stat().st_size
        resource.prlimit(broker.popen.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def free(self, broker: BrokerProcess) -> None:
        most = resource.RLIM_INFINITY
        resource.prlimit(broker.popen.pid, resource.RLIMIT_FSIZE, (most, most))


@contextmanager
def small_disk(data: Path) -> Iterator[SmallDisk | None]:
    """None where nobody may mount anything."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None or sys.platform != "linux":
        yield None
        return
    disk = SmallDisk(data)
    try:
        yield disk if disk.is_there else None
    finally:
        disk.close()
