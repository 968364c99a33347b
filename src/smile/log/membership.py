"""The membership of a stream with many origins: which brokers are its origins, from which tick on, and up to which.

The stream's home changes it, and everybody else has a copy. Versions order the copies. A member's number is never given
to another log. A member starts above everything that the home had announced before, and each range of the home's origin
names the version that is needed to take it in. So nobody passes the start of a member that it does not know.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

import msgspec

from smile import limits
from smile.errors import SmileError, error
from smile.horizons import END, HORIZON_MIN, ORIGIN_MAX
from smile.log.storage.pieces import StreamPiece

HOME_ORIGIN: Final = "1"
"""The number of the home. It is always a member: its horizon says up to where the membership is known."""

START_MIN: Final = HORIZON_MIN + 1
"""The start of the home. Every member has a start above the least horizon, so that the log knows the origin."""


@dataclass(frozen=True)
class StreamMember:
    """A broker, and `log`, which identifies its log. All events of the origin are above `start`. If it has ended, none
    is above `end`; it has ended by a command of its broker, or was fenced by the home. Of a global stream, `registered`
    is the version of the broker's producers up to what is known of the origin."""

    broker: str
    log: str
    start: int
    end: int | None = None
    is_fenced: bool = False
    registered: int = 0


@dataclass(frozen=True)
class StreamMembership:
    """`stream` is the name in the log. `history` identifies the stream, at all its hosts and importers. Of what is
    assembled from a global stream, `epoch` is the digest of the closed epoch that the home's horizon is about."""

    stream: str
    history: str
    version: int
    members: Mapping[str, StreamMember] = field(default_factory=dict)
    epoch: str = ""

    @staticmethod
    def founded(stream: str, history: str, home: str, log: str) -> "StreamMembership":
        """That of a new stream, which has its home as the only member."""
        return StreamMembership(stream, history, 1, {HOME_ORIGIN: StreamMember(home, log, START_MIN)})

    def find(self, broker: str, log: str) -> str | None:
        """The origin that a broker with this log is; None if it is none, or has ended."""
        members = self.members.items()
        return next((o for o, m in members if (m.broker, m.log, m.end) == (broker, log, None)), None)

    def check_claim(self, broker: str, log: str) -> None:
        """Raises E137 if the broker is a member with another log, or its log is that of another member."""
        for origin, member in self.members.items():
            if member.end is None and (member.broker == broker) != (member.log == log):
                message = f"origin {origin} of {self.stream} is {member.broker} with another log"
                if member.log == log:
                    message = f"{broker} has a copy of the log of {member.broker}, which is origin {origin}"
                hint = (
                    f"If that log is lost, fence it at the home: smile origin fence {self.stream} {origin} --at TICK."
                )
                raise error("E137", message, hint=hint)

    def joined(self, broker: str, log: str, start: int) -> "StreamMembership":
        """With a new member. Raises E137 if the broker is one already, with another log, or its log is that of another
        broker."""
        self.check_claim(broker, log)
        number = max(map(int, self.members), default=0) + 1
        if number > ORIGIN_MAX:
            raise error("E137", f"{self.stream} has had {ORIGIN_MAX} origins: no number is left")
        return self._with(str(number), StreamMember(broker, log, start))

    def ended(self, origin: str, end: int, is_fenced: bool) -> "StreamMembership":
        """Raises E137 if the origin is not a member, or has ended elsewhere."""
        member = self.members.get(origin)
        if member is None:
            raise error("E137", f"{self.stream} has no origin {origin}")
        if member.end is not None and member.end != end:
            raise error("E137", f"origin {origin} of {self.stream} has ended at tick {member.end} already")
        if end < member.start:
            raise error("E137", f"origin {origin} of {self.stream} has begun at tick {member.start}, after tick {end}")
        return self if member.end == end else self._with(origin, replace(member, end=end, is_fenced=is_fenced))

    def _with(self, origin: str, member: StreamMember) -> "StreamMembership":
        return replace(self, version=self.version + 1, members={**self.members, origin: member})

    def capped(self, horizons: Mapping[str, int]) -> dict[str, int]:
        """Horizons as they are passed on: nobody passes on what an origin has sent after its end."""
        ends = {origin: member.end for origin, member in self.members.items() if member.end is not None}
        return {origin: min(tick, ends.get(origin, END)) for origin, tick in horizons.items()}

    def silences(self, known: Mapping[str, int], except_for: Collection[str] = ()) -> list[StreamPiece]:
        """The silence that follows from the membership for a log that knows each origin up to these ticks: before an
        origin has begun, and after it has ended. So the log has all members as origins, and the least of their horizons
        is that of the stream."""
        pieces = []
        for origin, member in self.members.items():
            tick = known.get(origin, HORIZON_MIN)
            silent = self.completed(StreamPiece(self.stream, origin, tick, max(tick, member.start)))
            if silent.hi > tick and origin not in except_for:
                pieces.append(silent)
        return pieces

    def completed(self, piece: StreamPiece) -> StreamPiece:
        """A piece that reaches the end of its origin is silent for ever after."""
        end = self.members[piece.origin].end
        return replace(piece, hi=END) if end is not None and piece.hi >= end else piece

    def check_follows(self, earlier: "StreamMembership") -> None:
        """Raises E137 if both cannot be true: two brokers claim one number, or an end is another one."""
        if self.history != earlier.history:
            raise error("E137", f"the membership of {self.stream} is that of another stream of this name")
        new, old = (self, earlier) if self.version >= earlier.version else (earlier, self)
        for origin, member in old.members.items():
            present = new.members.get(origin)
            if present is None or (present.log, present.start) != (member.log, member.start):
                other = "nobody" if present is None else present.broker
                raise error("E137", f"origin {origin} of {self.stream} is {member.broker}, and not {other}")
            if member.end not in (None, present.end):
                raise error(
                    "E137", f"origin {origin} of {self.stream} has ended at tick {member.end}, not {present.end}"
                )

    def encode(self) -> bytes:
        return msgspec.json.encode(
            _Content(self.history, {o: _Entry.of(m) for o, m in self.members.items()}, self.epoch)
        )

    @staticmethod
    def decode(stream: str, version: int, text: bytes) -> "StreamMembership":
        """Raises E125 if it is not a membership."""
        try:
            content = _decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
            raise _wrong(stream, str(problem)[: limits.excerpt_chars_max]) from None
        members = {origin: entry.member() for origin, entry in content.members.items()}
        for origin, member in members.items():
            if origin not in _ORIGINS:
                raise _wrong(stream, f"{origin[: limits.excerpt_chars_max]} is not the number of an origin")
            if member.end is not None and member.end < member.start:
                raise _wrong(stream, f"origin {origin} ends before it begins")
        return StreamMembership(stream, content.history, version, members, content.epoch)


def _wrong(stream: str, problem: str) -> SmileError:
    return error("E125", f"the membership of {stream} cannot be used: {problem}")


_ORIGINS: Final = frozenset(map(str, range(1, ORIGIN_MAX + 1)))
_Name = Annotated[str, msgspec.Meta(max_length=limits.link_text_chars_max)]


class _Entry(msgspec.Struct, frozen=True):
    broker: _Name
    log: _Name
    start: int
    end: int | None = None
    fenced: bool = False
    registered: int = 0

    def __post_init__(self) -> None:
        if not START_MIN <= self.start <= END or not (self.end is None or self.end <= END):
            raise ValueError("a tick is out of range")

    @staticmethod
    def of(member: StreamMember) -> "_Entry":
        return _Entry(member.broker, member.log, member.start, member.end, member.is_fenced, member.registered)

    def member(self) -> StreamMember:
        return StreamMember(self.broker, self.log, self.start, self.end, self.fenced, self.registered)


class _Content(msgspec.Struct, frozen=True):
    history: _Name
    members: Annotated[dict[str, _Entry], msgspec.Meta(max_length=ORIGIN_MAX)]
    epoch: _Name = ""


_decoder: Final = msgspec.json.Decoder(_Content)
