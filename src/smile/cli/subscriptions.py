"""`smile subscriptions`: lists durable subscriptions, and drops them."""

import json
from typing import Annotated, Any

import typer

from smile.cli.client import CaOption, UrlOption, report_errors

Json = dict[str, Any]


def subscriptions(
    drop: Annotated[
        str | None, typer.Option("--drop", metavar="NAME", help="Forget this one: the log keeps nothing for it.")
    ] = None,
    everybody: Annotated[
        bool, typer.Option("--all", help="Those of all principals; it needs ADMIN ON program.")
    ] = False,
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="NAME", help="For --drop: whose it is, if not your own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line, with the tokens.")] = False,
    url: UrlOption = None,
    ca: CaOption = None,
) -> None:
    """List durable subscriptions: how far each has acknowledged, and when it was connected last.

    If the broker requires a token, set SMILE_TOKEN: names belong to its principal.

    Example: smile subscriptions --drop billing
    """
    import asyncio  # noqa: PLC0415  # slow to import, as the following
    from urllib.parse import quote, urlencode  # noqa: PLC0415

    from smile.client.address import BrokerAddress  # noqa: PLC0415
    from smile.client.connection import http_request  # noqa: PLC0415

    if principal is not None and drop is None:
        raise typer.BadParameter("--principal is for --drop")
    with report_errors():
        address = BrokerAddress.resolve(url, ca=ca)
        if drop is not None:
            query = f"?{urlencode({'principal': principal})}" if principal is not None else ""
            asyncio.run(http_request(address, "DELETE", f"/subscriptions/{quote(drop, safe='')}{query}"))
            return
        path = f"/subscriptions{'?all=true' if everybody else ''}"
        listed: list[Json] = json.loads(asyncio.run(http_request(address, "GET", path)))["subscriptions"]
        lines = [json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in listed]
        print("\n".join(lines) if as_json else subscriptions_text(listed), flush=True)


def subscriptions_text(listed: list[Json]) -> str:
    if not listed:
        return "there are no durable subscriptions"
    return "\n".join(_line(entry) for entry in listed)


def _line(entry: Json) -> str:
    condition = f" with {json.dumps(entry['where'], ensure_ascii=False)}" if entry["where"] else ""
    condition += f" where {entry['filter']}" if entry.get("filter") else ""
    what = f"{entry['delivers']} of {entry['relation']}{condition}"
    seen = "connected" if entry["connected"] else f"last seen {entry['seen_s']:,.0f} s ago"
    parts = [f"{entry['principal']}/{entry['name']}: {what}, {seen}"]
    if "position" in entry:
        ticks = ", ".join(f"{tick} of origin {origin}" for origin, tick in entry["position"].items())
        parts.append(f"acknowledged up to {ticks}" if ticks else "nothing acknowledged")
    if "waiting_events" in entry:
        lag = "" if entry.get("lag_s") is None else f", {entry['lag_s']:,.1f} s behind"
        parts.append(f"{entry['waiting_events']:,} events waiting{lag}")
    if entry.get("gone"):
        parts.append("events that it lacks were removed from the log")
    return ", ".join(parts)


def register(app: typer.Typer) -> None:
    app.command()(subscriptions)
