"""Durable subscriptions over Arrow Flight: batches of events, read from the log, and their acknowledgements.

The metadata of each batch has the token that acknowledges it and all before it. A frame of the subscription is one
batch, so nothing is sent beyond the window.
"""

import threading
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
import pyarrow as pa

from smile import limits
from smile.broker.subscriptions.durable_request import DurableRequest, Scope, Start
from smile.broker.subscriptions.durable_subscriptions import DurableSubscriptions
from smile.broker.subscriptions.position_store import SubscriptionKey
from smile.encoding.arrow_events import arrow_events, events_schema
from smile.errors import SmileError
from smile.gateway.access import Right
from smile.gateway.client_messages import JsonScalar
from smile.gateway.flight.calls import FlightCall, decode_message
from smile.gateway.flight.protocol import encode_batch, encode_schema

ACKNOWLEDGE: Final = "acknowledge"
"""The action that acknowledges events."""


class EventsTicket(msgspec.Struct, forbid_unknown_fields=True):
    """A request for the events of a stream, or of a selection of one, under a name."""

    events: str
    name: str
    where: dict[str, JsonScalar] = {}
    filter: str = ""
    resume: str | None = None
    start: Start = "all"
    window: Annotated[int, msgspec.Meta(ge=1, le=limits.window_max)] = limits.durable_window_events
    scope: Scope = "local"


class AcknowledgeRequest(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    resume: str


def subscribe_events(
    call: FlightCall, subscriptions: DurableSubscriptions, ticket: EventsTicket, wakers: set[threading.Event]
) -> Iterator[bytes]:
    """Delivers events until the client goes, or another one takes the name over. `wakers` are set when the broker
    stops."""
    call.require(Right.subscribe, ticket.events)
    key = SubscriptionKey(call.principal, ticket.name)
    request = DurableRequest(
        key, ticket.events, ticket.where, ticket.resume, ticket.start, ticket.window, ticket.scope, ticket.filter
    )
    for table in subscriptions.tables_of(request):
        call.require(Right.subscribe, table)
    waker, problems = threading.Event(), list[SmileError]()

    def end(problem: SmileError) -> None:
        problems.append(problem)
        waker.set()

    claim = subscriptions.open_events(request, waker.set, end)
    call.resources.callback(claim.release)
    wakers.add(waker)
    call.resources.callback(wakers.discard, waker)
    events = claim.events
    assert events is not None
    yield encode_schema(events_schema(events.selection.source))
    rows_max = limits.flight_rows_max
    while not problems:
        call.require_active()
        for relation in (ticket.events, *claim.tables):
            call.require(Right.subscribe, relation)
        frame = events.next_frame(rows_max)
        if frame is None:
            waker.wait(limits.flight_check_s)
            waker.clear()
            continue
        batch = arrow_events(frame.source, frame.rows, frame.ticks, frame.origins)
        rows_max = next_rows_max(rows_max, batch)
        yield encode_batch(batch, msgspec.json.encode({"n": frame.number, "resume": frame.resume}))
    raise problems[0]


def acknowledge_events(call: FlightCall, subscriptions: DurableSubscriptions, body: pa.Buffer) -> bytes:
    """Returns when the position is on the disk."""
    request = decode_message("the acknowledgement", body, AcknowledgeRequest)
    stored = subscriptions.acknowledge(SubscriptionKey(call.principal, request.name), request.resume)
    return msgspec.json.encode({"acknowledged": stored.result()})


def next_rows_max(rows: int, batch: pa.RecordBatch) -> int:
    """How many rows the next batch may have."""
    if not batch.num_rows or batch.nbytes <= limits.flight_batch_bytes:
        return min(limits.flight_rows_max, 2 * rows)
    return max(1, int(batch.num_rows * limits.flight_batch_bytes // batch.nbytes))
