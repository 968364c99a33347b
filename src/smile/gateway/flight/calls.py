"""Arrow Flight calls. Each has a principal, and counts against the limits from before it gets a thread until it ends.

A call ends when its client has gone, when its token was revoked, or when its client has not read or sent for too long.
"""

import hmac
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeVar

import grpc
import msgspec

from smile import limits
from smile.errors import SmileError, error
from smile.gateway.access import Access, Right
from smile.gateway.rate_limiter import RateLimiter

LOG_READER: Final = "the log's readers"
"""A principal's name cannot contain spaces."""

MessageT = TypeVar("MessageT")


def decode_message(name: str, body: Any, message_type: type[MessageT]) -> MessageT:
    """Decodes a client's JSON message from a buffer."""
    if body is not None and len(body) > limits.flight_request_bytes_max:
        raise error("E092", f"{name} is larger than {limits.flight_request_bytes_max:,} bytes")
    try:
        return msgspec.json.decode(b"" if body is None else bytes(body), type=message_type)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise error("E093", f"{name} is wrong: {problem}") from None


class FlightCall:
    """A call in progress. Its resources are released when it ends, however it ends."""

    def __init__(self, calls: "FlightCalls", principal: str, token: str) -> None:
        self.principal = principal
        self.resources = ExitStack()
        self.context: grpc.ServicerContext | None = None
        """Set when the call has a thread."""
        self.waits_until: float | None = None
        """When the call is cancelled, because its client neither reads nor sends; None while it need not."""
        self._calls = calls
        self._token = token

    def require(self, right: Right, name: str) -> None:
        """E090 if the right was not granted, E091 if the token was revoked."""
        self._calls.identify(self._token)
        if not self.is_allowed(right, name):
            hint = f"An administrator can run: smile grant {right} ON {name} TO {self.principal}"
            raise error("E090", f"{self.principal} may not {_RIGHT_VERBS[right]} {name}", hint=hint)

    def is_allowed(self, right: Right, name: str) -> bool:
        return self._calls.access.is_allowed(self.principal, right, name)

    @property
    def is_log_reader(self) -> bool:
        return self.principal == LOG_READER

    @property
    def is_revoked(self) -> bool:
        try:
            self._calls.identify(self._token)
        except SmileError:
            return True
        return False

    def require_log_access(self, streams: Iterable[str]) -> None:
        """The log's readers may read all streams, others those that they have the right READ on."""
        if self.is_log_reader:
            return
        names = list(streams)
        if not names:
            raise error("E093", "the request names no streams")
        for name in names:
            self.require(Right.read, name)

    @property
    def is_active(self) -> bool:
        """False if the client has gone or the call was cancelled."""
        return self.context is not None and bool(self.context.is_active())

    def require_active(self) -> None:
        """Raises an error if the client has gone or the broker is stopping."""
        if not self.is_active:
            raise ClientGone
        self._calls.require_running()

    @contextmanager
    def waiting(self, seconds: float) -> Iterator[None]:
        """The client must read or send within this time."""
        self.waits_until = time.monotonic() + seconds
        try:
            yield
        finally:
            self.waits_until = None


class ClientGone(Exception):
    """Nobody receives the answer."""


_RIGHT_VERBS: Final = {
    Right.publish: "publish to",
    Right.subscribe: "subscribe to",
    Right.read: "read the events of",
    Right.admin: "administer",
}


class FlightCalls:
    """Admits calls with a valid token, up to a limit. `log_token` allows its holder to read the log, and nothing else:
    Spark's tasks use it, and it ends with this process. Thread-safe."""

    def __init__(self, access: Access, request_limiter: RateLimiter, log_token: str) -> None:
        self.access = access
        self._request_limiter = request_limiter
        self.log_token = log_token
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._active: set[FlightCall] = set()
        self._counts: Counter[str] = Counter()
        """Calls in progress by principal."""

    @property
    def count(self) -> int:
        return len(self._active)

    def admit(self, headers: Iterable[tuple[str, str | bytes]]) -> FlightCall:
        """The new call of a client that sent these headers. It must be ended."""
        self.require_running()
        token = _bearer_token(headers)
        principal = self.identify(token)
        if principal != LOG_READER:
            self._request_limiter.spend(principal, 1)
        with self._lock:
            self._check_limits(principal)
            call = FlightCall(self, principal, token)
            self._active.add(call)
            self._counts[principal] += 1
        return call

    def _check_limits(self, principal: str) -> None:
        own_count = self._counts[principal]
        all_count = own_count if principal == LOG_READER else len(self._active) - self._counts[LOG_READER]
        hint = "Try again later, or end other calls."
        if all_count >= limits.flight_calls_max:
            raise error("E092", f"{limits.flight_calls_max} calls are in progress already", hint=hint)
        own_max = limits.flight_calls_per_principal_max
        if self.access.requires_tokens and principal != LOG_READER and own_count >= own_max:
            raise error("E092", f"{principal} has {own_max} calls in progress already", hint=hint)

    def end(self, call: FlightCall) -> None:
        call.resources.close()
        with self._lock:
            self._active.discard(call)
            self._counts[call.principal] -= 1
            self._counts += Counter()  # without the principals that have none

    def cancel_overdue(self) -> None:
        """Cancels calls whose clients do nothing, or whose tokens were revoked. Call it every second."""
        now = time.monotonic()
        for call in list(self._active):
            is_overdue = call.waits_until is not None and call.waits_until < now
            if call.context is not None and (is_overdue or call.is_revoked):
                call.context.cancel()

    def identify(self, token: str) -> str:
        """The principal that the token belongs to; E091 if it is unknown."""
        if hmac.compare_digest(token.encode(), self.log_token.encode()):
            return LOG_READER
        principal = self.access.principal(token)
        if principal is None:
            hint = "Send it as a header, authorization: Bearer TOKEN."
            raise error("E091", "the token is not known" if token else "a token is needed", hint=hint)
        return principal

    def require_running(self) -> None:
        if self.stopping.is_set():
            raise error("E098", "the broker is stopping", hint="Try again when it has restarted.")


def _bearer_token(headers: Iterable[tuple[str, str | bytes]]) -> str:
    for name, value in headers:
        if name == "authorization" and isinstance(value, str):
            scheme, _, token = value.partition(" ")
            if scheme.casefold() == "bearer":
                return token.strip()
    return ""
