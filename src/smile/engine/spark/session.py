"""Starts Spark in a Java process of its own, with the settings that a pipeline of small batches needs.

The user's Spark settings (`spark-defaults.conf` in SPARK_CONF_DIR, Spark's environment variables) take precedence over
the settings here, except for those in REQUIRED, which a pipeline depends on.
"""

import atexit
import logging
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from threading import Lock
from types import MappingProxyType

import pyspark
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # has no types of its own
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from smile.engine.spark import pyspark_internals
from smile.engine.spark.host import STOP_S_MAX
from smile.engine.spark.source import SmileSource
from smile.errors import SmileError, error
from smile.java import java_home
from smile.memory import lift_memory_limit, resident_bytes

DAEMON_SETTING, DAEMON_MODULE = "spark.python.daemon.module", "smile.engine.spark.daemon"
REQUIRED = {
    # State is stored by partition number, so Spark must not split or merge partitions.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    # Spark's launcher sets it, so `setIfMissing` would have no effect.
    "spark.ui.showConsoleProgress": "false",
}
SETTINGS = {
    # These determine the latency of a batch.
    "spark.python.unix.domain.socket.enabled": "true",
    DAEMON_SETTING: DAEMON_MODULE,
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # This file system writes no checksums and starts no process to set permissions.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.locality.wait": "0s",
    # Everybody who reaches the UI sees the program, and it has no passwords.
    "spark.ui.enabled": "false",
    # If a port is taken, Spark tries the next one. Each Spark on a machine needs a port for its UI, if it is enabled.
    "spark.port.maxRetries": "100",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
}
LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Other users of the machine must not connect to Spark's ports. Spark generates the secret.
    "spark.authenticate": "true",
}
CLUSTER_SETTINGS = {
    "spark.executor.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
    # A machine that does not answer is given up after seconds, not minutes.
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "5s",
}
LOCAL_ENVIRONMENT = {"SPARK_LOCAL_IP": "127.0.0.1"}
"""Other machines must not see Spark's UI."""
ENVIRONMENT = {"SPARK_DRIVER_MEMORY": "2g"}
"""The maximum memory of Java. Every other Spark setting for it takes precedence. Java holds the messages of a few
batches, but neither state nor events."""
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"
TEMP_PATH_CHARS_MAX = 50
PySparkSession = SparkSession
"""For modules that must not import PySpark themselves."""

WORKER_SCRIPT = """\
#!/bin/sh
IFS=:
new_path=
for entry in $PYTHONPATH; do
  case "$entry" in */pyspark.zip | */py4j-*.zip) ;; *) new_path="$new_path${{new_path:+:}}$entry" ;; esac
done
PYTHONPATH="$new_path" exec {python} "$@"
"""

MASTER_PATTERN = re.compile(
    r"local(\[([1-9]\d*|\*)(\s*,\s*[1-9]\d*)?\])?|local-cluster\[.+\]|yarn|k8s://.+"
    r"|spark://(?P<addresses>[^\s,/:]+:\d{1,5}(,[^\s,/:]+:\d{1,5})*)"
)
MASTER_CONNECT_S_MAX = 10.0
"""Spark itself would retry for a minute."""
EXIT_S_MAX = 0.5
"""How long to wait for a Java process that may be ending."""
REASON_CHARS_MAX = 300

_MEMORY_PROBLEM = re.compile(
    r"could not reserve|cannot allocate|not enough space|insufficient memory|OutOfMemoryError|heap size|Java heap",
    re.IGNORECASE,
)
_OUT_OF_MEMORY_EXIT_CODE = 52
"""The exit code of Spark's Java process after an OutOfMemoryError."""
_CONNECTION_ERRORS = (Py4JNetworkError, ConnectionRefusedError, ConnectionResetError)
SPARK_ERRORS = (Py4JError, PySparkException, *_CONNECTION_ERRORS)
"""The exceptions that Spark raises, including those after the Java process is lost."""
_LESS_MEMORY_HINT = (
    "Give Java less: spark.driver.memory in Spark's spark-defaults.conf, or the variable SPARK_DRIVER_MEMORY."
)
_MORE_MEMORY_HINT = (
    "Give Java more: spark.driver.memory in Spark's spark-defaults.conf, or the variable SPARK_DRIVER_MEMORY."
)


