"""`smile status`: how a pipeline fares, for people and for Prometheus."""

import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

Json = dict[str, Any]

UNITS = {
    "events_per_second": "events/s",
    "changed_rows_per_second": "rows changed/s",
    "batches_per_second": "batches/s",
}


def shown(status: Json) -> str:
    """As a person reads it."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    age = time.time() - status["at"]
    table.add_row("views", ", ".join(status["views"]))
    table.add_row("as of", f"{age:.1f} s ago, batch {status['number']:,}")
    for name, unit in UNITS.items():
        table.add_row(unit, f"{status[name]:,.1f}")
    table.add_row("taken in", f"{status['events']:,} events in {status['batches']:,} batches")
    table.add_row("waiting", f"{status['waiting_events']:,} events, {status['waiting_bytes'] / 1e6:,.1f} MB")
    table.add_row("state", f"{status['state_bytes'] / 1e6:,.1f} MB in {status['partitions']} partitions")
    parts = status["batch_ms"]
    rest = ", ".join(f"{name} {parts[name]:,.0f}" for name in ("planning", "job", "kernels", "commit"))
    table.add_row("last batch", f"{parts['total']:,.0f} ms: {rest} (kernels are part of the job)")
    for stage, of in status["stage_ms"].items():
        table.add_row(f"stage {stage}", ", ".join(f"{name} {ms:,.1f} ms" for name, ms in of.items()))
    table.add_row("Spark", status["ui"] or "no page")
    console = Console(width=120)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip()


def prometheus(status: Json) -> str:
    """In Prometheus' text format."""
    return "\n".join([*_metrics(status), ""])


def _metrics(status: Json) -> Iterator[str]:
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
    for stage, of in status["stage_ms"].items():
        for part, ms in of.items():
            yield f'smile_stage_seconds{{stage="{stage}",part="{part}"}} {ms / 1000}'
    yield "# HELP smile_horizon_tick How far each stream is taken in."
    yield "# TYPE smile_horizon_tick gauge"
    for stream, tick in status["horizons"].items():
        yield f'smile_horizon_tick{{stream="{stream}"}} {tick}'
