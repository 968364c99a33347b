"""A stream with many origins that this broker publishes to, as its home or as another host.

The home changes the membership: in the thread that writes the log, so that a new member starts above everything that
was announced before, and nothing above it is announced without the new membership. Another host only takes over what
the home has decided.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from smile.algebra import mmpl
from smile.broker.imports.cache_append import CacheAppend
from smile.broker.imports.receipt import Receipt
from smile.broker.network.link_imports import LogQueue
from smile.errors import error
from smile.horizons import END
from smile.links.imports import MembersImport
from smile.links.messages import OpenImport
from smile.log.membership import HOME_ORIGIN, StreamMembership
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece


def found_stream(stream: mmpl.StreamDef, log: DurableLog, broker: str, log_id: str, history: str) -> None:
    """Makes a broker the first origin of a stream that has its home there, if the stream is new."""
    if stream.home is None and log.membership(stream.name) is None:
        membership = StreamMembership.founded(stream.name, history, broker, log_id)
        log.append(membership.silences({}), memberships=[membership])


MembershipChange = Callable[[StreamMembership], StreamMembership]


class HostedStream:
    """`broker` is the name of this broker, `log_id` identifies its log, and `digest` the definition of the stream.
    `own_horizon` returns the horizon of this broker's origin; only the thread that writes the log calls it. That thread
    also calls `take`, `record_commit` and `discard_taken`."""

    has_whole_commits: Final = False
    log_horizons: Final[Mapping[str, int]] = {}

    def __init__(
        self,
        stream: mmpl.StreamDef,
        digest: str,
        log: DurableLog,
        broker: str,
        log_id: str,
        own_horizon: Callable[[], int],
    ) -> None:
        self.stream, self.name, self.digest, self.log_id = stream, stream.name, digest, log_id
        self._broker, self._log, self._own_horizon = broker, log, own_horizon
        self.wants_to_rejoin = False
        self._load()

    def _load(self) -> None:
        self.membership = self._taken = self._log.membership(self.name)
        self._needs_reload = False

    @property
    def is_home(self) -> bool:
        return self.stream.home is None

    @property
    def origin(self) -> str | None:
        """What this broker is; None if it has not joined, or has left."""
        return None if self.membership is None else self.membership.find(self._broker, self.log_id)

    @property
    def has_been_member(self) -> bool:
        return self.membership is not None and any(m.log == self.log_id for m in self.membership.members.values())

    # ── changes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, data: StreamMembership | MembershipChange) -> tuple[Receipt, list[StreamPiece | StreamMembership]]:
        if self._needs_reload:
            self._load()
        if isinstance(data, StreamMembership):
            membership = data
        elif self._taken is not None:
            membership = data(self._taken)
        else:
            return Receipt.REDUNDANT, []
        if self._taken is not None and membership.version <= self._taken.version:
            return Receipt.REDUNDANT, []
        # If this broker was fenced, its log may have events after the end. So its horizon stays where it is.
        fenced = [o for o, m in membership.members.items() if m.log == self.log_id and m.is_fenced]
        silences = membership.silences(self._log.stream_horizons(self.name), except_for=fenced)
        self._taken = membership
        return Receipt.APPENDED, [*silences, membership]

    def record_commit(self) -> None:
        self.membership = self._taken
        if self.origin is not None:
            self.wants_to_rejoin = False

    def discard_taken(self) -> None:
        self._needs_reload = True

    def join(self, broker: str, log: str) -> MembershipChange:
        """The change that makes a broker an origin. Raises E137 if that is not possible, and E135 if the home has
        left: nobody says any more who the origins are."""
        assert self.membership is not None
        self._refuse_if_closed()
        if self.membership.find(broker, log) is None:
            self.membership.joined(broker, log, END)

        def change(membership: StreamMembership) -> StreamMembership:
            if membership.find(broker, log) is not None:
                return membership
            self._refuse_if_closed()
            return membership.joined(broker, log, self._own_horizon() + 1)

        return change

    def _refuse_if_closed(self) -> None:
        if self._log.stream_horizons(self.name).get(HOME_ORIGIN) == END:
            raise error("E135", f"nobody can join {self.name}: its home has left")

    def end(self) -> int | None:
        """The last tick of this broker's origin, if it has left; None if it has not, or its home knows it already."""
        origin = self.origin
        if origin is None or self._log.stream_horizons(self.name).get(origin) != END:
            return None
        return self._log.last_tick(self.name, origin)

    def members(self) -> int:
        return 0 if self.membership is None else self.membership.version


class HostedStreamSink:
    """Takes in the membership of a stream from its home, over one link."""

    def __init__(self, hosted: HostedStream, queue: LogQueue) -> None:
        self._hosted, self._queue = hosted, queue

    def members(self) -> int:
        return self._hosted.members()

    def append_members(self, version: int, body: bytes) -> None:
        membership = StreamMembership.decode(self._hosted.name, version, body)
        if self._hosted.membership is not None:
            membership.check_follows(self._hosted.membership)
        self._queue.append(CacheAppend(self._hosted.name, self._hosted, membership, 0, len(body)))

    def end(self) -> int | None:
        return self._hosted.end()


def open_members_import(
    import_id: int, hosted: HostedStream, queue: LogQueue, random: Random, now: float
) -> MembersImport:
    """The receiving end on a link to the home. A broker that has left does not join again by itself."""
    is_joining = hosted.origin is None and (hosted.wants_to_rejoin or not hosted.has_been_member)
    history = "" if hosted.membership is None else hosted.membership.history
    request = OpenImport(
        import_id, hosted.name, hosted.digest, history, hosts=True, log=hosted.log_id, joins=is_joining
    )
    return MembersImport(import_id, request, HostedStreamSink(hosted, queue), random, now)
