"""The broker of the shell: changes its program, and shows its views."""

import sys
from typing import TYPE_CHECKING, Any

from smile.cli.program_client import ProgramClient
from smile.cli.shell.routing import TypedStatement
from smile.cli.shell.tables import format_table
from smile.cli.subscribe import show_live, write_frames
from smile.client.address import BrokerAddress
from smile.errors import SmileError
from smile.lang.conditions import parse_condition
from smile.postgres.statements.nodes import SqlName
from smile.postgres.statements.token_cursor import SqlCursor
from smile.source import Source, Span

if TYPE_CHECKING:
    from smile.client import Client, Rows

SUBSCRIBE_HINT = "Write SUBSCRIBE view [WHERE column = value AND …]."
_RIGHT_KINDS = ("int", "decimal", "float", "time", "interval")


class ShellBroker:
    """It is connected when it is first needed: a shell may be used for a database alone."""

    def __init__(self, url: str | None, ca: str | None) -> None:
        self._address = BrokerAddress.resolve(url, ca=ca)
        self._programs = ProgramClient(self._address)
        self._client: Client | None = None

    def close(self) -> None:
        self._programs.close()
        if self._client is not None:
            self._client.close()

    @property
    def _connected(self) -> "Client":
        if self._client is None:
            from smile.client import connect  # noqa: PLC0415  # asyncio is slow to import

            self._client = connect(self._address.url, ca=self._address.ca)
        return self._client

    def run(self, typed: TypedStatement) -> str:
        """What there is to print. SUBSCRIBE prints until Ctrl-C."""
        match typed.words(2):
            case ["CREATE", "VIEW"]:
                self._programs.add_views(Source("statement", f"{typed.text};"))
                return "CREATE VIEW"
            case ["DROP", "VIEW"]:
                cursor = SqlCursor(typed.statement, 2)
                name = cursor.read_name("a view")
                cursor.expect_end()
                self._programs.drop_view(self._find_view(name))
                return "DROP VIEW"
            case ["SUBSCRIBE", *_]:
                return self._subscribe(typed)
            case ["SELECT", *_]:
                return self._select(typed)
        return self._add_to_program(typed)

    def _add_to_program(self, typed: TypedStatement) -> str:
        program = self._programs.fetch_program()
        separator = "" if not program or program.endswith("\n") else "\n"
        source = Source("program", f"{program}{separator}{typed.text};\n")
        offset = len(program) + len(separator)
        try:
            self._programs.apply_program(source)
        except SmileError as problem:
            raise _move_errors(problem, offset, len(typed.text)) from None
        match typed.words(3):
            case ["IMPORT" | "ADVERTISE" as word, *_]:
                return word
            case ["CREATE", "GLOBAL", kind]:
                return f"CREATE GLOBAL {kind}"
            case [*words]:
                return " ".join(words[:2])

    def _subscribe(self, typed: TypedStatement) -> str:
        cursor = SqlCursor(typed.statement, 1)
        view, condition = self._find_view(cursor.read_name("a view")), _read_condition(cursor, typed)
        try:
            if sys.stdout.isatty():
                show_live(self._connected, view, condition)
            else:
                with self._connected.subscribe(view, condition) as subscription:
                    write_frames(subscription)
        except KeyboardInterrupt:
            return ""
        return ""

    def _select(self, typed: TypedStatement) -> str:
        """A view as it is, or an ad-hoc query."""
        plain = self._plain_select(typed)
        if plain is None:
            view, after = self._programs.open_query(Source("statement", typed.text))
            known = {stream: tick for stream, tick in after.items() if tick >= 0}
            try:
                return _format_rows(self._connected.snapshot(view, after=known), None)
            finally:
                self._programs.close_query(view)
        view, condition, limit = plain
        return _format_rows(self._connected.snapshot(view, condition), limit)

    def _plain_select(self, typed: TypedStatement) -> tuple[str, dict[str, Any], int | None] | None:
        """The view, the condition and the limit of SELECT * FROM view [WHERE column = value AND …] [LIMIT n], which
        needs no query; None if it is something else."""
        cursor = SqlCursor(typed.statement, 1)
        try:
            for word in ("*", "FROM"):
                if not cursor.skip(word):
                    return None
            view = self._find_view(cursor.read_name("a view"))
            limit = _take_limit(cursor, typed)
            condition = _read_condition(cursor, typed, limit[0] if limit else None)
        except SmileError:
            return None
        is_known = view in self.fetch_views()
        return (view, condition, limit[1] if limit else None) if is_known else None

    def fetch_relations(self) -> dict[str, list[str]]:
        """Streams and views, and the columns of the program's relations as far as they are known here."""
        from smile.program import compile_program  # noqa: PLC0415  # slow to import

        program = self._programs.fetch_program()
        status = self._programs.fetch_status()
        names = [*status.get("streams", {}), *status.get("views", {})]
        try:
            compiled = compile_program(Source("program", program))
        except SmileError:  # it has imports, whose types only the broker has
            return {name: [] for name in names}
        written = {definition.name for definition in (*compiled.original.streams, *compiled.original.views)}
        relations = [relation for relation in compiled.graph.relations.values() if relation.name in written]
        known = {relation.name: list(relation.type.heading.visible) for relation in relations}
        return {name: known.get(name, []) for name in dict.fromkeys([*names, *known])}

    def _find_view(self, name: SqlName) -> str:
        """The view as the program spells it: the case of names does not matter."""
        spellings = {view.casefold(): view for view in self.fetch_views()}
        return spellings.get(name.text.casefold(), name.text)

    def fetch_names(self) -> list[str]:
        """The streams and subscribed views."""
        status = self._programs.fetch_status()
        return [*status.get("views", {}), *status.get("streams", {})]

    def fetch_views(self) -> list[str]:
        return list(self._programs.fetch_status().get("views", {}))


