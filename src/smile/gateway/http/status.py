"""The broker's status: for people and programs (`/status`), for Prometheus (`/metrics`), and for supervisors
(`/health`).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from smile.gateway.access import Right
from smile.gateway.gateway import Gateway
from smile.gateway.http.request import HttpRequest
from smile.gateway.http.response import HttpResponse, encode
from smile.knowledge.values.json import tick_json

PROMETHEUS: Final = b"text/plain; version=0.0.4; charset=utf-8"

_LABELS: Final = {"views": "view", "streams": "stream", "horizons": "stream", "refused": "code"}
"""Mappings whose keys are names: a metric has the name as a label."""


async def status(request: HttpRequest) -> HttpResponse:
    request.require(Right.admin)
    request.query(())
    return HttpResponse(encode(_to_json(await request.run_in_thread(lambda: gateway_status(request.gateway)))))


async def health(request: HttpRequest) -> HttpResponse:
    """One word, because every caller may see it."""
    request.query(())
    word = "stopping" if request.gateway.stopping else request.gateway.broker.health.partition(":")[0]
    return HttpResponse(encode({"health": word}), 200 if word == "ok" else 503)


async def metrics(request: HttpRequest) -> HttpResponse:
    request.require(Right.admin)
    request.query(())
    values = await request.run_in_thread(lambda: gateway_status(request.gateway))
    return HttpResponse("".join(f"{line}\n" for line in prometheus_lines(values)).encode(), 200, PROMETHEUS)


def gateway_status(gateway: Gateway) -> dict[str, Any]:
    counts = gateway.counts
    own_status = {
        "connections": gateway.connection_count(),
        "subscriptions": len(gateway.subscribers),
        "publications_pending": gateway.pending_publications.count,
        "requests": counts["requests"],
        "messages": counts["messages"],
        "events": counts["events"],
        "frames": counts["frames"],
        "rows": counts["rows"],
        "refused": dict(gateway.refusals),
    }
    return {**gateway.broker.status(), "gateway": own_status}


def prometheus_lines(values: Mapping[str, Any]) -> Iterator[str]:
    """Every number of the status, named by its path. The lines of one name are adjacent."""
    lines_by_name: dict[str, list[str]] = {}
    for name, labels, value in _metric_values(values, "smile", {}):
        label_text = ",".join(f'{label}="{_escape_label(text)}"' for label, text in labels.items())
        lines_by_name.setdefault(name, []).append(
            f"{name}{{{label_text}}} {value}" if label_text else f"{name} {value}"
        )
    for name, lines in lines_by_name.items():
        yield f"# TYPE {name} gauge"
        yield from lines


def _metric_values(
    values: Mapping[str, Any], name: str, labels: Mapping[str, str]
) -> Iterator[tuple[str, Mapping[str, str], int | float]]:
    for key, value in values.items():
        metric = f"{name}_{re.sub(r'[^a-zA-Z0-9_]', '_', str(key))}"
        if isinstance(value, bool):
            yield metric, labels, int(value)
        elif isinstance(value, int | float):
            yield metric, labels, value
        elif isinstance(value, Mapping) and key in _LABELS:
            singular = metric.removesuffix("s")
            for label, inner in value.items():
                if isinstance(inner, Mapping):
                    yield from _metric_values(inner, singular, {**labels, _LABELS[key]: str(label)})
                elif isinstance(inner, int | float):
                    yield singular, {**labels, _LABELS[key]: str(label)}, inner
        elif isinstance(value, Mapping):
            yield from _metric_values(value, metric, labels)


def _escape_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _to_json(data: Any) -> Any:
    """Ticks beyond 2^53 are text, as in all JSON of the broker."""
    if isinstance(data, Mapping):
        return {str(key): _to_json(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_to_json(value) for value in data]
    return tick_json(data) if isinstance(data, int) and not isinstance(data, bool) else data
