"""The cache of an imported stream: the ranges of events that arrive are appended to the log, each origin for itself.

Appending is idempotent: what is known is dropped, and a range that leaves a gap is not appended. Of a stream with many
origins the membership is appended too, and no range that needs a later one.
"""

from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from smile import limits
from smile.algebra import mmpl
from smile.broker.imports.receipt import Receipt
from smile.decoding.arrow_messages import MALFORMED, check_decoded_size
from smile.decoding.stream_schema import StreamSchema
from smile.errors import SmileError, error, message_of
from smile.horizons import END, HORIZON_MIN, with_origins
from smile.log.membership import StreamMembership
from smile.log.storage.durable import DurableLog
from smile.log.storage.pieces import StreamPiece, check_piece

_CHECKED_BYTES: Final = 2**20


@dataclass(frozen=True)
class StreamRange:
    """A range of an origin, and the version of the membership that is needed to append it."""

    piece: StreamPiece
    members: int = 0


class StreamCache:
    """`name` is that of the stream in the program, and `stream` its definition in the log. `brokers` are those from
    which it comes. Only the thread that writes the log may call `take`, `record_commit` and `discard_taken`. Nobody
    else appends to the origins of this cache."""

    has_whole_commits: Final = False
    """Whether everything of a commit must be processed in one batch."""

    def __init__(self, name: str, stream: mmpl.StreamDef, brokers: Sequence[str], log: DurableLog) -> None:
        self.name, self._stream, self._brokers, self._log = name, stream, brokers, log
        self._schema = StreamSchema(self._stream)
        self.events = 0
        """What was appended since this object was created."""
        self._load()
        self._arrived_membership: StreamMembership | None = None
        """The latest one that has arrived, whether or not it is in the log yet."""

    def _load(self) -> None:
        newest = self._log.newest().horizons[self._stream.name]
        self._taken_membership = self._log.membership(self._stream.name) if self._stream.many_origins else None
        own = self._own_origins(self._taken_membership)
        self._taken = {origin: tick for origin, tick in newest.items() if tick > HORIZON_MIN and origin not in own}
        self.horizons: Mapping[str, int] = dict(self._taken)
        """The horizon of each origin that anything is known of."""
        self.membership: StreamMembership | None = self._taken_membership
        """Who the origins are; None if nothing is known of them."""
        self._needs_reload = False

    def _own_origins(self, membership: StreamMembership | None) -> AbstractSet[str]:
        """The origins that this broker is, or has been. They are not part of the cache."""
        return frozenset()

    @property
    def has_many_origins(self) -> bool:
        return self._stream.many_origins

    @property
    def is_global(self) -> bool:
        """Whether a producer or a republisher of a global stream has it."""
        return self._stream.is_global

    @property
    def log_stream(self) -> str:
        """The name of the stream in the log."""
        return self._stream.name

    @property
    def log_horizons(self) -> Mapping[str, int]:
        """The horizon of this stream in the log."""
        if self._stream.many_origins:
            return with_origins(self._stream.name, self.horizons)
        return {self._stream.name: min(self.horizons.values(), default=HORIZON_MIN)}

    def append(self, origin: str, lo: int, hi: int, events: pa.RecordBatch | None, time_us: int = 0) -> Receipt:
        """Appends all events of an origin in (lo, hi] to the log at once."""
        receipt, entries = self.take(StreamRange(StreamPiece(self._stream.name, origin, lo, hi, events)))
        pieces = [entry for entry in entries if isinstance(entry, StreamPiece)]
        if pieces:
            self._log.append(pieces, time_us=time_us)
            self.record_commit()
        return receipt

    # ── what arrives ────────────────────────────────────────────────────────────────────────────────────────────────

    def decode(self, origin: str, lo: int, hi: int, body: bytes) -> StreamPiece:
        """The events of a message; empty bytes mean silence. Raises E125 if they are not events of this stream, and
        E136 if they are not of a member."""
        events = None
        try:
            if body:
                check_decoded_size(body, limits.publication_bytes_max)
                events = pa.ipc.read_record_batch(pa.py_buffer(body), self._schema.arrow_schema)
                events.validate(full=True)
            piece = StreamPiece(self._stream.name, origin, lo, hi, events)
            check_piece(piece, {self._stream.name: self._schema})
        except (pa.ArrowException, OSError, EOFError, *MALFORMED, SmileError) as problem:
            raise self._wrong_events(message_of(problem)) from None
        if events is not None and len(violations := self._schema.checks.violations(events)):
            raise self._wrong_events(self._schema.checks.describe(events, int(violations[0])))
        if self._stream.many_origins:
            self._check_member(piece, self._latest_membership)
        return piece

    def decode_membership(self, version: int, body: bytes) -> StreamMembership:
        """Raises E125 if it is not a membership, and E137 if it contradicts what is known."""
        membership = StreamMembership.decode(self._stream.name, version, body)
        if not self._stream.many_origins:
            raise self._wrong_events("it has one origin only")
        known = self.membership
        if known is not None:
            membership.check_follows(known)
        for origin, end in self._new_fences(membership, known).items():
            if self._has_events_above(origin, end):
                message = f"origin {origin} of {self.name} was fenced at tick {end}, but has later events here"
                hint = "The fence was too early. What was computed from these events cannot be undone: import it anew."
                raise error("E137", message, hint=hint)
        self._arrived_membership = membership
        return membership

    @property
    def _latest_membership(self) -> StreamMembership | None:
        memberships = [m for m in (self.membership, self._arrived_membership) if m is not None]
        return max(memberships, key=lambda membership: membership.version, default=None)

    def _new_fences(self, membership: StreamMembership, known: StreamMembership | None) -> dict[str, int]:
        """The origins of this cache that have been fenced since a membership was known, and at which ticks."""
        ended = set[str]() if known is None else {o for o, member in known.members.items() if member.end is not None}
        others = membership.members.keys() - ended - self._own_origins(membership)
        members = ((origin, membership.members[origin]) for origin in others)
        return {o: member.end for o, member in members if member.is_fenced and member.end is not None}

    def _has_events_above(self, origin: str, tick: int) -> bool:
        """Whether the log has, or has had, events of an origin above a tick."""
        horizon = self._log.stream_horizons(self._stream.name).get(origin, HORIZON_MIN)
        while tick < horizon:
            try:
                piece = self._log.read_range(self._stream.name, origin, tick, _CHECKED_BYTES)
            except SmileError as problem:
                if problem.diagnostics[0].code != "E097":
                    raise
                piece = None
            if piece is None or piece.rows:
                return True
            tick = piece.hi
        return False

    def _check_member(self, piece: StreamPiece, membership: StreamMembership | None) -> None:
        member = None if membership is None else membership.members.get(piece.origin)
        if member is None:
            message = f"origin {piece.origin}, which is not a member of {self.name}, has sent events"
            raise error("E136", message)
        if piece.origin in self._own_origins(membership):
            raise error("E136", f"origin {piece.origin} of {self.name} is this broker, but its events have arrived")
        if member.end is not None and piece.above(member.end).rows:
            message = f"origin {piece.origin} of {self.name} has ended at tick {member.end}, but has sent later events"
            raise error("E136", message)

    # ── appending ───────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, data: StreamRange | StreamMembership) -> tuple[Receipt, list[StreamPiece | StreamMembership]]:
        """What is to be appended of a range or a membership. Call `record_commit` or `discard_taken` afterwards."""
        if self._needs_reload:
            self._load()
        if isinstance(data, StreamMembership):
            return self._take_membership(data)
        piece, membership = data.piece, self._taken_membership
        if data.members > (0 if membership is None else membership.version):
            return Receipt.GAP, []
        known = self._taken.get(piece.origin, HORIZON_MIN)
        if piece.hi <= known:
            return Receipt.REDUNDANT, []
        if piece.lo > known:
            return Receipt.GAP, []
        if membership is not None:
            self._check_member(piece, membership)
            piece = membership.completed(piece)
        new = piece.above(known)
        self._taken[piece.origin] = piece.hi
        self.events += new.rows
        return Receipt.APPENDED, [new]

    def _take_membership(self, membership: StreamMembership) -> tuple[Receipt, list[StreamPiece | StreamMembership]]:
        if self._taken_membership is not None and membership.version <= self._taken_membership.version:
            return Receipt.REDUNDANT, []
        for origin, end in self._new_fences(membership, self._taken_membership).items():
            if end < self._taken.get(origin, HORIZON_MIN) != self.horizons.get(origin):
                # Events that nobody has compared with the fence are about to be logged.
                raise error("E123", f"{self.name} has received more of origin {origin}, which was fenced meanwhile")
        own = self._own_origins(membership)
        logged = self._log.stream_horizons(self._stream.name) if own else {}
        # If this broker was fenced, its log may have events after the end. So its horizon stays where it is.
        fenced = [origin for origin in own if membership.members[origin].is_fenced]
        known = {**self._taken, **{origin: tick for origin, tick in logged.items() if origin in own}}
        silences = membership.silences(known, except_for=fenced)
        # It has published nothing as an origin of which it learns only now that it is fenced.
        known_members = {} if self._taken_membership is None else self._taken_membership.members
        silences += [
            StreamPiece(self._stream.name, origin, HORIZON_MIN, END)
            for origin in fenced
            if origin not in logged and origin not in known_members
        ]
        self._taken.update({piece.origin: piece.hi for piece in silences if piece.origin not in own})
        self._taken_membership = membership
        return Receipt.APPENDED, [*silences, membership]

    def record_commit(self) -> None:
        """What was taken is in the log."""
        self.horizons = dict(self._taken)
        self.membership = self._taken_membership

    def discard_taken(self) -> None:
        """What was taken is not in the log, or may not be."""
        self._needs_reload = True

    def _wrong_events(self, problem: str) -> SmileError:
        brokers = " or ".join(self._brokers)
        hint = f"Check whether {brokers} runs the same version of SMILE, and has not changed the stream."
        return error("E125", f"events of {self.name} cannot be used: {problem}", hint=hint)
