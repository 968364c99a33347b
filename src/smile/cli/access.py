"""`smile token`, `grant`, `revoke` and `grants`: they change, or show, what brokers look up, and need no broker."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from smile.cli.ends import ended, settings_of
from smile.errors import SmileError
from smile.gateway.access import FILE, Accounts, Grant, Right

Data = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="DIR", help="The broker's directory. Else as SMILE_DATA or the file of settings say."
    ),
]
Config = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="The broker's settings (TOML). Else SMILE_CONFIG.")
]
RightArgument = Annotated[Right, typer.Argument(metavar="PUBLISH|SUBSCRIBE|ADMIN", case_sensitive=False)]
On = Annotated[str, typer.Argument(metavar="ON")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A stream, a view, or '*' for all; program for ADMIN.")]
Principal = Annotated[str, typer.Argument(metavar="PRINCIPAL", help="Who: a name that you choose.")]


def token(
    principal: Principal,
    revoke: Annotated[bool, typer.Option("--revoke", help="All tokens of the principal stop working.")] = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """Make a new token for a principal, and print it: this once, since only its hash is kept.

    A token lets nobody do anything by itself; `smile grant` does.

    Example: smile token alice
    """
    with _accounts(data, config, make=not revoke) as accounts:
        if revoke:
            number = accounts.revoke_tokens(principal)
            print(f"smile: {principal}: {number} token{'s' * (number != 1)} revoked", file=sys.stderr)
        else:
            print(accounts.add_token(principal))


def grant(
    right: RightArgument,
    on: On,
    name: Name,
    to: Annotated[str, typer.Argument(metavar="TO")],
    principal: Principal,
    data: Data = None,
    config: Config = None,
) -> None:
    """Give a principal a right: to publish to a stream, to subscribe to a view, or to administer the program.

    Example: smile grant SUBSCRIBE ON Matchable TO alice
    """
    _words(on, "ON", to, "TO")
    with _accounts(data, config, make=True) as accounts:
        new = accounts.grant(Grant(right, name, principal))
    print(f"smile: {right} ON {name} TO {principal}: {'granted' if new else 'was granted before'}", file=sys.stderr)


def revoke(
    right: RightArgument,
    on: On,
    name: Name,
    source: Annotated[str, typer.Argument(metavar="FROM")],
    principal: Principal,
    data: Data = None,
    config: Config = None,
) -> None:
    """Take a right away; a running broker ends what it let the principal do.

    Example: smile revoke SUBSCRIBE ON Matchable FROM alice
    """
    _words(on, "ON", source, "FROM", "TO")
    with _accounts(data, config) as accounts:
        there = accounts.revoke(Grant(right, name, principal))
    print(f"smile: {right} ON {name} FROM {principal}: {'revoked' if there else 'was not granted'}", file=sys.stderr)
    if not there:
        raise typer.Exit(1)


def grants(data: Data = None, config: Config = None) -> None:
    """List all grants, and of each principal how many tokens it has.

    Example: smile grants
    """
    with _accounts(data, config) as accounts:
        known = accounts.known()
    principals = sorted({*known.tokens.values(), *(g.principal for g in known.grants)})
    for principal in principals:
        number = list(known.tokens.values()).count(principal)
        print(f"{principal}: {number} token{'s' * (number != 1)}")
        for each in sorted(g for g in known.grants if g.principal == principal):
            print(f"  {each.right} ON {each.name}")


def _words(on: str, on_word: str, to: str, *to_words: str) -> None:
    if on.upper() != on_word or to.upper() not in to_words:
        raise typer.BadParameter(f"write: RIGHT {on_word} NAME {to_words[0]} PRINCIPAL")


@contextmanager
def _accounts(data: str | None, config: str | None, make: bool = False) -> Iterator[Accounts]:
    """The file of the broker that is meant; or what is wrong with it, and the end."""
    path = Path(settings_of(config, data=data).data) / FILE
    try:
        accounts = Accounts(path, make)
    except SmileError as problem:
        raise ended(problem) from None
    try:
        yield accounts
    except SmileError as problem:
        raise ended(problem) from None
    finally:
        accounts.close()


def register(app: typer.Typer) -> None:
    for command in (token, grant, revoke, grants):
        app.command()(command)
