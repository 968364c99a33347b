"""Durable subscribers of a simulated network. They acknowledge, go away without acknowledging, and come back, also at
another broker with their tokens. Every event must come once and in order, and nothing may be lost.

A subscriber remembers what was confirmed to be acknowledged, and what it has acknowledged without an answer: the broker may
or may not have stored that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from smile.algebra import mmpl
from smile.analysis.type_analysis import TypeAnalysis
from smile.broker.subscriptions.durable_request import DurableRequest
from smile.broker.subscriptions.durable_subscriptions import SubscriptionClaim
from smile.broker.subscriptions.event_subscription import EventFrame
from smile.broker.subscriptions.position_store import SubscriptionKey
from smile.broker.subscriptions.selection import StreamSelection, find_selection
from smile.encoding.json_events import json_events
from smile.errors import SmileError
from smile.horizons import END, HORIZON_MIN
from smile.knowledge.values.json import Json
from smile.reference.evaluate import ProgramEvaluation
from smile.reference.history import History
from smile.reference.wire import snapshot_messages
from tests.reference.histories import names_read
from tests.simulation.programs import Coverage, base_streams, broker_number
from tests.simulation.scheduler import Alarm
from tests.simulation.truth import ONLY_ORIGIN, Truth, as_received
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.brokers import SimulatedBroker

_CHANGED_CODES = frozenset({"E021", "E095", "E142"})
"""The program does not have the relation any more, or it has no events."""


@dataclass(frozen=True)
class Place:
    """A relation of a broker that a subscriber can subscribe to. `stream` is the stream in the log."""

    broker: int
    relation: str
    stream: str


@dataclass
class SelectedEvents:
    """The events that a relation has, by the reference evaluator. `base` is the published stream."""

    program: mmpl.Program
    relation: str
    base: str
    _known: tuple[int, dict[int, Json]] = field(default=(-1, {}))

    @cached_property
    def _analysis(self) -> TypeAnalysis:
        return TypeAnalysis(self.program)

    def rows(self, truth: Truth) -> Mapping[int, Json]:
        """By tick."""
        count = len(truth.streams[self.base].events)
        if self._known[0] != count:
            history = History.from_lines(self.program)
            (stream,) = self.program.input_streams
            history.events[stream.name] = dict(truth.selected(stream, self.base))
            history.horizons[stream.name] = END
            evaluation = ProgramEvaluation(self.program, self._analysis, history)
            relation = evaluation.relation(mmpl.RelationRef(self.relation))
            messages = snapshot_messages(self.relation, self._analysis.relations[self.relation], relation)
            self._known = count, {int(key[0]): as_received(m)["row"] for key, m in messages.items()}
        return self._known[1]


def find_places(programs: Sequence[mmpl.Program]) -> dict[tuple[str, str], list[tuple[Place, SelectedEvents]]]:
    """All relations that have events, those together that say to have the same ones: by published stream and
    selection."""
    places = dict[tuple[str, str], list[tuple[Place, SelectedEvents]]]()
    for number, program in enumerate(programs):
        bases = base_streams(program)
        for definition in (*program.streams, *program.imports, *program.views):
            if isinstance(definition, mmpl.ImportDef) and definition.stream is None:
                continue
            selection = find_selection(program, definition.name)
            if selection is not None:
                # A name belongs to one relation of a broker.
                base = bases[selection.stream]
                place = Place(number, definition.name, selection.stream)
                events = SelectedEvents(_selected_program(program, selection), definition.name, base)
                group = places.setdefault((base, selection.text), [])
                if all(other.broker != number for other, _ in group):
                    group.append((place, events))
    return places


def _selected_program(program: mmpl.Program, selection: StreamSelection) -> mmpl.Program:
    """The part of a program that a selection consists of."""
    name = selection.source.name
    needed, bodies = set[str](), {view.name: view for view in program.views}
    while name in bodies:
        needed.add(name)
        (name,) = names_read(bodies[name].body)
    (stream,) = (s for s in program.input_streams if s.name == selection.stream)
    views = tuple(view for view in program.views if view.name in needed)
    return mmpl.Program((stream,), views, ())


class DurableSubscriber:
    """`places` are those that it can subscribe at; it begins at the first one. `events` are those of the first one."""

    def __init__(
        self,
        world: World,
        name: str,
        brokers: "Sequence[SimulatedBroker]",
        places: Sequence[Place],
        events: SelectedEvents,
        pause_s: float,
    ) -> None:
        self._world, self._name, self._brokers, self._pause_s = world, name, brokers, pause_s
        self._places, self._place, self._events = list(places), places[0], events
        self._random = world.random("durable", name)
        self._alarm = Alarm(world.scheduler, f"durable {name}", self._step)
        self._alarm.set(self._random.uniform(0.5, 6))
        self._claim: SubscriptionClaim | None = None
        self._confirmed: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        self._token: str | None = None
        self._acknowledged_at: Place | None = None
        self._session: dict[str, int] = {}
        """The last tick of each origin that was delivered since the subscriber has come."""
        self._unacknowledged: list[tuple[str, int]] = []
        self._registered: dict[Place, float] = {}
        """Where the name is stored, and holds the log back, and since when."""
        self._received: set[int] = set()
        self._is_gone = False
        """Whether the brokers that have held the log back for it are dead, and others have cut what it needs."""

    # ── coming and going ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _broker(self) -> "SimulatedBroker":
        return self._brokers[self._place.broker]

    def broker_killed(self, broker: "SimulatedBroker", has_lost_everything: bool) -> None:
        if broker is self._broker:
            self._leave()
        if has_lost_everything:
            self._registered = {p: since for p, since in self._registered.items() if p.broker != broker.number}
            if self._acknowledged_at is not None and self._acknowledged_at.broker == broker.number:
                self._acknowledged_at = None

    def _leave(self) -> None:
        self._claim, self._session, self._unacknowledged = None, {}, []

    def _step(self) -> None:
        self._alarm.set(self._world.now + self._pause_s * self._random.uniform(0.5, 1.5))
        is_restless = not self._world.is_repaired
        if self._broker.is_dead or (is_restless and self._random.random() < (0.02 if self._broker.is_up else 0.2)):
            self._move()
        broker = self._broker
        if not broker.is_up or broker.frozen_until > self._world.now:
            return
        if is_restless and self._claim is not None and self._random.random() < 0.08:
            self._world.note(self._name, "goes away without acknowledging")
            if self._random.random() < 0.5:  # otherwise the broker does not notice it
                broker.run_client(self._claim.release)
            self._leave()
            return
        broker.run_client(self._receive)

    def _move(self) -> None:
        others = [p for p in self._places if p.broker != self._place.broker and not self._brokers[p.broker].is_dead]
        if others:
            if self._claim is not None and self._broker.is_up:
                self._broker.run_client(self._claim.release)
            self._leave()
            self._place = self._random.choice(others)
            self._world.note(self._name, f"goes to {self._place}")

    def _open(self) -> None:
        """Where it has acknowledged last, its name is sufficient."""
        has_name = self._acknowledged_at == self._place and self._random.random() < 0.5
        request = DurableRequest(
            SubscriptionKey("somebody", self._name),
            self._place.relation,
            {},
            None if has_name else self._token,
            window=self._random.choice((1, 3, 100)),
        )
        try:
            self._claim = self._broker.broker.subscriptions.open_events(request, lambda: None, self._ended)
        except SmileError as problem:
            self._refused(problem)
            return
        self._world.note(self._name, f"subscribes to {self._place.relation} at {self._broker.name}")
        self._registered.setdefault(self._place, self._world.now)
        self._is_gone = False

    def _ended(self, problem: SmileError) -> None:
        self._world.note(self._name, f"is ended: {problem}")

    def _refused(self, problem: SmileError) -> None:
        code = problem.diagnostics[0].code
        self._world.note(self._name, f"is refused at {self._place}: {problem}")
        if code in ("E135", "E138"):
            return  # a broker that has not joined the stream yet, or does not know its type
        is_elsewhere = code in ("E094", "E097") and self._place not in self._registered
        if code not in _CHANGED_CODES and not is_elsewhere:
            self._world.complain(f"the durable subscriber {self._name} is refused at {self._place}: {problem}")
        if code in _CHANGED_CODES or code == "E094":
            self._places = [place for place in self._places if place != self._place]
        back = [p for p in self._places if p in self._registered and not self._brokers[p.broker].is_dead]
        self._is_gone = code == "E097" and not back
        if self._places:
            self._place = self._random.choice(back or self._places)

    # ── receiving and acknowledging ─────────────────────────────────────────────────────────────────────────────────

    def _receive(self) -> None:
        if self._claim is None:
            if not self._places:
                return
            self._open()
        if self._claim is None:
            return
        subscription = self._claim.events
        assert subscription is not None
        for _ in range(self._random.choice((1, 2, 5))):
            try:
                frame = subscription.next_frame(self._random.choice((1, 2, 100)))
            except SmileError as problem:
                self._world.complain(f"the durable subscriber {self._name} loses events: {problem}")
                return
            if frame is None:
                break
            self._check_frame(frame)
        if self._unacknowledged and (self._world.is_repaired or self._random.random() < 0.6):
            self._acknowledge()

    def _acknowledge(self) -> None:
        assert self._claim is not None
        count = len(self._unacknowledged)
        if not self._world.is_repaired:
            count = self._random.randint(1, count)
        ticks = dict(self._unacknowledged[:count])
        self._sent, self._acknowledged_at = _greatest(self._sent, ticks), self._place
        try:
            self._token = self._claim.acknowledge_events(ticks).result(0)
        except SmileError as problem:  # the relation was changed, for instance
            self._world.note(self._name, f"cannot acknowledge: {problem}")
            self._leave()
            return
        self._world.note(self._name, f"has acknowledged {ticks}")
        self._confirmed = _greatest(self._confirmed, ticks)
        self._unacknowledged = self._unacknowledged[count:]

    def _check_frame(self, frame: EventFrame) -> None:
        if list(frame.ticks) != sorted(frame.ticks):
            self._complain(f"the events of a frame are not in order: {frame.ticks}")
        for message in map(as_received, json_events(frame.source, frame.rows, frame.ticks, frame.origins)):
            self._check_event(str(message["origin"]), int(message["at"]), message["event"])

    def _check_event(self, origin: str, tick: int, row: Any) -> None:
        rows = self._events.rows(self._world.truth)
        self._world.note(self._name, f"receives {tick}")
        if rows.get(tick) != row:
            self._complain(f"the event at {tick} is {row}, not {rows.get(tick)}")
        last = self._session.get(origin)
        if last is None:
            # What it has acknowledged without an answer may count or not.
            last = max(self._confirmed.get(origin, HORIZON_MIN), min(self._sent.get(origin, HORIZON_MIN), tick - 1))
            if tick <= self._confirmed.get(origin, HORIZON_MIN):
                self._complain(f"the event at {tick} comes again, although it was acknowledged")
        elif tick <= last:
            self._complain(f"the event at {tick} of origin {origin} comes after the one at {last}")
        skipped = [t for t in rows if last < t < tick and self._origin_of(t, origin) == origin]
        if skipped:
            self._complain(f"the events at {skipped} of origin {origin} are skipped before {tick}")
        self._session[origin] = tick
        self._unacknowledged.append((origin, tick))
        self._received.add(tick)

    def _origin_of(self, tick: int, only: str) -> str:
        origin = self._world.truth.streams[self._events.base].origin_of(tick)
        return only if origin == ONLY_ORIGIN else origin

    def _complain(self, problem: str) -> None:
        self._world.complain(f"the durable subscriber {self._name} at {self._place}: {problem}")

    # ── in the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    def needs(self, broker: "SimulatedBroker", stream: str, origin: str, tick: int) -> list[int]:
        """Events up to a tick that the subscriber has not acknowledged, although its name was stored at a broker when
        that has found out what it needs itself."""
        checkpoint_at = broker.broker._retention._truncated_at
        if not any(
            place.broker == broker.number and place.stream == stream and since < checkpoint_at
            for place, since in self._registered.items()
        ):
            return []
        tick = tick if tick < END else self._world.truth.streams[self._events.base].end(origin)
        least = max(self._sent.get(origin, HORIZON_MIN), self._confirmed.get(origin, HORIZON_MIN))
        rows = self._events.rows(self._world.truth)
        return [t for t in rows if least < t <= tick and self._origin_of(t, origin) == origin]

    def missing(self, coverage: Coverage) -> list[str]:
        """What it has not received and acknowledged of everything that its broker has."""
        broker, published = self._broker, self._world.truth.streams[self._events.base]
        if not self._places or self._is_gone or broker.is_dead or self._events.base in self._world.stopped_streams:
            return []
        covered = coverage.of_program(broker.number, broker.broker.program) if broker.is_up else {}
        hosts = covered.get(self._place.stream, frozenset())
        missing = []
        for tick in self._events.rows(self._world.truth):
            origin = published.origin_of(tick)
            if published.has_many_origins:
                host = broker_number(published.members[origin].broker)
                is_expected = host in hosts and host not in coverage.dead and tick <= published.end(origin)
            else:
                is_expected = bool(hosts) and hosts.isdisjoint(coverage.dead)
            if is_expected and tick not in self._received:
                missing.append(tick)
        return [f"the durable subscriber {self._name} has not received {missing}"] if missing else []


def _greatest(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {origin: max(a.get(origin, HORIZON_MIN), b.get(origin, HORIZON_MIN)) for origin in {**a, **b}}
