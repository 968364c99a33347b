"""Messages of a link: what two brokers send each other.

A message has a header, a small JSON object of a known type, and possibly a body: Arrow data in the encoding of its
relation. A packet is a message, or a bundle of them. Nothing that a neighbour sends is trusted: a header is decoded
into its type, with bounded sizes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from smile import limits
from smile.errors import error
from smile.horizons import END, HORIZON_MIN

VERSION: Final = 3
"""The version of the protocol. Two brokers use the lower one of theirs, if both know it."""

VERSION_MIN: Final = 3
"""The oldest version that this broker knows."""

PACKET_BYTES: Final = 2**16
"""Messages that are sent at the same time are put into packets of up to this size."""

Tick = Annotated[int, Meta(ge=HORIZON_MIN, le=END)]
Name = Annotated[str, Meta(min_length=1, max_length=limits.link_name_chars_max)]
Text = Annotated[str, Meta(max_length=limits.link_text_chars_max)]
ImportId = Annotated[int, Meta(ge=0, le=2**31)]
Number = Annotated[int, Meta(ge=0, le=2**62)]
Change = Annotated[int, Meta(ge=-1, le=2**62)]
Origin = Annotated[str, Meta(min_length=1, max_length=limits.link_name_chars_max)]
StreamHorizons = Annotated[dict[str, dict[str, Tick]], Meta(max_length=limits.link_streams_max)]
"""By stream and origin."""
Description = Annotated[str, Meta(max_length=limits.routing_description_chars_max)]
RoutingKey = tuple[Text, ...]
"""Identifies an entry of a routing table: its kind, and the fields that its docstring names first."""
OriginRange = tuple[Origin, Tick, Tick]
"""The ticks of an origin above the first and up to the second."""
Size = Annotated[int, Meta(ge=0, le=limits.link_message_bytes_max)]


class LinkMessage(Struct, frozen=True, tag_field="kind"):
    """The base class of all headers."""


class Hello(LinkMessage, frozen=True, tag="hello"):
    """The first message of both sides. `run` identifies one start of the broker. `has_heard`: the sender has heard the
    other side's greeting, and needs no answer."""

    version: int
    version_min: int
    broker: Name
    run: Name
    has_heard: bool = False


class OpenImport(LinkMessage, frozen=True, tag="open"):
    """Asks for a relation. `definition` is the digest of the definition that the importing broker has compiled its
    program with, and `history` identifies the log that it goes back to. `horizons` say what it has already: those of
    the stream, or of the streams that the view is computed from. `members` is the version of the stream's membership
    that it has.

    `hosts`: the broker publishes to the stream itself, and asks the stream's home for the membership only. `joins`: it
    asks to be an origin. `log` identifies the log of a broker that publishes to the stream: its own origins are not
    sent to it."""

    id: ImportId
    relation: Name
    definition: Text
    history: Text = ""
    where: Text = ""
    horizons: StreamHorizons = {}
    members: Number = 0
    hosts: bool = False
    log: Text = ""
    joins: bool = False


class ImportOpened(LinkMessage, frozen=True, tag="opened"):
    """For a view: the change number of the exporting broker after which the rows begin (-1: with all rows). The data
    messages that follow have numbers above `n`."""

    id: ImportId
    change: Change = -1
    n: Number = 0


class ImportRefused(LinkMessage, frozen=True, tag="refused"):
    """`is_permanent`: it makes no sense to ask again before somebody has changed something."""

    id: ImportId
    code: Name
    message: Text
    hint: Text = ""
    is_permanent: bool = False


class SentRange(Struct, frozen=True, array_like=True):
    """All events of an origin above `lo` up to `hi`: `rows` events in `bytes` bytes of the message's body, which has
    the ranges one after the other. A range without bytes is silence."""

    origin: Origin
    lo: Tick
    hi: Tick
    rows: Number = 0
    bytes: Size = 0


class EventsMessage(LinkMessage, frozen=True, tag="events"):
    """Ranges of the origins of a stream. `n` numbers the data messages of a link.

    `members` is a version of the stream's membership, 0 if it has one origin: only who has this version or a later one
    may take the ranges in. Otherwise a range could pass the start of an origin that is not known yet."""

    n: Number
    id: ImportId
    ranges: Annotated[tuple[SentRange, ...], Meta(max_length=limits.link_ranges_max)]
    members: Number = 0

    @property
    def rows(self) -> int:
        return sum(sent.rows for sent in self.ranges)


