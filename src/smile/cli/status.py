"""`smile status`: how a broker or a pipeline fares, for people, for programs and for Prometheus."""

import json
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smile.cli.client import CaOption, UrlOption, report_errors

if TYPE_CHECKING:
    from rich.table import Table

Json = dict[str, Any]

UNITS = {
    "events_per_second": "events/s",
    "changed_rows_per_second": "rows changed/s",
    "batches_per_second": "batches/s",
}


def pipeline_text(status: Json) -> str:
    """As a person reads it."""
    table = _new_table()
    age = time.time() - status["at"]
    table.add_row("views", ", ".join(status["views"]))
    table.add_row("as of", f"{age:.1f} s ago, batch {status['number']:,}")
    for name, unit in UNITS.items():
        table.add_row(unit, f"{status[name]:,.1f}")
    table.add_row("taken in", f"{status['events']:,} events in {status['batches']:,} batches")
    table.add_row("waiting", f"{status['waiting_events']:,} events, {status['waiting_bytes'] / 1e6:,.1f} MB")
    table.add_row("state", f"{status['state_bytes'] / 1e6:,.1f} MB in {status['partitions']} partitions")
    parts = status["batch_ms"]
    breakdown = ", ".join(f"{name} {parts[name]:,.0f}" for name in ("planning", "job", "kernels", "commit"))
    table.add_row("last batch", f"{parts['total']:,.0f} ms: {breakdown} (kernels are part of the job)")
    for stage, times in status["stage_ms"].items():
        table.add_row(f"stage {stage}", ", ".join(f"{name} {ms:,.1f} ms" for name, ms in times.items()))
    table.add_row("Spark", status["ui"] or "no page")
    return _render_table(table)


def _new_table() -> "Table":
    from rich.table import Table  # noqa: PLC0415  # it takes a while to load

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
    """In Prometheus' text format."""
    return "\n".join([*_metric_lines(status), ""])


def _metric_lines(status: Json) -> Iterator[str]:
    simple = {
        "events_total": ("counter", "events", "Events taken in."),
        "changed_rows_total": ("counter", "changed_rows", "Rows of views that changed."),
        "batches_total": ("counter", "batches", "Batches."),
        "events_per_second": ("gauge", "events_per_second", "Events taken in a second, of late."),
        "state_bytes": ("gauge", "state_bytes", "What is remembered."),
        "waiting_events": ("gauge", "waiting_events", "Events in the log that were not taken in yet."),
        "waiting_bytes": ("gauge", "waiting_bytes", "The same in bytes."),
    }
    for name, (kind, key, help_) in simple.items():
        yield f"# HELP smile_{name} {help_}"
        yield f"# TYPE smile_{name} {kind}"
        yield f"smile_{name} {status[key]}"
    yield "# HELP smile_batch_seconds The last batch, in parts; kernels are part of the job."
    yield "# TYPE smile_batch_seconds gauge"
    for part, ms in status["batch_ms"].items():
        yield f'smile_batch_seconds{{part="{part}"}} {ms / 1000}'
    yield "# HELP smile_stage_seconds The slowest task of each stage in the last batch, in parts."
    yield "# TYPE smile_stage_seconds gauge"
    for stage, times in status["stage_ms"].items():
        for part, ms in times.items():
            yield f'smile_stage_seconds{{stage="{stage}",part="{part}"}} {ms / 1000}'
    yield "# HELP smile_horizon_tick How far each stream is taken in."
    yield "# TYPE smile_horizon_tick gauge"
    for stream, tick in status["horizons"].items():
        yield f'smile_horizon_tick{{stream="{stream}"}} {tick}'


# ── a broker ────────────────────────────────────────────────────────────────────────────────────────────────────────


def broker_text(status: Json) -> str:
    """As a person reads it. What a broker tells besides is shown as it is."""
    from smile.cli.view_display import progress_text  # noqa: PLC0415

    table, now = _new_table(), status.get("at", time.time())
    for name in ("health", "program", "engine"):
        if name in status:
            table.add_row(name, str(status[name]))
    if "since" in status:
        table.add_row("running for", f"{now - status['since']:,.0f} s")
    for stream, of in status.get("streams", {}).items():
        if of.get("horizon") is not None:
            table.add_row(f"stream {stream}", f"known up to {progress_text({stream: int(of['horizon'])}, now)}")
    for view, of in status.get("views", {}).items():
        horizons = {stream: int(tick) for stream, tick in of.get("horizons", {}).items()}
        known = f", known up to {progress_text(horizons, now)}" if horizons else ""
        counts = f"{of['rows']:,} rows, {of['changed']:,} changed, {of['subscribers']:,} subscribers"
        table.add_row(f"view {view}", f"{counts}{known}")
    for part in ("publisher", "keeper"):
        scalars = {name: value for name, value in status.get(part, {}).items() if isinstance(value, int | float | str)}
        if scalars:
            table.add_row(part, ", ".join(f"{name} {_number_text(value)}" for name, value in scalars.items()))
    for warning in status.get("troubles", []):
        table.add_row("trouble", f"{now - warning['at']:,.0f} s ago: {warning['what']}")
    return _render_table(table)


def _number_text(value: object) -> str:
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
        StatusFormat, typer.Option("--as", help="For people, for programs, or for Prometheus.")
    ] = StatusFormat.text,
    url: UrlOption = None,
    ca: CaOption = None,
) -> None:
    """Show how a broker fares: what it runs, how far it knows, who subscribes. A broker that asks for a token is given
    SMILE_TOKEN, which needs the right ADMIN.

    With DIR, how a pipeline on Spark fares: how fast it is, where the time goes, how much it remembers, what waits.

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
    import asyncio  # noqa: PLC0415  # these take a while to load

    from smile.client.address import BrokerAddress  # noqa: PLC0415
    from smile.client.connection import http_get  # noqa: PLC0415

    with report_errors():
        path = "/metrics" if form is StatusFormat.prometheus else "/status"
        text = asyncio.run(http_get(BrokerAddress.resolve(url, ca=ca), path)).decode()
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
