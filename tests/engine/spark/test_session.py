"""Spark that does not start says why in a sentence; what starts is set as the user wants it, and leaves nothing behind.

Most of these have a Java that is a script: it is found, and then it does what a broken one does.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # has no types of its own
from pyspark.sql import SparkSession

from smile.engine.spark import session
from smile.engine.spark.session import JavaProcess
from smile.errors import Diagnostic, SmileError

FAKE = """\
#!/bin/sh
[ "$1" = -version ] && { echo 'openjdk version "17.0.1"' >&2; exit 0; }
"""
REAL = """\
import json, os, signal, sys
from pathlib import Path
from smile.engine.spark.session import spark_session

spark = spark_session("local[1]", "settings", Path(sys.argv[1]))
java = spark.sparkContext._jvm.java.lang
conf = spark.sparkContext.getConf()
keys = ["spark.locality.wait", "spark.sql.adaptive.enabled", "spark.python.daemon.module"]
print(json.dumps({
    "ui": spark.sparkContext.uiWebUrl,
    "memory": java.Runtime.getRuntime().maxMemory(),
    "mine": java.System.getProperty("mine"),
    "folder": java.System.getProperty("java.io.tmpdir"),
    "pid": java.ProcessHandle.current().pid(),
    **{key: conf.get(key) for key in keys},
}), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def fake(home: Path, does: str) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(FAKE + does)
    java.chmod(0o755)


def start_diagnostic(java: JavaProcess) -> Diagnostic:
    """Why there is no session. Nothing is left."""
    try:
        with pytest.raises(SmileError) as caught:
            java.session("none")
    finally:
        java.stop()
    (diagnostic,) = caught.value.diagnostics
    assert "\n" not in diagnostic.message
    assert not list(Path(tempfile.gettempdir()).glob("smile-*"))
    return diagnostic


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("echo 'It does not go' >&2; exit 3", "Java ended with exit code 1 before Spark had started: It does not go"),
        ("exit 0", "Java ended with exit code 1 before Spark had started"),
        (
            "echo Error occurred during initialization of VM\necho Could not reserve enough space for object heap\nexit 1",
            "Java cannot reserve the memory that it is configured to use: Could not reserve enough space for object heap",
        ),
    ],
)
def test_a_java_that_dies_at_once(java_home: Path, does: str, reason: str) -> None:
    fake(java_home, does)
    diagnostic = start_diagnostic(JavaProcess("local[1]", java_home / "log"))
    assert (diagnostic.code, diagnostic.message) == ("E066", reason)
    assert diagnostic.hint is not None


def test_what_is_shown_is_not_hinted_at(java_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fake(java_home, "echo 'on standard output'; echo 'on standard error' >&2; exit 3")
    with capfd.disabled(), (java_home / "shown").open("w") as shown, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", shown)
        diagnostic = start_diagnostic(JavaProcess("local[1]", None))
    assert (diagnostic.code, diagnostic.hint) == ("E066", None)
    assert {"on standard output", "on standard error"} <= set((java_home / "shown").read_text().splitlines())


def test_an_older_log_is_not_the_reason(java_home: Path) -> None:
    fake(java_home, "exit 1")
    log = java_home / "log"
    log.write_text("Error: long ago\n")
    assert "long ago" not in start_diagnostic(JavaProcess("local[1]", log)).message


def test_one_that_starts_for_ever_is_ended(java_home: Path) -> None:
    fake(java_home, f"echo $$ > {java_home}/pid; exec sleep 600")
    java = JavaProcess("local[1]", java_home / "log")
    pid = java_home / "pid"
    deadline = time.monotonic() + 300
    while not (pid.exists() and pid.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    java.stop()
    java.stop()
    wait_until_gone(int(pid.read_text()))
    assert not list(java_home.glob("smile-*"))


def test_one_that_another_thread_waits_for_is_ended(java_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(java_home, "trap '' TERM; exec sleep 600")
    java = JavaProcess("local[1]", java_home / "log")
    cleaned_up, clean_up = list[str](), java._temporary_directory.cleanup

    def clean_up_slowly() -> None:
        cleaned_up.append(threading.current_thread().name)
        time.sleep(0.2)
        clean_up()

    monkeypatch.setattr(java._temporary_directory, "cleanup", clean_up_slowly)
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(java.stop, 300.0)
        java.stop(0.0)
        waits.result(300)
    assert len(cleaned_up) == 1
    assert not list(java_home.glob("smile-*"))


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 300
    while Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline, Path(f"/proc/{pid}/cmdline").read_text()
        time.sleep(0.05)


@pytest.mark.parametrize(
    "master",
    ["", "nonsense", "local[0]", "local[two]", "localhost", "spark://", "spark://host", "spark://a:1,b", "http://a:1"],
)
def test_a_master_that_cannot_be(java_home: Path, master: str) -> None:
    with pytest.raises(SmileError) as caught:
        JavaProcess(master, None)
    assert caught.value.diagnostics[0].code == "E067"
    assert repr(master) in str(caught.value)


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[2,4]", "yarn", "k8s://https://a:1", "local-cluster[1,1,1]"]
)
def test_a_master_that_can_be(master: str) -> None:
    session._check_master(master)


def test_a_master_that_does_not_answer(java_home: Path) -> None:
    """Any of several will do."""
    with socket.create_server(("127.0.0.1", 0)) as there:
        answers = there.getsockname()[1]
        session._check_master(f"spark://127.0.0.1:1,127.0.0.1:{answers}")
    for master in (f"spark://127.0.0.1:{answers}", f"spark://no.host.invalid:7077,127.0.0.1:{answers}"):
        with pytest.raises(
            SmileError, match=f"(?m)^no Spark master answers at {master}: Connection refused$"
        ) as caught:
            JavaProcess(master, None)
        assert caught.value.diagnostics[0].code == "E068"


class Ended:
    """A Java that has ended."""

    def __init__(self, code: int) -> None:
        self.returncode = code

    def poll(self) -> int:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        return self.returncode


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (-signal.SIGKILL, "Java was killed (SIGKILL) while Spark was running"),
        (-signal.SIGSEGV, "Java was killed (SIGSEGV) while Spark was running"),
        (52, "Java ran out of memory, and Spark with it"),
        (1, "Java ended with exit code 1 while Spark was running"),
    ],
)
@pytest.mark.parametrize("problem", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError()])
def test_a_java_that_is_lost(monkeypatch: pytest.MonkeyPatch, code: int, message: str, problem: Exception) -> None:
    java = JavaProcess.__new__(JavaProcess)
    java.log, java._has_ended = None, False
    monkeypatch.setattr(java, "process", Ended(code), raising=False)
    explanation = java.explain_failure(problem)
    assert explanation is not None
    assert (explanation.diagnostics[0].code, explanation.diagnostics[0].message) == ("E069", message)


