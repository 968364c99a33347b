"""Runs what is typed: statements and the commands that begin with a backslash."""

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from smile import limits
from smile.cli.shell.broker import ShellBroker
from smile.cli.shell.database import ShellDatabase, read_view_of_table
from smile.cli.shell.routing import StatementPlace, TypedStatement, choose_place, last_statement, next_input
from smile.errors import SmileError, error, render
from smile.source import Source

HELP = r"""A statement ends with a semicolon. Its first words decide where it goes:
  to the broker    CREATE [GLOBAL] STREAM s (columns), CREATE VIEW, CREATE DOMAIN, CREATE REPUBLISHER, IMPORT,
                   DROP VIEW, ADVERTISE s WHERE … AS p: they change its program; without a database, CREATE
                   TABLE t (columns) and ADVERTISE s too
                   SUBSCRIBE v [WHERE column = value AND …]: the rows of a view and their changes, until Ctrl-C
                   SELECT … FROM r …, if r is a stream or view of the broker. SELECT * FROM v [WHERE column = value
                   AND …] [LIMIT n] shows a view; anything else is a query of its own, which needs the right QUERY
  to the database  everything else: PUBLISH, ADVERTISE, CREATE EVENT TYPE, CREATE SUBSCRIPTION s ON e, CREATE STREAM s
                   FROM TABLE t and the others of docs/postgres.md, and all SQL of PostgreSQL
  CREATE OR REPLACE VIEW goes to the database, and so does every SELECT from something else.
Commands:
  \d [NAME]  list streams, views, tables and event types, or the columns of one
  \i FILE    run the statements of a file
  \?         this help
  \q         end"""

_DEPTH_MAX = 20
"""Files that include each other."""


class Shell:
    """`write` prints a result. The first error of a text ends it."""

    def __init__(self, broker: ShellBroker, database: ShellDatabase | None, write: Callable[[str], None]) -> None:
        self._broker, self._database, self._write = broker, database, write
        self.is_ended = False
        """Whether \\q was typed."""
        self._depth = 0

    def feed(self, text: str) -> str:
        """Runs the complete statements and commands of a text, and returns the rest. Raises ShellError."""
        position = 0
        while not self.is_ended:
            typed, position = next_input(text, position)
            if typed is None:
                return text[position:]
            if isinstance(typed, str):
                self._run_command(typed)
            else:
                self._run_statement(typed)
        return ""

    def run_text(self, text: str) -> None:
        """Runs all of a text. Its last statement needs no semicolon."""
        rest = self.feed(text)
        if (typed := last_statement(rest, 0)) is not None:
            self._run_statement(typed)

    @property
    def is_in_transaction(self) -> bool:
        return self._database is not None and self._database.is_in_transaction

    def _run_statement(self, typed: TypedStatement) -> None:
        try:
            result = self._place(typed)
        except SmileError as problem:
            raise ShellError(problem, Source("statement", typed.text)) from None
        if result:
            self._write(result)

    def _place(self, typed: TypedStatement) -> str:
        views = self._fetch_relations() if typed.words(1) == ["SELECT"] else []
        if choose_place(typed, views, self._database is not None) is StatementPlace.BROKER:
            return self._broker.run(typed)
        if self._database is None:
            hint = "Start the shell with --database URL. \\? says which statements go to the broker."
            raise error("E161", "this statement is for a database, and the shell has none", hint=hint)
        result = self._database.run(typed.text)
        self._check_view(typed.text)
        return result

    def _check_view(self, text: str) -> None:
        """Warns of a table of a view that the broker does not have: the database cannot know it."""
        view = read_view_of_table(text)
        if view is None or self._database is None:
            return
        with suppress(SmileError):
            views = self._broker.fetch_views()
            if view.casefold() not in map(str.casefold, views):
                there = f"it has {', '.join(views)}" if views else "it has none"
                self._database.notify(f"the broker has no view {view}: {there}. The table appears when there is one.")

    def _fetch_relations(self) -> list[str]:
        """The streams and views of the broker. None if there is no broker: then every SELECT goes to the database."""
        try:
            return self._broker.fetch_names()
        except SmileError:
            if self._database is None:
                raise
            return []

    def _run_command(self, line: str) -> None:
        word, _, argument = line.strip().rstrip(";").partition(" ")
        argument = argument.strip()
        try:
            match word:
                case "\\q":
                    self.is_ended = True
                case "\\?":
                    self._write(HELP)
                case "\\d":
                    self._write(self._describe(argument))
                case "\\i":
                    self._include(argument)
                case _:
                    raise error("E161", f"there is no command {word}", hint="\\? lists the commands.")
        except SmileError as problem:
            raise ShellError(problem, Source("shell", "")) from None

    def _include(self, name: str) -> None:
        path = Path(name)
        try:
            if path.stat().st_size > limits.program_bytes_max:
                raise error("E003", f"{name} is too large")
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as problem:
            raise error("E001", f"{name} cannot be read: {problem}") from None
        if self._depth == _DEPTH_MAX:
            raise error("E012", f"{name} includes itself, or more than {_DEPTH_MAX} files include each other")
        self._depth += 1
        try:
            self.run_text(text)
        finally:
            self._depth -= 1

    def _describe(self, name: str) -> str:
        """The lists of names, or the columns of one."""
        relations = self.fetch_names()
        if not name:
            lines = [f"{kind}: {', '.join(names) or 'none'}" for kind, names in relations.items()]
            return "\n".join(lines)
        folded = name.strip('"').casefold()
        for kind, names in relations.items():
            for known, columns in names.items():
                if known.casefold() == folded:
                    return f"{kind.removesuffix('s')} {known}: {', '.join(columns) or 'columns unknown'}"
        raise error("E021", f"there is no {name} at the broker or in the database", hint="\\d lists the names.")

    def fetch_names(self) -> dict[str, dict[str, list[str]]]:
        """For each kind, the names and their columns. What cannot be reached has none."""
        names: dict[str, dict[str, list[str]]] = {"streams and views": {}, "tables": {}, "event types": {}}
        with suppress(SmileError):
            names["streams and views"] = self._broker.fetch_relations()
        if self._database is not None:
            tables = self._database.fetch_relations()
            names["tables"] = {table: [f"{c} {t}" for c, t in columns.items()] for table, columns in tables.items()}
            names["event types"] = {name: [] for name in self._database.fetch_event_types()}
        return names


class ShellError(Exception):
    """An error with the text that it is about."""

    def __init__(self, problem: SmileError, source: Source) -> None:
        super().__init__(problem.message)
        self.problem, self.source = problem, source

    def render(self) -> str:
        return render(self.problem.diagnostics, self.source)


def print_error(problem: ShellError) -> None:
    sys.stdout.flush()
    print(problem.render(), file=sys.stderr)
