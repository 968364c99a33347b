"""`smile status`: the status of a broker or a pipeline, as text, as JSON and for Prometheus."""

import json
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smile.cli.client import CaOption, UrlOption, report_errors
from smile.cli.routing import advertisement_text, subscription_text
from smile.client.value_text import float_text

if TYPE_CHECKING:
    from rich.table import Table

Json = dict[str, Any]

UNITS = {
    "events_per_second": "events/s",
    "changed_rows_per_second": "rows changed/s",
    "batches_per_second": "batches/s",
}


def pipeline_text(status: Json) -> str:
    """The status of a pipeline as text."""
    table = _new_table()
    age = time.time() - status["at"]
    table.add_row("views", ", ".join(status["views"]))
    table.add_row("as of", f"{age:.1f} s ago, batch {status['number']:,}")
    for name, unit in UNITS.items():
        table.add_row(unit, f"{status[name]:,.1f}")
    table.add_row("processed", f"{status['events']:,} events in {status['batches']:,} batches")
    table.add_row("waiting", f"{status['waiting_events']:,} events, {status['waiting_bytes'] / 1e6:,.1f} MB")
    table.add_row("state", f"{status['state_bytes'] / 1e6:,.1f} MB in {status['partitions']} partitions")
    parts = status["batch_ms"]
    breakdown = ", ".join(f"{name} {parts[name]:,.0f}" for name in ("planning", "job", "kernels", "commit"))
    table.add_row("last batch", f"{parts['total']:,.0f} ms: {breakdown} (kernels are part of the job)")
    for stage, times in status["stage_ms"].items():
        table.add_row(f"stage {stage}", ", ".join(f"{name} {ms:,.1f} ms" for name, ms in times.items()))
    table.add_row("Spark", status["ui"] or "no web interface")
    return _render_table(table)


def _new_table() -> "Table":
    from rich.table import Table  # noqa: PLC0415  # slow to import

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    return table


def _render_table(table: "Table") -> str:
    from rich.console import Console  # noqa: PLC0415

    console = Console(width=120)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip()


def prometheus_text(status: Json) -> str:
    """The status of a pipeline in Prometheus' text format."""
    from prometheus_client import generate_latest  # noqa: PLC0415  # slow to import

    from smile.gateway.metrics import PIPELINE_METRICS, StatusCollector  # noqa: PLC0415

    keys = {definition.path.partition(".")[0] for definition in PIPELINE_METRICS}
    values = {key: status[key] for key in keys}
    return generate_latest(StatusCollector(PIPELINE_METRICS, lambda: values)).decode()


# ── a broker ────────────────────────────────────────────────────────────────────────────────────────────────────────


def broker_text(status: Json) -> str:
    """The status of a broker as text. Numbers of the publisher and the maintainer are shown under their JSON keys."""
    from smile.cli.view_display import progress_text  # noqa: PLC0415

    table, now = _new_table(), status.get("at", time.time())
    for name in ("health", "program", "engine"):
        if name in status:
            table.add_row(name, str(status[name]))
    if "since" in status:
        table.add_row("running for", f"{now - status['since']:,.0f} s")
    for stream, stream_status in status.get("streams", {}).items():
        horizon = stream_status.get("horizon")
        if horizon is not None:
            table.add_row(f"stream {stream}", f"known up to {progress_text({stream: int(horizon)}, now)}")
    for view, view_status in status.get("views", {}).items():
        horizons = {stream: int(tick) for stream, tick in view_status.get("horizons", {}).items()}
        progress = f", known up to {progress_text(horizons, now)}" if horizons else ""
        progress += ", paused" if view_status.get("paused") else ""
        rows, changed, subscribers = (view_status[name] for name in ("rows", "changed", "subscribers"))
        table.add_row(f"view {view}", f"{rows:,} rows, {changed:,} changed, {subscribers:,} subscribers{progress}")
    for entry in status.get("waiting", []):
        what = f"for the description of {entry['of']}" if entry["brokers"] else f"{entry['of']} does not run"
        table.add_row("waiting", f"{what}{_problem_text({'problem': entry})}")
    for link in status.get("links", []):
        table.add_row(f"link {link['name']}", _link_text(link))
    for name, imported in status.get("imports", {}).items():
        table.add_row(f"import {name}", _import_text(imported, now))
    for entry in status.get("advertisements", []):
        table.add_row("advertisement", advertisement_text(entry))
    for entry in status.get("routed_subscriptions", []):
        table.add_row("global", subscription_text(entry))
    for relation, problem in status.get("routing_problems", {}).items():
        table.add_row(f"routed {relation}", f"{problem['code']}: {problem['message']}")
    for name, hosted in status.get("hosted", {}).items():
        table.add_row(f"host of {name}", _hosted_text(hosted))
    for name, subscription in status.get("subscriptions", {}).items():
        seen = "connected" if subscription["connected"] else f"last seen {subscription['seen_s']:,.0f} s ago"
        waiting = subscription.get("waiting_events")
        count = "" if waiting is None else f", {waiting:,} events waiting"
        table.add_row(
            f"subscription {name}", f"{subscription['delivers']} of {subscription['relation']}, {seen}{count}"
        )
    for kind, connectors in status.get("connectors", {}).items():
        for name, connector in connectors.items():
            table.add_row(f"{kind.removesuffix('s')} {name}", _connector_text(connector))
    if "postgres" in status:
        _add_database(table, status["postgres"])
    for key, label in (("publisher", "publisher"), ("keeper", "maintainer")):
        scalars = {name: value for name, value in status.get(key, {}).items() if isinstance(value, int | float | str)}
        if scalars:
            table.add_row(label, ", ".join(f"{name} {_number_text(value)}" for name, value in scalars.items()))
    for trouble in status.get("troubles", []):
        subject = f" {trouble['subject']}" if trouble["subject"] else ""
        age = f"{trouble['kind']}{subject} for {now - trouble['since']:,.0f} s"
        table.add_row("trouble", f"{age}: {trouble['code']}: {trouble['message']}")
    for warning in status.get("warnings", []):
        table.add_row("warning", f"{now - warning['at']:,.0f} s ago: {warning['what']}")
    return _render_table(table)


