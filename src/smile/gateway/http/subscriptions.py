"""Durable subscriptions over HTTP: server-sent events, acknowledgements, the list, and dropping them."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from smile import limits
from smile.broker.subscriptions.durable_request import DurableRequest, check_scope, check_start
from smile.broker.subscriptions.durable_subscriptions import SubscriptionClaim
from smile.broker.subscriptions.position_store import SubscriptionKey
from smile.broker.subscriptions.selection import StreamSelection
from smile.errors import SmileError, error
from smile.gateway.access import Right
from smile.gateway.client_messages import decode_body
from smile.gateway.event_frames import open_events, read_events
from smile.gateway.gateway import Caller, Gateway
from smile.gateway.http.bodies import (
    WHERE_PREFIX,
    AcknowledgedBody,
    ChangesQuery,
    DroppedBody,
    DropQuery,
    DurableSubscriptionBody,
    DurableSubscriptionsBody,
    NoQuery,
    PositionBody,
    SubscriptionsQuery,
)
from smile.gateway.http.request import parse_count, parse_query, read_body
from smile.gateway.http.response import JsonResponse, encode, error_body
from smile.gateway.http.server_sent_events import EventStream, stream_changes
from smile.gateway.http.snapshots import TaskSubscriber, parse_values, select_prefix
from smile.knowledge.values.json import tick_json


async def stream_events(gateway: Gateway, request: Request) -> Response:
    """The events of a stream for a durable subscription, as server-sent events: each with the token that acknowledges
    it and all before it."""
    relation = request.path_params["stream"]
    gateway.require(request.user, Right.subscribe, relation)
    return await _open_events(gateway, request, relation)


async def stream_view(gateway: Gateway, request: Request) -> Response:
    """The view's rows, then its changes, as server-sent events: reset, change, progress, paused, end. With a name and a
    view that is a selection of a stream, its events."""
    relation = request.path_params["view"]
    gateway.require(request.user, Right.subscribe, relation)
    query = parse_query(request, ChangesQuery)
    delivers = query.get("deliver")
    if "name" not in query or delivers == "rows":
        return await stream_changes(gateway, request)
    if delivers is None and gateway.broker.subscriptions.find_selection(relation) is None:
        return await stream_changes(gateway, request)
    return await _open_events(gateway, request, relation)


class SseEvents(TaskSubscriber):
    """A client of a durable subscription that receives events."""

    def __init__(self, gateway: Gateway, caller: Caller, relation: str) -> None:
        super().__init__(gateway)
        self.caller, self.relation = caller, relation
        self.claim: SubscriptionClaim | None = None
        self.ended: SmileError | None = None
        gateway.add_subscriber(self)

    def end(self, problem: SmileError) -> None:
        self.ended = problem
        self.wake()

    def close(self) -> None:
        self._gateway.remove_subscriber(self)
        if self.claim is not None:
            self.claim.release()


async def _open_events(gateway: Gateway, request: Request, relation: str) -> Response:
    query = parse_query(request, ChangesQuery)
    if not query.get("name"):
        raise error("E093", "events are for durable subscriptions", hint="Give it a name: ?name=billing")
    scope, conditions = check_scope(query.get("scope", "local")), select_prefix(query, WHERE_PREFIX)
    if scope == "global":
        found = await gateway.read_log(lambda: gateway.broker.find_global(relation, {}))
        selection: StreamSelection | None = found.selection
    else:
        selection = gateway.broker.subscriptions.find_selection(relation)
    columns = selection.source.type.heading.columns if selection is not None else {}
    durable = DurableRequest(
        SubscriptionKey(request.user.principal, query["name"]),
        relation,
        parse_values(columns, conditions),
        query.get("resume") or None,
        check_start(query.get("start", "all")),
        max(1, parse_count(query.get("window", str(limits.durable_window_events)), "window", limits.window_max)),
        scope,
        query.get("filter", ""),
    )
    subscriber = SseEvents(gateway, request.user, relation)
    try:
        subscriber.claim = await gateway.read_log(
            lambda: open_events(gateway, request.user, durable, subscriber.wake, subscriber.end)
        )
    except BaseException:
        subscriber.close()
        raise
    subscriber.tables = subscriber.claim.tables
    return EventStream(_events(gateway, subscriber, subscriber.claim), subscriber)


async def _events(gateway: Gateway, subscriber: SseEvents, claim: SubscriptionClaim) -> AsyncIterator[bytes]:
    events = claim.events
    assert events is not None
    while not gateway.stopping:
        if subscriber.ended is not None:
            yield b"event: end\ndata: " + encode({"error": error_body(subscriber.ended)}) + b"\n\n"
            return
        try:
            frame = await gateway.read_log(lambda: read_events(gateway, events))
        except SmileError as problem:
            subscriber.ended = problem
            continue
        if frame is not None:
            gateway.counts["rows"] += len(frame.messages)
            yield frame.sse_body()
        elif not await subscriber.wait(limits.heartbeat_s):
            yield b": still here\n\n"


async def acknowledge(gateway: Gateway, request: Request) -> Response:
    """Acknowledge everything up to a token. It is stored when this is answered."""
    parse_query(request, NoQuery)
    body = decode_body(await read_body(request, gateway.settings.message_bytes_max), PositionBody)
    key = SubscriptionKey(request.user.principal, request.path_params["subscription"])
    stored = await gateway.read_log(lambda: gateway.broker.subscriptions.acknowledge(key, body.resume))
    return JsonResponse(AcknowledgedBody(await asyncio.wrap_future(stored, loop=gateway.loop)))


async def show_subscriptions(gateway: Gateway, request: Request) -> Response:
    """The caller's durable subscriptions."""
    query = parse_query(request, SubscriptionsQuery)
    principal = request.user.principal
    if query.get("all", "false") not in ("true", "false"):
        raise error("E093", f"all is true or false, not {query['all'][:100]!r}")
    if query.get("all") == "true":
        gateway.require(request.user, Right.admin)
        principal = None
    status = await gateway.read_log(lambda: gateway.broker.subscriptions.status(principal))
    bodies = [msgspec.convert(_with_ticks(fields), DurableSubscriptionBody) for fields in status.values()]
    return JsonResponse(DurableSubscriptionsBody(bodies))


def _with_ticks(fields: dict[str, object]) -> dict[str, object]:
    position = fields.get("position")
    if isinstance(position, dict):
        return {**fields, "position": {origin: tick_json(tick) for origin, tick in position.items()}}
    return fields


async def drop(gateway: Gateway, request: Request) -> Response:
    """Drop a durable subscription: its position is forgotten, and the log keeps nothing for it."""
    query = parse_query(request, DropQuery)
    principal = query.get("principal") or request.user.principal
    if principal != request.user.principal:
        gateway.require(request.user, Right.admin)
    name = request.path_params["subscription"]
    await gateway.read_log(lambda: gateway.broker.subscriptions.drop(SubscriptionKey(principal, name)))
    return JsonResponse(DroppedBody(name))