class MembersMessage(LinkMessage, frozen=True, tag="members"):
    """The membership of a stream with many origins, in the body. A later version contains everything that an earlier
    one has."""

    n: Number
    id: ImportId
    version: Number
    rows: Number = 0


class RangeGone(LinkMessage, frozen=True, tag="gone"):
    """The answer to a question: nobody has the events of an origin above `lo` up to `hi` any more."""

    id: ImportId
    origin: Origin
    lo: Tick
    hi: Tick


class RowsMessage(LinkMessage, frozen=True, tag="rows"):
    """All rows of a view that have changed after change `first` up to change `last`, each with its whole present
    knowledge, in the body. If the rows are complete up to horizons, the message has them.

    `epoch` counts how often the exporting side has begun anew with all rows. The first message of an epoch has -1 as
    `first`: all earlier rows are then to be discarded."""

    n: Number
    id: ImportId
    epoch: Number
    first: Change
    last: Change
    horizons: StreamHorizons | None = None
    rows: Number = 0


class Curious(LinkMessage, frozen=True, tag="curious"):
    """Asks again for ranges of a stream, and for everything of origins that are not named; or for what has changed in a
    view after a change of an epoch (-1: for all rows). `members` is the version of the membership that is known.

    `is_passed_on`: the question comes from another broker, to which the answer is passed on. Each range is answered by
    one message with its beginning. `end`: the sender has left the stream as an origin, and its last event is not above
    this tick."""

    id: ImportId
    ranges: Annotated[tuple[OriginRange, ...], Meta(max_length=limits.link_ranges_max)] = ()
    includes_other_origins: bool = False
    epoch: Number = 0
    after: Change | None = None
    members: Number = 0
    is_passed_on: bool = False
    end: Tick | None = None


class Acknowledge(LinkMessage, frozen=True, tag="acknowledge"):
    """What the importing broker will not ask for again, whatever happens to it."""

    id: ImportId
    horizons: StreamHorizons


class Received(LinkMessage, frozen=True, tag="received"):
    """Everything up to this data message is stored, or lost. It opens the window of the sender."""

    n: Number


class Heartbeat(LinkMessage, frozen=True, tag="heartbeat"):
    """Sent when nothing else is. `n` is the number of the last data message that was sent."""

    n: Number


class CloseImport(LinkMessage, frozen=True, tag="close"):
    """`is_dropped`: the importing broker needs nothing of the relation any more."""

    id: ImportId
    is_dropped: bool = False


class AdvertisementEntry(Struct, frozen=True, tag_field="kind", tag="advertisement"):
    """The sender can provide the stream of a broker that publishes it, `host`. `version` counts what the host has said
    about the stream; a later one replaces an earlier one everywhere. `is_withdrawn`: the host has taken it back.

    `condition` is true of all events. `description` is the export description of the stream, `history` identifies its
    log. `path` are the brokers from the host to the sender, both included. `is_live`: all links of it are open.

    `role` is "producer" or "republisher" for those of a global stream, `relation`; `stream` is then the name of the
    publisher. A producer has no description: its events are those of the host's stream `relation`. `origin` is the
    number of the host in a global stream that it publishes, `registered` the version of its producers, and `producers`
    how many it has. Up to tick `withdrawn_to`, the host may have had other producers; at or below tick `begins` it has
    published nothing. `epoch` is the digest of the closed epoch that it has confirmed. `load` says about how many
    subscriptions its neighbours have to the stream of a republisher: a power of two, or 0.

    With the role "epoch", the host declares a closed epoch of `relation`: `description` is its content."""

    host: Name
    stream: Name
    version: Number
    is_withdrawn: bool = False
    condition: Text = ""
    description: Description = ""
    history: Text = ""
    path: Annotated[tuple[Name, ...], Meta(max_length=limits.routing_path_max)] = ()
    is_live: bool = True
    role: Text = ""
    relation: Text = ""
    origin: Text = ""
    registered: Number = 0
    withdrawn_to: Tick = HORIZON_MIN
    producers: Number = 0
    begins: Tick = HORIZON_MIN
    epoch: Text = ""
    load: Number = 0

    @property
    def key(self) -> RoutingKey:
        return "advertisement", self.host, self.stream


class SubscriptionEntry(Struct, frozen=True, tag_field="kind", tag="subscription"):
    """The sender, or a broker behind it, subscribes to the events of a host's stream that satisfy a condition."""

    stream: Name
    host: Name
    where: Text = ""

    @property
    def key(self) -> RoutingKey:
        return "subscription", self.stream, self.host, self.where


