"""A simulated broker: the product's broker without threads, on a simulated disk, with a simulated clock. It is killed in
the middle of anything, and starts again from what its disk has."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from smile.algebra import mmpl
from smile.algebra.dependencies import subprogram
from smile.algebra.printer import print_program
from smile.broker.broker import Broker, StepwiseRun
from smile.broker.imports.cache_append import CacheAppend
from smile.broker.network.origin_commands import OriginCommands
from smile.errors import SmileError, error
from smile.horizons import END, HORIZON_MIN, origin_name
from smile.links.link import Link
from smile.links.messages import AnyMessage
from smile.settings import Settings
from smile.source import Source
from tests.simulation.checks import check_message
from tests.simulation.clients import SimulatedPublisher, SimulatedSubscriber
from tests.simulation.disk import SimulatedDisk
from tests.simulation.log_watch import LogWatch
from tests.simulation.programs import Coverage, base_streams, broker_name, program_text, reading_hosts
from tests.simulation.scenario import Fault, FaultKind, PlannedPublication
from tests.simulation.scheduler import Alarm
from tests.simulation.world import BrokerKilled, World

if TYPE_CHECKING:
    from tests.simulation.cables import CableEnd

Targets = Mapping[str, Mapping[tuple[int, str], int]]
"""Up to where each published stream must be known, by the broker that publishes it and its origin."""
START_US = 1_000_000_000
"""What the clocks show in the beginning."""
PULSE_INTERVAL_S = 1.0
"""Brokers with threads look more often for idle subscribers."""
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
        self.is_up, self.is_dead, self.incarnation, self.frozen_until = False, False, 0, 0.0
        self.clock_offset_us = 0
        self.access = SimulatedAccess()
        self.hard_horizons: Mapping[str, int] = {}
        """Of the last hard checkpoint."""
        self.disk, self._fetch = SimulatedDisk(folder / self.name), fetch
        self._random = world.random("broker", number)
        self._crash: tuple[str, Fault] | None = None
        """The point in the next commit at which the broker is killed."""
        scheduler = world.scheduler
        self._commit_alarm = Alarm(scheduler, f"{self.name} commits", lambda: self._run(self._commit))
        self._batch_alarm = Alarm(scheduler, f"{self.name} advances", lambda: self._run(self._advance))
        self._pulse_alarm = Alarm(scheduler, f"{self.name} pulse", lambda: self._run(self._pulse))
        self.on_killed: Callable[[bool, bool], None] = lambda _loses_power, _wipes: None
        self.publisher = self.create_publisher([p for p in world.scenario.publications if p.broker == number])
        self.witnesses: dict[str, SimulatedSubscriber] = {}
        """A subscriber that reads at once, for each view."""
        self.subscribers: list[SimulatedSubscriber] = []
        self._texts: dict[str, str] = {}

    # ── what other kinds of simulated brokers have ──────────────────────────────────────────────────────────────────

    @property
    def settings(self) -> Settings:
        return Settings(
            name=self.name,
            data=str(self.disk.path),
            engine="local",
            origin=self.number,
            idle_ms=self.world.scenario.idle_ms,
            silence_ms=50,
            keep="forever",
        )

    @property
    def source(self) -> Source:
        return Source(f"{self.name}.mmpl", program_text(self.program))

    def create_publisher(self, publications: Sequence[PlannedPublication]) -> SimulatedPublisher:
        return SimulatedPublisher(self.world, self, publications)

    def create_subscriber(self, view: str, pause_s: float | None) -> SimulatedSubscriber:
        return SimulatedSubscriber(self.world, self, view, pause_s)

    def watch_log(self) -> LogWatch:
        return LogWatch(self)

    def check_message(self, sender: "CableEnd", message: AnyMessage, body: bytes) -> None:
        """The broker is about to send this."""
        check_message(self.world, sender, message, body)

    # ── life ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, is_first: bool = False) -> None:
        """An error is a failure: a broker restarts from whatever its disk has."""
        if self.is_up or self.is_dead:
            return
        self.incarnation += 1
        settings, source = self.settings, self.source if is_first else None
        stepwise = StepwiseRun(lambda: self.world.now, Random(self._random.getrandbits(32)))
        try:
            self.broker = Broker.open(self.disk.path, source, settings, self._clock, self._fetch_description, stepwise)
        except SmileError as problem:
            _skip_unsupported(str(problem))
            self.world.complain(f"{self.name} does not start: {problem}")
            return
        self.broker.network.access = self.access
        self.is_up = True
        self.world.note(self.name, f"started, run {self.incarnation}")
        self._watch_checkpoints()
        self.watch_log().reconcile()
        self._pulse_alarm.set(self.world.now + PULSE_INTERVAL_S)
        self._batch_alarm.set(self.world.now + 0.001)
        self.schedule_commit()
        self._texts.clear()
        self.publisher.wake()
        self._attend_views()
        self._schedule_descriptions(self.incarnation)

    def _schedule_descriptions(self, incarnation: int) -> None:
        """As long as its neighbours have not described what it imports, it runs a part of its program, and asks again."""

        def ask() -> None:
            if self.incarnation != incarnation:
                return
            if self.broker.descriptions.step():
                self.world.note(self.name, "runs more of its program")
                self._texts.clear()
                self._attend_views()
                self._batch_alarm.set(self.world.now + 0.001)
                self.schedule_commit()
            self._schedule_descriptions(incarnation)

        if self.is_up and self.broker.descriptions.is_waiting:
            self.world.scheduler.at(self.world.now + 2.0, f"{self.name} asks its neighbours", lambda: self._run(ask))

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
            self.disk.wipe(keeps_metadata)
            self.hard_horizons = {}
        else:
            self.disk.crash(self._random, loses_power)
        self.on_killed(loses_power, wipes)
        self.close()
        self.world.scheduler.at(
            self.world.now + down_s, f"{self.name} starts", lambda: self.start(wipes and not keeps_metadata)
        )

    def close(self) -> None:
        """Closes the files of the present process."""
        self.broker.log.close()
        self.broker.subscriptions._records.close()
        self.broker._directory.close()

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

    def run_client(self, action: Callable[[], None]) -> None:
        """Something that a client does with the broker, which may be killed meanwhile."""
        self._run(action)

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
            if view.pause is not None:
                _skip_unsupported(view.pause.message)
                self.world.complain(f"{view.name} at {self.name} is paused: {view.pause.message}")
        self._attend_views()

    def _pulse(self) -> None:
        if self.broker._retention._settings.keep == "forever" and self._may_truncate():
            self.broker._retention._settings = replace(self.broker.settings, keep="1 second")
        self.broker.pulse()
        self._pulse_alarm.set(self.world.now + PULSE_INTERVAL_S)

    def _may_truncate(self) -> bool:
        truncation = self.world.scenario.truncation
        if truncation == "relays":
            return not self.program.streams
        return truncation == "all" and self._has_all_importers()

    def _has_all_importers(self) -> bool:
        """Whether all neighbours that import a stream from here are known: the log keeps nothing for others. Other hosts
        of a stream import it too, as soon as somebody reads it there: what was truncated before is gone for them."""
        known, scenario = self.broker.network.neighbours.status(), self.world.scenario
        imports = [
            (broker_name(number), i.relation)
            for number, program in enumerate(scenario.programs)
            for i in program.imports
            if self.name in i.brokers and i.stream is not None
        ]
        linked = {number for link in scenario.topology.links if self.number in link for number in link} - {self.number}
        imports += [
            (broker_name(number), stream.name)
            for stream in self.program.streams
            if stream.many_origins
            for number in reading_hosts(scenario.programs, stream.name) & linked
        ]
        return all(relation in known.get(importer, {}) for importer, relation in imports)

    def _attend_views(self) -> None:
        for name in self.broker.views:
            if name not in self.witnesses:
                self.witnesses[name] = self.create_subscriber(name, None)
        for name, witness in self.witnesses.items():
            if name in self.broker.views:
                witness.read()

    # ── the log ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _watch_checkpoints(self) -> None:
        maintainer, real_checkpoint = self.broker._maintainer, self.broker._maintainer.checkpoint

        def checkpoint() -> Mapping[str, int] | None:
            horizons = real_checkpoint()
            self.hard_horizons = self.hard_horizons if horizons is None else horizons
            return horizons

        maintainer.checkpoint = checkpoint  # type: ignore[method-assign]

    @property
    def crash_point(self) -> str | None:
        return None if self._crash is None else self._crash[0]

    def is_home_of(self, stream: str) -> bool:
        return any(s.name == stream and s.home is None for s in self.program.streams)

    def run_origin_command(self, command: Callable[[OriginCommands], None]) -> None:
        """What an operator does at this broker. A command waits for commits, so these are made at once."""
        if not self.is_up or self.frozen_until > self.world.now:
            return
        broker = self.broker
        real_append, real_end = broker.append_imported, broker.end_origin

        def append_at_once(append: CacheAppend) -> Any:
            future = real_append(append)
            broker.commit()
            return future

        def end_at_once(stream: str) -> Any:
            future = real_end(stream)
            broker.commit()
            return future

        def run() -> None:
            broker.append_imported, broker.end_origin = append_at_once, end_at_once  # type: ignore[method-assign]
            try:
                command(broker.origins)
            except SmileError as problem:
                self.world.note(self.name, f"refuses a command: {problem}")
            finally:
                broker.append_imported, broker.end_origin = real_append, real_end  # type: ignore[method-assign]

        self._run(run)
        self._batch_alarm.set(self.world.now + 0.001)
        self.schedule_commit()

    # ── views ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def view_program(self, view: str) -> tuple[mmpl.Program, str]:
        """The program that computes a view, and its text."""
        for record in self.broker.running.metadata.generations:
            if view in record.digests:
                name = record.generation.name
                if name not in self._texts:
                    self._texts[name] = print_program(record.generation.program)
                return record.generation.program, self._texts[name]
        raise AssertionError(f"{self.name} does not compute {view}")

    def apply(self, program: mmpl.Program) -> bool:
        """Changes the program. Returns whether it was accepted."""
        is_accepted = self.apply_source(Source(f"{self.name}.mmpl", program_text(program)))
        self.program = program if is_accepted else self.program
        return is_accepted

    def apply_source(self, source: Source) -> bool:
        if not self.is_up or self.frozen_until > self.world.now:
            return False
        is_accepted = False

        def change() -> None:
            nonlocal is_accepted
            try:
                self.broker.apply(source)
            except SmileError as problem:
                self.world.note(self.name, f"does not change its program: {problem}")
                return
            is_accepted = True
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

    def has_open_imports(self, link: Link) -> bool:
        """Whether all imports of a link are open, but for those that cannot be: a fence may have stopped a stream, and
        a home that has left may have refused a broker."""
        network, truth = self.broker.network, self.world.truth
        for import_id, imported in link._imports.items():
            if imported.figures.state == "live":
                continue
            relation = network._relations.get(import_id)
            hosted = network._hosted_ids.get(import_id) or network._other_origins.get(import_id)
            if relation is not None and relation.import_.stream is not None:
                (base,) = base_streams(mmpl.Program((), (), (), (relation.import_,))).values()
                if base in self.world.stopped_streams or self.world.scenario.streams[base][0] in self.world.dead:
                    continue
                if truth.streams[base].is_closed and link.neighbour not in truth.streams[base].member_names:
                    continue  # the neighbour was to publish it too, but could not join before the home has left
            elif hosted is not None and truth.streams[hosted.name].is_closed:
                continue
            return False
        return True

    def behind(self, targets: Targets, coverage: Coverage) -> list[str]:
        """Views that have not reached these ticks of the published streams."""
        if not self.is_up:
            return [] if self.is_dead else [f"{self.name} is down"]
        if self.broker.descriptions.is_waiting:
            return [f"{self.name} is {self.broker.descriptions.text}"]
        late = list[str]()
        for name, view in self.broker.views.items():
            program = subprogram(self.view_program(name)[0], name)
            covered = coverage.of_program(self.number, program)
            for stream, base in base_streams(program).items():
                has_many = self.world.truth.streams[base].has_many_origins
                for (host, origin), tick in targets[base].items():
                    if self.world.truth.streams[base].end(origin) < END and covered[stream] == {host}:
                        continue  # a broker that was fenced does not know how others end it
                    horizon = origin_name(stream, origin) if has_many else stream
                    if host in covered[stream] and view.horizons.get(horizon, HORIZON_MIN) < tick:
                        late.append(
                            f"{name} at {self.name} has {horizon} up to {view.horizons.get(horizon)}, not {tick}"
                        )
        return late


def _skip_unsupported(problem: str) -> None:
    """Rows of an outer join would share a key: that is refused, and said so."""
    if "outer join" in problem:
        raise NotImplementedError(problem)
