"""The Arrow Flight server: clients publish and subscribe in batches, and tasks on other machines read the log. Every
call needs the right for what it does, and a batch is acknowledged when it is on the disk.

A call occupies a thread until it ends. A client that does not read costs no more than this thread and one batch.
"""

import logging
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
from pyarrow import flight

from smile import limits
from smile.broker.broker import Broker
from smile.broker.publishing.publication import Publication, PublishResult, SilencePublication
from smile.broker.views.view import ViewFrame, ViewSubscription
from smile.decoding.stream_schema import TICK_MAX
from smile.encoding.arrow_changes import arrow_schema
from smile.errors import SmileError, error
from smile.gateway.access import Access, Right
from smile.gateway.flight.calls import (
    CALL_MIDDLEWARE,
    FlightCall,
    FlightCallFactory,
    decode_message,
    report_errors,
    report_stream_errors,
)
from smile.gateway.flight.log_reader import ACTIONS, FlightLogReader
from smile.gateway.flight.proxy import FlightProxy
from smile.gateway.frames import frame_batch, progress_json
from smile.gateway.http.publish import producer_sequence, published_body
from smile.gateway.rate_limiter import RateLimiter
from smile.horizons import END
from smile.knowledge.values.json import tick_json
from smile.log.storage.remote import LogTicket
from smile.settings import Settings, parse_address

STREAMS: Final = "streams"
VIEWS: Final = "views"
SILENCE: Final = "silence"
_OVERSIZE_FACTOR: Final = 2
"""A batch that is too large is refused with its size and number; beyond this factor the connection is ended."""

logger = logging.getLogger("smile.gateway.flight")


SequenceNumber = Annotated[int, msgspec.Meta(ge=0, le=limits.sequence_max)]
Tick = Annotated[int, msgspec.Meta(ge=0, le=TICK_MAX)]


class ViewTicket(msgspec.Struct, forbid_unknown_fields=True):
    """A request for a view. Without `follow`, the answer ends with the current rows."""

    view: str
    where: dict[str, str | int | float | bool | None] = {}
    resume: str | None = None
    after: dict[str, Tick] = {}
    follow: bool = False


class BatchSequence(msgspec.Struct, forbid_unknown_fields=True):
    """The metadata of a batch that may be sent again: the producer, and the sequence number of its first event."""

    producer: str
    seq: SequenceNumber


