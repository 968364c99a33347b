"""What an executor gets its Spark session from: a Java process of SMILE, or a session of its user."""

from typing import Protocol

from pyspark.sql import SparkSession

from smile.errors import SmileError

STOP_S_MAX = 10.0
"""How long Java may take to delete its temporary files before it is killed."""


class SparkHost(Protocol):
    @property
    def problem(self) -> str | None:
        """What is evidently wrong with it, without asking it."""

    @property
    def memory_bytes(self) -> int | None:
        """The memory of its process, if it has one."""

    def session(self, name: str) -> SparkSession:
        """A session with the settings of a pipeline. Waits until Spark is ready."""

    def stop(self, timeout_s: float = STOP_S_MAX) -> None:
        """Ends what it has started."""

    def explain_failure(self, problem: Exception) -> SmileError | None:
        """The error to report for an exception of Spark; None if it is not related to Spark."""
