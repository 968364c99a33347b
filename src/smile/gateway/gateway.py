"""The gateway: what all interfaces share. Every access needs a right, and the number of everything is limited."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from starlette.authentication import BaseUser

from smile import limits
from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.broker.broker import Broker
from smile.broker.views.view import ViewFrame
from smile.errors import SmileError, error
from smile.gateway.access import PROGRAM, Access, Right
from smile.gateway.delivery_scheduler import DeliveryScheduler, PendingPublications
from smile.gateway.event_encoder import EventEncoder
from smile.gateway.frames import FrameEncoder, encode_ahead, encode_sse, encode_websocket
from smile.gateway.http.response import HttpError
from smile.gateway.metrics import DelayHistograms
from smile.gateway.origins import single_header
from smile.gateway.rate_limiter import RateLimiter
from smile.gateway.snapshot_counts import SnapshotCounts
from smile.horizons import END
from smile.settings import Settings

T = TypeVar("T")

TOKEN_PROTOCOL = "smile.token."


@dataclass(frozen=True)
class Caller(BaseUser):
    """The principal of a call, and its token. It is the user of a Starlette request."""

    principal: str
    token: str | None


class Subscriber(Protocol):
    """A subscriber to a relation, on a connection of any kind."""

    caller: Caller

    @property
    def relation(self) -> str: ...

    @property
    def tables(self) -> Iterable[str]:
        """The tables that its filter reads."""

    def wake(self) -> None:
        """Called when there may be a frame to deliver."""

    def end(self, problem: SmileError) -> None:
        """Ends the subscription, and sends this error."""


class OpenConnection(Protocol):
    """A connection that stays open between requests."""

    caller: Caller

    def end(self, problem: SmileError) -> None:
        """Sends this error and closes the connection."""


class Gateway:
    """All HTTP and WebSocket handlers run on `loop`. Other threads use only what is thread-safe: `scheduler.schedule`,
    the results of `pending_publications`, `access` and the rate limiters. Threads for status and metrics read the
    counters."""

    def __init__(self, broker: Broker, settings: Settings, access: Access, loop: asyncio.AbstractEventLoop) -> None:
        self.broker = broker
        self.settings = settings
        self.access = access
        self.loop = loop
        self.scheduler = DeliveryScheduler(loop, encode_ahead)
        self.delays = DelayHistograms()
        self.pending_publications = PendingPublications(loop, self.delays.publish.observe)
        self.websocket_frames = FrameEncoder(encode_websocket, self._observe_delivery)
        self.sse_frames = FrameEncoder(encode_sse, self._observe_delivery)
        self.event_encoder = EventEncoder()
        self.request_limiter = RateLimiter(settings.requests_per_second_max, "requests")
        self.event_limiter = RateLimiter(settings.events_per_second_max, "events")
        self.subscribers: set[Subscriber] = set()
        self.sessions: set[OpenConnection] = set()
        self.stopping = False
        self.counts: Counter[str] = Counter()
        self.snapshots = SnapshotCounts()
        self.refusals: Counter[str] = Counter()
        self.program_lock = asyncio.Lock()
        self.connection_count: Callable[[], int] = lambda: 0
        """The number of connections; set by the server."""
        # Snapshots and program changes run in threads, few at a time: each may take seconds and much memory.
        self.workers = ThreadPoolExecutor(limits.gateway_threads, "smile-gateway")
        self.log_readers = ThreadPoolExecutor(limits.durable_threads, "smile-log-reader")

    # ── rights ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def authenticate(self, headers: Iterable[tuple[bytes, bytes]], protocols: Iterable[str] = ()) -> Caller:
        """E091 if a token is required and is missing or unknown."""
        authorization = single_header(headers, b"authorization")
        token = None
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            if scheme.casefold() != "bearer" or not token.strip():
                raise error("E091", "the header Authorization has no bearer token", hint=_TOKEN_HINT)
            token = token.strip()
        for protocol in protocols:
            if token is None and protocol.startswith(TOKEN_PROTOCOL):
                token = protocol.removeprefix(TOKEN_PROTOCOL)
        principal = self.access.principal(token)
        if principal is None:
            raise error("E091", "a token is needed" if token is None else "the token is not known", hint=_TOKEN_HINT)
        return Caller(principal, token)

    def is_allowed(self, caller: Caller, right: Right, name: str) -> bool:
        """Whether the caller has the right now; a revoked token has none."""
        is_valid = self.access.principal(caller.token) == caller.principal
        query = self.broker.queries.find(name) if right == Right.subscribe else None
        if query is not None:
            is_own = query.principal == caller.principal and self.is_allowed(caller, Right.query, PROGRAM)
            return is_own and all(self.is_allowed(caller, Right.subscribe, relation) for relation in query.reads)
        return is_valid and self.access.is_allowed(caller.principal, right, name)

    def require(self, caller: Caller, right: Right, name: str = PROGRAM) -> None:
        if not self.is_allowed(caller, right, name):
            raise self.denial_error(caller, right, name)

    def denial_error(self, caller: Caller, right: Right, name: str) -> SmileError:
        """E091 if the token was revoked, else E090."""
        if self.access.principal(caller.token) != caller.principal:
            return _revoked_error()
        shown_name = name[: limits.principal_chars_max]
        hint = f"An administrator can run: smile grant {right} ON {shown_name} TO {caller.principal}"
        return error("E090", f"{caller.principal} has no right to {right} ON {shown_name}", hint=hint)

    # ── subscribers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def add_subscriber(self, subscriber: Subscriber) -> None:
        """E092 if there are too many."""
        if len(self.subscribers) >= self.settings.subscriptions_max:
            hint = "The setting subscriptions_max is the limit."
            raise HttpError(503, "E092", f"there are {len(self.subscribers):,} subscriptions already", hint)
        self.subscribers.add(subscriber)

    def remove_subscriber(self, subscriber: Subscriber) -> None:
        self.subscribers.discard(subscriber)

    def end_revoked(self) -> None:
        """Ends the subscriptions of callers that no longer have the right, and the connections of those whose token was
        revoked. Call it every second."""
        allowed: dict[tuple[Caller, str], bool] = {}
        for subscriber in list(self.subscribers):
            for relation in (subscriber.relation, *subscriber.tables):
                key = subscriber.caller, relation
                if key not in allowed:
                    allowed[key] = self.is_allowed(subscriber.caller, Right.subscribe, relation)
                if not allowed[key]:
                    subscriber.end(self.denial_error(subscriber.caller, Right.subscribe, relation))
                    break
        for session in list(self.sessions):
            if self.access.principal(session.caller.token) != session.caller.principal:
                session.end(_revoked_error())

    def _observe_delivery(self, frame: ViewFrame) -> None:
        """Measures changes, not first snapshots. Only the broker's own ticks are times at which events came."""
        if not frame.row_count or frame.reset or frame.progress is None:
            return
        schemas = self.broker.decoder.schemas
        ticks = [
            tick
            for stream, tick in frame.progress.items()
            if stream in schemas and not schemas[stream].stream.publisher_timed and tick < END
        ]
        if ticks:
            self.delays.delivery.observe(max(0.0, time.time() - max(ticks) / TICKS_PER_MICROSECOND / 1e6))

    # ── threads and stopping ────────────────────────────────────────────────────────────────────────────────────────

    async def run_in_thread(self, function: Callable[[], T]) -> T:
        """Runs slow work outside the event loop."""
        self.require_running()
        return await self.loop.run_in_executor(self.workers, function)

    async def read_log(self, function: Callable[[], T]) -> T:
        """Runs work of a durable subscription outside the event loop."""
        self.require_running()
        return await self.loop.run_in_executor(self.log_readers, function)

    def require_running(self) -> None:
        if self.stopping:
            raise error("E098", "the broker is stopping", hint="Try again when it has restarted.")

    async def stop(self) -> None:
        """Accepts no more publications; those in progress are completed and answered. Server-sent events end; the
        server closes WebSockets, with a code that asks the client to reconnect."""
        self.stopping = True
        deadline = self.loop.time() + limits.stop_s_max / 2
        while self.pending_publications.count and self.loop.time() < deadline:
            await asyncio.sleep(0.01)
        for subscriber in list(self.subscribers):
            subscriber.wake()
        self.workers.shutdown(wait=False, cancel_futures=True)
        self.log_readers.shutdown(wait=False, cancel_futures=True)


def _revoked_error() -> SmileError:
    return error("E091", "the token was revoked", hint=_TOKEN_HINT)


_TOKEN_HINT = "Send the header `Authorization: Bearer TOKEN`; `smile token PRINCIPAL` creates one."