class SilenceRequest(msgspec.Struct, forbid_unknown_fields=True):
    stream: str
    to: Annotated[int, msgspec.Meta(ge=0, le=END)]


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves from its creation until `stop`."""

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        access: Access,
        request_limiter: RateLimiter,
        event_limiter: RateLimiter,
    ) -> None:
        """The limiters apply to a principal's requests and events on all interfaces together."""
        self._broker = broker
        self._settings = settings
        self._event_limiter = event_limiter
        self._log_reader = FlightLogReader()
        self._wakers: set[threading.Event] = set()
        self.calls = FlightCallFactory(access, request_limiter, broker.log_token)
        tls = _tls_context(settings)
        # gRPC itself listens on a socket that only this process uses.
        self._directory = tempfile.TemporaryDirectory(prefix="smile-")
        inner_path = f"{self._directory.name}/flight"
        super().__init__(f"grpc+unix://{inner_path}", middleware={CALL_MIDDLEWARE: self.calls})
        host, port = parse_address(settings.flight)
        try:
            bytes_max = _OVERSIZE_FACTOR * max(settings.bulk_bytes_max, limits.flight_request_bytes_max)
            self.proxy = FlightProxy((host, port), inner_path, tls, bytes_max, settings.connections_max)
        except OSError as problem:
            self.shutdown()
            self._directory.cleanup()
            reason = problem.strerror or str(problem)
            raise error("E106", f"Arrow Flight cannot listen on {settings.flight}: {reason}") from None
        shown_host = f"[{host}]" if ":" in host else host
        self.location = f"{'grpc+tls' if settings.tls else 'grpc'}://{shown_host}:{self.proxy.port}"

    def stop(self) -> None:
        """Ends subscriptions, acknowledges batches in progress, and disconnects clients that do not read."""
        if self.calls.stopping.is_set():
            return
        self.calls.stopping.set()
        self.proxy.stop_listening()
        for waker in list(self._wakers):
            waker.set()
        shutdown_thread = threading.Thread(target=self.shutdown, name="flight-stop", daemon=True)
        shutdown_thread.start()
        shutdown_thread.join(limits.flight_stop_s_max)
        self.proxy.stop()
        shutdown_thread.join(limits.flight_stop_s_max)
        if shutdown_thread.is_alive():
            logger.error("Arrow Flight calls do not end", extra={"calls": self.calls.count})
        self._log_reader.close()
        self._directory.cleanup()

    # ── descriptions ────────────────────────────────────────────────────────────────────────────────────────────────

    @report_errors
    def list_flights(self, context: flight.ServerCallContext, criteria: bytes) -> list[flight.FlightInfo]:
        call = _current_call(context)
        streams = [name for name in self._broker.decoder.schemas if call.is_allowed(Right.publish, name)]
        views = [name for name in self._broker.views if call.is_allowed(Right.subscribe, name)]
        return [self._stream_info(name) for name in streams] + [self._view_info(name) for name in views]

    @report_errors
    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        kind, name = _parse_path(descriptor)
        _current_call(context).require(Right.publish if kind == STREAMS else Right.subscribe, name)
        return self._stream_info(name) if kind == STREAMS else self._view_info(name)

    @report_errors
    def get_schema(self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        return flight.SchemaResult(self.get_flight_info(context, descriptor).schema)

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

    @report_errors
    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        kind, name = _parse_path(descriptor)
        if kind != STREAMS:
            raise error("E093", f"{name} is not a stream", hint="Publish to the path streams, NAME.")
        call = _current_call(context)
        call.require(Right.publish, name)
        for number, chunk in enumerate(reader, 1):
            call.require_active(context)
            call.require(Right.publish, name)
            if chunk.data is None:
                raise error("E093", "the message has no batch")
            try:
                writer.write(self._publish_batch(context, name, chunk.data, chunk.app_metadata))
            except SmileError as problem:
                raise _add_batch_number(number, problem) from None

    def _publish_batch(
        self, context: flight.ServerCallContext, stream: str, batch: pa.RecordBatch, metadata: pa.Buffer | None
    ) -> bytes:
        bytes_max = self._settings.bulk_bytes_max
        if batch.nbytes > bytes_max:
            message = f"it has {batch.nbytes:,} bytes; at most {bytes_max:,} are allowed"
            raise error("E092", message, hint="Send smaller batches.")
        sequence = None
        if metadata is not None and len(metadata):
            batch_sequence = decode_message("its metadata", metadata, BatchSequence)
            sequence = producer_sequence(batch_sequence.producer, batch_sequence.seq)
        rows = self._broker.decoder.decode_batch(stream, batch)
        self._event_limiter.spend(_current_call(context).principal, batch.num_rows)
        return msgspec.json.encode(published_body(self._publish_and_wait(context, Publication(stream, rows, sequence))))

    def _publish_and_wait(
        self, context: flight.ServerCallContext, publication: Publication | SilencePublication
    ) -> PublishResult:
        """Waits until the publication is on the disk, or the client has gone."""
        future = self._broker.publish(publication)
        while not context.is_cancelled():
            with suppress(TimeoutError):
                return future.result(limits.flight_check_s)
        raise flight.FlightCancelledError("the client has gone")

    # ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────────────

    @report_errors
    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        call = _current_call(context)
        fields = decode_message("the ticket", ticket.ticket, dict[str, Any])
        if "log" in fields:
            call.require_log_access()
            schema, batches = self._log_reader.read(
                self._broker.log, decode_message("the ticket", ticket.ticket, LogTicket).log
            )
            return flight.GeneratorStream(schema, report_stream_errors(batches))
        return self._open_subscription(context, call, decode_message("the ticket", ticket.ticket, ViewTicket))

    def _open_subscription(
        self, context: flight.ServerCallContext, call: FlightCall, ticket: ViewTicket
    ) -> flight.GeneratorStream:
        call.require(Right.subscribe, ticket.view)
        view = self._broker.view(ticket.view)
        if sum(v.subscriber_count for v in self._broker.views.values()) >= self._settings.subscriptions_max:
            raise error("E092", f"there are {self._settings.subscriptions_max:,} subscriptions already")
        waker = threading.Event()
        subscription = view.subscribe(view.condition(ticket.where), waker.set, ticket.resume, ticket.after)
        call.resources.callback(subscription.close)
        self._wakers.add(waker)
        call.resources.callback(self._wakers.discard, waker)
        schema = arrow_schema(view.source)

        def check() -> None:
            call.require_active(context)
            call.require(Right.subscribe, ticket.view)

        return flight.GeneratorStream(
            schema, report_stream_errors(_stream_frames(subscription, waker, ticket.follow, check))
        )

    # ── actions ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @report_errors
    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        return [(SILENCE, "declare that a publisher-timed stream has no more events up to a tick"), *ACTIONS.items()]

    @report_errors
    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        call = _current_call(context)
        if action.type in ACTIONS:
            call.require_log_access()
            return [self._log_reader.answer(self._broker.log, action.type, action.body)]
        if action.type == SILENCE:
            silence = decode_message("the silence", action.body, SilenceRequest)
            call.require(Right.publish, silence.stream)
            self._publish_and_wait(context, SilencePublication(silence.stream, silence.to))
            return [msgspec.json.encode({"silent": tick_json(silence.to)})]
        raise error(
            "E093", f"there is no action {action.type[:100]}", hint=f"There are {SILENCE}, {', '.join(ACTIONS)}."
        )

    @report_errors
    def do_exchange(self, context: flight.ServerCallContext, *_: Any) -> None:
        raise error("E093", "DoExchange is not supported", hint="Publish with DoPut, subscribe with DoGet.")


def _stream_frames(
    subscription: ViewSubscription, waker: threading.Event, follow: bool, check: Callable[[], None]
) -> Iterator[Any]:
    """Batches, each with its metadata."""
    rows_max = limits.flight_rows_max
    while True:
        check()
        frame = subscription.next_frame(rows_max)
        if frame is not None:
            batch = frame_batch(frame)
            rows_max = _next_rows_max(rows_max, batch)
            yield batch, _frame_metadata(frame)
            if frame.progress is not None and not follow:
                return
        elif subscription.ended is not None:
            raise subscription.ended
        else:
            waker.wait(limits.flight_check_s)
            waker.clear()


def _next_rows_max(rows: int, batch: pa.RecordBatch) -> int:
    """How many rows the next batch may have."""
    if not batch.num_rows or batch.nbytes <= limits.flight_batch_bytes:
        return min(limits.flight_rows_max, 2 * rows)
    return max(1, int(batch.num_rows * limits.flight_batch_bytes // batch.nbytes))


def _frame_metadata(frame: ViewFrame) -> bytes:
    metadata: dict[str, Any] = {"reset": True} if frame.reset else {}
    if frame.progress is not None:
        metadata |= {"progress": msgspec.Raw(progress_json(frame)), "resume": frame.resume}
    return msgspec.json.encode(metadata)


def _current_call(context: flight.ServerCallContext) -> FlightCall:
    call = context.get_middleware(CALL_MIDDLEWARE)
    assert isinstance(call, FlightCall)
    return call


def _parse_path(descriptor: flight.FlightDescriptor) -> tuple[str, str]:
    try:
        kind, name = (part.decode() for part in descriptor.path or ())
    except ValueError:
        kind, name = "", ""
    if kind not in (STREAMS, VIEWS):
        raise error("E093", "the descriptor is not a path of two parts", hint="Write streams, NAME or views, NAME.")
    return kind, name


def _add_batch_number(number: int, problem: SmileError) -> SmileError:
    first = problem.diagnostics[0]
    return error(first.code, f"batch {number}: {first.message}", hint=first.hint)


def _tls_context(settings: Settings) -> ssl.SSLContext | None:
    if not settings.tls:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["h2"])
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as problem:  # includes errors of the certificate
        raise error("E100", f"tls_cert and tls_key cannot be used: {problem.strerror or problem}") from None
    return context
