"""Runs a scenario: a whole network in one thread. While faults occur everything that anybody shows must be true; when they
have ended, everything must arrive within a bound, and then the network must be quiet."""

import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from smile.algebra import mmpl
from smile.algebra.types import BOOL
from smile.errors import error
from smile.knowledge.values.json import Json
from tests.reference.histories import names_read
from tests.simulation.brokers import SimulatedBroker, Targets
from tests.simulation.cables import SimulatedLink
from tests.simulation.compilation import memoized_compilation
from tests.simulation.disk import recorded_flushes
from tests.simulation.durable import DurableSubscriber, find_places
from tests.simulation.operator import Operator
from tests.simulation.programs import Coverage, broker_number, own_streams_read
from tests.simulation.scenario import Fault, FaultKind, Scenario
from tests.simulation.truth import Truth
from tests.simulation.world import Combination, World

HEAL_S = 150.0
"""Within this time after the last fault everything must have arrived: a broker that kept failing is called after 80 s at
most, and a refused import asks again after 30 s."""
DELAYED_S = 4.5
"""A message that was sent before the last fault has ended may still be under way for this time."""
QUIET_S = 6.0
"""For how long the network is watched in the end."""
QUESTIONS_PER_IMPORT_MAX = 5
DURABLE_SHARE = 0.3
"""How many of the relations with events have a durable subscriber."""

REPEATED_FACTOR = 6
REPEATED_BYTES = 10_000
_SLOW_KINDS = {FaultKind.SLOW_LINK, FaultKind.STALLED_READER, FaultKind.SILENT_ORIGIN, FaultKind.DELAYED}


@dataclass(frozen=True)
class Outcome:
    """What a run has shown. `snapshots` are the rows in the end, by broker and view."""

    scenario: Scenario
    problems: Sequence[str]
    trace: Sequence[tuple[float, str, str]]
    combinations: Counter[Combination]
    snapshots: dict[str, dict[str, Json]]
    simulated_s: float
    events: int
    messages: Counter[str]
    digest: str
    folder: Path | None = None
    """The directories of the brokers, if they were kept."""
    is_skipped: bool = False
    """Whether the programs are not supported."""


def run_scenario(scenario: Scenario, folder: Path | None = None, create: "type[Simulation] | None" = None) -> Outcome:
    """With `folder`, what the brokers have on their disks is kept there. `create` is the kind of simulation."""
    memory = Path("/dev/shm")
    used = folder or Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        with simulated_limits(scenario), recorded_flushes(), memoized_compilation():
            return (create or Simulation)(scenario, used).run()
    finally:
        if folder is None:
            shutil.rmtree(used, ignore_errors=True)


@contextmanager
def simulated_limits(scenario: Scenario) -> Iterator[None]:
    """Intervals that fit into a short run; for many scenarios also small windows, frames and memories."""
    random = Random(f"limits {scenario.seed}")
    values: dict[str, Any] = {
        "smile.broker.retention.RETENTION_INTERVAL_S": 4.0,
        "smile.log.storage.retention.PAUSE_S": 0.0,
        "smile.limits.checkpoint_s_max": random.choice((2.0, 10.0)),
        "smile.limits.checkpoint_events_max": random.choice((2, 10, 1_000)),
        "smile.limits.progress_pause_s": 0.2,
    }
    if random.random() < 0.5:
        values |= {
            "smile.limits.link_window_bytes": random.choice((300, 3_000)),
            "smile.limits.inbox_pieces_max": random.choice((1, 3)),
            "smile.limits.inbox_waiting_bytes_max": random.choice((500, 5_000)),
            "smile.limits.progress_marks_max": random.choice((2, 8)),
            "smile.limits.deleted_rows_max": random.choice((1, 5)),
            "smile.broker.network.view_cursor.PART_ROWS": random.choice((1, 3)),
            "smile.broker.network.stream_source.RANGE_BYTES": random.choice((1, 1_000)),
        }
    patches = [patch(name, value) for name, value in values.items()]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


