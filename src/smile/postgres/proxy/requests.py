"""The requests of a client that the server has not answered yet, and the names of prepared statements and portals.

A response belongs to the oldest request. What a request does to the names happens when the server reports it: a request
that the server skips after an error does nothing. Only names of rewritten statements are stored.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto

from smile.postgres.statements.rewriting import RewrittenQuery


class RequestKind(Enum):
    QUERY = auto()
    FUNCTION_CALL = auto()
    PARSE = auto()
    BIND = auto()
    DESCRIBE_STATEMENT = auto()
    DESCRIBE_PORTAL = auto()
    EXECUTE = auto()
    CLOSE_STATEMENT = auto()
    CLOSE_PORTAL = auto()
    SYNC = auto()
    COPY_END = auto()
    """CopyDone or CopyFail. The server does not answer it."""


@dataclass
class ClientRequest:
    kind: RequestKind
    statement: bytes = b""
    portal: bytes = b""
    rewritten: RewrittenQuery | None = None
    """Of a query, or of a statement to be prepared."""
    completed: int = 0
    """How many translated statements of a query are completed."""


_UNTIL_READY = (RequestKind.QUERY, RequestKind.FUNCTION_CALL, RequestKind.SYNC)


@dataclass
class RequestQueue:
    _requests: deque[ClientRequest] = field(default_factory=deque)
    _statements: dict[bytes, RewrittenQuery] = field(default_factory=dict)
    _portals: dict[bytes, RewrittenQuery] = field(default_factory=dict)
    _skips_to_sync: bool = False
    """After an error, the server ignores everything up to the next Sync, which has not been sent yet."""
    _copies_in: bool = False
    """While data is copied in, the server ignores Sync. The client has not sent the end of the data yet."""

    def add(self, request: ClientRequest) -> None:
        if self._skips_to_sync and request.kind is not RequestKind.SYNC:
            return
        if self._copies_in and request.kind in (RequestKind.SYNC, RequestKind.COPY_END):
            self._copies_in = request.kind is RequestKind.SYNC
            return
        self._skips_to_sync = False
        self._requests.append(request)

    @property
    def oldest(self) -> ClientRequest | None:
        while self._requests and self._requests[0].kind is RequestKind.COPY_END:
            self._requests.popleft()
        return self._requests[0] if self._requests else None

    @property
    def rewritten(self) -> RewrittenQuery | None:
        """What was sent to the server instead of the text that the oldest request is about."""
        request = self.oldest
        if request is None:
            return None
        match request.kind:
            case RequestKind.QUERY | RequestKind.PARSE:
                return request.rewritten
            case RequestKind.BIND | RequestKind.DESCRIBE_STATEMENT:
                return self._statements.get(request.statement)
            case RequestKind.EXECUTE | RequestKind.DESCRIBE_PORTAL:
                return self._portals.get(request.portal)
        return None

    def is_oldest(self, *kinds: RequestKind) -> bool:
        request = self.oldest
        return request is not None and request.kind in kinds

    def complete(self, *kinds: RequestKind) -> None:
        """The server has answered the oldest request, if it is of one of these kinds."""
        request = self.oldest
        if request is None or request.kind not in kinds:
            return
        self._requests.popleft()
        match request.kind:
            case RequestKind.PARSE:
                self._set(self._statements, request.statement, request.rewritten)
            case RequestKind.BIND:
                self._set(self._portals, request.portal, self._statements.get(request.statement))
            case RequestKind.CLOSE_STATEMENT:
                self._statements.pop(request.statement, None)
            case RequestKind.CLOSE_PORTAL:
                self._portals.pop(request.portal, None)

    @staticmethod
    def _set(names: dict[bytes, RewrittenQuery], name: bytes, rewritten: RewrittenQuery | None) -> None:
        if rewritten is not None and rewritten.translations:
            names[name] = rewritten
        else:
            names.pop(name, None)

    def fail(self) -> None:
        """The server has reported an error. In the extended protocol it skips everything up to the next Sync."""
        self._copies_in = False
        if self.is_oldest(*_UNTIL_READY) or self.oldest is None:
            return
        while self._requests and self._requests[0].kind is not RequestKind.SYNC:
            self._requests.popleft()
        self._skips_to_sync = not self._requests

    def begin_copy_in(self) -> None:
        """The server waits for data: it ignores every Sync up to the end of the data."""
        if self.oldest is None:
            return
        later = deque(list(self._requests)[1:])
        while later and later[0].kind is RequestKind.SYNC:
            later.popleft()
        has_end = bool(later) and later[0].kind is RequestKind.COPY_END
        if has_end:
            later.popleft()
        self._copies_in = not later and not has_end
        self._requests = deque([self._requests[0], *later])

    def report_ready(self, is_idle: bool) -> None:
        """The server is ready for the next query. At the end of a transaction its portals are closed."""
        self.complete(*_UNTIL_READY)
        if is_idle:
            self._portals.clear()

    def forget_statements(self) -> None:
        self._statements.clear()
