"""Closed epochs in random networks: brokers that register, withdraw and publish while others close the stream, and news
that travels late or not at all. What is said to be final is compared with everything that is ever published."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from smile.algebra import mmpl
from smile.algebra.types import INT, STRING
from smile.broker.network.producer_registry import LocalStream, ProducerRegistry
from smile.broker.network.routing_file import StoredRouting
from smile.errors import SmileError
from smile.horizons import END, HORIZON_MIN
from smile.registry.epochs import ClosedEpoch, EpochMember, MemberClaim, choose_epoch, is_stranger
from tests.repeatable import scaled

NTP = mmpl.StreamDef("ntp", "t", (("site", STRING), ("latency", INT)), channel=("site",))
SITES = "abc"


@dataclass
class Event:
    host: str
    tick: int
    site: str


class Host:
    """A broker with producers: the product's registry, with a log of ticks."""

    def __init__(self, name: str, origin: str) -> None:
        self.name, self.log_horizon, self.ticks = name, HORIZON_MIN, list[int]()
        self.member = EpochMember(origin, name, f"log of {name}")
        self.version = 0
        self.registry = ProducerRegistry(name, StoredRouting(None), self._next_version)
        self.registry.ticks = self
        self.local = LocalStream(NTP, self.member.log, origin, "ntp")
        self.registry.set_program(mmpl.Program((NTP,), (), ()), {"ntp": self.local})
        self.registry.update()

    def _next_version(self) -> int:
        self.version += 1
        return self.version

    def horizon(self, stream: str) -> int:
        return self.log_horizon

    def end(self, stream: str) -> int:
        return self.log_horizon + 1

    def begin(self, stream: str) -> int:
        return min(self.ticks) - 1 if self.ticks else self.log_horizon

    @property
    def sites(self) -> list[str]:
        return sorted(name for name in SITES if name in self.registry.producers)

    def claim(self) -> "Claim":
        registered = self.registry.registered("ntp")
        said = MemberClaim(self.member, self.registry.confirmed("ntp"), registered.begins)
        return Claim(said, frozenset(registered.producers), registered.withdrawn_to, self.log_horizon)


@dataclass(frozen=True)
class Claim:
    """What others hear of a host: as of one moment."""

    said: MemberClaim
    sites: frozenset[str]
    withdrawn_to: int
    horizon: int


@dataclass
class Consumer:
    """Wants one site, and knows what it has heard last."""

    site: str
    claims: dict[str, Claim] = field(default_factory=dict)
    declared: set[ClosedEpoch] = field(default_factory=set)
    epoch: ClosedEpoch | None = None
    final: dict[str, int] = field(default_factory=dict)
    """The tick up to which it has said things to be final, by the digest of the epoch."""

    def step(self) -> None:
        said = [claim.said for claim in self.claims.values()]
        self.epoch = choose_epoch(self.epoch, self.declared, said)
        if self.epoch is None:
            return
        relevant = [
            claim.horizon
            for claim in self.claims.values()
            if not is_stranger(self.epoch, claim.said)
            and (self.site in claim.sites or claim.withdrawn_to > HORIZON_MIN)
        ]
        tick = min([self.epoch.closed_to, *relevant])
        self.final[self.epoch.digest] = max(tick, self.final.get(self.epoch.digest, HORIZON_MIN))


