"""The methods of Arrow Flight: clients publish and subscribe in batches, and tasks on other machines read the log.
Every call needs the right for what it does, and a batch is acknowledged when it is on the disk.

A call occupies a thread until it ends. A client that does not read costs no more than this thread and one batch.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final

import grpc
import msgspec
import pyarrow as pa
from pyarrow import flight

from smile import limits
from smile.algebra.types import TICK_MAX
from smile.broker.broker import Broker
from smile.broker.publishing.publication import Publication, PublishResult, SilencePublication
from smile.broker.views.view import ViewFrame, ViewSubscription
from smile.decoding.stream_schema import AbsentColumns
from smile.encoding.arrow_changes import arrow_schema
from smile.errors import SmileError, error, memory_error
from smile.gateway.access import Right
from smile.gateway.client_messages import JsonScalar, SequenceNumber
from smile.gateway.flight.calls import ClientGone, FlightCall, FlightCalls, decode_message
from smile.gateway.flight.events import (
    ACKNOWLEDGE,
    EventsTicket,
    acknowledge_events,
    next_rows_max,
    subscribe_events,
)
from smile.gateway.flight.log_reader import ACTIONS, FlightLogReader
from smile.gateway.flight.protocol import (
    SERVICE,
    encode_action_type,
    encode_batch,
    encode_put_result,
    encode_schema,
    flight_status,
    parse_flight_data,
)
from smile.gateway.flight.published_batches import ByteBudget, PublishedBatches
from smile.gateway.frames import frame_batch, progress_json
from smile.gateway.http.publish import producer_sequence, published_body
from smile.gateway.http.response import pause_body
from smile.gateway.rate_limiter import RateLimiter
from smile.horizons import END
from smile.knowledge.values.json import tick_json
from smile.log.storage.remote import LogRequest, LogTicket
from smile.settings import Settings

STREAMS: Final = "streams"
VIEWS: Final = "views"
SILENCE: Final = "silence"

logger = logging.getLogger("smile.gateway.flight")

Requests = Iterator[bytes]
Responses = Iterator[bytes]
Method = Callable[[FlightCall, Requests], Responses]

Tick = Annotated[int, msgspec.Meta(ge=0, le=TICK_MAX)]


class TicketKind(msgspec.Struct):
    """The fields that distinguish requests for the log and for events from one for a view."""

    log: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    events: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class ViewTicket(msgspec.Struct, forbid_unknown_fields=True):
    """A request for a view. Without `follow`, the answer ends with the current rows."""

    view: str
    where: dict[str, JsonScalar] = {}
    final: bool = False
    resume: str | None = None
    after: Annotated[dict[str, Tick], msgspec.Meta(max_length=limits.streams_named_max)] = {}
    follow: bool = False


class BatchSequence(msgspec.Struct, forbid_unknown_fields=True):
    """The metadata of a batch that may be sent again: the producer, and the sequence number of its first event."""

    producer: str
    seq: SequenceNumber


class SilenceRequest(msgspec.Struct, forbid_unknown_fields=True):
    stream: str
    to: Annotated[int, msgspec.Meta(ge=0, le=END)]


class FlightService(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    def __init__(self, broker: Broker, settings: Settings, calls: FlightCalls, event_limiter: RateLimiter) -> None:
        self._broker = broker
        self._settings = settings
        self._calls = calls
        self._event_limiter = event_limiter
        self._decoding = ByteBudget(limits.flight_decoding_bytes_max)
        self.log_reader = FlightLogReader()
        self._wakers: set[threading.Event] = set()
        self._methods: dict[str, Method] = {
            f"{SERVICE}ListFlights": self._list_flights,
            f"{SERVICE}GetFlightInfo": self._get_flight_info,
            f"{SERVICE}GetSchema": self._get_schema,
            f"{SERVICE}DoPut": self._do_put,
            f"{SERVICE}DoGet": self._do_get,
            f"{SERVICE}ListActions": self._list_actions,
            f"{SERVICE}DoAction": self._do_action,
            f"{SERVICE}DoExchange": self._do_exchange,
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Admits a call, before it has a thread and before its messages are read."""
        method = self._methods.get(handler_call_details.method)
        if method is None:
            return None
        try:
            call = self._calls.admit(handler_call_details.invocation_metadata)
        except SmileError as problem:
            return grpc.stream_stream_rpc_method_handler(partial(_refuse, problem))
        return grpc.stream_stream_rpc_method_handler(partial(self._respond, call, method))

    def wake_all(self) -> None:
        """Lets all subscriptions see that the broker is stopping."""
        for waker in list(self._wakers):
            waker.set()

    def close(self) -> None:
        """Call it when no call is in progress."""
        self.log_reader.close()

    def _respond(
        self, call: FlightCall, method: Method, requests: Requests, context: grpc.ServicerContext
    ) -> Responses:
        """gRPC always begins to iterate over the answer, so the call always ends."""
        call.context = context
        try:
            for response in method(call, requests):
                with call.waiting(limits.unread_s_max):
                    yield response
        except (ClientGone, grpc.RpcError):  # gRPC raises an error if the client goes while a message is expected
            return
        except SmileError as problem:
            _refuse(problem, requests, context)
        except MemoryError:
            _refuse(memory_error(), requests, context)
        except Exception:
            logger.exception("an Arrow Flight call failed")
            context.abort(grpc.StatusCode.INTERNAL, "the broker failed; its log says why")
        finally:
            self._calls.end(call)

    # ── descriptions ────────────────────────────────────────────────────────────────────────────────────────────────

    def _list_flights(self, call: FlightCall, _: Requests) -> Responses:
        streams = [name for name in self._broker.decoder.schemas if call.is_allowed(Right.publish, name)]
        views = [name for name in self._broker.views if call.is_allowed(Right.subscribe, name)]
        for info in [*map(self._stream_info, streams), *map(self._view_info, views)]:
            yield info.serialize()

    def _get_flight_info(self, call: FlightCall, requests: Requests) -> Responses:
        yield self._requested_info(call, requests).serialize()

    def _get_schema(self, call: FlightCall, requests: Requests) -> Responses:
        yield flight.SchemaResult(self._requested_info(call, requests).schema).serialize()

    def _requested_info(self, call: FlightCall, requests: Requests) -> flight.FlightInfo:
        kind, name = _parse_path(_first_request(call, requests))
        call.require(Right.publish if kind == STREAMS else Right.subscribe, name)
        return self._stream_info(name) if kind == STREAMS else self._view_info(name)

    def _stream_info(self, name: str) -> flight.FlightInfo:
        schema = self._broker.decoder.schema(name).published_schema
        return flight.FlightInfo(schema, flight.FlightDescriptor.for_path(STREAMS, name), [], -1, -1)

    def _view_info(self, name: str) -> flight.FlightInfo:
        view = self._broker.view(name)
        schema = arrow_schema(view.source)
        ticket = flight.Ticket(msgspec.json.encode({"view": name}))
        endpoints = [flight.FlightEndpoint(ticket, [])]
        return flight.FlightInfo(schema, flight.FlightDescriptor.for_path(VIEWS, name), endpoints, view.row_count, -1)

    # ── publishing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _do_put(self, call: FlightCall, requests: Requests) -> Responses:
        first = parse_flight_data(_first_request(call, requests))
        kind, name = _parse_path(bytes(first.descriptor))
        if kind != STREAMS:
            raise error("E093", f"{name} is not a stream", hint="Publish to the path streams, NAME.")
        call.require(Right.publish, name)
        bytes_max = self._settings.bulk_bytes_max
        batches = PublishedBatches(first, requests, bytes_max, self._decoding, call.require_active)
        call.resources.callback(batches.close)
        number = 1
        try:
            for batch, metadata in batches:
                call.require_active()
                call.require(Right.publish, name)
                result = self._publish_batch(call, name, batch, metadata)
                yield encode_put_result(msgspec.json.encode(published_body(result)))
                number += 1
        except SmileError as problem:
            raise _add_batch_number(number, problem) from None

    def _publish_batch(
        self, call: FlightCall, stream: str, batch: pa.RecordBatch, metadata: memoryview
    ) -> PublishResult:
        sequence = None
        if metadata:
            batch_sequence = decode_message("its metadata", metadata, BatchSequence)
            sequence = producer_sequence(call.principal, batch_sequence.producer, batch_sequence.seq)
        absent: AbsentColumns = {}
        rows = self._broker.decoder.decode_batch(stream, batch, absent)
        self._event_limiter.spend(call.principal, batch.num_rows)
        return self._publish_and_wait(call, Publication(stream, rows, sequence, absent))

    def _publish_and_wait(self, call: FlightCall, publication: Publication | SilencePublication) -> PublishResult:
        """Waits until the publication is on the disk, or the client has gone."""
        future = self._broker.publish(publication)
        while call.is_active:
            with suppress(TimeoutError):
                return future.result(limits.flight_check_s)
        raise ClientGone

    # ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _do_get(self, call: FlightCall, requests: Requests) -> Responses:
        ticket = _parse(flight.Ticket, _first_request(call, requests)).ticket
        kind = decode_message("the ticket", ticket, TicketKind)
        if kind.log is not msgspec.UNSET:
            request = decode_message("the ticket", ticket, LogTicket).log
            call.require_log_access({request.stream, *request.streams})
            schema, batches = self.log_reader.read(self._broker.log, request)
            yield encode_schema(schema)
            for batch in batches:
                yield encode_batch(batch, b"")
        elif kind.events is not msgspec.UNSET:
            events = decode_message("the ticket", ticket, EventsTicket)
            yield from subscribe_events(call, self._broker.subscriptions, events, self._wakers)
        else:
            yield from self._subscribe(call, decode_message("the ticket", ticket, ViewTicket))

    def _subscribe(self, call: FlightCall, ticket: ViewTicket) -> Responses:
        call.require(Right.subscribe, ticket.view)
        view = self._broker.view(ticket.view)
        if sum(v.subscriber_count for v in self._broker.views.values()) >= self._settings.subscriptions_max:
            raise error("E092", f"there are {self._settings.subscriptions_max:,} subscriptions already")
        waker = threading.Event()
        condition = view.condition(ticket.where, ticket.final)
        subscription = view.subscribe(condition, waker.set, ticket.resume, ticket.after)
        call.resources.callback(subscription.close)
        self._wakers.add(waker)
        call.resources.callback(self._wakers.discard, waker)
        yield encode_schema(arrow_schema(view.source))

        def check() -> None:
            call.require_active()
            call.require(Right.subscribe, ticket.view)

        for batch, metadata in _batches(subscription, waker, ticket.follow, check):
            yield encode_batch(batch, metadata)

    # ── actions ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _list_actions(self, _call: FlightCall, _requests: Requests) -> Responses:
        yield encode_action_type(SILENCE, "declare that a publisher-timed stream has no more events up to a tick")
        yield encode_action_type(ACKNOWLEDGE, "acknowledge the events of a durable subscription up to a token")
        for name, description in ACTIONS.items():
            yield encode_action_type(name, description)

    def _do_action(self, call: FlightCall, requests: Requests) -> Responses:
        action = _parse(flight.Action, _first_request(call, requests))
        if action.type in ACTIONS:
            request = decode_message("the request", action.body, LogRequest)
            call.require_log_access(request.streams)
            result = self.log_reader.answer(self._broker.log, action.type, request)
        elif action.type == SILENCE:
            silence = decode_message("the silence", action.body, SilenceRequest)
            call.require(Right.publish, silence.stream)
            self._publish_and_wait(call, SilencePublication(silence.stream, silence.to))
            result = msgspec.json.encode({"silent": tick_json(silence.to)})
        elif action.type == ACKNOWLEDGE:
            result = acknowledge_events(call, self._broker.subscriptions, action.body)
        else:
            hint = f"There are {SILENCE}, {ACKNOWLEDGE}, {', '.join(ACTIONS)}."
            raise error("E093", f"there is no action {action.type[:100]}", hint=hint)
        yield flight.Result(result).serialize()

    def _do_exchange(self, _call: FlightCall, _requests: Requests) -> Responses:
        raise error("E093", "DoExchange is not supported", hint="Publish with DoPut, subscribe with DoGet.")