class JavaProcess:
    """The Java process that Spark runs in. It reads a pipe from this process, so it ends when this process ends in any
    way. Its output and that of its workers goes to `log`, or to standard error."""

    def __init__(
        self,
        master: str,
        log: Path | None,
        environment: Mapping[str, str] = MappingProxyType({}),
        new_archive: Path | None = None,
    ) -> None:
        """Starts the process. Raises an error if there is no Java, or if `master` is invalid.

        `environment` has variables for the Python workers. At its end the process stores its classes in
        `new_archive`."""
        _check_master(master)
        jdk_home = java_home()
        self.master, self.log, self._environment = master, log, environment
        self._has_ended = self._is_cleaned_up = False
        self._cleanup_lock = Lock()
        self._log_offset = log.stat().st_size if log is not None and log.exists() else 0
        # The path of a Unix socket must be short.
        temp_root = None if len(tempfile.gettempdir()) < TEMP_PATH_CHARS_MAX else "/tmp"
        # Workers that are ending may still write there while it is deleted.
        self._temporary_directory = tempfile.TemporaryDirectory(
            prefix="smile-", dir=temp_root, ignore_cleanup_errors=True
        )
        self._connection_file = Path(self._temporary_directory.name) / "gateway"
        spark_home = pyspark_internals.find_spark_home()
        self.python = self._worker_python(spark_home) if _is_local(master) else sys.executable
        options = f"{JAVA_OPTIONS}{_class_options(new_archive)} -Djava.io.tmpdir={self._temporary_directory.name}"
        settings = ["--master", master, "--conf", f"spark.driver.defaultJavaOptions={options}"]
        submit_arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        environment = {**(LOCAL_ENVIRONMENT if _is_local(master) else {}), **ENVIRONMENT, **os.environ}
        # With a usable Python, Spark would search all installed packages for data sources.
        environment |= {"JAVA_HOME": str(jdk_home), "SPARK_CONNECT_MODE": "0", "PYSPARK_DRIVER_PYTHON": "no-python"}
        environment |= {pyspark_internals.CONNECTION_FILE_VARIABLE: str(self._connection_file)}
        with ExitStack() as stack:
            # Standard output is for results, so Java's messages must not go there.
            output = sys.stderr.fileno() if log is None else stack.enter_context(log.open("ab"))
            self.process = subprocess.Popen(
                [spark_home / "bin" / "spark-submit", *settings, *submit_arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
                process_group=0,  # so that Ctrl-C in the terminal does not reach it
            )
        lift_memory_limit(self.process.pid)
        atexit.register(self.stop)

    def _worker_python(self, spark_home: Path) -> str:
        """The program that starts Python workers. By default they import PySpark from Spark's zip archive, which has no
        compiled modules, so each worker compiles it again. If the installed PySpark is the same, they import that."""
        if spark_home.resolve() != Path(pyspark.__file__).parent.resolve():
            return sys.executable
        path = Path(self._temporary_directory.name) / "python"
        path.write_text(WORKER_SCRIPT.format(python=shlex.quote(sys.executable)))
        path.chmod(0o700)
        return str(path)

    def session(self, name: str) -> SparkSession:
        """Waits until Spark is ready."""
        global _java  # noqa: PLW0603  # PySpark too has one per process
        try:
            if _java is not self:
                self._connect()
                _java = self
            return _create_session(self.master, name, self.log, self.python, self._environment)
        except (Py4JError, PySparkException) as problem:
            if self.is_lost:
                raise self._start_error() from None
            reason = short_reason(str(problem))
            hint = _MORE_MEMORY_HINT if "DRIVER_MEMORY" in reason else self._hint
            raise error("E068", f"Spark did not start at {self.master}: {reason}", hint=hint) from None

    def _connect(self) -> None:
        while not self._connection_file.exists():
            if self.process.poll() is not None:
                raise self._start_error()
            time.sleep(0.02)
        pyspark_internals.connect_to_java(self._connection_file.read_bytes(), self._temporary_directory.name)

    def stop(self, timeout_s: float = STOP_S_MAX) -> None:
        """Ends the process and its workers, and deletes its temporary files. It may still be starting. Thread-safe: who
        cannot wait may end a process that another thread waits for."""
        self._has_ended = True
        if self.process.poll() is None:
            self._signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self.process.wait()
        with self._cleanup_lock:
            if not self._is_cleaned_up:
                self._is_cleaned_up = True
                self._clean_up()

    def _clean_up(self) -> None:
        global _java  # noqa: PLW0603
        assert self.process.stdin is not None
        self.process.stdin.close()
        if _java is self:
            pyspark_internals.reset()
            _java = None
        self._temporary_directory.cleanup()
        atexit.unregister(self.stop)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    # ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def explain_failure(self, problem: Exception) -> SmileError | None:
        """The error to report for one of SPARK_ERRORS; None if it is not related to Spark."""
        if not self._has_ended and isinstance(problem, (Py4JError, *_CONNECTION_ERRORS)):
            # The process may be ending. If the connection was lost, it certainly is.
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_S_MAX if isinstance(problem, _CONNECTION_ERRORS) else EXIT_S_MAX)
        if self.is_lost:
            return self._loss_error()
        if isinstance(problem, OSError):
            return None
        if _MEMORY_PROBLEM.search(str(problem)):
            return error("E069", f"Spark ran out of memory: {short_reason(str(problem))}", hint=_MORE_MEMORY_HINT)
        return error("E069", f"Spark failed: {short_reason(str(problem))}", hint=self._hint)

    @property
    def problem(self) -> str | None:
        """What is evidently wrong with the process, without asking it."""
        if self.is_lost:
            return f"Java {_exit_description(self.process)}"
        try:
            state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return None
        return f"Java does not run: process {self.process.pid} is stopped (SIGSTOP)" if state in "Tt" else None

    @property
    def memory_bytes(self) -> int | None:
        """The memory that the process occupies."""
        try:
            return resident_bytes(self.process.pid)
        except (OSError, IndexError):
            return None

    @property
    def is_lost(self) -> bool:
        """Whether the process ended without `stop`."""
        return not self._has_ended and self.process.poll() is not None

    def _start_error(self) -> SmileError:
        output_lines = self._output_lines()
        reason = next((line for line in output_lines if _MEMORY_PROBLEM.search(line)), None)
        if reason is not None:
            return error(
                "E066", f"Java cannot reserve the memory that it is configured to use: {reason}", hint=_LESS_MEMORY_HINT
            )
        reason = next((line for line in output_lines if re.search("exception|error", line, re.IGNORECASE)), None)
        reason = reason or (output_lines[-1] if output_lines else None)
        exit_text = _exit_description(self.process)
        return error(
            "E066", f"Java {exit_text} before Spark had started{f': {reason}' if reason else ''}", hint=self._hint
        )

    def _loss_error(self) -> SmileError:
        if self.process.returncode == _OUT_OF_MEMORY_EXIT_CODE:
            return error("E069", "Java ran out of memory, and Spark with it", hint=_MORE_MEMORY_HINT)
        hint = self._hint
        if self.process.returncode == -signal.SIGKILL:
            hint = "If nobody killed it, the system probably ran out of memory."
        return error("E069", f"Java {_exit_description(self.process)} while Spark was running", hint=hint)

    @property
    def _hint(self) -> str | None:
        """None if Spark's output is shown anyway."""
        return None if self.log is None else "Use --verbose to see Spark's own messages."

    def _output_lines(self) -> list[str]:
        if self.log is None:
            return []
        with self.log.open("rb") as file:
            file.seek(self._log_offset)
            text = file.read().decode(errors="replace")
        # Spark's scripts add errors of their own, which do not help.
        lines = (line.strip() for line in text.splitlines() if "/bin/spark-" not in line)
        return [line[:REASON_CHARS_MAX] for line in lines if line]


