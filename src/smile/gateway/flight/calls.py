"""Arrow Flight calls. Each has a principal, counts against the limit until it ends, and then releases its resources.
Errors are sent to the client with their codes, and reveal nothing else of the broker.
"""

import functools
import hmac
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, ParamSpec, TypeVar

import msgspec
from pyarrow import flight

from smile import limits
from smile.errors import SmileError, error
from smile.gateway.access import PROGRAM, Access, Right
from smile.gateway.rate_limiter import RateLimiter
from smile.log.storage.remote import FlightErrorInfo, WireError

CALL_MIDDLEWARE: Final = "call"
"""The middleware's name of a call."""

LOG_READER: Final = "the log's readers"
"""A principal's name cannot contain spaces."""

logger = logging.getLogger("smile.gateway.flight")

P = ParamSpec("P")
T = TypeVar("T")
MessageT = TypeVar("MessageT")

_ERROR_TYPES: Final[Mapping[str, type[flight.FlightError]]] = {
    "E090": flight.FlightUnauthorizedError,
    "E091": flight.FlightUnauthenticatedError,
    "E098": flight.FlightUnavailableError,
    "E108": flight.FlightTimedOutError,
}


# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def flight_error(problem: SmileError) -> flight.FlightError:
    """An Arrow Flight error: its text starts with the code, and `extra_info` has all of it as JSON."""
    first = problem.diagnostics[0]
    message, hint = _shorten(first.message), first.hint and _shorten(first.hint)
    extra = msgspec.json.encode(FlightErrorInfo(WireError(first.code, message, hint)))
    return _ERROR_TYPES.get(first.code, flight.FlightServerError)(f"{first.code}: {message}", extra)


def _shorten(text: str) -> str:
    """Limits the bytes of a text, because headers are limited in bytes. Each byte may be encoded as three."""
    bytes_max = limits.flight_error_chars_max
    encoded = text.encode(errors="replace")
    return text if len(encoded) <= bytes_max else encoded[:bytes_max].decode(errors="ignore") + "…"


def report_errors(method: Callable[P, T]) -> Callable[P, T]:
    """Sends errors of the method to the client as errors of Arrow Flight."""

    @functools.wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except Exception as problem:  # noqa: BLE001  # pyarrow would send the client the whole traceback
            raise to_flight_error(problem) from None

    return wrapped


def to_flight_error(problem: Exception) -> flight.FlightError:
    if isinstance(problem, flight.FlightError):
        return problem
    if isinstance(problem, SmileError):
        return flight_error(problem)
    logger.error("an Arrow Flight call failed", exc_info=problem)
    return flight.FlightInternalError("the broker failed; its log says why")


def decode_message(name: str, body: Any, message_type: type[MessageT]) -> MessageT:
    """Decodes a client's JSON message from a buffer."""
    if body is not None and len(body) > limits.flight_request_bytes_max:
        raise error("E092", f"{name} is larger than {limits.flight_request_bytes_max:,} bytes")
    try:
        return msgspec.json.decode(b"" if body is None else bytes(body), type=message_type)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise error("E093", f"{name} is wrong: {problem}") from None


# ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class FlightCall(flight.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """A call in progress. Its resources are released when it ends, however it ends."""

    def __init__(self, calls: "FlightCallFactory", principal: str, token: str) -> None:
        self.principal = principal
        self.resources = ExitStack()
        self._calls = calls
        self._token = token
        self.resources.callback(calls.end_call, principal)

    def call_completed(self, exception: Exception | None) -> None:
        self.resources.close()

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

    def require_log_access(self) -> None:
        if not self.is_log_reader:
            self.require(Right.admin, PROGRAM)

    def require_active(self, context: flight.ServerCallContext) -> None:
        """Raises an error if the client has gone or the broker is stopping."""
        if context.is_cancelled():
            raise flight.FlightCancelledError("the client has gone")
        self._calls.require_running()


_RIGHT_VERBS: Final = {Right.publish: "publish to", Right.subscribe: "subscribe to", Right.admin: "administer"}


class FlightCallFactory(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Admits calls with a valid token, up to a limit. `log_token` allows its holder to read the log, and nothing else:
    Spark's tasks use it, and it ends with this process."""

    def __init__(self, access: Access, request_limiter: RateLimiter, log_token: str) -> None:
        self.access = access
        self._request_limiter = request_limiter
        self.log_token = log_token
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._counts = {True: 0, False: 0}
        """Calls in progress: of readers of the log (True), and all others (False)."""

    @property
    def count(self) -> int:
        return sum(self._counts.values())

    @report_errors
    def start_call(self, info: flight.CallInfo, headers: Mapping[str, Sequence[str | bytes]]) -> FlightCall:
        self.require_running()
        token = _bearer_token(headers)
        principal = self.identify(token)
        if principal != LOG_READER:
            self._request_limiter.spend(principal, 1)
        with self._lock:
            if self._counts[principal == LOG_READER] >= limits.flight_calls_max:
                hint = "Try again later, or end other calls."
                raise error("E092", f"{limits.flight_calls_max} calls are in progress already", hint=hint)
            self._counts[principal == LOG_READER] += 1
        return FlightCall(self, principal, token)

    def end_call(self, principal: str) -> None:
        with self._lock:
            self._counts[principal == LOG_READER] -= 1

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


def _bearer_token(headers: Mapping[str, Sequence[str | bytes]]) -> str:
    for name, values in headers.items():
        if name.casefold() == "authorization" and values:
            value = values[0] if isinstance(values[0], str) else values[0].decode(errors="replace")
            scheme, _, token = value.partition(" ")
            if scheme.casefold() == "bearer":
                return token.strip()
    return ""


def report_stream_errors(batches: Iterator[T]) -> Iterator[T]:
    """Like `report_errors`, for an answer that is generated step by step."""
    try:
        yield from batches
    except Exception as problem:  # noqa: BLE001  # as in `report_errors`
        raise to_flight_error(problem) from None
