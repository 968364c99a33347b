"""What every message of a link must satisfy, whatever happens: what it says of a stream is true at the stream's home, it
asks only for what is missing, it acknowledges only what is safe, and nothing is sent without a grant."""

from typing import TYPE_CHECKING

import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema
from smile.horizons import HORIZON_MIN
from smile.links.messages import Acknowledge, AnyMessage, Curious, EventsMessage, RowsMessage
from tests.simulation.programs import base_streams
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.brokers import SimulatedBroker
    from tests.simulation.cables import CableEnd


def check_message(world: World, sender: "CableEnd", message: AnyMessage, body: bytes) -> None:
    match message:
        case EventsMessage() | RowsMessage():
            import_ = _import_of(sender.neighbour, message.id)
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
            _check_question(world, sender.broker, message)
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
    ticks: list[int] = []
    if body:
        ticks = pa.ipc.read_record_batch(pa.py_buffer(body), stream_schema(stream)).column(0).to_pylist()
    expected = sorted(t for t in world.truth.selected(stream, base) if message.lo < t <= message.hi)
    who = f"{sender.broker.name}, to {sender.neighbour.name}: "
    if ticks != expected:
        world.complain(f"{who}{base} from {message.lo} to {message.hi} has {ticks} instead of {expected}")
    world.complain_all(world.truth.announce(base, message.hi, sender.broker.name), who)


def _check_horizons(world: World, sender: "CableEnd", import_: mmpl.ImportDef, message: RowsMessage) -> None:
    bases = _bases(import_)
    for stream, ticks in (message.horizons or {}).items():
        for tick in ticks.values():
            base = bases[import_.horizon_name(stream)]
            world.complain_all(world.truth.announce(base, tick, sender.broker.name))


def _check_question(world: World, importer: "SimulatedBroker", message: Curious) -> None:
    """What is asked for is not in the log. A finished origin is named too: otherwise all of it would be sent."""
    relation = importer.broker.network._relations.get(message.id)
    for origin, lo, hi in message.ranges:
        known = HORIZON_MIN if relation is None else relation.cache.horizons.get(origin, HORIZON_MIN)
        if lo < known or hi < lo:
            world.complain(f"{importer.name} asks for ticks above {lo} up to {hi}, and has everything up to {known}")


def _check_acknowledgement(world: World, importer: "SimulatedBroker", message: Acknowledge) -> None:
    """It is in a hard checkpoint. A broker without views only passes on what its log has."""
    import_ = _import_of(importer, message.id)
    if import_ is None:
        return
    safe = importer.hard_horizons if importer.broker.views else importer.broker.log.newest().stream_horizons()
    for stream, ticks in message.horizons.items():
        name = import_.stream.name if import_.stream is not None else import_.horizon_name(stream)
        if max(ticks.values(), default=HORIZON_MIN) > safe.get(name, HORIZON_MIN):
            who = f"{importer.name} acknowledges {import_.name}"
            world.complain(f"{who} up to {dict(ticks)}, but has only {safe.get(name)} safely")
