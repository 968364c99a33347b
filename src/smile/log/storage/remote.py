"""A log on another machine, read over Arrow Flight. It returns the same results and errors as the durable log there.

The log is pickled in a Spark option, which Spark's UI shows. So the token is never pickled: an unpickled log takes it
from the variable SMILE_TOKEN of its process.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
from pyarrow import flight

from smile import limits
from smile.algebra import mmpl
from smile.decoding.stream_schema import StreamSchema
from smile.errors import CATALOGUE, Diagnostic, SmileError, error
from smile.log.position import BatchLimit, Position
from smile.log.storage.database import definition_text
from smile.log.storage.durable import DurableLog

TOKEN_VARIABLE: Final = "SMILE_TOKEN"
"""The environment variable with a client's token. Spark hides the values of settings with `token` in their names."""

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
"""A random id that Linux creates at each boot. Without this file, every log is read remotely."""

FileIdentity = tuple[str, int, int]

_TRANSIENT_CODES: Final = ("E092", "E098")
"""Errors that a retry may resolve: the broker is overloaded, or is being restarted."""

T = TypeVar("T")


# ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────────


class LogRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A request about these streams of a log. `digest` is the digest of their definitions."""

    streams: tuple[str, ...]
    digest: str
    position: Position | None = None
    limit: BatchLimit = BatchLimit()
    horizons: dict[str, int] = {}


class LogRangeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request for the events of one stream between two positions."""

    streams: tuple[str, ...]
    digest: str
    stream: str
    start: Position
    end: Position


class LogTicket(msgspec.Struct, forbid_unknown_fields=True):
    log: LogRangeRequest


def streams_digest(streams: Sequence[mmpl.StreamDef]) -> str:
    """Distinguishes streams from others with the same names."""
    return hashlib.sha256("".join(map(definition_text, streams)).encode()).hexdigest()


# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class WireError(msgspec.Struct):
    code: str
    message: str
    hint: str | None = None


class FlightErrorInfo(msgspec.Struct):
    """The extra information of an Arrow Flight error."""

    error: WireError


def decode_flight_error(failure: BaseException) -> SmileError | None:
    """The error of the catalogue in a Flight error; None if it has none."""
    try:
        wire_error = msgspec.json.decode(getattr(failure, "extra_info", b""), type=FlightErrorInfo).error
    except msgspec.DecodeError:
        return None
    if wire_error.code not in CATALOGUE:
        return None
    return SmileError(Diagnostic(wire_error.code, wire_error.message, None, wire_error.hint))


# ── local or remote ─────────────────────────────────────────────────────────────────────────────────────────────────


class ServedLog(DurableLog):
    """A durable log that is sent to tasks on any machine. Where the same file exists, it is unpickled as itself;
    everywhere else as `remote`."""

    def __init__(self, path: str, streams: Sequence[mmpl.StreamDef], remote: "RemoteLog", flush: bool = True) -> None:
        super().__init__(str(Path(path).absolute()), streams, flush)
        self.remote = remote

    def __reduce__(self) -> tuple[Any, ...]:
        return _local_or_remote, (file_identity(self.path), self.path, self._definitions, self.remote, self._flush)


def _local_or_remote(
    known_identity: FileIdentity | None, path: str, streams: Sequence[mmpl.StreamDef], remote: "RemoteLog", flush: bool
) -> "ServedLog | RemoteLog":
    return (
        ServedLog(path, streams, remote, flush)
        if known_identity is not None and file_identity(path) == known_identity
        else remote
    )


def file_identity(path: str) -> FileIdentity | None:
    """Identifies a file among those of all machines; None if that is not possible."""
    try:
        status = Path(path).stat()
        return BOOT.read_text(), status.st_dev, status.st_ino
    except OSError:
        return None


# ── the remote log ──────────────────────────────────────────────────────────────────────────────────────────────────