def _refuse(problem: SmileError, _requests: Requests, context: grpc.ServicerContext) -> Responses:
    status = flight_status(problem)
    context.set_trailing_metadata(status.trailing_metadata)
    context.abort(status.code, status.details)
    raise AssertionError("abort raises an exception")


def _first_request(call: FlightCall, requests: Requests) -> bytes:
    with call.waiting(limits.request_s_max):
        request = next(requests, None)
    if request is None:
        raise error("E093", "the call has no request")
    return request


def _parse(kind: Any, message: bytes) -> Any:
    """A message of a type of pyarrow."""
    try:
        return kind.deserialize(message)
    except MemoryError:
        raise
    except (pa.ArrowException, ValueError, OSError):
        raise error("E093", "this is not a message of Arrow Flight") from None


def _parse_path(descriptor: bytes) -> tuple[str, str]:
    try:
        kind, name = (part.decode() for part in _parse(flight.FlightDescriptor, descriptor).path or ())
    except ValueError:
        kind, name = "", ""
    if kind not in (STREAMS, VIEWS):
        raise error("E093", "the descriptor is not a path of two parts", hint="Write streams, NAME or views, NAME.")
    return kind, name


def _add_batch_number(number: int, problem: SmileError) -> SmileError:
    first = problem.diagnostics[0]
    return error(first.code, f"batch {number}: {first.message}", hint=first.hint)


# ── frames ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _batches(
    subscription: ViewSubscription, waker: threading.Event, follow: bool, check: Callable[[], None]
) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    """Batches, each with its metadata."""
    rows_max = limits.flight_rows_max
    while True:
        check()
        frame = subscription.next_frame(rows_max)
        if frame is not None:
            batch = frame_batch(frame)
            rows_max = next_rows_max(rows_max, batch)
            yield batch, _frame_metadata(frame)
            if frame.progress is not None and not follow:
                return
        elif subscription.take_pause_change():
            no_rows = pa.RecordBatch.from_pylist([], arrow_schema(subscription.view.source))
            yield no_rows, msgspec.json.encode({"paused": pause_body(subscription.view.pause)})
        elif subscription.ended is not None:
            raise subscription.ended
        else:
            waker.wait(limits.flight_check_s)
            waker.clear()


def _frame_metadata(frame: ViewFrame) -> bytes:
    metadata: dict[str, Any] = {"reset": True} if frame.reset else {}
    if frame.progress is not None:
        metadata |= {"progress": msgspec.Raw(progress_json(frame)), "resume": frame.resume}
        metadata |= {"epochs": frame.epochs} if frame.epochs else {}
    return msgspec.json.encode(metadata)
