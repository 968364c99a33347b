"""The gateway: what all its entries share. Nothing passes without a right to it, and everything counted is bounded."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from smile import limits
from smile.broker.broker import Broker
from smile.broker.view import View
from smile.errors import SmileError, error
from smile.gateway.access import PROGRAM, Access, Right
from smile.gateway.delivery_scheduler import DeliveryScheduler, PendingPublications
from smile.gateway.frames import FrameEncoder, encode_sse, encode_websocket
from smile.gateway.http_response import HttpError
from smile.gateway.origins import single_header
from smile.gateway.rate_limiter import RateLimiter
from smile.settings import Settings

TOKEN_PROTOCOL = "smile.token."


@dataclass(frozen=True)
class Caller:
    """Who calls, and by which token."""

    principal: str
    token: str | None


class Subscriber(Protocol):
    """Who subscribes to a view, on whatever connection."""

    caller: Caller
    view: View

    def wake(self) -> None:
        """There may be something to tell."""

    def end(self, problem: SmileError) -> None:
        """Tells why there is no more."""


class Gateway:
    """`loop` is the one that all its entries run on; only `rounds.wake` is called from other threads."""

    def __init__(self, broker: Broker, settings: Settings, access: Access, loop: asyncio.AbstractEventLoop) -> None:
        self.broker = broker
        self.settings = settings
        self.access = access
        self.loop = loop
        self.scheduler = DeliveryScheduler(loop)
        self.pending_publications = PendingPublications(loop)
        self.websocket_frames = FrameEncoder(encode_websocket)
        self.sse_frames = FrameEncoder(encode_sse)
        self.request_limiter = RateLimiter(settings.requests_per_second_max, "requests")
        self.event_limiter = RateLimiter(settings.events_per_second_max, "events")
        self.subscribers: set[Subscriber] = set()
        self.stopping = False
        self.counts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.program_lock = asyncio.Lock()
        self.connection_count: Callable[[], int] = lambda: 0
        """How many there are; the server knows."""
        # Snapshots and programs are made beside the loop, few at a time: each may take seconds and much memory.
        self.workers = ThreadPoolExecutor(limits.gateway_threads, "smile-gateway")

    # ── rights ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def authenticate(self, headers: Iterable[tuple[bytes, bytes]], protocols: Iterable[str] = ()) -> Caller:
        """E091 if a token is asked for, and there is none or a wrong one."""
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
        """Whether it may now: a token that was revoked is nobody's."""
        is_valid = self.access.principal(caller.token) == caller.principal
        return is_valid and self.access.is_allowed(caller.principal, right, name)

    def require(self, caller: Caller, right: Right, name: str = PROGRAM) -> None:
        if not self.is_allowed(caller, right, name):
            raise self.denial_error(caller, right, name)

    def denial_error(self, caller: Caller, right: Right, name: str) -> SmileError:
        """E091 if the token is good no more, else E090."""
        if self.access.principal(caller.token) != caller.principal:
            return error("E091", "the token was revoked", hint=_TOKEN_HINT)
        shown_name = name[: limits.principal_chars_max]
        hint = f"An administrator may say: smile grant {right} ON {shown_name} TO {caller.principal}"
        return error("E090", f"{caller.principal} has no right to {right} ON {shown_name}", hint=hint)

    # ── subscribers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def add_subscriber(self, subscriber: Subscriber) -> None:
        """E092 if there are too many."""
        if len(self.subscribers) >= self.settings.subscriptions_max:
            hint = "The setting subscriptions_max has the limit."
            raise HttpError(503, "E092", f"there are {len(self.subscribers):,} subscriptions already", hint)
        self.subscribers.add(subscriber)

    def remove_subscriber(self, subscriber: Subscriber) -> None:
        self.subscribers.discard(subscriber)

    def end_revoked(self) -> None:
        """Ends the subscriptions of those who have no right to them any more; to be called every second."""
        allowed: dict[tuple[Caller, str], bool] = {}
        for subscriber in list(self.subscribers):
            key = subscriber.caller, subscriber.view.name
            if key not in allowed:
                allowed[key] = self.is_allowed(subscriber.caller, Right.subscribe, subscriber.view.name)
            if not allowed[key]:
                subscriber.end(self.denial_error(subscriber.caller, Right.subscribe, subscriber.view.name))

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def require_running(self) -> None:
        if self.stopping:
            raise error("E098", "the broker is stopping", hint="Come again when it is back.")

    async def stop(self) -> None:
        """No publication is taken any more; those under way are finished and answered. Server-sent events end;
        WebSockets are closed by the server, with the code that says: come again."""
        self.stopping = True
        deadline = self.loop.time() + limits.stop_s_max / 2
        while self.pending_publications.count and self.loop.time() < deadline:
            await asyncio.sleep(0.01)
        for subscriber in list(self.subscribers):
            subscriber.wake()
        self.workers.shutdown(wait=False, cancel_futures=True)


_TOKEN_HINT = "Send the header `Authorization: Bearer TOKEN`; `smile token PRINCIPAL` makes one."
