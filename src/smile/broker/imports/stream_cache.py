"""The cache of an imported stream: the ranges of events that arrive are appended to the log, each origin for itself.

Appending is idempotent: what is known is dropped, and a range that leaves a gap is not appended. Of a stream with many
origins the membership is appended too, and no range that needs a later one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from smile import limits
from smile.algebra import mmpl
from smile.broker.imports.receipt import Receipt
from smile.decoding.arrow_messages import MALFORMED, check_decoded_size
from smile.decoding.stream_schema import StreamSchema
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN, with_origins
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
    """Only the thread that writes the log may call `take`, `record_commit` and `discard_taken`. Nobody else appends to
    this stream."""

    has_whole_commits: Final = False
    """Whether everything of a commit must be processed in one batch."""

    def __init__(self, import_: mmpl.ImportDef, log: DurableLog) -> None:
        assert import_.stream is not None
        self.import_, self._stream, self._log = import_, import_.stream, log
        self._schema = StreamSchema(self._stream)
        self.events = 0
        """What was appended since this object was created."""
        self._load()
        self._latest = self.membership
        """The latest membership that has arrived, whether or not it is in the log yet."""

    def _load(self) -> None:
        newest = self._log.newest().horizons[self._stream.name]
        self._taken = {origin: tick for origin, tick in newest.items() if tick > HORIZON_MIN}
        self.horizons: Mapping[str, int] = dict(self._taken)
        """The horizon of each origin that anything is known of."""
        self._taken_membership = self._log.membership(self._stream.name) if self._stream.many_origins else None
        self.membership: StreamMembership | None = self._taken_membership
        """Who the origins are; None if nothing is known of them."""
        self._needs_reload = False

    @property
    def has_many_origins(self) -> bool:
        return self._stream.many_origins

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
            raise self._wrong_events(str(problem)) from None
        if events is not None and len(violations := self._schema.checks.violations(events)):
            raise self._wrong_events(self._schema.checks.describe(events, int(violations[0])))
        if self._stream.many_origins:
            self._check_member(piece, self._latest)
        return piece

    def decode_membership(self, version: int, body: bytes) -> StreamMembership:
        """Raises E125 if it is not a membership, and E137 if it contradicts what is known."""
        membership = StreamMembership.decode(self._stream.name, version, body)
        if not self._stream.many_origins:
            raise self._wrong_events("it has one origin only")
        known = self.membership
        if known is not None:
            membership.check_follows(known)
        for origin, member in membership.members.items():
            is_checked = known is not None and origin in known.members and known.members[origin].end is not None
            if member.end is not None and member.is_fenced and not is_checked:
                self._refuse_events_above(origin, member.end)
        if self._latest is None or version > self._latest.version:
            self._latest = membership
        return membership

    def _refuse_events_above(self, origin: str, end: int) -> None:
        """Raises E137 if the log has, or has had, events of an origin after the tick at which it was fenced."""
        tick = end
        while tick < self.horizons.get(origin, HORIZON_MIN):
            try:
                piece = self._log.read_range(self._stream.name, origin, tick, _CHECKED_BYTES)
            except SmileError as problem:
                if problem.diagnostics[0].code != "E097":
                    raise
                piece = None
            if piece is None or piece.rows:
                name = self.import_.name
                message = f"origin {origin} of {name} was fenced at tick {end}, but has later events here"
                hint = "The fence was too early. What was computed from these events cannot be undone: import it anew."
                raise error("E137", message, hint=hint)
            tick = piece.hi

    def _check_member(self, piece: StreamPiece, membership: StreamMembership | None) -> None:
        member = None if membership is None else membership.members.get(piece.origin)
        if member is None:
            message = f"origin {piece.origin}, which is not a member of {self.import_.name}, has sent events"
            raise error("E136", message)
        if member.end is not None and piece.above(member.end).rows:
            name = self.import_.name
            message = f"origin {piece.origin} of {name} has ended at tick {member.end}, but has sent later events"
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
        silences = membership.silences(self._taken)
        self._taken.update({piece.origin: piece.hi for piece in silences})
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
        brokers = " or ".join(self.import_.brokers)
        hint = f"Check whether {brokers} runs the same version of SMILE, and has not changed the stream."
        return error("E125", f"events of {self.import_.name} cannot be used: {problem}", hint=hint)