class Simulation:
    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario, self.folder = scenario, folder
        self.world = World(scenario, self._create_truth())
        self.brokers: Sequence[SimulatedBroker] = [self._create_broker(n) for n in range(len(scenario.programs))]
        self.links = list[SimulatedLink]()
        self.operator = Operator(self.world, self.brokers, self.links)

    def _create_truth(self) -> Truth:
        return Truth({name: stream for name, (_, stream) in self.scenario.streams.items()})

    def _create_broker(self, number: int) -> SimulatedBroker:
        return SimulatedBroker(self.world, number, self.folder, self._fetch_description)

    def run(self) -> Outcome:
        world, is_skipped = self.world, False
        try:
            self._run()
        except NotImplementedError:
            is_skipped = True  # an outer join whose rows would share a key: refused, and said so
        except Exception:  # noqa: BLE001  # whatever goes wrong in the product is a finding
            world.complain(traceback.format_exc())
        finally:
            for broker in self.brokers:
                if broker.is_up:
                    broker.close()
        snapshots = {f"{b.name} {v}": w.rows for b in self.brokers for v, w in b.witnesses.items()}
        return Outcome(
            self.scenario,
            () if is_skipped else world.problems,
            world.trace,
            world.combinations,
            snapshots,
            world.now,
            world.scheduler.events,
            world.figures.messages,
            world.digest,
            self.folder,
            is_skipped,
        )

    def _run(self) -> None:
        late = {fault.target: fault.end for fault in self.scenario.faults if fault.kind is FaultKind.STARTED_LATE}
        for broker in self.brokers:
            broker.on_killed = partial(self._broker_killed, broker)
            start = partial(broker.start, is_first=True)
            if broker.number in late:
                self.world.scheduler.at(late[broker.number], f"{broker.name} starts", start)
            else:
                start()
        for number, ends in enumerate(self.scenario.topology.links):
            pair = (self.brokers[ends[0]], self.brokers[ends[1]])
            is_reversed = self.world.random("caller", number).random() < 0.5
            self.links.append(SimulatedLink(self.world, number, (pair[1], pair[0]) if is_reversed else pair))
        self._add_subscribers()
        for fault in self.scenario.faults:
            name = f"fault {fault.kind.value}"
            self.world.scheduler.at(fault.start, name, partial(self._begin, fault))
            self.world.scheduler.at(fault.end, name, partial(self._end, fault))
        self._advance_to(self.scenario.faulty_s)
        self._repair()
        if not self.world.problems:
            self._heal()
        if not self.world.problems:
            self._watch_quiet()
        if not self.world.problems:
            self._check_logs()

    def _advance_to(self, time: float) -> None:
        self.world.scheduler.run(time, lambda: bool(self.world.problems))

    def _add_subscribers(self) -> None:
        for broker in self.brokers:
            random = self.world.random("subscribers", broker.number)
            for name in broker.program.subscriptions:
                if random.random() < 0.5:
                    pause_s = random.choice((0.3, 1.0, 5.0))
                    broker.subscribers.append(broker.create_subscriber(name, pause_s))
        self._add_durable_subscribers()

    def _add_durable_subscribers(self) -> None:
        """Each can come back at all brokers that have its relation."""
        random = self.world.random("durable subscribers")
        for number, group in enumerate(find_places(self.scenario.programs).values()):
            if random.random() < DURABLE_SHARE:
                random.shuffle(group)
                places = [place for place, _ in group]
                pause_s = random.choice((0.2, 1.0, 3.0))
                subscriber = DurableSubscriber(self.world, f"d{number}", self.brokers, places, group[0][1], pause_s)
                self.world.durable_subscribers.append(subscriber)

    def _fetch_description(self, importer: int, broker: str, relation: str) -> str:
        exporter = next(b for b in self.brokers if b.name == broker)
        ends = {self.brokers[importer], exporter}
        links = [link for link in self.links if {*link.brokers} == ends]
        if links and all(link.is_blocked(0) or link.is_blocked(1) for link in links):
            raise error("E103", f"{broker} cannot be reached")
        return exporter.describe_export(relation)

    def _broker_killed(self, broker: SimulatedBroker, loses_power: bool, has_lost_everything: bool) -> None:
        """Connections of a process that is killed are closed by its machine, if that is still there."""
        for subscriber in self.world.durable_subscribers:
            subscriber.broker_killed(broker, has_lost_everything)
        for link in self.links:
            for cable in list(link.cables):
                for end in cable.ends:
                    if end.broker is broker and end.is_open:
                        end.is_open = False
                        end.alarm.cancel()
                        cable.closed(end.side, is_told=not loses_power)

    # ── faults ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, fault: Fault) -> None:
        self.world.active.append(fault)
        self.world.note("fault", f"begins: {fault}")
        broker = self.brokers[fault.target % len(self.brokers)]
        match fault.kind:
            case FaultKind.TRUNCATED:
                self.links[fault.target].cut()
            case FaultKind.KILLED:
                broker.kill(fault.end - fault.start)
            case FaultKind.POWER_LOST:
                broker.kill(fault.end - fault.start, loses_power=True)
            case FaultKind.LOST_CACHE:
                if not broker.program.streams:
                    broker.kill(fault.end - fault.start, wipes=True, keeps_metadata=bool(fault.seed % 2))
            case FaultKind.KILLED_IN_COMMIT | FaultKind.TORN_WRITE:
                broker.crash_in_commit(fault)
            case FaultKind.CLOCK_SKEWED:
                broker.clock_offset_us = int(fault.rate * 1e7) * (1 if fault.seed % 2 else -1)
            case FaultKind.CLOCK_STEPPED:
                broker.clock_offset_us += int(fault.rate * 1e8) * (1 if fault.seed % 2 else -1)
            case FaultKind.SILENT_ORIGIN:
                broker.freeze(fault.end)
            case FaultKind.PROGRAM_CHANGED:
                self._change_program(broker, Random(fault.seed))
            case FaultKind.REVOKED:
                broker.access.revoked |= self._some_exports(broker, Random(fault.seed))
            case FaultKind.ORIGIN_LEFT:
                self.operator.leave(broker)
            case FaultKind.ORIGIN_FENCED:
                self.operator.begin_fence(broker, fault)
            case FaultKind.ORIGIN_DEAD:
                self.world.dead.add(broker.number)
                broker.is_dead = True
                broker.kill(0.0)
            case FaultKind.OLD_VERSION:
                self._cut_links(broker)
            case _:
                pass

    def _end(self, fault: Fault) -> None:
        if fault not in self.world.active:
            return
        self.world.active.remove(fault)
        self.world.note("fault", f"ends: {fault}")
        broker = self.brokers[fault.target % len(self.brokers)]
        if fault.kind in (FaultKind.ORIGIN_LEFT, FaultKind.ORIGIN_FENCED) and fault.seed % 2:
            self.operator.join_again(broker)
        if fault.kind is FaultKind.REVOKED:
            broker.access.revoked -= self._some_exports(broker, Random(fault.seed))
        if fault.kind is FaultKind.OLD_VERSION:
            self._cut_links(broker)

    def _cut_links(self, broker: SimulatedBroker) -> None:
        """Another version of the broker begins to run."""
        for link in self.links:
            if broker in link.brokers:
                link.cut()

    def _some_exports(self, exporter: SimulatedBroker, random: Random) -> set[tuple[str, str]]:
        """Importers with a relation, some of those that there are."""
        exports = [
            (importer.name, import_.relation)
            for importer, program in zip(self.brokers, self.scenario.programs, strict=True)
            for import_ in program.imports
            if exporter.name in import_.brokers
        ]
        return {export for export in exports if random.random() < 0.7}

    def _change_program(self, broker: SimulatedBroker, random: Random) -> None:
        # After a log was truncated, importing brokers cannot compute anew what depends on a changed view.
        can_redefine = self.scenario.truncation == "none"
        changed = _changed_program(broker.program, self.scenario.programs, random, can_redefine)
        # A host that begins to read a stream late cannot have what the others have truncated.
        if self.scenario.truncation == "all" and own_streams_read(changed) != own_streams_read(broker.program):
            return
        if broker.apply(changed):
            for number in range(broker.number + 1, len(self.brokers)):
                apply_again = partial(self._apply_again, self.brokers[number])
                self.world.scheduler.at(self.world.now + 3.0 + number, "operator", apply_again)

    def _apply_again(self, broker: SimulatedBroker) -> None:
        """What an operator does when a neighbour has changed a relation."""
        if broker.is_up and broker.refused_imports:
            broker.apply(broker.program)

    def _repair(self) -> None:
        """No more faults from now on."""
        for fault in list(self.world.active):
            self._end(fault)
        self.world.is_repaired = True
        for broker in self.brokers:
            broker._crash = None
            broker.clock_offset_us = max(broker.clock_offset_us, 0)
        self.world.note("fault", "everything is repaired")

    # ── when there are no more faults ───────────────────────────────────────────────────────────────────────────────

    def _heal(self) -> None:
        world, deadline = self.world, self.world.now + HEAL_S
        scheduler = world.scheduler
        while not world.problems and not all(b.publisher.is_done or b.is_dead for b in self.brokers):
            if world.now >= deadline:
                world.complain("publications are not answered although everything is repaired")
            scheduler.run(world.now + 0.5, lambda: bool(world.problems))
        self._wait_until_all_arrived(deadline)
        if self.operator.fence_dead() and not world.problems:
            world.note("network", "the dead origin is fenced")
            self._wait_until_all_arrived(world.now + HEAL_S)
        world.note("network", "everything has arrived")
        self._compare()
        self._check_finality()
        self._check_repeats()

    def _check_finality(self) -> None:
        """A row that is final at an importing broker is final at the exporting one, and the same there."""
        for importer in self.brokers:
            for import_ in importer.broker.program.imports if importer.is_up else ():
                exporter = self.brokers[broker_number(import_.broker)]
                if exporter.is_up and import_.relation in exporter.witnesses and not importer.refused_imports:
                    shown, upstream = importer.witnesses.get(import_.name), exporter.witnesses[import_.relation]
                    problems = (
                        [] if shown is None else shown.find_early_finality(upstream, import_.condition is not None)
                    )
                    self.world.complain_all(problems, f"{import_.name} at {importer.name}: ")

    def _wait_until_all_arrived(self, deadline: float) -> None:
        world = self.world
        targets: Targets | None = None
        while not world.problems:
            world.stopped_streams = self.operator.find_stopped_streams()
            targets = targets or self.operator.find_targets()
            late = self._unfinished({base: {} if base in world.stopped_streams else t for base, t in targets.items()})
            if not late:
                return
            if world.now >= deadline:
                status = {b.name: b.broker.network.status(world.now) for b in self.brokers if b.is_up}
                world.complain(f"{HEAL_S:.0f} s after the last fault: {late}\n{status}")
            for broker in self.brokers:
                self._apply_again(broker)
            world.scheduler.run(world.now + 0.5, lambda: bool(world.problems))

    def _check_repeats(self) -> None:
        """What was sent again is in proportion to what was lost or late, where links were not slow."""
        figures = self.world.figures
        kinds = {fault.kind for fault in self.scenario.faults}
        if kinds & _SLOW_KINDS:
            return
        if figures.repeated_bytes > REPEATED_FACTOR * figures.disturbed_bytes + REPEATED_BYTES:
            lost = f"{figures.disturbed_bytes} bytes were lost or late"
            self.world.complain(f"{figures.repeated_bytes} bytes of events were sent again, although {lost}")

    def _unfinished(self, targets: Targets) -> list[str]:
        coverage = Coverage(self.scenario.programs, frozenset(self.world.dead))
        late = [problem for broker in self.brokers for problem in broker.behind(targets, coverage)]
        late += [problem for subscriber in self.world.durable_subscribers for problem in subscriber.missing(coverage)]
        return late + [f"{link.name} is not connected" for link in self.links if not link.is_settled]

    def _compare(self) -> None:
        for broker in self.brokers:
            for name in broker.broker.views if broker.is_up else ():
                broker.witnesses[name].read()
                broker.witnesses[name].compare()
            for subscriber in broker.subscribers:
                if broker.is_up and subscriber.view in broker.broker.views:
                    subscriber.read()

    def _watch_quiet(self) -> None:
        world = self.world
        self._advance_to(world.now + DELAYED_S)
        before, bytes_before = Counter(world.figures.messages), world.figures.data_bytes
        self._advance_to(world.now + QUIET_S)
        self._compare()
        sent = world.figures.messages - before
        hosts = Counter(s.name for b in self.brokers for s in b.program.streams if s.many_origins)
        # A host takes the other origins of its stream from all hosts that it is linked with.
        imports = (sum(len(b.program.imports) for b in self.brokers) + hosts.total()) * len(self.links)
        origins = max(hosts.values(), default=1)
        has_refused = self.world.dead or world.stopped_streams or any(s.is_closed for s in world.truth.streams.values())
        for kind in () if has_refused else ("hello", "open", "opened", "refused", "close", "routing", "routed"):
            if sent[kind]:
                world.complain(f"a quiet network sends {kind}: {dict(sent)}")
        for link in self.links:
            for cable in link.cables:
                for end in cable.ends:
                    gaps = [i for i in end.state._imports.values() if i.missing is not None and i.missing.what == "gap"]
                    if gaps:
                        world.complain(f"{end.broker.name} misses something on {link.name} for ever")
        if sent["curious"] > QUESTIONS_PER_IMPORT_MAX * imports:
            world.complain(f"a quiet network asks {sent['curious']} questions for {imports} imports")
        advances = QUIET_S * 1000 / self.scenario.idle_ms + 2
        if sent["events"] + sent["rows"] > 6 * advances * imports * origins:
            world.complain(f"a quiet network sends {dict(sent)}, {world.figures.data_bytes - bytes_before} bytes")

    def _check_logs(self) -> None:
        """Everything that was acknowledged is in the log, once, and nothing else but what the publisher has given up."""
        for broker in self.brokers:
            for stream, acknowledged in broker.publisher.acknowledged.items():
                published = self.world.truth.streams[stream]
                columns = [name for name, _ in published.definition.columns]
                logged = {
                    t: tuple(row[c] for c in columns)
                    for t, row in published.events.items()
                    if not published.has_many_origins or published.members[published.origin_of(t)].broker == broker.name
                }
                lost = {t: row for t, row in acknowledged.items() if repr(logged.get(t)) != repr(row)}
                extra = sorted(repr(row) for t, row in logged.items() if t not in acknowledged)
                given_up = [repr(row) for p in broker.publisher.unanswered if p.stream == stream for row in p.rows]
                if lost or Counter(extra) - Counter(given_up):
                    self.world.complain(f"{stream} has {logged} at {broker.name}, acknowledged was {acknowledged}")


