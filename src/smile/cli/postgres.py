"""`smile postgres`: a database as a publisher and a subscriber. Installs the schema, and shows its state."""

import json
from typing import Annotated

import typer

from smile.cli import postgres_proxy
from smile.cli.client import report_errors
from smile.postgres.immediate_way import ImmediateWay

commands = typer.Typer(no_args_is_help=True, help="Publish and subscribe in transactions of a PostgreSQL database.")

DatabaseArgument = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="The database, such as postgresql://user@host/database. A password may be in PGPASSWORD or ~/.pgpass.",
    ),
]


@commands.command()
def install(
    url: DatabaseArgument,
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing; exit code 1 if the schema is missing or of another version."),
    ] = False,
    immediate: Annotated[
        ImmediateWay | None,
        typer.Option("--immediate", help="How IMMEDIATE leaves a transaction [default: as it is, else auto]."),
    ] = None,
    immediate_connection: Annotated[
        str | None,
        typer.Option("--immediate-connection", metavar="CONNINFO", help="For dblink: how the server reaches itself."),
    ] = None,
) -> None:
    """Install the schema `smile` in a database, or upgrade it. Sessions that use it may run meanwhile.

    The role must be able to create schemas in the database.

    Example: smile postgres install postgresql://alice@localhost/shop
    """
    with report_errors():
        from smile.postgres.connection import open_database  # noqa: PLC0415  # slow to import, as the following
        from smile.postgres.schema.install import install as install_schema  # noqa: PLC0415
        from smile.postgres.schema.version import installed_version, packaged_version  # noqa: PLC0415

        with open_database(url) as connection:
            if check:
                installed, packaged = installed_version(connection), packaged_version()
                if installed != packaged:
                    print("not installed" if installed is None else f"another version: {installed.migration}")
                    raise typer.Exit(1)
                print(f"version {packaged.migration} is installed")
                return
            is_changed = install_schema(connection, immediate, immediate_connection)
            print(f"version {packaged_version().migration} {'is' if is_changed else 'was already'} installed")


@commands.command()
def uninstall(
    url: DatabaseArgument,
    force: Annotated[bool, typer.Option("--force", help="Lose events that are not delivered.")] = False,
) -> None:
    """Remove the schema `smile` from a database, with its rules and streams. Refused if events are not delivered yet.

    Stop the service before. Tables of views stay.

    Example: smile postgres uninstall postgresql://alice@localhost/shop
    """
    with report_errors():
        from smile.postgres.connection import open_database  # noqa: PLC0415
        from smile.postgres.schema.install import uninstall as uninstall_schema  # noqa: PLC0415

        with open_database(url) as connection:
            uninstall_schema(connection, force)
            print("the schema is removed")


@commands.command()
def status(
    url: DatabaseArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the version of the schema, what is in its catalogue, and the events that wait.

    It needs the role that installed the schema.

    Example: smile postgres status postgresql://alice@localhost/shop
    """
    with report_errors():
        from smile.postgres.connection import open_database  # noqa: PLC0415
        from smile.postgres.schema.status import read_status, status_text  # noqa: PLC0415

        with open_database(url) as connection:
            report = read_status(connection)
        print(json.dumps(report) if as_json else status_text(report))


postgres_proxy.register(commands)


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="postgres")
