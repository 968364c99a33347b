"""A simulated broker: the product's broker without threads, on a simulated disk, with a simulated clock. It is killed in
the middle of anything, and starts again from what its disk has."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from msgspec.structs import replace

from smile.algebra import mmpl
from smile.algebra.dependencies import subprogram
from smile.algebra.printer import print_program
from smile.broker.broker import PULSE_INTERVAL_S, Broker, StepwiseRun
from smile.errors import SmileError, error
from smile.horizons import HORIZON_MIN
from smile.log.membership import StreamMembership
from smile.log.storage.pieces import StreamPiece
from smile.log.storage.producers import ProducerRecord
from smile.settings import Settings
from smile.source import Source
from tests.simulation.clients import SimulatedPublisher, SimulatedSubscriber
from tests.simulation.disk import SimulatedDisk
from tests.simulation.programs import base_streams, broker_name, program_text
from tests.simulation.scenario import Fault, FaultKind
from tests.simulation.scheduler import Alarm
from tests.simulation.world import BrokerKilled, World

START_US = 1_000_000_000
"""What the clocks show in the beginning."""
CRASH_POINTS = ("before", "uncommitted", "committed")


class SimulatedAccess:
    """The grants of neighbours: all, except those that are revoked."""

    def __init__(self) -> None:
        self.revoked: set[tuple[str, str]] = set()

    def can_import(self, principal: str, relation: str) -> bool:
        return (principal, relation) not in self.revoked

    def can_publish(self, principal: str, stream: str) -> bool:
        return True

    def can_act_as(self, principal: str, broker: str) -> bool:
        return True


class SimulatedBroker:
    broker: Broker
    """The present process."""

    def __init__(self, world: World, number: int, folder: Path, fetch: Callable[[int, str, str], str]) -> None:
        self.world, self.number, self.name = world, number, broker_name(number)
        self.program = world.scenario.programs[number]
        self.is_up, self.incarnation, self.frozen_until = False, 0, 0.0
        self.clock_offset_us = 0
        self.access = SimulatedAccess()
        self.hard_horizons: Mapping[str, int] = {}
        """Of the last hard checkpoint."""
        self._disk, self._fetch = SimulatedDisk(folder / self.name), fetch
        self._random = world.random("broker", number)
        self._crash: tuple[str, Fault] | None = None
        """The point in the next commit at which the broker is killed."""
        scheduler = world.scheduler
        self._commit_alarm = Alarm(scheduler, f"{self.name} commits", lambda: self._run(self._commit))
        self._batch_alarm = Alarm(scheduler, f"{self.name} advances", lambda: self._run(self._advance))
        self._pulse_alarm = Alarm(scheduler, f"{self.name} pulse", lambda: self._run(self._pulse))
        self.on_killed: Callable[[bool], None] = lambda _: None
        streams = {stream.name for stream in self.program.streams}
        publications = [p for p in world.scenario.publications if p.stream in streams]
        self.publisher = SimulatedPublisher(world, self, publications)
        self.witnesses: dict[str, SimulatedSubscriber] = {}
        """A subscriber that reads at once, for each view."""
        self.subscribers: list[SimulatedSubscriber] = []
        self._texts: dict[str, str] = {}

    # ── life ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, is_first: bool = False) -> None:
        """An error is a failure: a broker restarts from whatever its disk has."""
        if self.is_up:
            return
        self.incarnation += 1
        scenario = self.world.scenario
        settings = Settings(
            name=self.name,
            data=str(self._disk.path),
            engine="local",
            origin=self.number,
            idle_ms=scenario.idle_ms,
            silence_ms=50,
            keep="forever",
        )
        source = Source(f"{self.name}.mmpl", program_text(self.program)) if is_first else None
        stepwise = StepwiseRun(lambda: self.world.now, Random(self._random.getrandbits(32)))
        try:
            self.broker = Broker.open(self._disk.path, source, settings, self._clock, self._fetch_description, stepwise)
        except SmileError as problem:
            if is_first and problem.diagnostics[0].code == "E103":
                self.world.scheduler.at(self.world.now + 2.0, f"{self.name} starts", lambda: self.start(is_first=True))
            else:
                self.world.complain(f"{self.name} does not start: {problem}")
            return
        self.broker.network.access = self.access
        self.is_up = True
        self.world.note(self.name, f"started, run {self.incarnation}")
        self._watch()
        self._reconcile()
        self._pulse_alarm.set(self.world.now + PULSE_INTERVAL_S)
        self._batch_alarm.set(self.world.now + 0.001)
        self.schedule_commit()
        self._texts.clear()
        self.publisher.wake()
        self._attend_views()

    def kill(self, down_s: float, loses_power: bool = False, wipes: bool = False, keeps_metadata: bool = False) -> None:
        if not self.is_up:
            return
        kind = "loses its power" if loses_power else "is killed"
        self.world.note(self.name, f"{kind}{' and loses its disk' if wipes else ''}")
        self.is_up, self.frozen_until, self._crash = False, 0.0, None
        for alarm in (self._commit_alarm, self._batch_alarm, self._pulse_alarm):
            alarm.cancel()
        self.publisher.broker_killed()
        for subscriber in (*self.witnesses.values(), *self.subscribers):
            subscriber.broker_killed(has_lost_everything=wipes)
        if wipes:
            self._disk.wipe(keeps_metadata)
            self.hard_horizons = {}
        else:
            self._disk.crash(self._random, loses_power)
        self.on_killed(loses_power)
        self.broker.log.close()
        self.broker._directory.close()
        self.world.scheduler.at(
            self.world.now + down_s, f"{self.name} starts", lambda: self.start(wipes and not keeps_metadata)
        )

    def crash_in_commit(self, fault: Fault) -> None:
        """The broker is killed at some point of its next commit."""
        point = CRASH_POINTS[fault.seed % 3] if fault.kind is FaultKind.KILLED_IN_COMMIT else "committed"
        self._crash = point, fault

    def freeze(self, until: float) -> None:
        """Nothing runs before this time."""
        self.frozen_until = max(self.frozen_until, until)

    def _clock(self) -> int:
        return START_US + int(self.world.now * 1e6) + self.clock_offset_us

    def _fetch_description(self, broker: str, relation: str) -> str:
        return self._fetch(self.number, broker, relation)

    def describe_export(self, relation: str) -> str:
        if not self.is_up:
            raise error("E103", f"{self.name} cannot be reached")
        return json.dumps(self.broker.describe_export(relation))

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self, action: Callable[[], None]) -> None:
        if not self.is_up:
            return
        if self.frozen_until > self.world.now:
            self.world.scheduler.at(self.frozen_until, f"{self.name} thaws", lambda: self._run(action))
            return
        try:
            action()
        except BrokerKilled:
            assert self._crash is not None
            fault = self._crash[1]
            self.kill(fault.end - fault.start, fault.kind is FaultKind.TORN_WRITE)

    def schedule_commit(self) -> None:
        if self.is_up:
            self._commit_alarm.set(max(self.broker.commit_due_at, self.world.now) + self._random.uniform(0.0005, 0.01))

    def _commit(self) -> None:
        if self.broker.commit_due_at <= self.world.now:
            self.broker.commit()
            self._batch_alarm.set(self.world.now + self._random.uniform(0.0005, 0.02))
        self.schedule_commit()

    def _advance(self) -> None:
        if self.broker.advance():
            self._batch_alarm.set(self.world.now + self._random.uniform(0.0005, 0.02))
        if self.broker.failure is not None:
            self.world.complain(f"the views of {self.name} have failed: {self.broker.failure}")
        for view in self.broker.views.values():
            if view.pause is not None and "outer join" in view.pause.message:
                raise NotImplementedError(view.pause.message)  # its rows would share a key: refused, and said so
            if view.pause is not None:
                self.world.complain(f"{view.name} at {self.name} is paused: {view.pause.message}")
        self._attend_views()

    def _pulse(self) -> None:
        if self.world.scenario.truncates and self._has_all_importers():
            self.broker.settings = replace(self.broker.settings, keep="1 second")
        self.broker.pulse()
        self._pulse_alarm.set(self.world.now + PULSE_INTERVAL_S)

    def _has_all_importers(self) -> bool:
        """Whether all neighbours that import a stream from here are known: the log keeps nothing for others."""
        known = self.broker.network.neighbours.status()
        imports = [
            (broker_name(number), i.relation)
            for number, program in enumerate(self.world.scenario.programs)
            for i in program.imports
            if i.broker == self.name and i.stream is not None
        ]
        return all(relation in known.get(importer, {}) for importer, relation in imports)

    def _attend_views(self) -> None:
        for name in self.broker.views:
            if name not in self.witnesses:
                self.witnesses[name] = SimulatedSubscriber(self.world, self, name, None)
        for name, witness in self.witnesses.items():
            if name in self.broker.views:
                witness.read()

    # ── the log ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _watch(self) -> None:
        """Notes what this broker commits, and kills it in the middle if that is planned."""
        log, real_transact, real_append = self.broker.log, self.broker.log._transact, self.broker.log.append
        maintainer, real_checkpoint = self.broker._maintainer, self.broker._maintainer.checkpoint

        def transact(action: Callable[[Any], Any]) -> Any:
            point = None if self._crash is None else self._crash[0]
            if point == "before":
                raise BrokerKilled

            def act(db: Any) -> Any:
                result = action(db)
                if point == "uncommitted":
                    raise BrokerKilled
                return result

            result = real_transact(act)
            if point == "committed":
                raise BrokerKilled
            self._disk.note_commit()
            return result

        def append(
            pieces: Iterable[StreamPiece],
            records: Sequence[ProducerRecord] = (),
            time_us: int = 0,
            whole: bool = False,
            memberships: Sequence[StreamMembership] = (),
        ) -> int:
            appended = list(pieces)
            commit = real_append(appended, records, time_us, whole, memberships)
            for piece in appended:
                self.world.note(self.name, f"logs {piece.stream} {piece.origin} {piece.lo}-{piece.hi}: {piece.rows}")
                if piece.stream in self.publisher.streams:
                    self.world.complain_all(self.world.truth.log(piece.stream, piece.hi, piece.events))
            return commit

        def checkpoint() -> Mapping[str, int] | None:
            horizons = real_checkpoint()
            self.hard_horizons = self.hard_horizons if horizons is None else horizons
            return horizons

        log._transact, log.append = transact, append  # type: ignore[method-assign]
        maintainer.checkpoint = checkpoint  # type: ignore[method-assign]

    def _reconcile(self) -> None:
        """After a restart: the log has everything that was committed, and perhaps what was being committed."""
        log, truth = self.broker.log, self.world.truth
        for stream in self.publisher.streams:
            for origin, horizon in log.stream_horizons(stream).items():
                known = truth.streams[stream].horizon
                if horizon < known:
                    self.world.complain(f"the log of {self.name} ends at {horizon} in {stream}, but had {known}")
                piece = log.read_range(stream, origin, known, 2**30) if horizon > known else None
                if piece is not None:
                    self.world.complain_all(truth.log(stream, piece.hi, piece.events))

    # ── views ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def view_program(self, view: str) -> tuple[mmpl.Program, str]:
        """The program that computes a view, and its text."""
        for record in self.broker._metadata.generations:
            if view in record.digests:
                name = record.generation.name
                if name not in self._texts:
                    self._texts[name] = print_program(record.generation.program)
                return record.generation.program, self._texts[name]
        raise AssertionError(f"{self.name} does not compute {view}")

    def apply(self, program: mmpl.Program) -> bool:
        """Changes the program. Returns whether it was accepted."""
        if not self.is_up or self.frozen_until > self.world.now:
            return False
        is_accepted = False

        def change() -> None:
            nonlocal is_accepted
            try:
                self.broker.apply(Source(f"{self.name}.mmpl", program_text(program)))
            except SmileError as problem:
                self.world.note(self.name, f"does not change its program: {problem}")
                return
            is_accepted = True
            self.program = program
            self.world.note(self.name, "has changed its program")

        self._run(change)
        if self.is_up:
            self._texts.clear()
            self._attend_views()
            self._batch_alarm.set(self.world.now + 0.001)
            self.schedule_commit()
        return is_accepted

    @property
    def refused_imports(self) -> list[str]:
        """Imports whose definition or history is another one at the neighbour."""
        imports = self.broker.network.status(self.world.now)["imports"] if self.is_up else {}
        return [name for name, i in imports.items() if i["problem"] is not None and i["problem"]["code"] == "E124"]

    def behind(self, targets: Mapping[str, int]) -> list[str]:
        """Views that have not reached these ticks of the published streams."""
        if not self.is_up:
            return [f"{self.name} is down"]
        late = list[str]()
        for name, view in self.broker.views.items():
            for stream, base in base_streams(subprogram(self.view_program(name)[0], name)).items():
                if view.horizons.get(stream, HORIZON_MIN) < targets[base]:
                    late.append(
                        f"{name} at {self.name} has {stream} up to {view.horizons.get(stream)}, not {targets[base]}"
                    )
        return late