def class_archive() -> Path:
    """Where the classes that Spark loads are stored for the next starts, if they are."""
    return Path(sys.prefix) / "share" / "smile" / "spark-classes.jsa"


def _class_options(new_archive: Path | None) -> str:
    """Java ignores an archive of another Java or of other JAR files."""
    if new_archive is not None:
        return f' "-XX:ArchiveClassesAtExit={new_archive}" -Xlog:cds=off -Xlog:cds+dynamic=off'
    archive = class_archive()
    return f' "-XX:SharedArchiveFile={archive}" -Xlog:cds=off -Xlog:cds+dynamic=off' if archive.exists() else ""


_java: JavaProcess | None = None


def current_java() -> JavaProcess | None:
    """This process's Java process, if there is one. Cleans up after one that was lost."""
    if _java is not None and _java.is_lost:
        _java.stop()
    return _java


def spark_session(master: str, name: str, log: Path | None) -> SparkSession:
    """The session of this process. The output of Java and the workers goes to `log`, or to standard error."""
    java = current_java() or JavaProcess(master, log)
    try:
        return java.session(name)
    except BaseException:
        java.stop()
        raise


def _create_session(
    master: str, name: str, log: Path | None, python: str, environment: Mapping[str, str]
) -> SparkSession:
    os.environ |= {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable}
    conf = SparkConf().setMaster(_with_task_retries(master)).setAppName(name)  # SparkConf includes the user's settings
    for key, value in REQUIRED.items():
        conf.set(key, value)
    for key, value in {**SETTINGS, **(LOCAL_SETTINGS if _is_local(master) else CLUSTER_SETTINGS)}.items():
        conf.setIfMissing(key, value)
    for variable, value in environment.items():
        # Spark's UI shows all settings, except those with `token` in their names.
        conf.set(f"spark.executorEnv.{variable}", value)
    # It logs errors of batches with a traceback. They are raised again as errors of the query.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR" if log is not None else "WARN")
    spark.dataSource.register(SmileSource)
    pyspark_internals.silence_accumulator_server(spark.sparkContext)
    return spark


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _with_task_retries(master: str) -> str:
    """Lets Spark retry failed tasks, as on a cluster: `local[2]` becomes `local[2,4]`."""
    match = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    return f"local[{match[1] or 1},4]" if match else master


