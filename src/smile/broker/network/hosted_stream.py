"""A stream with many origins that this broker publishes to, as its home or as another host.

The home changes the membership: in the thread that writes the log, so that a new member starts above everything that
was announced before, and nothing above it is announced without the new membership. Another host only takes over what
the home has decided.

The publisher appends the events of this broker. If anybody at this broker reads the stream, those of the other origins
are imported from all hosts that it has links to. A range is a fact about its origin, so it may come from any of them;
an origin never imports its own.
"""

from collections.abc import Callable, Mapping, Set as AbstractSet
from random import Random

from smile.algebra import mmpl
from smile.broker.imports.receipt import Receipt
from smile.broker.imports.stream_cache import StreamCache, StreamRange
from smile.broker.network.link_imports import LogQueue, StreamImportSink
from smile.broker.network.neighbours import Acknowledgements, least_acknowledged
from smile.errors import error
from smile.horizons import END, HORIZON_MIN, origin_name
from smile.links.imports import MembersImport, StreamImport
from smile.links.messages import OpenImport, StreamHorizons
from smile.log.membership import HOME_ORIGIN, StreamMembership
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece


def found_stream(stream: mmpl.StreamDef, log: DurableLog, broker: str, log_id: str, history: str) -> None:
    """Makes a broker the first origin of a stream that has its home there, if the stream is new."""
    if stream.home is None and log.membership(stream.name) is None:
        membership = StreamMembership.founded(stream.name, history, broker, log_id)
        log.append(membership.silences({}), memberships=[membership])


MembershipChange = Callable[[StreamMembership], StreamMembership]


class HostedStream(StreamCache):
    """The other origins are those of the cache. `broker` is the name of this broker, `log_id` identifies its log, and
    `digest` the definition of the stream. `own_horizon` returns the horizon of this broker's origin; only the thread
    that writes the log calls it. `is_read` says whether anybody at this broker reads the stream, and `on_members` is
    called when the membership has changed."""

    def __init__(
        self,
        stream: mmpl.StreamDef,
        digest: str,
        log: DurableLog,
        broker: str,
        log_id: str,
        own_horizon: Callable[[], int],
        is_read: Callable[[], bool],
        on_members: Callable[[], None],
    ) -> None:
        self.stream, self.digest, self.log_id = stream, digest, log_id
        self.is_read = is_read
        self._broker, self._own_horizon, self._on_members = broker, own_horizon, on_members
        self.wants_to_rejoin = False
        self._checked_fences: set[str] = set()
        super().__init__(stream.name, stream, ["the other origins"], log)

    def _own_origins(self, membership: StreamMembership | None) -> AbstractSet[str]:
        members = {} if membership is None else membership.members
        return {origin for origin, member in members.items() if member.log == self.log_id}

    @property
    def is_home(self) -> bool:
        return self.stream.home is None

    @property
    def origin(self) -> str | None:
        """What this broker is; None if it has not joined, or has left."""
        return None if self.membership is None else self.membership.find(self._broker, self.log_id)

    @property
    def has_been_member(self) -> bool:
        return bool(self._own_origins(self.membership))

    @property
    def other_hosts(self) -> AbstractSet[str]:
        """The brokers that publish to the stream, or have done so, without this one."""
        members = {} if self.membership is None else self.membership.members
        return {member.broker for member in members.values()} - {self._broker}

    @property
    def log_horizons(self) -> Mapping[str, int]:
        """The horizons of the other origins."""
        return {origin_name(self.name, origin): tick for origin, tick in self.horizons.items()}

    def safe_horizons(self, checkpoint: Mapping[str, int], importers: Acknowledgements) -> StreamHorizons:
        """What this broker will not ask for again: its own origins, and of the others what is in the hard checkpoint,
        which has these horizons, and in those of the brokers that only import the stream from here. Other hosts do not
        count: each of them asks all the others itself, and the log keeps what it has not acknowledged."""
        if self.name not in checkpoint:
            return {}

        def safe(origin: str) -> int:
            return min(
                checkpoint.get(origin_name(self.name, origin), HORIZON_MIN), least_acknowledged(importers, origin)
            )

        own = dict.fromkeys(sorted(self._own_origins(self.membership)), END)
        return {self.name: {**{o: min(safe(o), tick) for o, tick in self.horizons.items()}, **own}}

    # ── changes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def take(
        self, data: StreamRange | StreamMembership | MembershipChange
    ) -> tuple[Receipt, list[StreamPiece | StreamMembership]]:
        if isinstance(data, StreamRange | StreamMembership):
            receipt, entries = super().take(data)
            return receipt, [*entries, *self._fenced_silences()]
        if self._needs_reload:
            self._load()
        if self._taken_membership is None:
            return Receipt.REDUNDANT, []
        membership = data(self._taken_membership)
        for origin, end in self._new_fences(membership, self._taken_membership).items():
            if self._has_events_above(origin, end):
                hint = f"This broker has it up to tick {self.horizons[origin]}. Fence it there, or later."
                raise error("E137", f"origin {origin} of {self.name} has events above tick {end} here", hint=hint)
        return super().take(membership)

    def _fenced_silences(self) -> list[StreamPiece]:
        """The silence of origins that this broker was before it was fenced, if it has published nothing after that.
        Otherwise the horizon of the stream stays where it is here: the log contradicts the membership. Only for fences
        that are in the log, so that the publisher appends nothing more to these origins."""
        members = {} if self.membership is None else self.membership.members
        pieces = []
        for origin in self._own_origins(self.membership) - self._checked_fences:
            member = members[origin]
            if member.is_fenced and member.end is not None:
                self._checked_fences.add(origin)
                horizon = self._log.stream_horizons(self.name).get(origin, HORIZON_MIN)
                if horizon < END and not self._has_events_above(origin, member.end):
                    pieces.append(StreamPiece(self.name, origin, horizon, END))
        return pieces

    def discard_taken(self) -> None:
        super().discard_taken()
        self._checked_fences.clear()

    def record_commit(self) -> None:
        has_changed = self.membership is not self._taken_membership
        super().record_commit()
        if has_changed:
            if self.origin is not None and self.end() is None:
                self.wants_to_rejoin = False
            self._on_members()

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


class HostedMembersSink(StreamImportSink):
    """Takes in the membership of a stream from its home, over one link."""

    def __init__(self, hosted: HostedStream, queue: LogQueue) -> None:
        super().__init__(hosted, queue)
        self._hosted = hosted

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
    return MembersImport(import_id, request, HostedMembersSink(hosted, queue), random, now)


def open_origins_import(
    import_id: int, hosted: HostedStream, queue: LogQueue, random: Random, now: float
) -> StreamImport:
    """The receiving end of the other origins, on a link to another host."""
    assert hosted.membership is not None
    request = OpenImport(import_id, hosted.name, hosted.digest, hosted.membership.history, log=hosted.log_id)
    return StreamImport(import_id, request, StreamImportSink(hosted, queue), random, now)
