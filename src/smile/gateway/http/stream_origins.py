"""The origins of a stream that has many: who they are, and to join again, leave and fence."""

from starlette.requests import Request
from starlette.responses import Response

from smile.errors import error
from smile.gateway.access import Right
from smile.gateway.gateway import Gateway
from smile.gateway.http.bodies import EndOriginQuery, NoQuery, OriginBody, OriginsBody
from smile.gateway.http.request import parse_query, parse_tick
from smile.gateway.http.response import JsonResponse
from smile.knowledge.values.json import tick_json


async def show_origins(gateway: Gateway, request: Request) -> Response:
    """Who the origins of a stream are, up to where each is known here, and which of them hold back what is final."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    return await _report(gateway, request.path_params["stream"])


async def join_again(gateway: Gateway, request: Request) -> Response:
    """A broker that has left the stream, or was fenced, asks the home to be another origin."""
    gateway.require(request.user, Right.admin)
    parse_query(request, NoQuery)
    stream = request.path_params["stream"]
    await gateway.run_in_thread(lambda: gateway.broker.origins.join(stream))
    return await _report(gateway, stream, 202)


async def end_origin(gateway: Gateway, request: Request) -> Response:
    """This broker leaves the stream. Or the home fences an origin that has failed for good."""
    gateway.require(request.user, Right.admin)
    query, origins = parse_query(request, EndOriginQuery), gateway.broker.origins
    fence, stream, origin = query.get("fence", "false"), request.path_params["stream"], request.path_params["origin"]
    if fence not in ("true", "false"):
        raise error("E093", f"fence: {fence[:100]!r} is neither true nor false")
    if fence == "true":
        at = parse_tick(query["at"], "at") if "at" in query else None
        await gateway.run_in_thread(lambda: origins.fence(stream, origin, at))
    else:
        await gateway.run_in_thread(lambda: origins.leave(stream, origin))
    return await _report(gateway, stream)


async def _report(gateway: Gateway, stream: str, status: int = 200) -> Response:
    report = await gateway.run_in_thread(lambda: gateway.broker.origins.report(stream))
    origins = [
        OriginBody(
            entry["origin"],
            entry["broker"],
            entry["state"],
            tick_json(entry["start"]),
            None if entry["end"] is None else tick_json(entry["end"]),
            None if entry["horizon"] < 0 else tick_json(entry["horizon"]),
            entry["holds_back"],
        )
        for entry in report["origins"]
    ]
    return JsonResponse(OriginsBody(stream, report["home"], report["origin"], report["version"], origins), status)
