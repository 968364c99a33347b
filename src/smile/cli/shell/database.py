"""The database of the shell: runs statements, and gives their results and errors as text."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from smile.cli.shell.tables import format_table
from smile.errors import CATALOGUE, Diagnostic, SmileError, error
from smile.postgres.statements.nodes import CreateViewTable
from smile.postgres.statements.parser import parse_statement
from smile.postgres.statements.rewriting import RewrittenQuery, rewrite_query
from smile.postgres.statements.splitter import split_statements
from smile.postgres.statements.translation import quote_literal, refused_values
from smile.source import Span

if TYPE_CHECKING:
    import psycopg

_RESULT_NAME = "smile_result"
_NUMBERS = {20, 21, 23, 26, 700, 701, 1700}
"""The types of numbers: int8, int2, int4, oid, float4, float8, numeric."""

_RELATIONS = """
    SELECT n.nspname, c.relname, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relkind IN ('r', 'v', 'm', 'f', 'p') AND pg_catalog.pg_table_is_visible(c.oid)
        AND n.nspname NOT IN ('pg_catalog', 'information_schema')
    ORDER BY n.nspname, c.relname, a.attnum
"""
_COLUMNS = """
    SELECT string_agg(format('%s %s', c ->> 'name', c ->> 'postgres_type'), ', ' ORDER BY n)
    FROM smile.event_types AS t CROSS JOIN jsonb_array_elements(t.columns) WITH ORDINALITY AS e(c, n)
    WHERE lower(t.name) = lower({name}) HAVING count(*) > 0
"""
_EVENT_TYPES = "SELECT name FROM smile.event_types ORDER BY name"


class ShellDatabase:
    """Each statement is its own transaction, unless BEGIN has opened one."""

    def __init__(self, url: str, print_notice: Callable[[str], None]) -> None:
        import psycopg  # noqa: PLC0415  # it takes a while to load

        try:
            self._connection = psycopg.connect(url, autocommit=True)
        except psycopg.Error as problem:
            message = " ".join(str(problem).split())
            hint = "Is the URL like postgresql://user@host/database? A password may be in PGPASSWORD or ~/.pgpass."
            raise error("E159", f"the database cannot be reached: {message}", hint=hint) from None
        self._print = print_notice
        self._connection.add_notice_handler(lambda notice: print_notice(f"{notice.severity}: {notice.message_primary}"))

    def close(self) -> None:
        self._connection.close()

    def notify(self, message: str) -> None:
        self._print(f"NOTICE: {message}")

    @property
    def is_in_transaction(self) -> bool:
        import psycopg  # noqa: PLC0415

        return self._connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE

    def run(self, text: str) -> str:
        """The result of a statement as text: a table, or the tag."""
        import psycopg  # noqa: PLC0415

        rewritten = rewrite_query(text, _RESULT_NAME)
        if rewritten is not None and rewritten.wrong:
            raise SmileError(rewritten.wrong[0].diagnostic)
        query = (text if rewritten is None else rewritten.query.text).encode()
        try:
            cursor = self._connection.cursor()
            if _copies_out(text):
                with cursor.copy(query) as copy:
                    return b"".join(copy).decode(errors="replace").removesuffix("\n")
            cursor.execute(query)
        except psycopg.Error as problem:
            raise self._explain(_statement_error(problem, rewritten, len(text)), rewritten) from None
        if rewritten is not None:
            return rewritten.tags[0]
        return _result_text(cursor)

    def _explain(self, problem: SmileError, rewritten: RewrittenQuery | None) -> SmileError:
        """Says which columns the event type of a PUBLISH has, if the values are not such."""
        (diagnostic,) = problem.diagnostics
        for translation in () if rewritten is None else rewritten.translations:
            name = translation.event_type
            if diagnostic.code != "42883" or name is None or diagnostic.span is None:
                continue
            if diagnostic.span.start == name.span.start:
                refused = refused_values(name, diagnostic.message)
                for (columns,) in self._fetch(_COLUMNS.format(name=quote_literal(name.text))):
                    refused = replace(refused, hint=f"{name.text} has the columns {columns}.")
                return SmileError(refused)
        return problem

    def fetch_relations(self) -> dict[str, dict[str, str]]:
        """The tables and views that need no schema in their name: their columns, and the types of these."""
        relations: dict[str, dict[str, str]] = {}
        for _, relation, column, type_name in self._fetch(_RELATIONS):
            relations.setdefault(relation, {})[column] = type_name
        return relations

    def fetch_event_types(self) -> list[str]:
        """Empty if the schema is not installed."""
        return [name for (name,) in self._fetch(_EVENT_TYPES)]

    def _fetch(self, query: str) -> list[tuple[Any, ...]]:
        """Nothing, if it cannot be read. An open transaction is left alone."""
        import psycopg  # noqa: PLC0415

        try:
            return [] if self.is_in_transaction else self._connection.execute(query.encode()).fetchall()
        except psycopg.Error:
            return []


def read_view_of_table(text: str) -> str | None:
    """The view of CREATE TABLE … FROM VIEW; None if it is another statement."""
    for statement in split_statements(text, True) or ():
        try:
            node = parse_statement(statement)
        except SmileError:
            return None
        if isinstance(node, CreateViewTable):
            return node.view.text
    return None


def _copies_out(text: str) -> bool:
    words = text.upper().split()
    return words[:1] == ["COPY"] and "STDOUT" in words


def _result_text(cursor: "psycopg.Cursor[tuple[Any, ...]]") -> str:
    if cursor.description is None:
        return cursor.statusmessage or ""
    result = cursor.pgresult
    assert result is not None
    rows = [[_cell(result.get_value(row, i)) for i in range(result.nfields)] for row in range(result.ntuples)]
    right = [column.type_code in _NUMBERS for column in cursor.description]
    return format_table([column.name for column in cursor.description], rows, right)


def _cell(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _statement_error(problem: "psycopg.Error", rewritten: RewrittenQuery | None, length: int) -> SmileError:
    """The server's error, with its position in the text that was typed. Its code is the SQLSTATE, or
    that of the catalogue."""
    diagnosis = problem.diag
    if diagnosis.sqlstate is None:
        return error("E159", " ".join(str(problem).split()))
    span = None
    if diagnosis.statement_position is not None:
        position = int(diagnosis.statement_position) - 1
        start = min(length, rewritten.query.original_position(position) if rewritten is not None else position)
        span = Span(start, start + 1)
    own_code = f"E{diagnosis.sqlstate[2:]}"
    is_own = diagnosis.sqlstate.startswith("SM") and own_code in CATALOGUE
    message = diagnosis.message_primary or str(problem)
    if diagnosis.message_detail:
        message += f": {diagnosis.message_detail}"
    return SmileError(Diagnostic(own_code if is_own else diagnosis.sqlstate, message, span, diagnosis.message_hint))
