"""What is true in a simulated network: everything that was published, by stream and origin, and what each program shows of
it at any horizons, by the reference evaluator."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_types
from smile.algebra.dependencies import subprogram
from smile.algebra.functions.catalogue import evaluate_expr
from smile.algebra.types import Value
from smile.analysis.type_analysis import TypeAnalysis
from smile.horizons import END, HORIZON_MIN, ORIGIN_MAX, origin_name
from smile.knowledge.values.json import Json
from smile.log.membership import HOME_ORIGIN, StreamMember, StreamMembership
from smile.log.storage.pieces import StreamPiece
from smile.reference.evaluate import ProgramEvaluation
from smile.reference.history import History
from smile.reference.wire import snapshot_messages
from tests.simulation.programs import base_streams

Event = dict[str, Value]
ONLY_ORIGIN = "0"
"""The origin of a stream that has one."""


@dataclass
class OriginHistory:
    """How far an origin has logged a stream. `announced` is the greatest horizon that anybody has been told."""

    horizon: int = HORIZON_MIN
    announced: int = HORIZON_MIN


@dataclass
class PublishedStream:
    """A stream, as it is defined at its home. `members` are its origins as the home has logged them; none if it has
    one origin."""

    definition: mmpl.StreamDef
    events: dict[int, Event] = field(default_factory=dict)
    origins: dict[str, OriginHistory] = field(default_factory=dict)
    members: Mapping[str, StreamMember] = field(default_factory=dict)

    @property
    def has_many_origins(self) -> bool:
        return self.definition.many_origins

    def origin(self, origin: str) -> OriginHistory:
        return self.origins.setdefault(origin if self.has_many_origins else ONLY_ORIGIN, OriginHistory())

    def origin_of(self, tick: int) -> str:
        return str(tick & ORIGIN_MAX) if self.has_many_origins else ONLY_ORIGIN

    @property
    def is_closed(self) -> bool:
        """Whether its home has left, so that nobody can join."""
        return self.has_many_origins and self.origin(HOME_ORIGIN).horizon == END

    @property
    def member_names(self) -> set[str]:
        """The brokers that publish it, or did."""
        return {member.broker for member in self.members.values()}

    def end(self, origin: str) -> int:
        """The last tick that counts for those who know that the origin was fenced."""
        member = self.members.get(origin)
        return END if member is None or member.end is None or not member.is_fenced else member.end

    def target(self, origin: str) -> int:
        """Up to where everybody knows an origin in the end."""
        member = self.members.get(origin)
        return END if member is not None and member.end is not None else self.origin(origin).horizon


class Truth:
    def __init__(self, streams: Mapping[str, mmpl.StreamDef]) -> None:
        self.streams = {name: PublishedStream(stream) for name, stream in streams.items()}
        self._parts: dict[tuple[str, str], _ViewTruth] = {}
        self._selections: dict[tuple[str, str], tuple[int, dict[int, Event]]] = {}
        """By conditions and stream: the selected ones of so many events."""

    def log(self, stream: str, origin: str, hi: int, events: pa.RecordBatch | None) -> list[str]:
        """The broker of an origin has committed this. Returns what is wrong about it."""
        published, problems = self.streams[stream], list[str]()
        history = published.origin(origin)
        for row in [] if events is None else events.to_pylist():
            tick = row[published.definition.tick]
            if tick in published.events:
                if published.events[tick] != row:
                    problems.append(f"{stream} has two events at tick {tick}")
            elif tick <= history.announced:
                problems.append(f"{stream} has a new event at {tick}, below the announced horizon {history.announced}")
            if published.has_many_origins and published.origin_of(tick) != origin:
                problems.append(f"{stream} has an event at {tick}, which is no tick of origin {origin}")
            published.events[tick] = row
        history.horizon = max(history.horizon, hi)
        return problems

    def logged_to(self, stream: str, origin: str) -> int:
        """How far the broker of an origin has committed."""
        return self.streams[stream].origin(origin).horizon

    def set_members(self, membership: StreamMembership) -> None:
        """The home of a stream has committed this."""
        self.streams[membership.stream].members = membership.members

    def announce(self, stream: str, origin: str, tick: int, who: str) -> list[str]:
        """Somebody has been told that nothing of an origin is missing up to a tick."""
        published = self.streams[stream]
        history, member = published.origin(origin), published.members.get(origin)
        if tick <= history.horizon:
            history.announced = max(history.announced, tick)
            return []
        if member is not None and (tick <= member.start or (tick == END and member.end is not None)):
            return []  # it has no events before its start and after its end
        return [f"{who} says that {stream} is complete up to {tick} of origin {origin}, but that has {history.horizon}"]

    def announce_all(self, stream: str, name: str, horizons: Mapping[str, int], who: str) -> list[str]:
        """Somebody has been told these horizons, in which a stream has a name of its own. Nobody passes the start of an
        origin that it does not know."""
        published, least = self.streams[stream], horizons.get(name, HORIZON_MIN)
        if not published.has_many_origins:
            return self.announce(stream, ONLY_ORIGIN, least, who)
        known = origin_horizons(name, horizons)
        problems = [p for origin, tick in known.items() for p in self.announce(stream, origin, tick, who)]
        for origin, member in published.members.items():
            if origin not in known and least >= member.start:
                problems.append(f"{who} has {stream} up to {least}, but not origin {origin}, which begins before")
        if known and least != min(known.values()):
            problems.append(f"{who} has {stream} up to {least}, and its origins up to {known}")
        return problems

    def selected(self, stream: mmpl.StreamDef, base: str) -> dict[int, Event]:
        """The events of a published stream that an import of it selects: its conditions are among its checks."""
        published = self.streams[base]
        conditions = [check for check in stream.checks if check not in published.definition.checks]
        if not conditions:
            return published.events
        key = repr(conditions), base
        count, known = self._selections.get(key, (-1, {}))
        if count != len(published.events):
            types = stream_types(stream)
            known = {
                tick: row
                for tick, row in published.events.items()
                if all(evaluate_expr(condition, row, types) is True for condition in conditions)
            }
            self._selections[key] = len(published.events), known
        return known

    def ticks(self, stream: mmpl.StreamDef, base: str, piece: StreamPiece) -> list[int]:
        """The ticks of the selected events of a stream that a range of an origin has. After its end an origin is silent
        for those who know that it has ended."""
        published = self.streams[base]
        hi = min(piece.hi, published.end(piece.origin)) if piece.hi == END else piece.hi
        ticks = (t for t in self.selected(stream, base) if piece.lo < t <= hi)
        origin = piece.origin if published.has_many_origins else ONLY_ORIGIN
        return sorted(t for t in ticks if published.origin_of(t) == origin)

    def known_events(
        self, stream: mmpl.StreamDef, base: str, name: str, horizons: Mapping[str, int]
    ) -> dict[int, Event]:
        """The events of a stream that somebody has who has these horizons. Events of an origin after the tick at which
        it was fenced count only for those who do not know that."""
        published, events = self.streams[base], self.selected(stream, base)
        if not published.has_many_origins:
            horizon = horizons.get(name, HORIZON_MIN)
            return {tick: row for tick, row in events.items() if tick <= horizon}
        known = origin_horizons(name, horizons)
        ends = {o: tick if tick < END else published.end(o) for o, tick in known.items()}
        return {t: row for t, row in events.items() if t <= ends.get(published.origin_of(t), HORIZON_MIN)}

    def snapshot(self, program: mmpl.Program, text: str, view: str, horizons: Mapping[str, int]) -> dict[str, Json]:
        """What a view of a program shows at these horizons, by its key. `text` identifies the program."""
        key = text, view
        if key not in self._parts:
            self._parts[key] = _ViewTruth(subprogram(program, view), view)
        return self._parts[key].snapshot(self, horizons)


class _ViewTruth:
    """What a view shows at any horizons."""

    def __init__(self, program: mmpl.Program, view: str) -> None:
        self._program, self._view = program, view
        self._analysis = TypeAnalysis(program)
        self._bases = base_streams(program)
        self._snapshots: dict[Any, dict[str, Json]] = {}

    def snapshot(self, truth: Truth, horizons: Mapping[str, int]) -> dict[str, Json]:
        history = History.from_lines(self._program)
        for name, base in self._bases.items():
            history.events[name] = truth.known_events(history.streams[name], base, name, horizons)
            history.horizons[name] = horizons.get(name, HORIZON_MIN)
            if truth.streams[base].has_many_origins:
                known = origin_horizons(name, horizons)
                history.horizons |= {origin_name(name, origin): tick for origin, tick in known.items()}
        key = tuple(history.horizons.items()), tuple(len(events) for events in history.events.values())
        if key not in self._snapshots:
            evaluation = ProgramEvaluation(self._program, self._analysis, history)
            relation = evaluation.relation(mmpl.RelationRef(self._view))
            messages = snapshot_messages(self._view, self._analysis.relations[self._view], relation)
            self._snapshots[key] = {str(m["key"]): without_steps(m) for m in map(as_received, messages.values())}
        return self._snapshots[key]


def origin_horizons(name: str, horizons: Mapping[str, int]) -> dict[str, int]:
    """The horizons of the origins of one stream."""
    prefix = origin_name(name, "")
    return {n.removeprefix(prefix): tick for n, tick in horizons.items() if n.startswith(prefix)}


def as_received(message: Json) -> Json:
    """What a subscriber decodes of a message: in JSON columns, decoded JSON."""
    decoded: Json = msgspec.json.decode(msgspec.json.encode(message))
    return decoded


def without_steps(message: Json) -> Json:
    return {name: value for name, value in message.items() if name != "steps"}
