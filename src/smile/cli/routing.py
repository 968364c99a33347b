"""`smile advertise`, `smile registry` and `smile link`: what a broker advertises, the global streams that it knows, and
the neighbours that it calls."""

import json
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import typer

from smile.cli.client import CaOption, UrlOption, report_errors
from smile.cli.graph_formats import hierarchy_dot, hierarchy_mermaid
from smile.errors import error

Json = dict[str, Any]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the other broker.")]


class RegistryFormat(StrEnum):
    text = "text"
    json = "json"
    graphviz = "graphviz"
    mermaid = "mermaid"


class ShownPublisher(NamedTuple):
    """A publisher in a diagram."""

    name: str
    condition: str
    is_producer: bool


links = typer.Typer(no_args_is_help=True, help="Show, add and drop links: the neighbours that a broker calls.")


def advertise(
    stream: Annotated[
        str | None, typer.Argument(metavar="[STREAM]", help="A stream that the broker publishes.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="CONDITION", help="Only events that satisfy it are for neighbours."),
    ] = None,
    producer: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="The name of a producer, if STREAM is a global stream."),
    ] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take the advertisement back.")] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
    ca: CaOption = None,
) -> None:
    """Advertise a stream to neighbours, so that they can subscribe to it globally; without STREAM, show what is known.

    Neighbours learn only of streams that they may subscribe to. With the setting `advertise`, which is the default, all
    streams of the program are advertised without a condition. If the broker requires tokens, the principal of
    SMILE_TOKEN needs ADMIN ON program.

    A global stream is advertised by its producers, each with a name and a condition on key columns.

    Example: smile advertise Prescriptions --where "controlled"
    """
    if stream is None and (where is not None or withdraw or producer is not None):
        raise typer.BadParameter("--where, --as and --withdraw need a STREAM")
    if where is not None and withdraw:
        raise typer.BadParameter("choose one of --where and --withdraw")
    path, body = "/advertisements", None
    if stream is not None:
        path = f"/streams/{quote(stream, safe='')}/advertisement"
        if withdraw and producer is not None:
            path += f"?producer={quote(producer, safe='')}"
        body = None if withdraw else json.dumps({"where": where, "producer": producer}).encode()
    method = "GET" if stream is None else "DELETE" if withdraw else "PUT"
    report = _call(method, path, body, url, ca)
    print(json.dumps(report) if as_json else advertisements_text(report), flush=True)