def _check_master(master: str) -> None:
    """Raises an error if the address is invalid, or if no master answers there."""
    match = MASTER_PATTERN.fullmatch(master)
    if match is None:
        hint = "Write local[*] for this machine, or spark://HOST:PORT for a cluster."
        raise error("E067", f"{master!r} is not a Spark master", hint=hint)
    problem: OSError | None = None
    for address in (match["addresses"] or "").split(",") if match["addresses"] else []:
        host, _, port = address.rpartition(":")
        try:
            with closing(socket.create_connection((host, int(port)), MASTER_CONNECT_S_MAX)):
                return
        except (OSError, OverflowError) as failure:
            problem = failure if isinstance(failure, OSError) else OSError(str(failure))
    if problem is not None:
        reason = problem.strerror or str(problem)
        raise error(
            "E068",
            f"no Spark master answers at {master}: {reason}",
            hint="Check that the master runs, and its address.",
        )


def _exit_description(process: "subprocess.Popen[bytes]") -> str:
    code = process.returncode
    return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"


def short_reason(text: str) -> str:
    """The message of a Java exception, without its stack trace and class."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    thrown = next((line[2:] for line in lines if line.startswith(": ")), lines[0] if lines else "no reason given")
    return re.sub(r"^[\w.$]+(Exception|Error): ", "", thrown)[:REASON_CHARS_MAX]