class ReadyEntry(Struct, frozen=True, tag_field="kind", tag="ready"):
    """The sender has a relation that the receiver has subscribed to: it can be imported."""

    relation: Name

    @property
    def key(self) -> RoutingKey:
        return "ready", self.relation


RoutingEntry = AdvertisementEntry | SubscriptionEntry | ReadyEntry


class RoutingUpdate(LinkMessage, frozen=True, tag="routing"):
    """Changes of the table that the sender has for the receiver: new or changed entries, and the keys of removed ones.
    `n` counts the updates of a link from 1. The first one has only the `digest` of the table; if the receiver has
    another one, the next updates have the whole table. An update is sent when the one before is confirmed.
    `is_complete`: the receiver has the whole table now."""

    n: Number
    entries: Annotated[tuple[RoutingEntry, ...], Meta(max_length=limits.routing_update_entries_max)] = ()
    removed: Annotated[tuple[RoutingKey, ...], Meta(max_length=limits.routing_update_entries_max)] = ()
    is_complete: bool = True
    digest: Text = ""


class RoutingReceived(LinkMessage, frozen=True, tag="routed"):
    """Confirms an update. `has_table`: the receiver has the table with the digest from an earlier link."""

    n: Number
    has_table: bool = False


class Bundle(LinkMessage, frozen=True, tag="bundle"):
    """Several messages in one packet: the body has their packets, of these sizes."""

    sizes: Annotated[tuple[Size, ...], Meta(max_length=limits.link_bundle_messages_max)]


AnyMessage = (
    Hello
    | OpenImport
    | ImportOpened
    | ImportRefused
    | EventsMessage
    | RowsMessage
    | MembersMessage
    | RangeGone
    | Curious
    | Acknowledge
    | Received
    | Heartbeat
    | CloseImport
    | RoutingUpdate
    | RoutingReceived
    | Bundle
)

_decoder: Final = msgspec.json.Decoder(AnyMessage)
_HEADER_LENGTH_BYTES: Final = 4


def encode_message(message: LinkMessage, body: bytes = b"") -> bytes:
    header = msgspec.json.encode(message)
    return len(header).to_bytes(_HEADER_LENGTH_BYTES, "big") + header + body


def decode_message(packet: bytes) -> tuple[AnyMessage, bytes]:
    """E120 if the packet is not a message of this protocol."""
    header_end = _HEADER_LENGTH_BYTES + int.from_bytes(packet[:_HEADER_LENGTH_BYTES], "big")
    if len(packet) < _HEADER_LENGTH_BYTES or header_end > min(len(packet), limits.link_header_bytes_max):
        raise error("E120", "the neighbour sent something that is not a message of a link")
    try:
        message = _decoder.decode(packet[_HEADER_LENGTH_BYTES:header_end])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise error("E120", f"the neighbour sent a wrong message: {str(problem)[: limits.excerpt_chars_max]}") from None
    return message, packet[header_end:]


def join_packets(packets: Sequence[bytes]) -> list[bytes]:
    """Packets of single messages, those that are small together. Their order stays the same."""
    joined, pending, pending_bytes = list[bytes](), list[bytes](), 0

    def finish() -> None:
        nonlocal pending_bytes
        if pending:
            sizes = tuple(map(len, pending))
            joined.append(pending[0] if len(pending) == 1 else encode_message(Bundle(sizes), b"".join(pending)))
        pending.clear()
        pending_bytes = 0

    for packet in packets:
        if pending_bytes + len(packet) > PACKET_BYTES or len(pending) == limits.link_bundle_messages_max:
            finish()
        pending.append(packet)
        pending_bytes += len(packet)
    finish()
    return joined


def decode_packet(packet: bytes) -> list[tuple[AnyMessage, bytes]]:
    """The messages of a packet. E120 if it has none of this protocol."""
    message, body = decode_message(packet)
    if not isinstance(message, Bundle):
        return [(message, body)]
    if sum(message.sizes) != len(body):
        raise error("E120", "the neighbour sent a bundle of messages with wrong sizes")
    messages = [decode_message(part) for part in split_body(body, message.sizes)]
    if any(isinstance(inner, Bundle) for inner, _ in messages):
        raise error("E120", "the neighbour sent a bundle within a bundle")
    return messages


def split_body(body: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    """Parts of these sizes, one after the other."""
    begin = 0
    for size in sizes:
        yield body[begin : begin + size]
        begin += size
