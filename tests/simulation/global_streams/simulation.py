"""Runs a network with a global stream: producers and republishers come, go and fail, and plans switch. At all times what
anybody has is a part of the union of the producers' logs; in the end it is all of it that somebody can give."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

from smile.algebra.dependencies import subprogram
from smile.algebra.types import Value
from smile.broker.global_streams.global_import import GlobalImport
from smile.horizons import HORIZON_MIN
from tests.simulation.global_streams.brokers import RegistryBroker, epochs_of
from tests.simulation.global_streams.scenario import (
    CHANNELS,
    CONDITIONS,
    KEY_CONDITIONS,
    NTP,
    ActionKind,
    Channel,
    RegistryScenario,
    channel_condition,
)
from tests.simulation.global_streams.truth import RegistryTruth, assembled_part
from tests.simulation.programs import base_streams, broker_name
from tests.simulation.scenario import Fault, FaultKind, Scenario
from tests.simulation.simulation import (
    DELAYED_S,
    HEAL_S,
    QUESTIONS_PER_IMPORT_MAX,
    QUIET_S,
    Outcome,
    Simulation,
    run_scenario,
)
from tests.simulation.truth import origin_horizons

ROUTING_KINDS = ("hello", "open", "opened", "refused", "close", "routing", "routed")
SETTLED_S = 5.0
"""Within this time everybody knows of all registrations, if all links are open."""
DROP_S = 5.0
"""After this time nothing is imported any more that no plan wants."""


class RegistrySimulation(Simulation):
    scenario: RegistryScenario
    brokers: list[RegistryBroker]
    truth: RegistryTruth

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        assert isinstance(scenario, RegistryScenario)
        super().__init__(scenario, folder)
        for action in scenario.actions:
            broker = self.brokers[action.broker]
            self.world.scheduler.at(action.time, f"{broker.name} operator", partial(broker.act, action))

    def _create_truth(self) -> RegistryTruth:
        (stream,) = self.scenario.programs[0].streams
        republishers = {name: KEY_CONDITIONS[text] for name, text in self.scenario.republishers.items()}
        claims: dict[str, list[str]] = {}
        for broker, number in enumerate(self.scenario.numbers):
            claims.setdefault(str(number), []).append(broker_name(broker))
        self.truth = RegistryTruth(replace(stream, many_origins=True), republishers, claims)
        return self.truth

    def _create_broker(self, number: int) -> RegistryBroker:
        return RegistryBroker(self.world, self.scenario, self.truth, number, self.folder, self._fetch_description)

    def _add_durable_subscribers(self) -> None:
        """`Simulation` has them."""

    def _begin(self, fault: Fault) -> None:
        if fault.kind is FaultKind.LOST_CACHE:
            self.world.active.append(fault)
            broker = self.brokers[fault.target]
            broker.kill(fault.end - fault.start, wipes=True, keeps_metadata=bool(fault.seed % 2))
        else:
            super()._begin(fault)

    # ── when there are no more faults ───────────────────────────────────────────────────────────────────────────────

    @property
    def living(self) -> list[RegistryBroker]:
        return [broker for broker in self.brokers if not broker.is_dead]

    def _heal(self) -> None:
        self._wait_for_all()
        self._advance_to(self.world.now + SETTLED_S)
        known = {broker: len(broker.publisher.acknowledged[NTP]) for broker in self.living}
        for broker in self.living:
            for number, channel in enumerate(CHANNELS):
                broker.publisher.publish_now(((*channel, number),))
        self._wait_for_all()
        self._compare()
        self._check_rows()
        self._check_channels({b: [*b.publisher.acknowledged[NTP].values()][known[b] :] for b in self.living})

    def _wait_for_all(self) -> None:
        world, deadline = self.world, self.world.now + HEAL_S
        while not world.problems:
            late = list(self._late())
            if not late:
                world.note("network", "everything has arrived")
                return
            if world.now >= deadline:
                plans = {b.name: b.broker.global_imports.report()["plans"] for b in self.living if b.is_up}
                world.complain(f"{HEAL_S:.0f} s after the last fault: {late}\n{plans}")
            world.scheduler.run(world.now + 0.5, lambda: bool(world.problems))

    def _late(self) -> Iterator[str]:
        """What has not arrived, or not ended."""
        for broker in self.living:
            if not broker.is_up:
                yield f"{broker.name} is down"
                continue
            if not broker.publisher.is_done:
                yield f"{broker.name} has publications that are not answered"
            for import_ in broker.broker.global_imports.imports.values():
                is_stuck = self._is_left_out(import_) or self._is_displaced(import_)
                if len(import_.running.plans) > 1 and not is_stuck:
                    yield f"{import_.name} at {broker.name} has not ended its old plan"
                yield from self._missing(broker, import_)
            for name, view in broker.broker.views.items():
                behind = {n: t for n, t in broker.broker.log_horizons.items() if n in view.horizons}
                if any(view.horizons[n] < t for n, t in behind.items()):
                    yield f"{name} at {broker.name} has not seen its log"
        yield from (f"{link.name} is not connected" for link in self.links if not link.is_settled)

    def _missing(self, broker: RegistryBroker, import_: GlobalImport) -> Iterator[str]:
        """A global import has everything that the producers have logged which live. Of a broker that does not come back, it
        has what its sources have."""
        epoch = epochs_of(broker).get(NTP)
        near = self._connected(broker)
        for other in self.brokers:
            if epoch is not None and other.name not in {member.host for member in epoch.members}:
                continue
            if len(self.truth.claimants(other.origin)) > 1:
                holder = broker.broker.global_imports.known.find(NTP).origins.get(other.origin)
                if holder is None or holder.host != other.name:
                    continue
                if self._is_displaced(import_):
                    continue
                if other.name not in self.truth.given(broker.name, import_.log_stream, other.origin):
                    yield f"{import_.name} at {broker.name} has events of a broker with the number of {other.name}"
                    continue
            horizon = import_.horizons.get(other.origin, HORIZON_MIN)
            selected = self.truth.find_ticks(assembled_part(import_.import_), other.origin, other.name)
            if other not in near:
                reachable = self._reachable(import_, other, near)
                if any(horizon < tick <= reachable for tick in selected):
                    yield f"{import_.name} at {broker.name} has b{other.number} up to {horizon}, its sources {reachable}"
            elif selected and selected[-1] > horizon:
                yield f"{import_.name} at {broker.name} has b{other.number} up to {horizon}, not {selected[-1]}"

    def _is_left_out(self, import_: GlobalImport) -> bool:
        """Whether a broker of which the import has events is no member of the epoch of a broker that its latest plan
        goes back to. Brokers that do not know each other can close a stream without each other. Nothing more comes from
        there then, and the old plan goes on."""
        names = {b.name for b in self.brokers if b.origin in import_.horizons}
        epochs = (epochs_of(broker).get(NTP) for broker in self._suppliers(import_))
        return any(not names <= {member.host for member in epoch.members} for epoch in epochs if epoch is not None)

    def _is_displaced(self, import_: GlobalImport) -> bool:
        """Whether it, or a republisher that it takes events from, says that it knows another broker with the number of
        one. Nothing more with this number comes from there."""
        problems = (i.problem for i in self._supply(import_)[1])
        return any(problem is not None and problem.diagnostics[0].code == "E183" for problem in problems)

    def _suppliers(self, import_: GlobalImport) -> set[RegistryBroker]:
        """The brokers that the latest plan of an import goes back to, through republishers."""
        return self._supply(import_)[0]

    def _supply(self, import_: GlobalImport) -> tuple[set[RegistryBroker], set[GlobalImport]]:
        """The brokers that the latest plan of an import goes back to, and the imports of republishers on the way."""
        found, pending, seen = set[RegistryBroker](), [import_], {import_}
        while pending:
            for source in pending.pop().plan:
                host = next(b for b in self.brokers if b.name == source.host)
                found |= {host} if host.is_up else set()
                behind = host.broker.global_imports.imports.get(source.stream) if host.is_up else None
                if behind is not None and behind not in seen:
                    seen.add(behind)
                    pending.append(behind)
        return found, seen

    def _connected(self, broker: RegistryBroker) -> set[RegistryBroker]:
        """The living brokers that it is connected with, through others."""
        found, pending = {broker}, [broker]
        while pending:
            last = pending.pop()
            ends = [{*link.brokers} for link in self.links if last in link.brokers]
            new = {other for pair in ends for other in self.living if other in pair} - found
            found |= new
            pending += sorted(new, key=lambda b: b.number)
        return found

    def _reachable(self, import_: GlobalImport, dead: RegistryBroker, near: set[RegistryBroker]) -> int:
        """Up to where all sources that have something of a broker that does not come back have it: republishers, or
        nothing comes."""
        horizons = []
        for source in import_.plan:
            if source.stream == NTP:
                if source.host == dead.name:
                    return HORIZON_MIN
                continue
            host = next(b for b in self.brokers if b.name == source.host)
            if host not in near or source.stream not in host.broker.global_imports.imports:
                return HORIZON_MIN
            horizons.append(host.broker.global_imports.imports[source.stream].horizons.get(dead.origin, HORIZON_MIN))
        return min(horizons, default=HORIZON_MIN)

    def _check_rows(self) -> None:
        """A query shows exactly the events that it selects, up to its horizons."""
        for broker in self.living:
            for name, text in broker.registered.queries.items():
                witness = broker.witnesses[name]
                (stream,) = base_streams(subprogram(broker.view_program(name)[0], name))
                horizons = origin_horizons(stream, broker.broker.views[name].horizons)
                expected = {
                    t
                    for t, row in self.truth.events.items()
                    if CONDITIONS[text](row)
                    and self.truth.is_given(broker.name, stream, t)
                    and t <= horizons.get(self.truth.streams[NTP].origin_of(t), HORIZON_MIN)
                }
                shown = {int(message["key"]["t"]) for message in witness.rows.values()}
                if shown != expected:
                    wrong = sorted(shown - expected), sorted(expected - shown)
                    self.world.complain(f"{name} at {broker.name} shows and lacks {wrong}")

    def _check_channels(self, published: Mapping[RegistryBroker, Sequence[tuple[Value, ...]]]) -> None:
        """Of the brokers that advertise a channel, the one that was first publishes to it, and no other. `published` is
        what brokers have accepted after everything was known everywhere."""
        accepted = {broker: {row[:2] for row in rows} for broker, rows in published.items()}
        for origin in {broker.origin for broker in self.living}:
            accepting = [broker.name for broker in self.living if broker.origin == origin and accepted[broker]]
            if len(accepting) > 1:
                self.world.complain(f"{accepting} publish, and all of them are origin {origin}")
        is_closed = any(action.kind is ActionKind.CLOSED for action in self.scenario.actions)
        for channel in CHANNELS:
            for broker in self.living:
                near = self._connected(broker)
                accepting = [other.name for other in near if channel in accepted[other]]
                if len(accepting) > 1:
                    self.world.complain(f"{channel} is published by {sorted(accepting)}")
                # A broker may have died before it was started.
                names = {b: self._advertised(b, channel) if b.incarnation else [] for b in self.brokers}
                is_rivalled = any(names[other] for other in self.brokers if other is not broker)
                is_rivalled |= len(self.truth.claimants(broker.origin)) > 1
                if names[broker] and not is_rivalled and not is_closed and broker.name not in accepting:
                    self.world.complain(f"{broker.name} may not publish {channel}, although nobody else does")

    def _advertised(self, broker: RegistryBroker, channel: Channel) -> list[str]:
        """The producers of a channel that a broker has registered."""
        registered = broker.broker.routing.registry.producers
        return [name for name in registered if self.scenario.producers.get(name) == channel_condition(channel)]

    def _check_logs(self) -> None:
        """Everything that was acknowledged is in the log, once, and nothing else but what the publisher has given up."""
        for broker in self.brokers:
            acknowledged = broker.publisher.acknowledged[NTP]
            logged = {
                t: (row["tool"], row["from"], row["latency"])
                for t, row in self.truth.events.items()
                if self.truth.publishers[t] == broker.name
            }
            lost = {t: row for t, row in acknowledged.items() if logged.get(t) != row}
            extra = Counter(row for t, row in logged.items() if t not in acknowledged)
            given_up = Counter(row for p in broker.publisher.unanswered for row in p.rows)
            if lost or extra - given_up:
                self.world.complain(f"{broker.name} has {logged}, acknowledged was {acknowledged}")

    def _watch_quiet(self) -> None:
        world = self.world
        self._advance_to(world.now + DELAYED_S + DROP_S)
        before = Counter(world.figures.messages)
        self._advance_to(world.now + QUIET_S)
        self._compare()
        sent = world.figures.messages - before
        for kind in ROUTING_KINDS:
            if sent[kind]:
                world.complain(f"a quiet network sends {kind}: {dict(sent)}")
        imports = sum(len(b.broker.program.imports) for b in self.living) + 1
        if sent["curious"] > QUESTIONS_PER_IMPORT_MAX * imports:
            world.complain(f"a quiet network asks {sent['curious']} questions for {imports} imports")
        advances = QUIET_S * 1000 / self.scenario.idle_ms + 2
        if sent["events"] > 6 * advances * imports * len(self.scenario.hosts):
            world.complain(f"a quiet network sends {dict(sent)}")


def run_registry_scenario(scenario: Scenario, folder: Path | None = None) -> Outcome:
    with patch("smile.limits.routing_drop_s", 3.0):
        return run_scenario(scenario, folder, RegistrySimulation)
