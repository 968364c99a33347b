"""A Spark session that somebody else has started. A pipeline runs in a session beside it: in the same processes, with
SQL settings of its own.

Nothing of the user's session changes, and it ends when its owner ends it.
"""

from pyspark.sql import SparkSession

from smile.engine.spark.host import STOP_S_MAX
from smile.engine.spark.session import REQUIRED, SETTINGS, short_reason
from smile.engine.spark.source import SmileSource
from smile.errors import SmileError, error

_SQL_PREFIX = "spark.sql."
_OF_OTHER_FILE_SYSTEMS = "spark.sql.streaming.checkpointFileManagerClass"
"""Chosen for the file system of SMILE's own sessions."""


class UserSession:
    """Has the methods of `JavaProcess` that an executor needs. `python` of the session's workers must be able to import
    SMILE."""

    memory_bytes: int | None = None

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def session(self, name: str) -> SparkSession:
        """Another session of the same application."""
        beside = self._spark.newSession()
        for key, value in {**SETTINGS, **REQUIRED}.items():
            if key.startswith(_SQL_PREFIX) and key != _OF_OTHER_FILE_SYSTEMS and beside.conf.isModifiable(key):
                beside.conf.set(key, value)
        beside.dataSource.register(SmileSource)
        return beside

    def stop(self, timeout_s: float = STOP_S_MAX) -> None:
        return

    def explain_failure(self, problem: Exception) -> SmileError | None:
        if isinstance(problem, OSError):
            return None
        return error("E069", f"Spark failed: {short_reason(str(problem))}")

    @property
    def problem(self) -> str | None:
        return None