class RemoteLog:
    """These streams of the log of the broker with Arrow Flight at `location` (grpc://HOST:PORT, or grpc+tls://…).
    `authority` is the certificate (PEM) that signed the broker's, if the machine does not trust it anyway. Threads may
    share a remote log."""

    def __init__(
        self,
        location: str,
        streams: Sequence[mmpl.StreamDef],
        token: str | None = None,
        authority: bytes | None = None,
    ) -> None:
        self.location = location
        self.schemas = {stream.name: StreamSchema(stream) for stream in streams}
        self._definitions = tuple(streams)
        self._digest = streams_digest(streams)
        self._token = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
        self._authority = authority
        self._lock = threading.Lock()
        self._client: flight.FlightClient | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteLog, (self.location, self._definitions, None, self._authority)

    def __repr__(self) -> str:
        return f"RemoteLog({self.location!r}, {', '.join(self.schemas)})"

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(self.schemas)

    def start(self) -> Position:
        return self._call_for_position("start")

    def newest(self) -> Position:
        return self._call_for_position("newest")

    def after(self, position: Position, limit: BatchLimit) -> Position:
        return self._call_for_position("after", position=position, limit=limit)

    def resume_position(self, horizons: Mapping[str, int]) -> Position:
        return self._call_for_position("resumed", horizons=dict(horizons))

    def backlog(self, position: Position) -> tuple[int, int]:
        return msgspec.json.decode(self._call_action("waiting", position=position), type=tuple[int, int])

    def read(self, stream: str, start: Position, end: Position) -> pa.RecordBatch:
        request = LogTicket(LogRangeRequest(self.streams, self._digest, stream, start, end))
        ticket = flight.Ticket(msgspec.json.encode(request))
        schema = self.schemas[stream].arrow_schema

        def answer(client: flight.FlightClient, options: flight.FlightCallOptions) -> list[pa.RecordBatch]:
            return [chunk.data for chunk in client.do_get(ticket, options)]

        batches = self._call_with_retries(answer)
        return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _call_for_position(self, action: str, **fields: Any) -> Position:
        return msgspec.json.decode(self._call_action(action, **fields), type=Position)

    def _call_action(self, name: str, **fields: Any) -> bytes:
        request = LogRequest(self.streams, self._digest, **fields)
        action = flight.Action(f"log/{name}", msgspec.json.encode(request))

        def answer(client: flight.FlightClient, options: flight.FlightCallOptions) -> bytes:
            return b"".join(bytes(result.body) for result in client.do_action(action, options))

        return self._call_with_retries(answer)

    def _call_with_retries(self, call: Callable[[flight.FlightClient, flight.FlightCallOptions], T]) -> T:
        """Retries after a lost connection. That is safe, because all calls only read."""
        headers = [(b"authorization", f"Bearer {self._token}".encode())] if self._token else []
        pause = limits.remote_log_pause_s
        for is_last_try in [False] * (limits.remote_log_tries_max - 1) + [True]:
            client = None
            try:
                options = flight.FlightCallOptions(timeout=limits.remote_log_answer_s_max, headers=headers)
                client = self._get_client()
                return call(client, options)
            except (flight.FlightError, pa.ArrowException, OSError) as failure:
                problem = decode_flight_error(failure)
                if problem is not None and (is_last_try or problem.diagnostics[0].code not in _TRANSIENT_CODES):
                    raise problem from None
                if is_last_try:
                    raise self._unreachable_error(failure) from None
            with self._lock:
                if self._client is client:
                    self._client = None  # not closed: other threads may still use it
            time.sleep(pause)
            pause *= 2
        raise AssertionError("the last try returns or raises")

    def _get_client(self) -> flight.FlightClient:
        with self._lock:
            if self._client is None:
                self._client = flight.FlightClient(self.location, tls_root_certs=self._authority)
            return self._client

    def _unreachable_error(self, failure: BaseException) -> SmileError:
        reason = (
            str(failure).strip().splitlines()[0][: limits.excerpt_chars_max] if str(failure).strip() else "no answer"
        )
        hint = "Check that the broker runs there and serves Arrow Flight, with TLS if the location requires it."
        return error("E103", f"the log at {self.location} cannot be read: {reason}", hint=hint)