class World:
    def __init__(self, random: Random) -> None:
        self.random, self.now = random, 0
        self.hosts = {name: Host(name, str(n)) for n, name in enumerate(("h2", "h3", "h4"), 2)}
        self.consumers = [Consumer(site) for site in SITES]
        self.declared: set[ClosedEpoch] = set()
        self.epochs: dict[str, ClosedEpoch] = {}
        self.events: list[Event] = []

    def step(self) -> None:
        host = self.random.choice(list(self.hosts.values()))
        action = self.random.choice(
            ["register", "withdraw", "publish", "publish", "hear", "hear", "tell", "tell", "close"]
        )
        self.now += self.random.randrange(3)
        {
            "register": lambda: self.register(host),
            "withdraw": lambda: self.withdraw(host),
            "publish": lambda: self.publish(host),
            "hear": lambda: self.hear(host),
            "tell": lambda: self.tell(host),
            "close": self.close,
        }[action]()
        for consumer in self.consumers:
            consumer.step()

    def register(self, host: Host) -> None:
        site = self.random.choice(SITES)
        # It is refused if it comes too late.
        with suppress(SmileError):
            host.registry.add(site, host.local, f"site = '{site}'")
        host.registry.update()

    def withdraw(self, host: Host) -> None:
        if host.sites:
            host.registry.remove(self.random.choice(host.sites))
            host.registry.update()

    def publish(self, host: Host) -> None:
        """An event of a producer, or silence."""
        tick = max(self.now, host.log_horizon + 1)
        if host.sites and self.random.random() < 0.7:
            self.events.append(Event(host.name, tick, self.random.choice(host.sites)))
            host.ticks.append(tick)
        host.log_horizon = tick
        host.registry.update()

    def hear(self, host: Host) -> None:
        """A host hears of some epochs."""
        epochs = [epoch for epoch in sorted(self.declared, key=lambda e: e.digest) if self.random.random() < 0.5]
        host.registry.follow(epochs)
        host.registry.update()

    def tell(self, host: Host) -> None:
        """Some consumers hear of a host, and of some epochs."""
        for consumer in self.random.sample(self.consumers, 2):
            consumer.claims[host.name] = host.claim()
            consumer.declared |= {epoch for epoch in self.declared if self.random.random() < 0.5}

    def close(self) -> None:
        """Somebody who knows some of the hosts declares an epoch."""
        if self.random.random() < 0.5 or len(self.declared) > 4:
            return
        consumer = self.random.choice(self.consumers)
        members = {c.said.member for c in consumer.claims.values() if c.said.begins < self.now}
        members |= set() if consumer.epoch is None else {*consumer.epoch.members}
        closed_to = END if self.random.random() < 0.2 else self.now + self.random.randrange(4)
        if members:
            epoch = ClosedEpoch.create("ntp", closed_to, members)
            self.declared.add(epoch)

    def check(self) -> int:
        """No event of who counts for an epoch is missing where something was said to be final. Returns how much was
        checked."""
        checked = 0
        for consumer in self.consumers:
            for digest, tick in consumer.final.items():
                epoch = next(e for e in self.declared if e.digest == digest)
                checked += 1
                for event in self.events:
                    host = self.hosts[event.host]
                    is_shown = event.site == consumer.site and event.tick <= tick
                    if is_shown and host.member in epoch.members:
                        known = consumer.claims[event.host].horizon
                        assert known >= event.tick, f"{event} comes after tick {tick} was final in {epoch}"
        return checked


def run(seed: int, steps: int = 150) -> int:
    world = World(Random(seed))
    for _ in range(steps):
        world.step()
        world.check()
    return world.check()


@settings(max_examples=scaled(60))
@given(st.integers(0, 2**32))
def test_nothing_comes_after_it_was_final(seed: int) -> None:
    run(seed)


def test_random_networks_close_epochs() -> None:
    """So that the test above has something to check."""
    assert sum(run(seed) > 0 for seed in range(10)) >= 5


def follow_all(self: ProducerRegistry, epochs: Iterable[ClosedEpoch]) -> bool:
    for epoch in epochs:
        self._file.followed[epoch.relation] = epoch
    return True


def run_many() -> None:
    for seed in range(400):
        run(seed)


def test_a_late_producer_that_is_registered_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerRegistry, "_problem", lambda *_: None)
    with pytest.raises(AssertionError, match="was final"):
        run_many()


def test_an_epoch_that_is_confirmed_although_it_contradicts_another_one_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ProducerRegistry, "follow", follow_all)
    with pytest.raises(AssertionError, match="was final"):
        run_many()


def test_epochs_that_follow_each_other() -> None:
    a, b = EpochMember("2", "a", "x"), EpochMember("3", "b", "y")
    first = ClosedEpoch.create("ntp", 10, [a])
    assert ClosedEpoch.create("ntp", 20, [b, a]).follows(first)
    assert not ClosedEpoch.create("ntp", 20, [b]).follows(first), "a cannot be left out"
    assert not ClosedEpoch.create("ntp", 10, [a, b]).follows(first), "it is closed already"
    assert ClosedEpoch.decode(first.encode().decode()) == first
    assert ClosedEpoch.decode('{"relation": "ntp", "closed_to": 10, "members": []}') is None
    assert ClosedEpoch.decode("{") is None


def test_a_stranger_joins_no_later_epoch() -> None:
    """What it has published before was left out."""
    a, b = EpochMember("2", "a", "x"), EpochMember("3", "b", "y")
    first, second = ClosedEpoch.create("ntp", 10, [a]), ClosedEpoch.create("ntp", 20, [a, b])
    claims = [MemberClaim(a, second.digest), MemberClaim(b, second.digest, begins=9)]
    assert choose_epoch(None, [second], claims) == second
    assert choose_epoch(first, [second], claims) == first
    assert choose_epoch(first, [second], [claims[0], MemberClaim(b, second.digest, begins=10)]) == second
