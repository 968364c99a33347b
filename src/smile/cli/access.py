"""`smile token`, `grant`, `revoke` and `grants`: change or list a broker's tokens and grants, in its access file."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from smile.cli.exits import error_exit, load_settings
from smile.errors import SmileError
from smile.gateway.access import ACCESS_FILE, AccessDatabase, Grant, Right

DataOption = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="DIR", help="The broker's directory [default: SMILE_DATA, else from the settings file]."
    ),
]
ConfigOption = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="The broker's settings file, in TOML [default: SMILE_CONFIG]."),
]
RightArgument = Annotated[Right, typer.Argument(metavar="PUBLISH|SUBSCRIBE|READ|QUERY|ADMIN", case_sensitive=False)]
OnKeyword = Annotated[str, typer.Argument(metavar="ON")]
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A stream, a view, or '*' for all; for ADMIN it is program.")
]
PrincipalArgument = Annotated[str, typer.Argument(metavar="PRINCIPAL", help="The user or service; any name.")]


def token(
    principal: PrincipalArgument,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke all tokens of the principal instead.")] = False,
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """Create a token for a principal, and print it. Only its hash is stored, so it cannot be printed again.

    A token alone gives no rights; `smile grant` does.

    Example: smile token alice
    """
    with _open_accounts(data, config, create=not revoke) as accounts:
        if revoke:
            token_count = accounts.revoke_tokens(principal)
            print(f"smile: {principal}: {token_count} token{'s' * (token_count != 1)} revoked", file=sys.stderr)
        else:
            print(accounts.add_token(principal))


def grant(
    right: RightArgument,
    on: OnKeyword,
    name: NameArgument,
    to: Annotated[str, typer.Argument(metavar="TO")],
    principal: PrincipalArgument,
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """Give a principal a right: to publish to a stream, to read its events from the log, to subscribe to a view, or to
    administer the program.

    Example: smile grant SUBSCRIBE ON Matchable TO alice
    """
    _check_keywords(on, "ON", to, "TO")
    with _open_accounts(data, config, create=True) as accounts:
        is_new = accounts.grant(Grant(right, name, principal))
    print(f"smile: {right} ON {name} TO {principal}: {'granted' if is_new else 'was granted before'}", file=sys.stderr)


def revoke(
    right: RightArgument,
    on: OnKeyword,
    name: NameArgument,
    source: Annotated[str, typer.Argument(metavar="FROM")],
    principal: PrincipalArgument,
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """Revoke a right. A running broker ends the subscriptions that need it.

    Example: smile revoke SUBSCRIBE ON Matchable FROM alice
    """
    _check_keywords(on, "ON", source, "FROM", "TO")
    with _open_accounts(data, config) as accounts:
        was_granted = accounts.revoke(Grant(right, name, principal))
    print(
        f"smile: {right} ON {name} FROM {principal}: {'revoked' if was_granted else 'was not granted'}", file=sys.stderr
    )
    if not was_granted:
        raise typer.Exit(1)


def grants(data: DataOption = None, config: ConfigOption = None) -> None:
    """List all principals, with their grants and the number of their tokens.

    Example: smile grants
    """
    with _open_accounts(data, config) as accounts:
        snapshot = accounts.read_entries()
    principals = sorted({*snapshot.tokens.values(), *(g.principal for g in snapshot.grants)})
    for principal in principals:
        token_count = list(snapshot.tokens.values()).count(principal)
        print(f"{principal}: {token_count} token{'s' * (token_count != 1)}")
        for entry in sorted(g for g in snapshot.grants if g.principal == principal):
            print(f"  {entry.right} ON {entry.name}")


def _check_keywords(on: str, on_word: str, to: str, *to_words: str) -> None:
    if on.upper() != on_word or to.upper() not in to_words:
        raise typer.BadParameter(f"write: RIGHT {on_word} NAME {to_words[0]} PRINCIPAL")


@contextmanager
def _open_accounts(data: str | None, config: str | None, create: bool = False) -> Iterator[AccessDatabase]:
    """Opens the access file of the broker. An error is printed and ends the command."""
    path = Path(load_settings(config, data=data).data) / ACCESS_FILE
    try:
        accounts = AccessDatabase(path, create)
    except SmileError as problem:
        raise error_exit(problem) from None
    try:
        yield accounts
    except SmileError as problem:
        raise error_exit(problem) from None
    finally:
        accounts.close()


def register(app: typer.Typer) -> None:
    for command in (token, grant, revoke, grants):
        app.command()(command)
