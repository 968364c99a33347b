"""How the server publishes IMMEDIATE: through a connection to itself (dblink), or with logical messages and a slot."""

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from smile.errors import error
from smile.postgres.immediate_way import ImmediateWay


def configure_immediate(connection: Connection[TupleRow], way: ImmediateWay | None, address: str | None) -> bool:
    """Stores the way, and how the server connects to itself. Returns whether either has changed."""
    settings: dict[str, str] = dict(connection.execute("SELECT name, value FROM smile.setting").fetchall())
    wanted = way or ImmediateWay(settings.get("immediate", "auto"))
    changes = {"immediate": wanted.value}
    if wanted in (ImmediateWay.auto, ImmediateWay.dblink):
        address = address or settings.get("immediate_connection") or _local_address(connection)
        problem = _dblink_problem(connection, address, create=wanted is ImmediateWay.dblink)
        if problem is None:
            changes["immediate_connection"] = address
        elif way is ImmediateWay.dblink:
            hint = "Let a superuser run CREATE EXTENSION dblink, and give --immediate-connection with a password."
            raise error("E153", f"dblink cannot be used: {problem}", hint=hint)
    is_logical = connection.execute("SELECT current_setting('wal_level') = 'logical'").fetchone() == (True,)
    if way is ImmediateWay.logical and not is_logical:
        hint = "Set wal_level = logical in the configuration of the server, and start it again."
        raise error("E153", "the WAL of the server is not logical", hint=hint)
    if wanted in (ImmediateWay.auto, ImmediateWay.logical) and is_logical:
        _create_publication(connection)
    for name, value in changes.items():
        connection.execute(
            "INSERT INTO smile.setting VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [name, value],
        )
    return any(settings.get(name) != value for name, value in changes.items())


def create_slot(connection: Connection[TupleRow]) -> bool:
    """Creates the slot of logical messages, which keeps the WAL until a service reads it. False if there is one."""
    with connection.transaction():
        existing = connection.execute(
            "SELECT FROM pg_replication_slots WHERE slot_name = smile.slot_name() AND database = current_database()"
        )
        if existing.fetchone() is not None:
            return False
    try:
        with connection.transaction():
            connection.execute("SELECT pg_create_logical_replication_slot(smile.slot_name(), 'pgoutput')")
    except psycopg.Error as problem:
        hint = "The role needs the attribute REPLICATION, and the server a free slot (max_replication_slots)."
        raise error("E153", f"the slot cannot be created: {problem.diag.message_primary}", hint=hint) from None
    return True


def drop_slot(connection: Connection[TupleRow], name: str) -> None:
    with connection.transaction():
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE slot_name = %s AND database = current_database()",
            [name],
        )


def _local_address(connection: Connection[TupleRow]) -> str:
    """How the server reaches itself: through its first Unix socket, if the role may know it, else through loopback."""
    row = connection.execute(
        "SELECT (SELECT split_part(setting, ',', 1) FROM pg_settings WHERE name = 'unix_socket_directories'), "
        "current_setting('port'), current_database(), current_user"
    ).fetchone()
    assert row is not None
    folder, port, database, user = row
    host = (folder or "").strip() or "127.0.0.1"
    return psycopg.conninfo.make_conninfo(host=host, port=port, dbname=database, user=user)


def _dblink_problem(connection: Connection[TupleRow], address: str, create: bool) -> str | None:
    """Why the server cannot connect to itself; None if it can."""
    try:
        with connection.transaction():
            if create:
                connection.execute("CREATE EXTENSION IF NOT EXISTS dblink SCHEMA smile")
            schema = connection.execute(
                "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'dblink'"
            ).fetchone()
            if schema is None:
                return "the extension is not installed"
            statement = f"SELECT * FROM {schema[0]}.dblink(%s, 'SELECT 1') AS t(one integer)"
            connection.execute(statement.encode(), [address])
    except psycopg.Error as problem:
        return problem.diag.message_primary or str(problem)
    return None


def _create_publication(connection: Connection[TupleRow]) -> None:
    """The empty publication that pgoutput needs to read messages."""
    if connection.execute("SELECT FROM pg_publication WHERE pubname = 'smile'").fetchone() is None:
        connection.execute("CREATE PUBLICATION smile")
