"""Keeps tables of the database equal to views. A transaction has everything between two progress marks of the view, and
its horizons: whoever reads the table sees a state that the view had, and which.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import msgspec
import psycopg
from psycopg import sql

from smile.broker.broker import Broker
from smile.broker.subscriptions.durable_request import DurableRequest
from smile.broker.subscriptions.durable_subscriptions import SubscriptionClaim
from smile.broker.subscriptions.position_store import SubscriptionKey
from smile.broker.views.condition import ViewCondition
from smile.broker.views.view import ViewFrame, ViewSubscription
from smile.encoding.json_changes import json_changes
from smile.errors import Diagnostic, SmileError, error
from smile.horizons import shown_horizons
from smile.kernels.row_encoding import decode_rows
from smile.postgres.capture.event_publisher import PRINCIPAL
from smile.postgres.catalogue import Catalogue, ViewTable
from smile.postgres.database import Connection
from smile.postgres.database_worker import DatabaseWorker
from smile.postgres.delivery.view_table_columns import ViewTableStatements, table_columns

FRAME_ROWS: Final = 1_000
WAIT_S: Final = 1.0
RETRY_STEPS: Final = 5
"""A table that cannot be maintained is tried again after so many waits."""

_log = logging.getLogger("smile.postgres")


@dataclass
class MaintainedTable:
    definition: ViewTable
    claim: SubscriptionClaim | None = None
    subscription: ViewSubscription | None = None
    statements: ViewTableStatements | None = None
    is_present: bool = False
    """Whether the table is there, with the columns that the view has now."""
    problem: Diagnostic | None = None
    wait_steps: int = 0
    transactions: int = 0
    rows: int = 0
    """Changed rows that were written."""

    def close(self) -> None:
        if self.subscription is not None:
            self.subscription.close()
        if self.claim is not None:
            self.claim.release()
        self.subscription = self.claim = self.statements = None


class ViewTables:
    """Thread-safe."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._lock = broker, Lock()
        self._tables: dict[int, MaintainedTable] = {}
        self.worker: DatabaseWorker | None = None

    def set_catalogue(self, catalogue: Catalogue) -> None:
        with self._lock:
            wanted = {t.id: t for t in catalogue.view_tables}
            for id_ in [i for i in self._tables if i not in wanted]:
                table = self._tables.pop(id_)
                table.close()
                self._drop_name(table.definition)
            for id_, definition in wanted.items():
                self._tables.setdefault(id_, MaintainedTable(definition))
        self.wake()

    def wake(self) -> None:
        if self.worker is not None:
            self.worker.wake()

    def close(self) -> None:
        with self._lock:
            for table in self._tables.values():
                table.close()

    def _drop_name(self, definition: ViewTable) -> None:
        try:
            self._broker.subscriptions.drop(_key(definition))
        except SmileError as problem:
            if problem.diagnostics[0].code != "E143":
                _log.warning("a name cannot be dropped", extra={"what": problem.message})

    # ── maintenance ─────────────────────────────────────────────────────────────────────────────────────────────────

    def work(self, worker: DatabaseWorker, connection: Connection) -> None:
        """Maintains all tables until the worker stops."""
        with self._lock:
            for table in self._tables.values():
                table.close()  # the position in the database decides where to go on
        while not worker.stopping.is_set():
            with self._lock:
                tables = list(self._tables.values())
            has_written = False
            for table in tables:
                has_written |= self._maintain(connection, table)
            worker.report_success()
            if not has_written:
                worker.wait(WAIT_S)

    def _maintain(self, connection: Connection, table: MaintainedTable) -> bool:
        """Writes the next changes of a view. An error of one table does not concern the others."""
        if table.wait_steps:
            table.wait_steps -= 1
            return False
        try:
            if table.subscription is None:
                self._open(connection, table)
            has_written = self._write_next(connection, table)
            table.problem = None
            return has_written
        except SmileError as problem:
            self._fail(table, problem)
        except psycopg.OperationalError:
            raise
        except psycopg.Error as problem:
            message = f"{table.definition.table_name} cannot be written: {str(problem).splitlines()[0]}"
            self._fail(table, error("E165", message))
        return False

    def _fail(self, table: MaintainedTable, problem: SmileError) -> None:
        table.close()
        if table.problem != problem.diagnostics[0]:
            fields = {"table": table.definition.table_name, "what": problem.message}
            _log.error("a table of a view is not maintained", extra=fields)
        table.problem, table.wait_steps = problem.diagnostics[0], RETRY_STEPS

    def _open(self, connection: Connection, table: MaintainedTable) -> None:
        definition = table.definition
        view = self._broker.view(self._find_name(definition.view))
        columns = table_columns(view.source.type, definition.with_knowledge)
        heading = view.source.type.heading
        nullable = frozenset(k for k in heading.key if view.source.type.columns[k].nullable)
        table.statements = ViewTableStatements(_identifier(connection, definition), columns, heading.key, nullable)
        token = self._find_table(connection, table)
        request = DurableRequest(_key(definition), view.name, {}, resume=token)
        table.claim, _ = self._broker.subscriptions.open_rows(request, lambda problem: self._end(table, problem))
        try:
            table.subscription = view.subscribe(ViewCondition(), self.wake, token)
        except SmileError as problem:
            if problem.diagnostics[0].code != "E094":
                raise
            table.subscription = view.subscribe(ViewCondition(), self.wake)

    def _find_name(self, name: str) -> str:
        """The view as the program spells it. The case of names does not matter."""
        views = self._broker.views
        return name if name in views else next((v for v in views if v.casefold() == name.casefold()), name)

    def _end(self, table: MaintainedTable, problem: SmileError) -> None:
        table.problem = problem.diagnostics[0]

    def _find_table(self, connection: Connection, table: MaintainedTable) -> str | None:
        """Where to go on; None if the table is to be created, because it is new, or the view has other columns now."""
        assert table.statements is not None
        definition = table.definition
        row = connection.execute(
            "SELECT v.resume, to_regclass(v.table_name)::oid, obj_description(to_regclass(v.table_name), 'pg_class') "
            "FROM smile.view_table AS v WHERE v.id = %s AND v.dropped_xid IS NULL",
            (definition.id,),
        ).fetchone()
        if row is None:
            raise error("E165", f"{definition.table_name} was dropped")
        token, oid, comment = row
        table.is_present = oid is not None and comment == _comment(definition, table.statements)
        if oid is not None and not (comment or "").startswith(_comment_prefix(definition)):
            message = f"there is a table {definition.table_name} that SMILE has not created"
            raise error("E165", message, hint="Drop it, or choose another name.")
        return str(token) if token and table.is_present else None

    def _create_table(self, connection: Connection, table: MaintainedTable) -> None:
        """Within the transaction that fills it: nobody sees it empty."""
        assert table.statements is not None
        statements, comment = table.statements, _comment(table.definition, table.statements)
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(statements.table))
        connection.execute(statements.create())
        index = statements.create_index()
        if index is not None:
            connection.execute(index)
        connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(statements.table, sql.Literal(comment)))
        (owner,) = connection.execute(
            "SELECT owner FROM smile.view_table WHERE id = %s", (table.definition.id,)
        ).fetchone() or (None,)
        if owner is not None:
            connection.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(statements.table, sql.Identifier(owner)))

    def _write_next(self, connection: Connection, table: MaintainedTable) -> bool:
        """Writes everything up to the next progress in one transaction. Returns whether there was anything."""
        subscription, statements = table.subscription, table.statements
        assert subscription is not None and statements is not None and table.claim is not None
        frame = subscription.next_frame(FRAME_ROWS)
        if frame is None:
            if subscription.ended is not None:
                raise subscription.ended
            return False
        with connection.transaction():
            if not table.is_present:
                self._create_table(connection, table)
            while True:
                self._write_frame(connection, statements, frame)
                table.rows += frame.row_count
                if frame.progress is not None:
                    break
                following = subscription.next_frame(FRAME_ROWS)
                if following is None:
                    raise error("E165", f"{table.definition.view} has no progress", hint="It is tried again.")
                frame = following
            horizons = {stream: str(tick) for stream, tick in shown_horizons(frame.progress).items()}
            connection.execute(
                "UPDATE smile.view_table SET resume = %s, horizons = %s::jsonb, refresh_time = clock_timestamp() "
                "WHERE id = %s",
                (frame.resume, json.dumps(horizons), table.definition.id),
            )
        table.is_present = True
        table.transactions += 1
        if frame.resume is not None:
            table.claim.acknowledge_rows(frame.resume).result()
        return True

    def _write_frame(self, connection: Connection, statements: ViewTableStatements, frame: ViewFrame) -> None:
        if frame.reset:
            connection.execute(statements.delete_all())
        if not frame.row_count:
            return
        delta = decode_rows(frame.source.layout, frame.rows)
        messages = list(json_changes(frame.source, delta, frame.horizons, include_hidden=True))
        changes = msgspec.json.encode(messages).decode()
        if not frame.reset:
            connection.execute(statements.delete_changed(), (changes,))
        connection.execute(statements.insert_changed(), (changes,))

    # ── status ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def problems(self) -> Sequence[tuple[str, Diagnostic]]:
        with self._lock:
            return [(t.definition.table_name, t.problem) for t in self._tables.values() if t.problem is not None]

    def status(self) -> Mapping[str, Any]:
        with self._lock:
            tables = list(self._tables.values())
        return {
            table.definition.table_name: {
                "view": table.definition.view,
                "transactions": table.transactions,
                "rows": table.rows,
                "problem": None if table.problem is None else table.problem.message,
            }
            for table in tables
        }


def _key(definition: ViewTable) -> SubscriptionKey:
    return SubscriptionKey(PRINCIPAL, f"table.{definition.id}")


def _identifier(connection: Connection, definition: ViewTable) -> sql.Composable:
    """The name of the table, with its schema."""
    row = connection.execute("SELECT parse_ident(%s)", (definition.table_name,)).fetchone()
    assert row is not None
    return sql.Identifier(*row[0]) if len(row[0]) > 1 else sql.Identifier("public", row[0][0])


def _comment_prefix(definition: ViewTable) -> str:
    return f"SMILE keeps it equal to the view {definition.view} ({definition.id})"


def _comment(definition: ViewTable, statements: ViewTableStatements) -> str:
    """What the table is, and its columns: it is created again when these change."""
    columns = ", ".join(f"{c.name} {c.type}" for c in statements.columns)
    return f"{_comment_prefix(definition)}: {columns}"
