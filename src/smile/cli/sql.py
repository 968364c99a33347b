"""`smile sql`: a shell for statements of a broker and of a database. It is interactive in a terminal."""

import sys
from typing import Annotated

import typer

from smile.cli.client import CaOption, UrlOption, report_errors


def sql(
    url: UrlOption = None,
    ca: CaOption = None,
    database: Annotated[
        str | None,
        typer.Option("--database", metavar="URL", help="A PostgreSQL database: postgresql://user@host/database."),
    ] = None,
    command: Annotated[
        list[str] | None, typer.Option("--command", "-c", metavar="SQL", help="Run this, and end; may be repeated.")
    ] = None,
) -> None:
    """Type statements: SmileSQL for a broker, and publish/subscribe statements and all other SQL for a database.

    A statement ends with a semicolon. \\? says which statements go where, and lists the commands. Without a terminal,
    statements are read from standard input. Then the first error ends it, with exit code 1.

    Example: smile sql --database postgresql://localhost/shop -c "PUBLISH StockQuote('IBM', 120)"
    """
    with report_errors():
        from smile.cli.shell.broker import ShellBroker  # noqa: PLC0415  # slow to import, as the following
        from smile.cli.shell.database import ShellDatabase  # noqa: PLC0415
        from smile.cli.shell.prompt import run_prompt  # noqa: PLC0415
        from smile.cli.shell.shell import Shell, ShellError, print_error  # noqa: PLC0415

        broker = ShellBroker(url, ca)
        opened = ShellDatabase(database, _print_notice) if database is not None else None
        shell = Shell(broker, opened, _print_result)
        try:
            if command is None and sys.stdin.isatty():
                run_prompt(shell)
                return
            for text in command if command is not None else [sys.stdin.read()]:
                shell.run_text(text)
        except ShellError as problem:
            print_error(problem)
            raise typer.Exit(1) from None
        finally:
            broker.close()
            if opened is not None:
                opened.close()


def _print_result(text: str) -> None:
    print(text, flush=True)


def _print_notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def register(app: typer.Typer) -> None:
    app.command()(sql)
