"""A simulated broker that publishes, republishes and reads a global stream. What it logs of others is compared with what
their producers have logged."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec.structs import replace

from smile.algebra import mmpl
from smile.algebra.arrow_types import stream_schema
from smile.algebra.types import TICKS_PER_MICROSECOND
from smile.broker.network.imported_relation import ImportedRelation
from smile.broker.publishing.publication import PublishResult
from smile.broker.views.view import ViewFrame, ViewSubscription
from smile.errors import SmileError
from smile.horizons import END
from smile.links.link import Link
from smile.links.messages import AnyMessage, Curious, EventsMessage
from smile.log.membership import HOME_ORIGIN, START_MIN, StreamMembership
from smile.log.storage.pieces import StreamPiece
from smile.registry.epochs import ClosedEpoch
from smile.settings import Settings
from smile.source import Source
from tests.simulation.brokers import SimulatedBroker
from tests.simulation.checks import check_question, ranges_of
from tests.simulation.clients import SimulatedPublisher, SimulatedSubscriber
from tests.simulation.global_streams.scenario import NTP, ActionKind, RegistryAction, RegistryScenario
from tests.simulation.global_streams.truth import RegistryTruth, find_part, received_part
from tests.simulation.log_watch import LogWatch
from tests.simulation.scenario import PlannedPublication
from tests.simulation.scheduler import Alarm
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.cables import CableEnd

LATE_CODES = ("E183", "E185", "E186", "E187", "E188", "E184")
"""Why an operator's command is refused when others were faster."""


class RegistryBroker(SimulatedBroker):
    publisher: "RegistryPublisher"

    def __init__(
        self,
        world: World,
        scenario: RegistryScenario,
        truth: RegistryTruth,
        number: int,
        folder: Path,
        fetch: Callable[[int, str, str], str],
    ) -> None:
        super().__init__(world, number, folder, fetch)
        self._lease_s, self.truth = scenario.lease_s, truth
        self.origin = str(scenario.numbers[number])
        self.registered = scenario.brokers[number]
        """Its program."""
        self._step_alarm = Alarm(world.scheduler, f"{self.name} assembles", lambda: self._run(self._step))

    # ── what is different from other brokers ────────────────────────────────────────────────────────────────────────

    @property
    def settings(self) -> Settings:
        return replace(super().settings, origin=int(self.origin), lease=f"{self._lease_s} seconds")

    @property
    def source(self) -> Source:
        return Source(f"{self.name}.smile", self.registered.text)

    def create_publisher(self, publications: Sequence[PlannedPublication]) -> "RegistryPublisher":
        return RegistryPublisher(self.world, self, publications)

    def create_subscriber(self, view: str, pause_s: float | None) -> "SwitchingSubscriber":
        return SwitchingSubscriber(self.world, self, view, pause_s)

    def watch_log(self) -> "RegistryLogWatch":
        return RegistryLogWatch(self)

    def check_message(self, sender: "CableEnd", message: AnyMessage, body: bytes) -> None:
        match message:
            case EventsMessage():
                if sender.other.is_open:
                    self._check_events(sender.neighbour, message, body)
            case Curious():
                check_question(self.world, self, message)
            case _:
                pass

    def _check_events(self, importer: SimulatedBroker, message: EventsMessage, body: bytes) -> None:
        """All events of the range, and no others; where there are none, its producers were silent."""
        relation: ImportedRelation | None = None
        if importer.is_up:
            relation = importer.broker.network._relations.get(message.id)
        if relation is None or relation.import_.stream is None:
            return
        routed = importer.broker.import_records.routed.get(relation.import_.name)
        if routed is None:
            return
        schema = stream_schema(relation.import_.stream)
        for sent, batch in ranges_of(message, body):
            events = pa.ipc.read_record_batch(pa.py_buffer(batch), schema).to_pylist() if batch else []
            part, claimants = received_part(routed.stream), self.truth.claimants(sent.origin)
            expected = [self.truth.select(part, sent.origin, sent.lo, sent.hi, claimant) for claimant in claimants]
            where = f"{routed.stream} of origin {sent.origin} from {sent.lo} to {sent.hi}"
            if events not in expected:
                self.world.complain(f"{self.name} sends {importer.name} {where} as {events} instead of {expected}")
            if sent.hi > START_MIN:
                self.world.complain_all(self.truth.announce(NTP, sent.origin, sent.hi, self.name), f"{where}: ")

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _commit(self) -> None:
        super()._commit()
        self._schedule_step()

    def _pulse(self) -> None:
        super()._pulse()
        self._batch_alarm.set(self.world.now + 0.001)
        self._schedule_step()
        self.schedule_commit()

    def _schedule_step(self) -> None:
        if self.is_up and self.broker.global_imports._wanted.is_set():
            self._step_alarm.set(self.world.now + self._random.uniform(0.005, 0.03))

    def _step(self) -> None:
        self.broker.global_imports._wanted.clear()
        self.broker.global_imports.step()
        self._schedule_step()
        self.schedule_commit()

    def view_program(self, view: str) -> tuple[mmpl.Program, str]:
        """Without what comes from single brokers: views read what was assembled of it."""
        program, text = super().view_program(view)
        return replace_fields(program, imports=tuple(i for i in program.imports if i.is_global)), text

    def has_open_imports(self, link: Link) -> bool:
        return all(imported.figures.state == "live" for imported in link._imports.values())

    # ── registrations ───────────────────────────────────────────────────────────────────────────────────────────────

    def act(self, action: RegistryAction) -> None:
        """What an operator does here. If the broker is down, it is done later."""
        if self.is_dead:
            return
        if not self.is_up or self.frozen_until > self.world.now:
            self.world.scheduler.at(self.world.now + 0.5, f"{self.name} operator", lambda: self.act(action))
            return
        self.world.note(self.name, f"operator: {action}")
        match action.kind:
            case ActionKind.ADVERTISED:
                self._command(lambda: self.broker.routing.add_producer(action.name, NTP, action.condition))
            case ActionKind.WITHDRAWN:
                self._command(lambda: self.broker.routing.remove_producer(action.name))
            case ActionKind.CLOSED:
                self._command(lambda: self._close(action))
            case ActionKind.REPUBLISHED | ActionKind.DROPPED:
                others = {n: c for n, c in self.registered.republishers.items() if n != action.name}
                added = {action.name: action.condition} if action.kind is ActionKind.REPUBLISHED else {}
                self._change(action, replace_fields(self.registered, republishers={**others, **added}))
            case ActionKind.VIEW_ADDED:
                queries = {**self.registered.queries, action.name: action.condition}
                self._change(action, replace_fields(self.registered, queries=queries))

    def _command(self, command: Callable[[], object]) -> None:
        def run() -> None:
            try:
                command()
            except SmileError as problem:
                self.world.note(self.name, f"refuses a command: {problem}")
                if problem.diagnostics[0].code not in LATE_CODES:
                    self.world.complain(f"{self.name} refuses a command: {problem}")

        self._run(run)
        self.schedule_commit()

    def _change(self, action: RegistryAction, program: "object") -> None:
        previous, self.registered = self.registered, program  # type: ignore[assignment]
        if not self.apply_source(self.source):
            self.registered = previous
            self.world.scheduler.at(self.world.now + 1.0, f"{self.name} operator", lambda: self.act(action))
        else:
            self._schedule_step()

    def _close(self, action: RegistryAction) -> None:
        tick = END if action.ahead_s is None else (self._clock() + int(action.ahead_s * 1e6)) * TICKS_PER_MICROSECOND
        epoch = self.broker.close_global_stream(NTP, tick)
        self.world.note(self.name, f"closes {NTP} as {epoch}")


