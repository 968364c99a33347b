"""The state of the schema in a database: its version, its queues, and how far the service has come."""

from typing import Any

from psycopg import Connection
from psycopg.rows import TupleRow, dict_row

from smile.postgres.schema.version import installed_version, packaged_version

_COUNTS = """
    SELECT (SELECT count(*) FROM smile.event_types) AS event_types,
        (SELECT count(*) FROM smile.advertisements) AS advertisements,
        (SELECT count(*) FROM smile.subscriptions) AS subscriptions,
        (SELECT count(*) FROM smile.rules) AS rules,
        (SELECT count(*) FROM smile.links) AS links,
        (SELECT count(*) FROM smile.view_tables) AS view_tables,
        (SELECT extract(epoch FROM clock_timestamp() - max(finish_time))::float8 FROM smile.capture_batch)
            AS captured_s_ago,
        (SELECT extract(epoch FROM clock_timestamp() - min(enqueue_time))::float8 FROM smile.in_queue
            WHERE NOT pg_visible_in_snapshot(xid, smile.captured_snapshot())) AS oldest_event_s,
        smile.installer() AS role, smile.immediate_way() AS immediate, current_setting('server_version') AS server"""


def read_status(connection: Connection[TupleRow]) -> dict[str, Any]:
    """What `smile postgres status` prints as JSON."""
    installed, packaged = installed_version(connection), packaged_version()
    if installed is None:
        return {"installed": False}
    with connection.cursor(row_factory=dict_row) as cursor:
        counts = cursor.execute(_COUNTS).fetchone()
        assert counts is not None
    waiting: dict[str, int] = dict(connection.execute("SELECT queue, events FROM smile.undelivered()").fetchall())
    return {"installed": True, "version": installed.migration, "current": installed == packaged, **counts} | {
        "undelivered": waiting
    }


def status_text(status: dict[str, Any]) -> str:
    if not status["installed"]:
        return "the schema is not installed"
    state = "up to date" if status["current"] else "another version than this program's: run smile postgres install"
    objects = ("event_types", "advertisements", "subscriptions", "rules", "links", "view_tables")
    waiting = ", ".join(f"{events:,} in {queue}" for queue, events in status["undelivered"].items()) or "none"
    captured, oldest = status["captured_s_ago"], status["oldest_event_s"]
    return "\n".join(
        [
            f"schema: version {status['version']}, {state}; role {status['role']}; PostgreSQL {status['server']}",
            "catalogue: " + ", ".join(f"{status[name]:,} {name.replace('_', ' ')}" for name in objects),
            f"undelivered events: {waiting}" + ("" if oldest is None else f"; the oldest waits for {oldest:,.1f} s"),
            "capture: " + ("nothing captured yet" if captured is None else f"last {captured:,.1f} s ago"),
            f"IMMEDIATE: {status['immediate'] or 'not available'}",
        ]
    )
