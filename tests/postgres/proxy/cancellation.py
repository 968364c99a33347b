"""A cancel request reaches the query that it is for."""

from typing import Any

import psycopg

from tests.postgres.private_server import PrivateServer
from tests.processes import wait_until


def assert_cancellable(server: PrivateServer, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Cancels a query of the connection after the server has begun to run it."""
    (process,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
    assert process == connection.info.backend_pid
    connection.pgconn.send_query(b"SELECT pg_sleep(60)")
    with server.connect() as observer:
        sleeping = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
        wait_until(lambda: observer.execute(sleeping, (process,)).fetchone() == (1,), "the query runs")
    connection.cancel_safe()

    def has_result() -> bool:
        connection.pgconn.consume_input()
        return not connection.pgconn.is_busy()

    # get_result waits with the interpreter's lock, which the proxy in this process needs.
    wait_until(has_result, "the query has ended")
    result = connection.pgconn.get_result()
    assert result is not None
    assert b"canceling statement due to user request" in result.error_message
    wait_until(has_result, "the server is ready")
    assert connection.pgconn.get_result() is None