def _add_database(table: "Table", status: Json) -> None:
    for name, connection in status["connections"].items():
        state = f"{connection['state']} for {connection['for_s']:,.0f} s{_problem_text(connection)}"
        table.add_row(f"database, {name.replace('_', ' ')}", state)
    capture = status["capture"]
    held_up = "" if capture["held_up_by"] is None else f", held up: {capture['held_up_by']}"
    table.add_row(
        "capture",
        f"{capture['events']:,} events, {capture['waiting_events']:,} waiting, lag {capture['lag_s']:,.1f} s, oldest "
        f"transaction {capture['oldest_transaction_s']:,.1f} s, {capture['exceptions']:,} exceptions{held_up}",
    )
    for name, problem in status["type_problems"].items():
        table.add_row(f"event type {name}", problem)
    for name, subscription in status["database_subscriptions"].items():
        problem = "" if subscription["problem"] is None else f": {subscription['problem']}"
        evaluated = f"filter evaluated in the {subscription['evaluated_in']}"
        text = f"{subscription['stream']}, {subscription['delivered']:,} deliveries of the stream, {evaluated}{problem}"
        table.add_row(f"database subscription {name}", text)
    for name, view_table in status["view_tables"].items():
        problem = "" if view_table["problem"] is None else f": {view_table['problem']}"
        counts = f"{view_table['rows']:,} changed rows in {view_table['transactions']:,} transactions"
        table.add_row(f"table {name}", f"view {view_table['view']}, {counts}{problem}")


def _connector_text(connector: Json) -> str:
    if "stream" in connector:
        text = f"stream {connector['stream']}, {connector['events']:,} events"
        text += f", {connector['refused']:,} refused" if connector["refused"] else ""
        ignored = connector["reads"].get("ignored_files", 0)
        text += f", files of other kinds: {ignored:,}" if ignored else ""
    else:
        text = f"view {connector['view']}, {connector['rows']:,} changed rows in {connector['writes']:,} writes"
    behind = "" if connector["behind_s"] is None else f", up to date {connector['behind_s']:,.1f} s ago"
    letters = f", {connector['dead_letters']:,} dead letters" if connector["dead_letters"] else ""
    state = f"{connector['state']} for {connector['for_s']:,.0f} s"
    return f"{text}: {state}{behind}{letters}{_problem_text(connector)}"


def _link_text(link: Json) -> str:
    place = f"called at {link['address']}" if link["address"] else "has called"
    text = f"{link['state']} for {link['for_s']:,.0f} s, {place}"
    if link["state"] == "absent":
        return f"{text}, opened {link['opened']:,} times{_problem_text(link)}"
    flows = [
        f"{verb} {link[way]['rows_per_s']:,.0f} rows/s, {link[way]['bytes_per_s'] / 1e3:,.1f} kB/s"
        for verb, way in (("sends", "sent"), ("receives", "received"))
    ]
    delay = "" if link["delay_ms"] is None else f", delay {link['delay_ms']:,.1f} ms"
    questions = f"{link['questions_asked']:,} questions asked, {link['questions_answered']:,} answered"
    curious = [
        f"; curious about {name} for {c['for_s']:,.0f} s ({c['missing']})" for name, c in link["curious"].items()
    ]
    return f"{text}{delay}; {'; '.join(flows)}; {questions}{''.join(curious)}"


