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
from smile.gateway.answers import Refused
from smile.gateway.frames import Frames, server_sent, websocket_frame
from smile.gateway.origins import one_header
from smile.gateway.rates import Rates
from smile.gateway.rounds import Returns, Rounds
from smile.settings import Settings

TOKEN_PROTOCOL = "smile.token."


@dataclass(frozen=True)
class Visitor:
    """Who calls, and by which token."""

    principal: str
    token: str | None


class Follower(Protocol):
    """Who subscribes to a view, on whatever connection."""

    visitor: Visitor
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
        self.rounds = Rounds(loop)
        self.returns = Returns(loop)
        self.frames = Frames(websocket_frame)
        self.server_sent = Frames(server_sent)
        self.requests = Rates(settings.requests_per_second_max, "requests")
        self.events = Rates(settings.events_per_second_max, "events")
        self.followers: set[Follower] = set()
        self.stopping = False
        self.counts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.program_turn = asyncio.Lock()
        self.connections: Callable[[], int] = lambda: 0
        """How many there are; the server knows."""
        # Snapshots and programs are made beside the loop, few at a time: each may take seconds and much memory.
        self.workers = ThreadPoolExecutor(limits.gateway_threads, "smile-gateway")

    # ── rights ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def visitor(self, headers: Iterable[tuple[bytes, bytes]], protocols: Iterable[str] = ()) -> Visitor:
        """E091 if a token is asked for, and there is none or a wrong one."""
        given = one_header(headers, b"authorization")
        token = None
        if given is not None:
            scheme, _, token = given.partition(" ")
            if scheme.casefold() != "bearer" or not token.strip():
                raise error("E091", "the header Authorization has no bearer token", hint=_TOKEN_HINT)
            token = token.strip()
        for protocol in protocols:
            if token is None and protocol.startswith(TOKEN_PROTOCOL):
                token = protocol.removeprefix(TOKEN_PROTOCOL)
        principal = self.access.principal(token)
        if principal is None:
            raise error("E091", "a token is needed" if token is None else "the token is not known", hint=_TOKEN_HINT)
        return Visitor(principal, token)

    def may(self, visitor: Visitor, right: Right, name: str) -> bool:
        """Whether it may now: a token that was revoked is nobody's."""
        known = self.access.principal(visitor.token) == visitor.principal
        return known and self.access.may(visitor.principal, right, name)

    def require(self, visitor: Visitor, right: Right, name: str = PROGRAM) -> None:
        if not self.may(visitor, right, name):
            raise self.not_allowed(visitor, right, name)

    def not_allowed(self, visitor: Visitor, right: Right, name: str) -> SmileError:
        """E091 if the token is good no more, else E090."""
        if self.access.principal(visitor.token) != visitor.principal:
            return error("E091", "the token was revoked", hint=_TOKEN_HINT)
        shown = name[: limits.principal_chars_max]
        hint = f"An administrator may say: smile grant {right} ON {shown} TO {visitor.principal}"
        return error("E090", f"{visitor.principal} has no right to {right} ON {shown}", hint=hint)

    # ── subscribers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def follow(self, follower: Follower) -> None:
        """E092 if there are too many."""
        if len(self.followers) >= self.settings.subscriptions_max:
            hint = "The setting subscriptions_max has the limit."
            raise Refused(503, "E092", f"there are {len(self.followers):,} subscriptions already", hint)
        self.followers.add(follower)

    def unfollow(self, follower: Follower) -> None:
        self.followers.discard(follower)

    def end_revoked(self) -> None:
        """Ends the subscriptions of those who have no right to them any more; to be called every second."""
        held: dict[tuple[Visitor, str], bool] = {}
        for follower in list(self.followers):
            asked = follower.visitor, follower.view.name
            if asked not in held:
                held[asked] = self.may(follower.visitor, Right.subscribe, follower.view.name)
            if not held[asked]:
                follower.end(self.not_allowed(follower.visitor, Right.subscribe, follower.view.name))

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def require_running(self) -> None:
        if self.stopping:
            raise error("E098", "the broker is stopping", hint="Come again when it is back.")

    async def stop(self) -> None:
        """No publication is taken any more; those under way are finished and answered. Server-sent events end;
        WebSockets are closed by the server, with the code that says: come again."""
        self.stopping = True
        end = self.loop.time() + limits.stop_s_max / 2
        while self.returns.pending and self.loop.time() < end:
            await asyncio.sleep(0.01)
        for follower in list(self.followers):
            follower.wake()
        self.workers.shutdown(wait=False, cancel_futures=True)


_TOKEN_HINT = "Send the header `Authorization: Bearer TOKEN`; `smile token PRINCIPAL` makes one."