def test_other_trouble_is_told_by_its_reason(java_home: Path) -> None:
    fake(java_home, "exec sleep 600")
    java = JavaProcess("local[1]", java_home / "log")
    try:
        raised = "An error occurred while calling o1.x.\n: org.apache.spark.SparkException: it is stopped\n\tat x.y(Z)"
        explanation = java.explain_failure(Py4JError(raised))
        assert explanation is not None and explanation.message == "Spark failed: it is stopped"
        explanation = java.explain_failure(Py4JError("Job aborted: java.lang.OutOfMemoryError: Java heap space"))
        assert explanation is not None
        assert "Give Java more" in str(explanation.diagnostics[0].hint)
    finally:
        java.stop()
    assert java.explain_failure(ConnectionRefusedError()) is None


def taken_ports(count: int) -> list[socket.socket]:
    """Listens at so many ports in a row, wherever they are free."""
    while True:
        taken = [socket.create_server(("127.0.0.1", 0))]
        first = taken[0].getsockname()[1]
        try:
            taken += [socket.create_server(("127.0.0.1", first + n)) for n in range(1, count)]
        except (OSError, OverflowError):
            for one in taken:
                one.close()
        else:
            return taken


def test_the_user_s_settings_go_before_ours(tmp_path: Path) -> None:
    """The page is where a port is free, for this machine alone; and Java goes with a process that is killed."""
    taken = taken_ports(3)
    first = taken[0].getsockname()[1]
    (tmp_path / "spark-defaults.conf").write_text(
        f"spark.driver.memory 700m\nspark.ui.enabled true\nspark.ui.port {first}\nspark.locality.wait 7s\n"
        "spark.sql.adaptive.enabled true\nspark.driver.extraJavaOptions -Dmine=yes\n"
    )
    env = {**os.environ, "SPARK_CONF_DIR": str(tmp_path), "SPARK_DRIVER_MEMORY": "800m"}
    done = subprocess.run(
        [sys.executable, "-c", REAL, tmp_path / "log"], env=env, capture_output=True, text=True, timeout=600
    )
    for one in taken:
        one.close()
    assert done.returncode == -signal.SIGKILL, done.stderr
    settings = json.loads(done.stdout)
    assert first + 3 <= int(settings.pop("ui").removeprefix("http://127.0.0.1:")) <= first + 100
    wait_until_gone(settings.pop("pid"))
    assert not Path(settings.pop("folder")).exists()
    assert settings == {
        "memory": 700 * 2**20,
        "mine": "yes",
        "spark.locality.wait": "7s",
        "spark.sql.adaptive.enabled": "false",
        "spark.python.daemon.module": "smile.engine.spark.daemon",
    }


def test_spark_has_no_page_and_its_ports_need_a_secret(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert spark.sparkContext.uiWebUrl is None
    assert conf.get("spark.authenticate") == "true"
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
