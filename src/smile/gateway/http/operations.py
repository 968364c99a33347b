"""All operations of the HTTP interface. Routes (`app.py`) and the OpenAPI document are made from this table."""

from functools import cache
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from smile.broker.program_difference import ProgramDifference
from smile.gateway.gateway import Gateway
from smile.gateway.http import (
    exports,
    program,
    publish,
    snapshots,
    status,
    stream_origins,
    subscriptions,
)
from smile.gateway.http.bodies import (
    AcknowledgedBody,
    ApplyQuery,
    ChangeEvent,
    ChangesHeaders,
    ChangesQuery,
    DroppedBody,
    DropQuery,
    DurableSubscriptionsBody,
    EndOriginQuery,
    HealthBody,
    LiveBody,
    NoQuery,
    OriginsBody,
    PositionBody,
    ProgramBody,
    ProgramQuery,
    PublishedBody,
    PublishHeaders,
    ResumedBody,
    SilenceBody,
    SilentBody,
    SnapshotBody,
    SnapshotQuery,
    SubscriptionsQuery,
)
from smile.gateway.http.openapi import JSON, Json, Operation, openapi_document
from smile.gateway.http.request import parse_query
from smile.gateway.http.response import HttpError, JsonResponse

Object = dict[str, Any]

LINK_PATH: Final = "/link"


async def upgrade(_gateway: Gateway, _request: Request) -> Response:
    """A WebSocket: publish and subscribe on one connection, with one JSON object per message."""
    raise HttpError(426, "E093", "this path serves WebSockets only", "Request an upgrade to websocket.")


async def upgrade_link(gateway: Gateway, request: Request) -> Response:
    """A WebSocket between two brokers: the streams and views that they import from each other, as binary messages."""
    return await upgrade(gateway, request)


async def show_document(_gateway: Gateway, request: Request) -> Response:
    """This document."""
    parse_query(request, NoQuery)
    return JsonResponse(document())


@cache
def document() -> Json:
    return openapi_document(OPERATIONS)


OPERATIONS: Final = (
    Operation(
        "POST",
        "/streams/{stream}/events",
        "publish",
        publish.publish,
        {JSON: PublishedBody},
        headers=PublishHeaders,
        body={JSON: Object | list[Object], "application/x-ndjson": str, publish.ARROW: None},
        errors=(404, 409, 413, 415),
    ),
    Operation(
        "GET",
        "/streams/{stream}/events",
        "events",
        subscriptions.stream_events,
        {"text/event-stream": ChangeEvent},
        query=ChangesQuery,
        errors=(404, 409, 410),
    ),
    Operation(
        "POST",
        "/streams/{stream}/silence",
        "silence",
        publish.silence,
        {JSON: SilentBody},
        body={JSON: SilenceBody},
        errors=(404, 409, 413),
    ),
    Operation(
        "GET", "/streams/{stream}/origins", "origins", stream_origins.show_origins, {JSON: OriginsBody}, errors=(404,)
    ),
    Operation(
        "POST",
        "/streams/{stream}/origins",
        "joinAgain",
        stream_origins.join_again,
        {JSON: OriginsBody},
        status=202,
        errors=(404, 409),
    ),
    Operation(
        "DELETE",
        "/streams/{stream}/origins/{origin}",
        "endOrigin",
        stream_origins.end_origin,
        {JSON: OriginsBody},
        query=EndOriginQuery,
        errors=(404, 409),
    ),
    Operation(
        "POST",
        "/views",
        "addView",
        program.add_view,
        {JSON: ProgramDifference},
        status=201,
        body={"text/plain": str},
        errors=(409, 410, 413),
    ),
    Operation(
        "GET",
        "/views/{view}",
        "snapshot",
        snapshots.snapshot,
        {JSON: SnapshotBody, "application/x-ndjson": str, "text/csv": str, publish.ARROW: None},
        query=SnapshotQuery,
        errors=(404, 406, 410, 413, 504),
    ),
    Operation(
        "POST",
        "/views/{view}/resume",
        "resumeView",
        program.resume_view,
        {JSON: ResumedBody},
        status=202,
        errors=(404,),
    ),
    Operation("DELETE", "/views/{view}", "dropView", program.drop_view, {JSON: ProgramDifference}, errors=(404, 409)),
    Operation(
        "GET",
        "/views/{view}/changes",
        "changes",
        subscriptions.stream_view,
        {"text/event-stream": ChangeEvent},
        query=ChangesQuery,
        headers=ChangesHeaders,
        errors=(404, 409, 410),
    ),
    Operation(
        "GET",
        "/subscriptions",
        "subscriptions",
        subscriptions.show_subscriptions,
        {JSON: DurableSubscriptionsBody},
        query=SubscriptionsQuery,
    ),
    Operation(
        "POST",
        "/subscriptions/{subscription}/ack",
        "acknowledge",
        subscriptions.acknowledge,
        {JSON: AcknowledgedBody},
        body={JSON: PositionBody},
        errors=(404, 410, 413),
    ),
    Operation(
        "DELETE",
        "/subscriptions/{subscription}",
        "dropSubscription",
        subscriptions.drop,
        {JSON: DroppedBody},
        query=DropQuery,
        errors=(404,),
    ),
    Operation("GET", "/exports/{relation}", "export", exports.describe, {JSON: Object}, errors=(404,)),
    Operation(
        "GET",
        "/program",
        "program",
        program.show_program,
        {"text/plain": str, program.MMPL: str, JSON: ProgramBody},
        query=ProgramQuery,
    ),
    Operation(
        "PUT",
        "/program",
        "applyProgram",
        program.apply_program,
        {JSON: ProgramDifference},
        query=ApplyQuery,
        body={"text/plain": str, program.MMPL: str},
        errors=(409, 410, 413),
    ),
    Operation("GET", "/status", "status", status.status, {JSON: Object}),
    Operation("GET", "/metrics", "metrics", status.metrics, {"text/plain": str}),
    Operation(
        "GET",
        "/live",
        "live",
        status.live,
        {JSON: LiveBody},
        is_public=True,
        other_responses={503: ("The broker must be restarted.", {JSON: LiveBody})},
    ),
    *(
        Operation(
            "GET",
            path,
            name,
            status.ready,
            {JSON: HealthBody},
            is_public=True,
            other_responses={503: ("The broker cannot be used now.", {JSON: HealthBody})},
        )
        for path, name in (("/ready", "ready"), ("/health", "health"))
    ),
    Operation("GET", "/openapi.json", "openapi", show_document, {JSON: Object}, is_public=True),
    Operation("GET", "/ws", "webSocket", upgrade, {}, status=101, errors=(401, 426), is_public=True),
    Operation("GET", LINK_PATH, "link", upgrade_link, {}, status=101, errors=(401, 426), is_public=True),
)
