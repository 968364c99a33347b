"""What every message of a link must satisfy, whatever happens: what it says of a stream is true at the stream's home, it
asks only for what is missing, it acknowledges only what is safe, and nothing is sent without a grant."""

from typing import TYPE_CHECKING

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema
from smile.broker.network.view_cursor import from_link_horizons
from smile.horizons import HORIZON_MIN, origin_name
from smile.links.messages import (
    Acknowledge,
    AnyMessage,
    Curious,
    EventsMessage,
    RowsMessage,
    SentRange,
    split_body,
)
from smile.log.storage.pieces import StreamPiece
from tests.simulation.programs import base_streams
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.brokers import SimulatedBroker
    from tests.simulation.cables import CableEnd


def check_message(world: World, sender: "CableEnd", message: AnyMessage, body: bytes) -> None:
    match message:
        case EventsMessage() | RowsMessage():
            import_ = sender.other.opened.get(message.id)
            if import_ is None:
                return
            if not sender.broker.access.can_import(sender.neighbour.name, import_.relation):
                who = f"{sender.broker.name} sends {import_.relation} to {sender.neighbour.name}"
                world.complain(f"{who}, which has no grant any more")
            if isinstance(message, EventsMessage):
                _check_events(world, sender, import_, message, body)
            else:
                _check_horizons(world, sender, import_, message)
        case Curious():
            check_question(world, sender.broker, message)
        case Acknowledge():
            _check_acknowledgement(world, sender.broker, message)
        case _:
            pass


def _import_of(importer: "SimulatedBroker", import_id: int) -> mmpl.ImportDef | None:
    relation = importer.broker.network._relations.get(import_id) if importer.is_up else None
    return None if relation is None else relation.import_


def _bases(import_: mmpl.ImportDef) -> dict[str, str]:
    return base_streams(mmpl.Program((), (), (), (import_,)))


def _check_events(
    world: World, sender: "CableEnd", import_: mmpl.ImportDef, message: EventsMessage, body: bytes
) -> None:
    """All events of the range, and no others; where there are none, the stream was silent."""
    stream = import_.stream
    if stream is None:
        world.complain(f"{sender.broker.name} sends events of {import_.relation}, which is a view")
        return
    base = _bases(import_)[stream.name]
    who = f"{sender.broker.name}, to {sender.neighbour.name}: "
    for sent, events in ranges_of(message, body):
        piece = StreamPiece(stream.name, sent.origin, sent.lo, sent.hi)
        ticks: list[int] = []
        if events:
            ticks = pa.ipc.read_record_batch(pa.py_buffer(events), stream_schema(stream)).column(0).to_pylist()
        expected = world.truth.ticks(stream, base, piece)
        if ticks != expected:
            world.complain(f"{who}{base} from {sent.lo} to {sent.hi} has {ticks} instead of {expected}")
        world.complain_all(world.truth.announce(base, sent.origin, sent.hi, sender.broker.name), who)


def ranges_of(message: EventsMessage, body: bytes) -> list[tuple[SentRange, bytes]]:
    return list(zip(message.ranges, split_body(body, [sent.bytes for sent in message.ranges]), strict=True))


def _check_horizons(world: World, sender: "CableEnd", import_: mmpl.ImportDef, message: RowsMessage) -> None:
    bases = _bases(import_)
    named = from_link_horizons(message.horizons or {}, import_.many_origins)
    for stream in message.horizons or {}:
        base = bases[import_.horizon_name(stream)]
        world.complain_all(world.truth.announce_all(base, stream, named, f"{sender.broker.name}, in a frame,"))


def check_question(world: World, importer: "SimulatedBroker", message: Curious) -> None:
    """What is asked for is not in the log. A finished origin is named too: otherwise all of it would be sent. What
    another broker has asked for was removed from the log."""
    relation = importer.broker.network._relations.get(message.id)
    for origin, lo, hi in message.ranges:
        known = HORIZON_MIN if relation is None else relation.cache.horizons.get(origin, HORIZON_MIN)
        if relation is not None and message.is_passed_on:
            known = _first_kept(importer, relation.log_stream, origin, lo)
        if lo < known or hi < lo:
            world.complain(f"{importer.name} asks for ticks above {lo} up to {hi}, and has everything up to {known}")


def _check_acknowledgement(world: World, importer: "SimulatedBroker", message: Acknowledge) -> None:
    """It is in a hard checkpoint. A broker without views only passes on what its log has."""
    import_ = _import_of(importer, message.id)
    if import_ is None:
        return
    log_horizons = importer.broker.log.newest().named_horizons()
    safe = importer.hard_horizons if importer.broker.views else log_horizons
    for stream, ticks in message.horizons.items():
        name = import_.stream.name if import_.stream is not None else import_.horizon_name(stream)
        has_many = world.truth.streams[_bases(import_)[name]].has_many_origins
        for origin, tick in ticks.items():
            known = safe.get(origin_name(name, origin) if has_many else name, HORIZON_MIN)
            if tick > known:
                who = f"{importer.name} acknowledges {import_.name}"
                world.complain(f"{who} up to {dict(ticks)}, but has only {known} safely")
            for subscriber in world.durable_subscribers if import_.stream is not None else ():
                if needed := subscriber.needs(importer, name, origin, tick):
                    world.complain(f"{importer.name} acknowledges {import_.name}, but a subscriber needs {needed}")


def _first_kept(importer: "SimulatedBroker", stream: str, origin: str, lo: int) -> int:
    """HORIZON_MIN if what follows a tick was removed from the log."""
    is_removed = lo < importer.broker.log.truncated_ticks(stream).get(origin, HORIZON_MIN)
    return HORIZON_MIN if is_removed else importer.broker.log.stream_horizons(stream).get(origin, HORIZON_MIN)