class RegistryPublisher(SimulatedPublisher):
    """What nobody advertises is refused, and given up."""

    def _answered(self, planned: PlannedPublication, future: "Future[PublishResult]") -> None:
        problem = future.exception()
        if future is self._future and isinstance(problem, SmileError) and problem.diagnostics[0].code == "E182":
            self._world.note(self._broker.name, f"refuses {planned}")
            self._future = None
            self._give_up(planned)
            self._alarm.set(self._world.now)
            return
        super()._answered(planned, future)

    def publish_now(self, rows: tuple[tuple[object, ...], ...]) -> None:
        """One publication more, after those that were planned."""
        self._publications = [*self._publications, PlannedPublication(self._world.now, NTP, self._broker.number, rows)]
        self.wake()


class SwitchingSubscriber(SimulatedSubscriber):
    """A view of a global stream begins anew for nobody who reads it."""

    def __init__(self, world: World, broker: RegistryBroker, view: str, pause_s: float | None) -> None:
        super().__init__(world, broker, view, pause_s)
        self._begun: ViewSubscription | None = None

    def _receive(self, frame: ViewFrame) -> None:
        if frame.reset and self._begun is self._subscription:
            self._world.complain(f"{self._name} is reset")
        self._begun = self._subscription
        super()._receive(frame)

    def compare(self) -> None:
        self._broker.truth.reader = self._broker.name  # type: ignore[attr-defined]
        super().compare()


class RegistryLogWatch(LogWatch):
    """Watches each range of the global stream that a broker logs, of whatever source, and each range that it
    assembles."""

    _broker: RegistryBroker

    def __init__(self, broker: RegistryBroker) -> None:
        super().__init__(broker)
        self._truth, self._registry_broker = broker.truth, broker

    def _append(self, *arguments: Any, **options: Any) -> int:
        self._truth.writer = self._broker.name
        return super()._append(*arguments, **options)

    def reconcile(self) -> None:
        self._truth.writer = self._broker.name
        super().reconcile()

    def _own_origins(self, stream: str) -> set[str]:
        return {self._registry_broker.origin} if stream == NTP else set()

    def _note_membership(self, membership: StreamMembership) -> None:
        pass

    def _check_imported(self, pieces: Sequence[StreamPiece], streams: set[str]) -> None:
        for piece in pieces:
            if piece.stream == NTP or piece.origin == HOME_ORIGIN:
                continue
            part = find_part(self._broker.broker, piece.stream)
            if part is None:
                continue  # it was dropped a moment ago
            logged = [] if piece.events is None else piece.events.to_pylist()
            where = f"{piece.stream} of origin {piece.origin} from {piece.lo} to {piece.hi}"
            given = self._truth.narrow(self._broker.name, part, piece, logged)
            if not given:
                self._world.complain(f"{self._broker.name} logs {where} as {logged}, which nobody has published so")
            self._announce(piece, where)

    def _announce(self, piece: StreamPiece, where: str) -> None:
        """Before an origin has begun it is silent. It begins at the end of the closed epoch that is known then."""
        membership = self._log.membership(piece.stream)
        member = None if membership is None else membership.members.get(piece.origin)
        if member is not None and piece.hi <= member.start:
            self._truth.announce_start(piece.origin, piece.hi)
        else:
            self._world.complain_all(self._truth.announce(NTP, piece.origin, piece.hi, where), f"{self._broker.name}: ")


def epochs_of(broker: RegistryBroker) -> Mapping[str, ClosedEpoch]:
    return broker.broker.global_imports.known.epochs
