"""The broker's status: for people and programs (`/status`), for Prometheus (`/metrics`), and for supervisors (`/live`,
`/ready`).
"""

from collections.abc import Mapping
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from smile.gateway.access import Right
from smile.gateway.gateway import Gateway
from smile.gateway.http.bodies import HealthBody, LiveBody, NoQuery
from smile.gateway.http.request import parse_query
from smile.gateway.http.response import JsonResponse
from smile.gateway.metrics import BROKER_METRICS, StatusCollector
from smile.knowledge.values.json import tick_json


async def status(gateway: Gateway, request: Request) -> Response:
    """The broker's status."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    return JsonResponse(status_json(await gateway.run_in_thread(lambda: gateway_status(gateway))))


async def live(gateway: Gateway, request: Request) -> Response:
    """Whether the broker's process works. If not, restart it."""
    parse_query(request, NoQuery)
    is_live = gateway.broker.is_live
    return JsonResponse(LiveBody(is_live), 200 if is_live else 503)


async def ready(gateway: Gateway, request: Request) -> Response:
    """Whether events can be published, and views follow."""
    parse_query(request, NoQuery)
    word = "stopping" if gateway.stopping else gateway.broker.health
    # Every caller may see this, so it has no names and no texts.
    kinds = sorted({str(trouble.kind) for trouble in gateway.broker.health_watch.report.troubles})
    return JsonResponse(HealthBody(word, kinds), 200 if word in ("ok", "degraded") else 503)


async def metrics(gateway: Gateway, request: Request) -> Response:
    """The same values for Prometheus."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    collector = StatusCollector(BROKER_METRICS, lambda: gateway_status(gateway), gateway.delays.all)
    text = await gateway.run_in_thread(lambda: generate_latest(collector))
    return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)


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
        "delays_ms": gateway.delays.recent_ms(),
    }
    return {**gateway.broker.status(), "gateway": own_status}


def status_json(data: Any) -> Any:
    """Ticks beyond 2^53 are text, as in all JSON of the broker."""
    if isinstance(data, Mapping):
        return {str(key): status_json(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [status_json(value) for value in data]
    return tick_json(data) if isinstance(data, int) and not isinstance(data, bool) else data