def _import_text(imported: Json, now: float) -> str:
    from smile.cli.view_display import progress_text  # noqa: PLC0415

    horizons = {stream: int(tick) for stream, tick in imported["horizons"].items()}
    progress = f", known up to {progress_text(horizons, now)}" if horizons else ""
    if imported["kind"] == "view" and len(horizons) > 1:
        each = [f"{stream} {progress_text({stream: tick}, now)}" for stream, tick in horizons.items()]
        progress += f" ({', '.join(each)})"
    gaps = f", {imported['gaps']:,} gap{'s' * (imported['gaps'] > 1)}" if imported["gaps"] else ""
    source = f"{imported['kind']} {imported['relation']} of {', '.join(imported['brokers'])}"
    links = "1 link" if imported["links"] == 1 else f"{imported['links']} links"
    state = f"{imported['state']} for {imported['for_s']:,.0f} s"
    return f"{source}: {state}, {links}{progress}{gaps}{_held_back_text(imported)}{_problem_text(imported)}"


def _hosted_text(hosted: Json) -> str:
    own = "no origin" if hosted["origin"] is None else f"origin {hosted['origin']}"
    text = f"{own}, home {hosted['home']}: {hosted['state']}{_held_back_text(hosted)}{_problem_text(hosted)}"
    sources = [f"{name} ({source['state']}{_problem_text(source)})" for name, source in hosted["sources"].items()]
    return f"{text}; other origins from {', '.join(sources)}" if sources else text


def _held_back_text(entry: Json) -> str:
    names = [f"{o['origin']} ({o['broker']})" for o in entry["origins"] if o["holds_back"]]
    return f", held back by origin {', '.join(names)}" if names else ""


def _problem_text(entry: Json) -> str:
    problem = entry["problem"]
    return "" if problem is None else f": {problem['code']}: {problem['message']}"


def _number_text(value: object) -> str:
    if isinstance(value, float):
        return float_text(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


# ── the command ─────────────────────────────────────────────────────────────────────────────────────────────────────


class StatusFormat(StrEnum):
    text = "text"
    json = "json"
    prometheus = "prometheus"


def status(
    state: Annotated[
        str | None, typer.Argument(metavar="[DIR]", help="The directory that was given to `smile replay --state`.")
    ] = None,
    form: Annotated[
        StatusFormat, typer.Option("--as", help="Text for people, JSON, or metrics for Prometheus.")
    ] = StatusFormat.text,
    url: UrlOption = None,
    ca: CaOption = None,
) -> None:
    """Show the status of a broker: its program, its horizons, its subscribers. If the broker requires tokens, the
    principal of SMILE_TOKEN needs ADMIN ON program.

    With DIR, show the status of a pipeline on Spark: its throughput, where the time goes, its state, its backlog.

    Example: smile status --as prometheus
    """
    if state is None:
        output = _broker_status(form, url, ca)
    elif url is not None or ca is not None:
        raise typer.BadParameter("--url and --ca are for brokers, DIR for a pipeline without one")
    else:
        output = _pipeline_status(form, state)
    with report_errors():
        print(output, flush=True)


def _broker_status(form: StatusFormat, url: str | None, ca: str | None) -> str:
    import asyncio  # noqa: PLC0415  # slow to import, as the following

    from smile.client.address import BrokerAddress  # noqa: PLC0415
    from smile.client.connection import http_request  # noqa: PLC0415

    with report_errors():
        path = "/metrics" if form is StatusFormat.prometheus else "/status"
        text = asyncio.run(http_request(BrokerAddress.resolve(url, ca=ca), "GET", path)).decode()
    return broker_text(json.loads(text)) if form is StatusFormat.text else text.rstrip("\n")


def _pipeline_status(form: StatusFormat, state: str) -> str:
    try:
        text = (Path(state) / "status.json").read_text()
        return {
            StatusFormat.text: pipeline_text,
            StatusFormat.json: lambda _: text,
            StatusFormat.prometheus: prometheus_text,
        }[form](json.loads(text))
    except (OSError, ValueError, KeyError, TypeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is damaged"
        print(f"smile: there is no status of a pipeline in {state}: {reason}", file=sys.stderr)
        raise typer.Exit(1) from None


def register(app: typer.Typer) -> None:
    app.command()(status)
