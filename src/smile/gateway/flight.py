"""Arrow Flight: streams are published to and views subscribed to in batches, and the log is read by tasks on other
machines. Nothing is told to whom it may not be told, and a batch is acknowledged once it is on the disk.

A call holds a thread from its first byte to its last, whatever the client does; a client that does not listen holds
nothing more than that and the one batch that is on its way to it.
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
from smile.broker.publication import Publication, Published, Silence
from smile.broker.subscription import Subscription
from smile.broker.told import Told
from smile.errors import SmileError, error
from smile.gateway.access import Access, Right
from smile.gateway.flight_calls import CALL, Call, Calls, decoded, guarded, telling
from smile.gateway.flight_door import Door
from smile.gateway.flight_log import ACTIONS, LogReading
from smile.gateway.publish import numbered_by, published_json
from smile.gateway.rates import Rates
from smile.knowledge.json import tick_json
from smile.log.frame import END
from smile.log.publishing import rows_of_batch
from smile.log.remote import LogTicket
from smile.log.shape import TICK_MAX
from smile.settings import Settings, address

STREAMS: Final = "streams"
VIEWS: Final = "views"
SILENCE: Final = "silence"
_EXCESS: Final = 2
"""A batch that is somewhat too large is refused by its size and its number, a larger one with the whole connection."""

logger = logging.getLogger("smile.gateway.flight")


Sequence = Annotated[int, msgspec.Meta(ge=0, le=limits.sequence_max)]
Tick = Annotated[int, msgspec.Meta(ge=0, le=TICK_MAX)]


class ViewTicket(msgspec.Struct, forbid_unknown_fields=True):
    """What a subscriber asks for. Without `follow` it is told what there is now, and no more."""

    view: str
    where: dict[str, str | int | float | bool | None] = {}
    resume: str | None = None
    after: dict[str, Tick] = {}
    follow: bool = False


class Producer(msgspec.Struct, forbid_unknown_fields=True):
    """What comes with a batch that may come again: who publishes it, and the number of its first event."""

    producer: str
    seq: Sequence


class Silent(msgspec.Struct, forbid_unknown_fields=True):
    stream: str
    to: Annotated[int, msgspec.Meta(ge=0, le=END)]


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves from when it is made until `stop`."""

    def __init__(self, broker: Broker, settings: Settings, access: Access, requests: Rates, events: Rates) -> None:
        """The rates are what a principal may ask and publish in a second, here and elsewhere."""
        self._broker = broker
        self._settings = settings
        self._events = events
        self._log = LogReading()
        self._wakers: set[threading.Event] = set()
        self.calls = Calls(access, requests, broker.log_token)
        tls = _tls(settings)
        # gRPC itself listens where only this process comes.
        self._folder = tempfile.TemporaryDirectory(prefix="smile-")
        inner = f"{self._folder.name}/flight"
        super().__init__(f"grpc+unix://{inner}", middleware={CALL: self.calls})
        host, port = address(settings.flight)
        try:
            bytes_max = _EXCESS * max(settings.bulk_bytes_max, limits.flight_request_bytes_max)
            self.door = Door((host, port), inner, tls, bytes_max, settings.connections_max)
        except OSError as problem:
            self.shutdown()
            self._folder.cleanup()
            reason = problem.strerror or str(problem)
            raise error("E106", f"Arrow Flight cannot listen on {settings.flight}: {reason}") from None
        shown = f"[{host}]" if ":" in host else host
        self.location = f"{'grpc+tls' if settings.tls else 'grpc'}://{shown}:{self.door.port}"

    def stop(self) -> None:
        """Subscribers are told, batches under way are acknowledged, and clients that do not listen are cut off."""
        if self.calls.stopping.is_set():
            return
        self.calls.stopping.set()
        self.door.close()
        for waker in list(self._wakers):
            waker.set()
        ending = threading.Thread(target=self.shutdown, name="flight-stop", daemon=True)
        ending.start()
        ending.join(limits.flight_stop_s_max)
        self.door.end()
        ending.join(limits.flight_stop_s_max)
        if ending.is_alive():
            logger.error("calls of Arrow Flight do not end", extra={"calls": self.calls.count})
        self._log.close()
        self._folder.cleanup()

    # ── what there is ───────────────────────────────────────────────────────────────────────────────────────────────

    @telling
    def list_flights(self, context: flight.ServerCallContext, criteria: bytes) -> list[flight.FlightInfo]:
        call = _call(context)
        streams = [name for name in self._broker.shapes if call.may(Right.publish, name)]
        views = [name for name in self._broker.views if call.may(Right.subscribe, name)]
        return [self._stream(name) for name in streams] + [self._view(name) for name in views]

    @telling
    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        kind, name = _path(descriptor)
        _call(context).require(Right.publish if kind == STREAMS else Right.subscribe, name)
        return self._stream(name) if kind == STREAMS else self._view(name)

    @telling
    def get_schema(self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        return flight.SchemaResult(self.get_flight_info(context, descriptor).schema)

    def _stream(self, name: str) -> flight.FlightInfo:
        shape = self._broker.shape(name)
        schema = shape.schema if shape.stream.publisher_timed else shape.schema.remove(0)
        return flight.FlightInfo(schema, flight.FlightDescriptor.for_path(STREAMS, name), [], -1, -1)

    def _view(self, name: str) -> flight.FlightInfo:
        view = self._broker.view(name)
        schema = Told(view.source, (), {}, False, None, None).arrow().schema
        ticket = flight.Ticket(msgspec.json.encode({"view": name}))
        endpoints = [flight.FlightEndpoint(ticket, [])]
        return flight.FlightInfo(schema, flight.FlightDescriptor.for_path(VIEWS, name), endpoints, view.rows, -1)

    # ── publishing ──────────────────────────────────────────────────────────────────────────────────────────────────

    @telling
    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        kind, name = _path(descriptor)
        if kind != STREAMS:
            raise error("E093", f"{name} is not a stream", hint="Publish to the path streams, NAME.")
        call = _call(context)
        call.require(Right.publish, name)
        for number, chunk in enumerate(reader, 1):
            call.require_going_on(context)
            call.require(Right.publish, name)
            if chunk.data is None:
                raise error("E093", "a message without a batch")
            try:
                writer.write(self._published(context, name, chunk.data, chunk.app_metadata))
            except SmileError as problem:
                raise _in_batch(number, problem) from None

    def _published(
        self, context: flight.ServerCallContext, stream: str, batch: pa.RecordBatch, about: pa.Buffer | None
    ) -> bytes:
        most = self._settings.bulk_bytes_max
        if batch.nbytes > most:
            raise error(
                "E092", f"it has {batch.nbytes:,} bytes, and at most {most:,} are taken", hint="Send smaller ones."
            )
        numbered = None
        if about is not None and len(about):
            said = decoded("what comes with it", about, Producer)
            numbered = numbered_by(said.producer, said.seq)
        shape = self._broker.shape(stream)
        rows = rows_of_batch(shape, batch, shape.stream.publisher_timed)
        self._events.spend(_call(context).principal, batch.num_rows)
        return msgspec.json.encode(published_json(self._logged(context, Publication(stream, rows, numbered))))

    def _logged(self, context: flight.ServerCallContext, what: Publication | Silence) -> Published:
        """Waits until it is on the disk, for as long as anybody wants to know."""
        future = self._broker.publish(what)
        while not context.is_cancelled():
            with suppress(TimeoutError):
                return future.result(limits.flight_check_s)
        raise flight.FlightCancelledError("the client has gone")

    # ── subscribing ─────────────────────────────────────────────────────────────────────────────────────────────────

    @telling
    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        call = _call(context)
        asked = decoded("the ticket", ticket.ticket, dict[str, Any])
        if "log" in asked:
            call.require_log()
            schema, batches = self._log.read(self._broker.log, decoded("the ticket", ticket.ticket, LogTicket).log)
            return flight.GeneratorStream(schema, guarded(batches))
        return self._subscribed(context, call, decoded("the ticket", ticket.ticket, ViewTicket))

    def _subscribed(self, context: flight.ServerCallContext, call: Call, asked: ViewTicket) -> flight.GeneratorStream:
        call.require(Right.subscribe, asked.view)
        view = self._broker.view(asked.view)
        if sum(v.subscribers for v in self._broker.views.values()) >= self._settings.subscriptions_max:
            raise error("E092", f"there are {self._settings.subscriptions_max:,} subscriptions already")
        waker = threading.Event()
        subscription = view.subscribe(view.condition(asked.where), waker.set, asked.resume, asked.after)
        call.held.callback(subscription.close)
        self._wakers.add(waker)
        call.held.callback(self._wakers.discard, waker)
        schema = Told(view.source, (), {}, False, None, None).arrow().schema

        def require() -> None:
            call.require_going_on(context)
            call.require(Right.subscribe, asked.view)

        return flight.GeneratorStream(schema, guarded(_told(subscription, waker, asked.follow, require)))

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @telling
    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        return [(SILENCE, "nothing more happens on a publisher-timed stream up to a tick"), *ACTIONS.items()]

    @telling
    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        call = _call(context)
        if action.type in ACTIONS:
            call.require_log()
            return [self._log.answer(self._broker.log, action.type, action.body)]
        if action.type == SILENCE:
            asked = decoded("the silence", action.body, Silent)
            call.require(Right.publish, asked.stream)
            self._logged(context, Silence(asked.stream, asked.to))
            return [msgspec.json.encode({"silent": tick_json(asked.to)})]
        raise error(
            "E093", f"there is no action {action.type[:100]}", hint=f"There are {SILENCE}, {', '.join(ACTIONS)}."
        )

    @telling
    def do_exchange(self, context: flight.ServerCallContext, *_: Any) -> None:
        raise error("E093", "nothing is exchanged here", hint="Publish with DoPut, subscribe with DoGet.")


def _told(
    subscription: Subscription, waker: threading.Event, follow: bool, require: Callable[[], None]
) -> Iterator[Any]:
    """Batches, each with what is said of it."""
    rows = limits.flight_rows_max
    while True:
        require()
        told = subscription.take(rows)
        if told is not None:
            batch = told.arrow()
            rows = _fitting(rows, batch)
            yield batch, _said(told)
            if told.progress is not None and not follow:
                return
        elif subscription.ended is not None:
            raise subscription.ended
        else:
            waker.wait(limits.flight_check_s)
            waker.clear()


def _fitting(rows: int, batch: pa.RecordBatch) -> int:
    """How many rows the next batch may have."""
    if not batch.num_rows or batch.nbytes <= limits.flight_batch_bytes:
        return min(limits.flight_rows_max, 2 * rows)
    return max(1, int(batch.num_rows * limits.flight_batch_bytes // batch.nbytes))


def _said(told: Told) -> bytes:
    said: dict[str, Any] = {"reset": True} if told.reset else {}
    if told.progress is not None:
        said |= {"progress": msgspec.Raw(told.progress_json), "resume": told.resume}
    return msgspec.json.encode(said)


def _call(context: flight.ServerCallContext) -> Call:
    call = context.get_middleware(CALL)
    assert isinstance(call, Call)
    return call


def _path(descriptor: flight.FlightDescriptor) -> tuple[str, str]:
    try:
        kind, name = (part.decode() for part in descriptor.path or ())
    except ValueError:
        kind, name = "", ""
    if kind not in (STREAMS, VIEWS):
        raise error("E093", "the descriptor is no path of two parts", hint="Write streams, NAME or views, NAME.")
    return kind, name


def _in_batch(number: int, problem: SmileError) -> SmileError:
    first = problem.diagnostics[0]
    return error(first.code, f"batch {number}: {first.message}", hint=first.hint)


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if not settings.tls:
        return None
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.set_alpn_protocols(["h2"])
    try:
        made.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as problem:  # which what is wrong with a certificate is too
        raise error("E100", f"tls_cert, tls_key: they cannot be used: {problem.strerror or problem}") from None
    return made
