"""The assembly of a plan's sources in random histories: sources that lag and die, and plans that replace each other. What
is passed on is compared with the events of all producers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from smile.horizons import HORIZON_MIN
from smile.registry.assembly import Assembly
from tests.repeatable import scaled

GROUPS = (0, 1, 2, 3)
"""Channels, by what conditions tell apart."""


class Source(NamedTuple):
    name: str
    groups: frozenset[int]
    since: int


class Event(NamedTuple):
    origin: str
    tick: int
    group: int


class Network:
    """The events of all origins, and what each source has of them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.groups = {origin: random.sample(GROUPS, random.randrange(1, 4)) for origin in ("a", "b", "c")}
        self.events = [
            Event(origin, tick, random.choice(groups))
            for origin, groups in self.groups.items()
            for tick in sorted(random.sample(range(100), 20))
        ]
        self.reached: dict[Source, dict[str, int]] = {}
        self.dead: set[Source] = set()
        self.assembly: Assembly[Source] = Assembly(self.may_have, lambda source: source.since)
        self.passed: list[Event] = []
        self.plan_count = 0

    def may_have(self, source: Source, origin: str) -> bool:
        return bool(source.groups & set(self.groups[origin]))

    def begin_plan(self, since: int) -> None:
        """Another random partition of all channels."""
        self.plan_count += 1
        parts: dict[int, set[int]] = {}
        for group in GROUPS:
            parts.setdefault(self.random.randrange(3), set()).add(group)
        plan = [Source(f"{self.plan_count}.{n}", frozenset(groups), since) for n, groups in parts.items()]
        for source in plan:
            self.reached[source] = dict.fromkeys(self.groups, since)
        self.assembly.begin(plan)

    def deliver(self, source: Source, origin: str, tick: int) -> None:
        if source not in self.dead:
            self.reached[source][origin] = max(self.reached[source][origin], tick)

    def pass_on(self) -> None:
        for part in self.assembly.next_ranges(list(self.groups), self.reached):
            assert part.lo == self.assembly.horizons.get(part.origin, HORIZON_MIN)
            wanted = [e for e in self.events if e.origin == part.origin and part.lo < e.tick <= part.hi]
            # What the sources have, each above where it begins and up to where it is.
            had = [
                event
                for event in wanted
                for source in part.sources
                if event.group in source.groups and source.since < event.tick <= self.reached[source][part.origin]
            ]
            self.passed += sorted(had)
            assert sorted(had) == sorted(wanted), "an event is missing, or comes twice"
            self.assembly.horizons = {**self.assembly.horizons, part.origin: part.hi}
        self.assembly.end_plans(list(self.groups), self.reached)


def run_history(seed: int, assembly_of: Callable[..., Assembly[Source]] = Assembly) -> None:
    random = Random(seed)
    network = Network(random)
    network.assembly = assembly_of(network.may_have, lambda source: source.since)
    network.begin_plan(HORIZON_MIN)
    for _ in range(80):
        sources = network.assembly.sources
        match random.choice(["deliver"] * 8 + ["switch", "die"]):
            case "deliver":
                network.deliver(random.choice(sources), random.choice("abc"), random.randrange(100))
            case "switch":
                # A new source usually has all that was not passed on; now and then it begins later than that.
                horizons = [network.assembly.horizons.get(o, HORIZON_MIN) for o in "abc"]
                network.begin_plan(min(horizons) if random.random() < 0.8 else random.randrange(100))
            case "die":
                network.dead.add(random.choice(sources))
        network.pass_on()
    network.begin_plan(min(network.assembly.horizons.get(o, HORIZON_MIN) for o in "abc"))
    assert not network.assembly.lacking(list(network.groups))
    for source in network.assembly.plans[-1]:
        for origin in network.groups:
            network.deliver(source, origin, 100)
    network.pass_on()
    assert len(network.assembly.plans) == 1, "earlier plans end when a later one has reached them"
    assert sorted(network.passed) == sorted(network.events)
    for origin in network.groups:
        ticks = [event.tick for event in network.passed if event.origin == origin]
        assert ticks == sorted(set(ticks))


@given(st.integers(0, 2**32))
@settings(max_examples=scaled(200))
def test_every_event_is_passed_on_once_and_in_order(seed: int) -> None:
    run_history(seed)


def test_a_plan_passes_nothing_on_of_a_producer_that_it_does_not_have() -> None:
    """A producer of group 1 has joined. The plan before has only group 0, and is further."""
    first, second = Source("first", frozenset({0}), HORIZON_MIN), Source("second", frozenset({1}), HORIZON_MIN)
    groups = {0}

    def has_all(plan: Sequence[Source], _origin: str) -> bool:
        return groups <= {group for source in plan for group in source.groups}

    assembly: Assembly[Source] = Assembly(
        lambda source, _: bool(source.groups & groups), lambda _: HORIZON_MIN, has_all=has_all
    )
    assembly.begin([first])
    (part,) = assembly.next_ranges(["a"], {first: {"a": 10}})
    assembly.horizons = {"a": part.hi}
    groups.add(1)
    assembly.begin([first, second])
    assert not assembly.next_ranges(["a"], {first: {"a": 20}, second: {"a": 5}})
    (part,) = assembly.next_ranges(["a"], {first: {"a": 20}, second: {"a": 15}})
    assert (part.lo, part.hi, part.sources) == (10, 15, (first, second))


class _OneSourceIsEnough(Assembly[Source]):
    def _reach(self, plan: Sequence[Source], origin: str, reached: Mapping[Source, Mapping[str, int]]) -> int:
        needed = [source for source in plan if self._may_have(source, origin)]
        return max((reached[source][origin] for source in needed), default=HORIZON_MIN)


class _ForgetsWhereSourcesBegin(Assembly[Source]):
    def __init__(self, may_have: Callable[[Source, str], bool], begins_at: Callable[[Source], int]) -> None:
        super().__init__(may_have, lambda _source: HORIZON_MIN)


class _NeverEndsPlans(Assembly[Source]):
    def end_plans(self, origins: Sequence[str], reached: Mapping[Source, Mapping[str, int]]) -> bool:
        return False


class _PassesOnTwice(Assembly[Source]):
    def _horizon(self, origin: str) -> int:
        return self.horizons.get(origin, HORIZON_MIN) - 1


@pytest.mark.parametrize("bug", [_OneSourceIsEnough, _ForgetsWhereSourcesBegin, _NeverEndsPlans, _PassesOnTwice])
def test_planted_bugs_are_found(bug: Callable[..., Assembly[Any]]) -> None:
    def run_histories(seeds: Iterable[int]) -> None:
        for seed in seeds:
            run_history(seed, bug)

    with pytest.raises(AssertionError):
        run_histories(range(100))
