"""`smile origins` and `smile origin`: the origins of a stream to which several brokers publish."""

import json
import time
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from smile.cli.client import CaOption, UrlOption, open_client

if TYPE_CHECKING:
    from smile.client import Client

StreamArgument = Annotated[str, typer.Argument(metavar="STREAM", help="A stream with many origins.")]
OriginArgument = Annotated[str, typer.Argument(metavar="ORIGIN", help="The number of the origin.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

commands = typer.Typer(
    no_args_is_help=True, help="Let this broker leave or join a stream with many origins, or fence another origin."
)


def origins(stream: StreamArgument, as_json: JsonOption = False, url: UrlOption = None, ca: CaOption = None) -> None:
    """Show who the origins of a stream are, up to where each is known at this broker, and who holds back what is final.

    If the broker requires tokens, the principal of SMILE_TOKEN needs ADMIN ON program.

    Example: smile origins Bids
    """
    with open_client(url, ca) as client:
        report = client.origins(stream)
    print(json.dumps(report) if as_json else origins_text(report, time.time()))


def origins_text(report: dict[str, Any], now: float) -> str:
    """The origins of a stream as text."""
    from smile.cli.view_display import progress_text  # noqa: PLC0415

    own = "no origin" if report["origin"] is None else f"origin {report['origin']}"
    lines = [f"{report['stream']}: home {report['home'] or '?'}, this broker is {own}"]
    for entry in report["origins"]:
        known = "nothing known" if entry["horizon"] is None else f"known up to tick {entry['horizon']}"
        if entry["horizon"] is not None and entry["state"] == "member":
            known += f" ({progress_text({report['stream']: int(entry['horizon'])}, now)})"
        end = "" if entry["end"] is None else f" at tick {entry['end']}"
        holds_back = ", holds back what is final" if entry["holds_back"] else ""
        lines.append(f"  {entry['origin']}  {entry['broker']}  {entry['state']}{end}, {known}{holds_back}")
    return "\n".join(lines)


@commands.command()
def leave(stream: StreamArgument, origin: OriginArgument, url: UrlOption = None, ca: CaOption = None) -> None:
    """Let this broker leave a stream: it publishes nothing more to it, and holds nothing back.

    ORIGIN must be its own number. If the broker requires tokens, the principal of SMILE_TOKEN needs ADMIN ON program.

    Example: smile origin leave Bids 2
    """
    with open_client(url, ca) as client:
        _print(client, "DELETE", _origin_path(stream, origin))


@commands.command()
def fence(
    stream: StreamArgument,
    origin: OriginArgument,
    at: Annotated[str | None, typer.Option("--at", metavar="TICK", help="The greatest tick that anybody has.")] = None,
    url: UrlOption = None,
    ca: CaOption = None,
) -> None:
    """Declare at the home of a stream that an origin, which has failed for good, has no events above a tick.

    Give the greatest tick that any broker has of it: `smile origins STREAM` says what each one has. What the failed
    origin has published above it is lost. If the broker requires tokens, the principal of SMILE_TOKEN needs ADMIN ON
    program.

    Example: smile origin fence Bids 3 --at 1838069663278470145
    """
    query = "?fence=true" + ("" if at is None else f"&at={quote(at, safe='')}")
    with open_client(url, ca) as client:
        _print(client, "DELETE", f"{_origin_path(stream, origin)}{query}")


@commands.command()
def join(stream: StreamArgument, url: UrlOption = None, ca: CaOption = None) -> None:
    """Let this broker, which has left a stream or was fenced, ask to be one of its origins again, with a new number.

    If the broker requires tokens, the principal of SMILE_TOKEN needs ADMIN ON program.

    Example: smile origin join Bids
    """
    with open_client(url, ca) as client:
        _print(client, "POST", f"/streams/{quote(stream, safe='')}/origins")


def _origin_path(stream: str, origin: str) -> str:
    return f"/streams/{quote(stream, safe='')}/origins/{quote(origin, safe='')}"


def _print(client: "Client", method: str, path: str) -> None:
    print(origins_text(client.change_origins(method, path), time.time()))


def register(app: typer.Typer) -> None:
    app.command()(origins)
    app.add_typer(commands, name="origin")
