"""`smile resume`: resumes a view that the broker has paused."""

from typing import Annotated

import typer

from smile.cli.client import CaOption, UrlOption, open_client


def resume(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The paused view.")],
    url: UrlOption = None,
    ca: CaOption = None,
) -> None:
    """Resume a view that the broker has paused because it could not be computed, and those paused with it.

    It continues from where it was paused. If the cause is still there, it is paused again; `smile status` shows why. If
    the broker requires tokens, the principal of SMILE_TOKEN needs ADMIN ON program.

    Example: smile resume Matchable
    """
    with open_client(url, ca) as client:
        client.resume(view)


def register(app: typer.Typer) -> None:
    app.command()(resume)
