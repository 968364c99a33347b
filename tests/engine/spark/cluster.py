"""A standalone cluster of Spark on this machine, all of it on loopback. Each machine of it is a session of processes, so
that it can be lost as a whole.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from smile.engine.spark.job import Job
from smile.java import java_home
from smile.state.store import StateStore, Tables
from tests.engine.spark import workload

SPARK = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
START_S_MAX = 120


@dataclass(frozen=True)
class Cluster:
    """`master` is its address, `machines` are its workers. A worker's number as a process is its session's."""

    master: str
    machines: tuple["subprocess.Popen[bytes]", ...]


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """Of one master, and workers of one core and 1 GB each. Nothing is left of them afterwards."""
    with ExitStack() as stack:
        log = folder / "master.log"
        stack.enter_context(_machine(log, f"{DEPLOY}.master.Master", "--port", "0"))
        (master,) = _said(log, r"Starting Spark master at (spark://\S+)", 1)
        machines = []
        for number in range(workers):
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"worker-{number}"), master]
            machines.append(_machine(folder / f"worker-{number}.log", f"{DEPLOY}.worker.Worker", *size))
        started = tuple(stack.enter_context(machine) for machine in machines)
        _said(log, "(Registering worker)", workers)
        yield Cluster(master, started)


def environment() -> dict[str, str]:
    """What every process of a cluster, and whoever runs a pipeline there, needs: where Java is, what Python's workers
    import, and that nothing leaves this machine."""
    return {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(workload.ROOT), os.environ.get("PYTHONPATH")])),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
    }


@contextmanager
def _machine(log: Path, *command: str) -> Iterator["subprocess.Popen[bytes]"]:
    arguments = [str(SPARK / "bin" / "spark-class"), *command, "--host", "127.0.0.1", "--webui-port", "0"]
    with (
        log.open("wb") as out,
        subprocess.Popen(
            arguments, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                lose(process.pid)


def lose(session: int) -> None:
    """The worker and its executors are gone at once. Python's workers are in groups of their own, and follow."""
    os.killpg(session, signal.SIGKILL)


def _said(log: Path, pattern: str, times: int) -> list[str]:
    """What a process has said, as soon as it has said it so many times."""
    patient_until = time.monotonic() + START_S_MAX
    while len(matches := re.findall(pattern, log.read_text())) < times:
        if time.monotonic() > patient_until:
            raise TimeoutError(f"{log} does not say {pattern!r}: {log.read_text()[-2000:]}")
        time.sleep(0.05)
    return matches


@dataclass(frozen=True)
class LosingJob(Job):
    """The session `machine` is lost once one of its tasks has written a version of a later stage that is not older than
    `number`: what the first stage had left there for others is lost with it."""

    machine: int = 0
    number: int = 0

    def store(self, stage: int, partition: int) -> StateStore:
        store = super().store(stage, partition)
        if stage == 1:
            return store
        return LosingStore(store.filesystem, store.root, store.program, machine=self.machine, number=self.number)


@dataclass
class LosingStore(StateStore):
    machine: int = 0
    number: int = 0

    def save(
        self,
        number: int,
        horizons: Mapping[str, int],
        tables: Tables,
        observe: Callable[[str], None] = lambda _: None,
    ) -> int:
        size = super().save(number, horizons, tables, observe)
        if os.getsid(0) == self.machine and number >= self.number:
            lose(self.machine)
            os.killpg(0, signal.SIGKILL)
        return size
