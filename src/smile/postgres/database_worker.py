"""A thread that works with a connection to the database, and opens another one after a failure, with back-off."""

import logging
from collections.abc import Callable

import psycopg

from smile.broker.retrying_worker import RetryingWorker
from smile.errors import SmileError
from smile.postgres.database import Connection, Database

_log = logging.getLogger("smile.postgres")


class DatabaseWorker(RetryingWorker):
    """`work` uses the connection until the worker is stopped, or raises an error."""

    def __init__(self, name: str, database: Database, work: Callable[["DatabaseWorker", Connection], None]) -> None:
        super().__init__(name, lambda _: self._work_connected(work), self._describe_problem, _log)
        self._database = database
        self._connection: Connection | None = None

    def join(self, timeout_s: float) -> bool:
        """Waits for its end. A statement that takes longer is cancelled."""
        has_ended, connection = super().join(timeout_s), self._connection
        if has_ended or connection is None:
            return has_ended
        try:
            connection.cancel_safe(timeout=timeout_s)
        except psycopg.Error:
            connection.close()
        return super().join(timeout_s)

    def _work_connected(self, work: Callable[["DatabaseWorker", Connection], None]) -> None:
        try:
            with self._database.connect(self.name) as connection:
                self._connection, self.is_working = connection, True
                work(self, connection)
        finally:
            self._connection = None

    def _describe_problem(self, problem: Exception) -> SmileError:
        if isinstance(problem, psycopg.Error):
            return self._database.error(problem)
        _log.exception("the service of the database has failed", extra={"worker": self.name})
        return self._database.unexpected_error(problem)