def registry(
    close: Annotated[
        str | None,
        typer.Option("--close", metavar="STREAM", help="Nobody but the producers that are known publishes it."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TICK", help="With --close: up to this tick, or `now`, and not for good."),
    ] = None,
    form: Annotated[
        RegistryFormat,
        typer.Option("--as", help="Text for people, JSON, or a diagram of the hierarchy for Graphviz or Mermaid."),
    ] = RegistryFormat.text,
    url: UrlOption = None,
    ca: CaOption = None,
) -> None:
    """Show the global streams that the broker knows, who publishes them, and the plans by which it receives them, with
    why each publisher is in a plan or not; or close a global stream, so that what depends on it becomes final.

    A diagram shows which republisher feeds from which publishers: along solid arrows by the plans that run, along
    dotted ones by others that are equally good.

    If the broker requires tokens, the principal of SMILE_TOKEN needs ADMIN ON program.

    Example: smile registry --close ntp --to now
    """
    if to is not None and close is None:
        raise typer.BadParameter("--to needs --close")
    if to not in (None, "now") and not str(to).isdigit():
        raise typer.BadParameter("--to is a tick, or now")
    if close is None:
        report = _call("GET", "/registry", None, url, ca)
    else:
        body = json.dumps({"to": to}).encode()
        report = _call("PUT", f"/registry/{quote(close, safe='')}/epoch", body, url, ca)
    explanation = _call("GET", "/registry/plans", None, url, ca)
    print(_registry_as(form, report, explanation), flush=True)


def _registry_as(form: RegistryFormat, report: Json, explanation: Json) -> str:
    if form is RegistryFormat.text:
        return registry_text(report, {plan["name"]: plan["publishers"] for plan in explanation["plans"]})
    if form is RegistryFormat.json:
        return json.dumps({**report, "explanation": explanation})
    publishers = [
        ShownPublisher(f"{p['name']}@{p['broker']}", p["where"], p["role"] == "producer")
        for stream in report["global_streams"]
        for p in stream["publishers"]
    ]
    names = {publisher.name for publisher in publishers}
    # A publisher may have come or gone between the two answers.
    arrows = [
        (a["source"], a["target"], a["runs"]) for a in explanation["hierarchy"] if {a["source"], a["target"]} <= names
    ]
    draw = hierarchy_dot if form is RegistryFormat.graphviz else hierarchy_mermaid
    return draw(arrows, publishers)


def registry_text(report: Json, reasons: Mapping[str, Mapping[str, str]]) -> str:
    """Global streams with their publishers, and plans with their sources and the reasons, a line each."""
    lines = []
    for stream in report["global_streams"]:
        columns = ", ".join(f"{name}: {data}" for name, data in stream["columns"].items())
        known = f"channel {', '.join(stream['channel'])}, registrations {stream['registrations']}"
        lines.append(f"{stream['stream']} ({columns}), {known}")
        for publisher in stream["publishers"]:
            problem = f": {publisher['problem']}" if publisher["problem"] else ""
            lines.append(
                f"  {publisher['role']} {publisher['name']} at {publisher['broker']}"
                f" where {publisher['where']}{problem}"
            )
        lines += [_closed_text(epoch) for epoch in (stream["closed"],) if epoch is not None]
        lines += [_closing_text(epoch) for epoch in stream["closing"]]
        lines += [f"  outside of the epoch: what {host} has published before its end" for host in stream["outside"]]
        lines += [f"  held back: {host} has the number of another broker" for host in stream["held_back"]]
    for plan in report["plans"]:
        kind = "republisher" if plan["republisher"] else "query"
        readers = "" if plan["republisher"] else f" of {', '.join(plan['views'])}"
        lines.append(
            f"{kind} {plan['name']}{readers}: {plan['stream']} where {plan['where']}, meta plan {plan['meta_plan']}"
        )
        lines += [f"  final with respect to epoch {plan['epoch']}"] * (plan["epoch"] is not None)
        for source in plan["sources"]:
            lines.append(f"  from {source['stream']} at {source['broker']}{_condition(source['where'])}")
        lines += [f"  absent: {s['stream']} at {s['broker']}{_condition(s['where'])}" for s in plan["absent"]]
        lines += [f"  ending: {s['stream']} at {s['broker']}{_condition(s['where'])}" for s in plan["ending"]]
        lines += [f"  problem: {plan['problem']}"] * (plan["problem"] is not None)
        explained = reasons.get(plan["name"], {})
        width = max(map(len, explained), default=0)
        lines += [f"    {name:{width}}  {reason}" for name, reason in explained.items()]
    return "\n".join(lines) or "the program has no global streams"


def _until(epoch: Json) -> str:
    return "for good" if epoch["for_good"] else f"up to tick {epoch['closed_to']}"


def _closed_text(epoch: Json) -> str:
    return f"  closed {_until(epoch)} as epoch {epoch['epoch']}: published by {', '.join(epoch['members'])} only"


def _closing_text(epoch: Json) -> str:
    waiting = ", ".join(epoch["waiting"]) or "nobody"
    return f"  being closed {_until(epoch)} as epoch {epoch['epoch']}: waits for {waiting}"


def _condition(where: str) -> str:
    return f" where {where}" if where else ""


def advertisements_text(report: Json) -> str:
    """Advertisements and global subscriptions, a line each."""
    lines = [advertisement_text(entry) for entry in report["advertisements"]]
    lines += [subscription_text(entry) for entry in report["subscriptions"]]
    return "\n".join(lines) or "nothing is advertised"


def advertisement_text(entry: Json) -> str:
    condition = f" where {entry['where']}" if entry["where"] else ""
    if entry["from"] is None:
        views = f", or {', '.join(entry['releases'])} to who may have only that" if entry["releases"] else ""
        return f"{entry['stream']}{condition}: published here{views}"
    reachable = "" if entry["reachable"] else ", not reachable now"
    return f"{entry['stream']}{condition}: of {', '.join(entry['hosts'])}, from {entry['from']}{reachable}"


def subscription_text(entry: Json) -> str:
    condition = f" where {entry['where']}" if entry["where"] else ""
    sources = [source or "here" for source in entry["from"]]
    return f"{entry['stream']}{condition}: subscribed globally, from {', '.join(sources)}"


@links.command("list")
def list_links(as_json: JsonOption = False, url: UrlOption = None, ca: CaOption = None) -> None:
    """List the neighbours that the broker calls. `smile status` shows whether their links are open.

    Example: smile link list
    """
    _print_links(_call("GET", "/links", None, url, ca), as_json)


@links.command()
def add(
    name: NameArgument,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Its URL, such as https://desk.example.org:7400.")],
    token_file: Annotated[
        str | None,
        typer.Option("--token-file", metavar="FILE", help="Has the token for this broker there; - is standard input."),
    ] = None,
    trust: Annotated[
        str | None, typer.Option("--trust", metavar="FILE", help="Certificates to trust for it, a file at the broker.")
    ] = None,
    url: UrlOption = None,
    ca: CaOption = None,
) -> None:
    """Add a link to another broker, or change one that was added. The broker stores it, and opens it at once.

    Links of the settings cannot be changed. If the broker requires tokens, the principal of SMILE_TOKEN needs ADMIN ON
    program.

    Example: smile link add desk https://desk.example.org:7400 --token-file desk.token
    """
    with report_errors():
        token = None if token_file is None else _read_token(token_file)
    body = json.dumps({"url": address, "token": token, "ca": trust}).encode()
    _print_links(_call("PUT", f"/links/{quote(name, safe='')}", body, url, ca), False)


@links.command()
def drop(name: NameArgument, url: UrlOption = None, ca: CaOption = None) -> None:
    """Drop a link that was added.

    Example: smile link drop desk
    """
    _print_links(_call("DELETE", f"/links/{quote(name, safe='')}", None, url, ca), False)


def _read_token(path: str) -> str:
    try:
        return (sys.stdin.read() if path == "-" else Path(path).read_text()).strip()
    except (OSError, UnicodeError) as problem:
        raise error(
            "E001", f"{path} cannot be read: {getattr(problem, 'strerror', None) or 'it is not text'}"
        ) from None


def _call(method: str, path: str, body: bytes | None, url: str | None, ca: str | None) -> Json:
    import asyncio  # noqa: PLC0415  # slow to import, as the following

    from smile.client.address import BrokerAddress  # noqa: PLC0415
    from smile.client.connection import http_request  # noqa: PLC0415

    with report_errors():
        request = http_request(BrokerAddress.resolve(url, ca=ca), method, path, body)
        answer: Json = json.loads(asyncio.run(request))
        return answer


def _print_links(report: Json, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report), flush=True)
        return
    for link in report["links"]:
        origin = "settings" if link["from_settings"] else "added"
        address = ", ".join(link["url"]) or "it calls"
        print(f"{link['name']}  {address}  {origin}{', with a token' if link['has_token'] else ''}", flush=True)


def register(app: typer.Typer) -> None:
    app.command()(advertise)
    app.command()(registry)
    app.add_typer(links, name="link")
