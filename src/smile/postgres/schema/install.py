"""Installs, upgrades and removes the schema `smile` in a database.

Migrations are applied once, in their order, and never change. Functions and views are replaced when their text has
changed. An installation is one transaction: sessions that run meanwhile see the old schema, then the new one.
"""

import secrets
from typing import Final

from psycopg import Connection, sql
from psycopg.rows import TupleRow

from smile import limits
from smile.errors import error
from smile.postgres.immediate_way import ImmediateWay
from smile.postgres.schema.immediate import configure_immediate, create_slot, drop_slot
from smile.postgres.schema.version import SchemaVersion, installed_version, packaged_version, sql_files

SERVER_VERSION_MIN: Final = 140_000
_LOCK: Final = 1936550252, 2
"""The advisory lock of installations. The first number is the class of SMILE's locks."""
_SERVICE_LOCK: Final = 1936550252, 3
"""Held by the service that captures the database."""


def install(
    connection: Connection[TupleRow], immediate: ImmediateWay | None = None, address: str | None = None
) -> bool:
    """Installs the schema or upgrades it. Returns whether it was installed or changed. `address` is how the server
    connects to itself for IMMEDIATE; without `immediate`, the way is left as it is, or chosen automatically."""
    with connection.transaction():
        version = connection.info.server_version
        if version < SERVER_VERSION_MIN:
            raise error("E157", f"PostgreSQL {version // 10_000} is too old", hint="SMILE needs version 14.")
        connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", _LOCK)
        connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
        connection.execute("SET LOCAL check_function_bodies = off")
        connection.execute("SET LOCAL client_min_messages = warning")
        connection.execute(f"SET LOCAL lock_timeout = {limits.postgres_lock_s_max * 1000}".encode())
        installed, packaged = installed_version(connection), packaged_version()
        if installed is not None and installed.migration > packaged.migration:
            message = f"the schema has version {installed.migration}, which is newer than {packaged.migration}"
            raise error("E157", message, hint="Use a newer version of SMILE.")
        if installed is None:
            connection.execute("CREATE SCHEMA smile")
        else:
            _become_installer(connection)
        if installed != packaged:
            _apply(connection, installed, packaged)
        is_changed = configure_immediate(connection, immediate, address)
    if immediate is ImmediateWay.logical:
        is_changed |= create_slot(connection)
    return is_changed or installed != packaged


def _become_installer(connection: Connection[TupleRow]) -> None:
    """Everything in the schema has one owner, whoever upgrades it."""
    row = connection.execute("SELECT smile.installer(), smile.installer() <> current_user").fetchone()
    if row is not None and row[1]:
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(row[0])))


def _apply(connection: Connection[TupleRow], installed: SchemaVersion | None, packaged: SchemaVersion) -> None:
    for file in sql_files("migrations"):
        if installed is None or file.number > installed.migration:
            connection.execute(file.text)
    for file in sql_files("functions"):
        connection.execute(file.text)
    if installed is not None:
        connection.execute("SELECT smile.define_again()")
    settings = {"migration": str(packaged.migration), "digest": packaged.digest}
    for name, value in settings.items():
        connection.execute(
            "INSERT INTO smile.setting VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [name, value],
        )
    connection.execute(
        "INSERT INTO smile.setting VALUES ('message_key', %s), ('server_identifier', smile.server_identifier()) "
        "ON CONFLICT DO NOTHING",
        [secrets.token_hex(32)],
    )


def uninstall(connection: Connection[TupleRow], force: bool = False) -> None:
    """Removes the schema with its rules and streams. Refused if events would be lost, or if a service runs, unless
    `force` is set."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", _LOCK)
        if installed_version(connection) is None:
            raise error("E157", "the schema is not installed")
        connection.execute(f"SET LOCAL lock_timeout = {limits.postgres_lock_s_max * 1000}".encode())
        connection.execute("SET LOCAL client_min_messages = warning")
        connection.execute("LOCK TABLE smile.in_queue, smile.in_queue_unlogged IN ACCESS EXCLUSIVE MODE")
        is_served = connection.execute("SELECT NOT pg_try_advisory_xact_lock(%s, %s)", _SERVICE_LOCK).fetchone()
        if is_served == (True,) and not force:
            raise error("E162", "a service captures this database", hint="Stop it first, or use --force.")
        waiting = connection.execute("SELECT queue, events FROM smile.undelivered()").fetchall()
        if waiting and not force:
            counts = ", ".join(f"{events:,} in the queue {queue}" for queue, events in waiting)
            hint = "Let the service deliver them, or use --force to lose them."
            raise error("E157", f"events are not delivered: {counts}", hint=hint)
        connection.execute("DROP PUBLICATION IF EXISTS smile")
        slot = connection.execute("SELECT smile.slot_name()").fetchone()
        connection.execute("DROP SCHEMA smile CASCADE")
    if slot is not None:
        drop_slot(connection, slot[0])