def _changed_program(
    program: mmpl.Program, all_programs: Sequence[mmpl.Program], random: Random, can_redefine: bool
) -> mmpl.Program:
    """With one more view, with another definition of a view, or without a view that nobody reads."""
    names = [d.name for d in program.definitions]
    change = random.choice(("add", "redefine", "drop") if can_redefine else ("add", "drop"))
    always = mmpl.Constant(True, BOOL)
    if change == "add" or not program.views:
        name = f"X{random.randrange(1000)}"
        if name in names or not names:
            return program
        view = mmpl.ViewDef(name, mmpl.Restrict(mmpl.RelationRef(random.choice(names)), always))
        return replace(program, views=(*program.views, view), subscriptions=(*program.subscriptions, name))
    index = random.randrange(len(program.views))
    view = program.views[index]
    if change == "redefine":
        body = mmpl.Distinct(mmpl.Restrict(view.body, always))
        views = (*program.views[:index], replace(view, body=body), *program.views[index + 1 :])
        return replace(program, views=views)
    readers = {name for v in program.views for name in names_read(v.body)}
    importers = {i.relation for p in all_programs for i in p.imports}
    if view.name in readers | importers:
        return program
    rest = tuple(v for v in program.views if v is not view)
    return replace(program, views=rest, subscriptions=tuple(s for s in program.subscriptions if s != view.name))