def _format_rows(rows: "Rows", limit: int | None) -> str:
    columns = rows.schema.columns
    cells: list[list[str | None]] = [[row.column_text(name) for name in columns] for row in rows.rows[:limit]]
    return format_table(list(columns), cells, [column.kind in _RIGHT_KINDS for column in columns.values()])


def _take_limit(cursor: SqlCursor, typed: TypedStatement) -> tuple[int, int] | None:
    """The index of the word LIMIT, if the statement ends with LIMIT n, and n."""
    indices = cursor.find_words("LIMIT")
    if not indices:
        return None
    limit = cursor.copy_at(indices[-1] + 1)
    span = limit.read_integer("a number of rows")
    limit.expect_end()
    return indices[-1], int(typed.text[span.start : span.end])


def _read_condition(cursor: SqlCursor, typed: TypedStatement, end: int | None = None) -> dict[str, Any]:
    """What follows the view up to the token with the index `end`, or to the end."""
    tokens = typed.statement.tokens
    last = len(tokens) if end is None else end
    if cursor.index == last:
        return {}
    if not cursor.is_at("WHERE"):
        raise cursor.unexpected("WHERE or the end of the statement", SUBSCRIBE_HINT)
    start, stop = tokens[cursor.index].start, tokens[last - 1].end
    try:
        return dict(parse_condition(Source("statement", typed.text[start:stop])))
    except SmileError as problem:
        raise _move_errors(problem, -start, len(typed.text)) from None


def _move_errors(problem: SmileError, offset: int, length: int) -> SmileError:
    """The errors with positions that are `offset` less. An error at another place of the program has none."""
    moved = []
    for diagnostic in problem.diagnostics:
        span = diagnostic.span
        if span is not None:
            start = span.start - offset
            span = Span(start, start + span.end - span.start) if 0 <= start <= length else None
        moved.append(type(diagnostic)(diagnostic.code, diagnostic.message, span, diagnostic.hint))
    return SmileError(moved)
