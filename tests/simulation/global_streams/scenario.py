"""What happens in a simulated network with a global stream, drawn from a seed: who publishes, republishes and reads it, how
the registrations change, and which faults occur when."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from random import Random
from typing import Any, Final

from smile.program import compile_program
from smile.source import Source
from tests.simulation.compilation import memoized_compilation
from tests.simulation.programs import Topology, broker_name
from tests.simulation.scenario import (
    LINK_FAULTS,
    MESSAGE_FAULTS,
    Fault,
    FaultKind,
    PlannedPublication,
    Scenario,
)

NTP: Final = "ntp"
CREATE_NTP: Final = f'CREATE GLOBAL STREAM {NTP} (t: time, tool: string, "from": string -> latency: int);\n'

Channel = tuple[str | None, str]
"""A tool and a place."""
TOOLS: Final = ("ping", "udp", None)
PLACES: Final = ("a", "b", "c")
CHANNELS: Final[tuple[Channel, ...]] = tuple(product(TOOLS, PLACES))

ORIGIN_MIN: Final = 2
"""The number of the first broker as an origin."""
EQUAL_NUMBERS_SHARE: Final = 0.25
"""In so many networks two brokers that publish have the same number."""

Row = Mapping[str, Any]

KEY_CONDITIONS: Final[dict[str, Callable[[Row], bool]]] = {
    "TRUE": lambda _: True,
    "\"from\" = 'a'": lambda row: row["from"] == "a",
    "\"from\" IN ('a', 'b')": lambda row: row["from"] in ("a", "b"),
    "\"from\" <> 'c'": lambda row: row["from"] != "c",
    "tool = 'ping'": lambda row: row["tool"] == "ping",
    "tool <> 'ping'": lambda row: row["tool"] not in ("ping", None),
    "tool IS NULL OR \"from\" = 'b'": lambda row: row["tool"] is None or row["from"] == "b",
    "tool LIKE 'p%' AND \"from\" <> 'b'": lambda row: row["tool"] == "ping" and row["from"] != "b",
}
"""What republishers and queries select, each with the same in Python: checks do not use the product's own decisions."""
CONDITIONS: Final[dict[str, Callable[[Row], bool]]] = {
    **KEY_CONDITIONS,
    "latency >= 5": lambda row: row["latency"] >= 5,
    "\"from\" = 'a' AND latency < 5": lambda row: row["from"] == "a" and row["latency"] < 5,
}
CHAINS: Final = (
    ("\"from\" = 'a'", "\"from\" IN ('a', 'b')", "TRUE"),
    ("tool LIKE 'p%' AND \"from\" <> 'b'", "tool = 'ping'", "TRUE"),
    ("\"from\" = 'a'", "\"from\" <> 'c'", "TRUE"),
)
"""Each condition strictly subsumes those before it, so its republisher feeds from theirs."""

TOPOLOGIES: Final = (
    Topology("chain", ((), (), (), ()), ((0, 1), (1, 2), (2, 3))),
    Topology("star", ((), (), (), (), ()), ((0, 2), (1, 2), (2, 3), (2, 4))),
    Topology("tree", ((), (), (), (), ()), ((0, 1), (0, 2), (1, 3), (1, 4))),
    Topology("diamond", ((), (), (), (), ()), ((0, 1), (0, 2), (1, 3), (2, 3), (3, 4))),
    Topology("ring", ((), (), (), ()), ((0, 1), (1, 2), (2, 3), (3, 0))),
)

FAULTY_S = 24.0
"""Longer than in other networks: plans follow what has changed some seconds later."""


class ActionKind(Enum):
    ADVERTISED = "advertised"
    WITHDRAWN = "withdrawn"
    REPUBLISHED = "republisher added"
    DROPPED = "republisher dropped"
    VIEW_ADDED = "view added"
    CLOSED = "closed"


@dataclass(frozen=True)
class RegistryAction:
    """What an operator does at a broker. `name` is that of a producer, republisher or view. A stream is closed up to
    `ahead_s` from now, or for good."""

    kind: ActionKind
    time: float
    broker: int
    name: str = ""
    condition: str = ""
    ahead_s: float | None = None

    def __str__(self) -> str:
        until = "" if self.kind is not ActionKind.CLOSED else f" for {self.ahead_s} s"
        return f"{self.time:6.2f} s {self.kind.value} at b{self.broker}: {self.name} {self.condition}{until}"


@dataclass(frozen=True)
class RegistryProgram:
    """The program of a broker: conditions by the names of its producers, republishers and queries."""

    producers: Mapping[str, str]
    republishers: Mapping[str, str]
    queries: Mapping[str, str]

    @property
    def text(self) -> str:
        statements = [CREATE_NTP]
        statements += [f"ADVERTISE {NTP} WHERE {c} AS {name};" for name, c in self.producers.items()]
        statements += [f"CREATE REPUBLISHER {name} AS {_select(c)};" for name, c in self.republishers.items()]
        for name, condition in self.queries.items():
            sums = f'SELECT tool, "from", COUNT(*) AS n, SUM(latency) AS total FROM {name} GROUP BY tool, "from"'
            statements.append(f"CREATE VIEW {name} AS {_select(condition)};\nCREATE VIEW {name}_sums AS {sums};")
            statements.append(f"SUBSCRIBE {name};\nSUBSCRIBE {name}_sums;")
        return "\n".join(statements) + "\n"


def _select(condition: str) -> str:
    return f"SELECT * FROM {NTP}" + (f" WHERE {condition}" if condition != "TRUE" else "")


@dataclass(frozen=True)
class RegistryScenario(Scenario):
    """`hosts` are the brokers that publish. Registrations are leases of `lease_s`. `numbers` are those of the brokers as
    origins: by mistake, two of them may be equal."""

    brokers: tuple[RegistryProgram, ...] = ()
    actions: tuple[RegistryAction, ...] = ()
    hosts: tuple[int, ...] = ()
    lease_s: int = 5
    numbers: tuple[int, ...] = ()

    @property
    def has_equal_numbers(self) -> bool:
        return len(set(self.numbers)) < len(self.numbers)

    @property
    def faulty_s(self) -> float:
        return FAULTY_S

    @property
    def parts(self) -> tuple[str, ...]:
        return "faults", "actions", "publications"

    @property
    def program_texts(self) -> tuple[str, ...]:
        return tuple(program.text for program in self.brokers)

    @property
    def command(self) -> str:
        return f"make simulate KIND=registry SEEDS={self.seed}"

    @property
    def producers(self) -> dict[str, str]:
        """The condition of each producer that there ever is."""
        named = {name: c for program in self.brokers for name, c in program.producers.items()}
        return named | {a.name: a.condition for a in self.actions if a.kind is ActionKind.ADVERTISED}

    @property
    def republishers(self) -> dict[str, str]:
        """The condition of each republisher that there ever is."""
        named = {name: c for program in self.brokers for name, c in program.republishers.items()}
        return named | {a.name: a.condition for a in self.actions if a.kind is ActionKind.REPUBLISHED}


def channel_condition(channel: Channel) -> str:
    tool, place = channel
    comparison = "IS NULL" if tool is None else f"= '{tool}'"
    return f"tool {comparison} AND \"from\" = '{place}'"


def draw_registry_scenario(seed: int) -> RegistryScenario:
    random = Random(f"registry {seed}")
    topology = random.choice(TOPOLOGIES)
    count = len(topology.parents)
    hosts = sorted(random.sample(range(count), random.choice((2, 2, 3))))
    draft = _Draft(random, count, hosts)
    programs = draft.draw_programs()
    actions = draft.draw_actions()
    publications = draft.draw_publications()
    faults = _draw_faults(random, topology, hosts)
    numbers = _draw_numbers(Random(f"numbers {seed}"), count, hosts)
    if len(set(numbers)) < count:
        # Who closes a stream decides about numbers too, and what only a dead broker had is not compared by broker.
        actions = tuple(action for action in actions if action.kind is not ActionKind.CLOSED)
        faults = tuple(fault for fault in faults if fault.kind is not FaultKind.ORIGIN_DEAD)
    with memoized_compilation():
        compiled = tuple(
            compile_program(Source(f"{broker_name(n)}.smile", p.text), is_networked=True).original
            for n, p in enumerate(programs)
        )
    return RegistryScenario(
        seed,
        topology,
        compiled,
        publications,
        faults,
        random.choice((1_000, 3_000)),
        brokers=tuple(programs),
        actions=actions,
        hosts=tuple(hosts),
        lease_s=random.choice((2, 5, 10)),
        numbers=numbers,
    )


def _draw_numbers(random: Random, count: int, hosts: Sequence[int]) -> tuple[int, ...]:
    numbers = [ORIGIN_MIN + number for number in range(count)]
    if random.random() < EQUAL_NUMBERS_SHARE:
        one, other = random.sample(hosts, 2)
        numbers[one] = numbers[other]
    return tuple(numbers)


class _Draft:
    def __init__(self, random: Random, count: int, hosts: Sequence[int]) -> None:
        self.random, self.count, self.hosts = random, count, hosts
        self._publishable: dict[int, list[Channel]] = {host: [] for host in hosts}
        """The channels that each host has at some time, or tries to have."""
        self._channels: dict[str, tuple[int, Channel]] = {}
        """The host and the channel of each producer that a command adds."""
        self._republishers: dict[str, int] = {}
        self._early: list[PlannedPublication] = []
        """What is published as soon as its producer is advertised, when others do not know that yet."""

    def draw_programs(self) -> list[RegistryProgram]:
        random = self.random
        producers: list[dict[str, str]] = [{} for _ in range(self.count)]
        republishers: list[dict[str, str]] = [{} for _ in range(self.count)]
        queries: list[dict[str, str]] = [{} for _ in range(self.count)]
        channels = list(CHANNELS)
        random.shuffle(channels)
        for number, channel in enumerate(channels[: random.choice((3, 5, 7))]):
            host = self.hosts[number % len(self.hosts)]
            producers[host][f"P{number}"] = channel_condition(channel)
            self._publishable[host].append(channel)
        self._free = channels[7:]
        conditions = list(random.choice(CHAINS))
        conditions += random.choices(list(KEY_CONDITIONS), k=random.choice((0, 0, 1, 2)))
        for number, condition in enumerate(conditions):
            broker = self._republishers[f"R{number}"] = random.randrange(self.count)
            republishers[broker][f"R{number}"] = condition
        for number in range(random.choice((1, 2, 2))):
            queries[random.randrange(self.count)][f"q{number}"] = random.choice(("TRUE", *CONDITIONS))
        return [RegistryProgram(*parts) for parts in zip(producers, republishers, queries, strict=True)]

    def draw_actions(self) -> tuple[RegistryAction, ...]:
        """Producers and republishers come and go. Some producers want channels that others have."""
        random, actions = self.random, list[RegistryAction]()
        kinds = (ActionKind.ADVERTISED, ActionKind.WITHDRAWN, ActionKind.REPUBLISHED, ActionKind.DROPPED)
        weights = (4, 3, 2, 2)
        times = sorted(random.uniform(1.0, FAULTY_S) for _ in range(random.choice((0, 2, 5, 8))))
        for number, time in enumerate(times):
            match random.choices(kinds, weights)[0]:
                case ActionKind.ADVERTISED:
                    actions.append(self._advertise(time, f"S{number}"))
                case ActionKind.WITHDRAWN if self._channels:
                    name = random.choice(sorted(self._channels))
                    host, channel = self._channels.pop(name)
                    self._free.append(channel)
                    actions.append(RegistryAction(ActionKind.WITHDRAWN, time, host, name))
                case ActionKind.REPUBLISHED:
                    name, broker = f"T{number}", random.randrange(self.count)
                    self._republishers[name] = broker
                    condition = random.choice(list(KEY_CONDITIONS))
                    actions.append(RegistryAction(ActionKind.REPUBLISHED, time, broker, name, condition))
                case ActionKind.DROPPED if self._republishers:
                    name = random.choice(sorted(self._republishers))
                    actions.append(RegistryAction(ActionKind.DROPPED, time, self._republishers.pop(name), name))
                case _:
                    pass
        if random.random() < 0.2:
            time, broker = random.uniform(4.0, FAULTY_S), random.randrange(self.count)
            actions.append(RegistryAction(ActionKind.VIEW_ADDED, time, broker, "q9", random.choice(list(CONDITIONS))))
        return tuple(sorted((*actions, *self._close()), key=lambda action: action.time))

    def _advertise(self, time: float, name: str) -> RegistryAction:
        random, host = self.random, self.random.choice(self.hosts)
        is_rival = not self._free or random.random() < 0.3
        channel = random.choice(CHANNELS) if is_rival else self._free.pop()
        self._channels[name] = host, channel
        self._publishable[host].append(channel)
        if random.random() < 0.7:
            row = (*channel, random.randrange(10))
            self._early.append(PlannedPublication(time + random.uniform(0.01, 0.3), NTP, host, (row,)))
        return RegistryAction(ActionKind.ADVERTISED, time, host, name, channel_condition(channel))

    def _close(self) -> list[RegistryAction]:
        """Sometimes two brokers close the stream, perhaps in two halves of a partition."""
        random = self.random
        return [
            RegistryAction(
                ActionKind.CLOSED,
                random.uniform(2.0, FAULTY_S),
                random.randrange(self.count),
                ahead_s=random.choice((0.0, 0.0, 3.0, None)),
            )
            for _ in range(random.choice((0, 0, 0, 0, 1, 2)))
        ]

    def draw_publications(self) -> tuple[PlannedPublication, ...]:
        random, publications = self.random, list[PlannedPublication]()
        for time in sorted(random.uniform(0.5, FAULTY_S) for _ in range(random.choice((10, 20, 30)))):
            host = random.choice(self.hosts)
            if self._publishable[host]:
                count = random.choice((1, 1, 2, 4))
                channels = random.choices(self._publishable[host], k=count)
                rows = tuple((*channel, random.randrange(10)) for channel in channels)
                publications.append(PlannedPublication(time, NTP, host, rows))
        return tuple(sorted((*publications, *self._early), key=lambda publication: publication.time))


_BROKER_FAULTS: Final = (
    FaultKind.KILLED,
    FaultKind.KILLED,
    FaultKind.KILLED_IN_COMMIT,
    FaultKind.POWER_LOST,
    FaultKind.TORN_WRITE,
    FaultKind.CLOCK_SKEWED,
    FaultKind.CLOCK_STEPPED,
    FaultKind.SILENT_ORIGIN,
)


def _draw_faults(random: Random, topology: Topology, hosts: Sequence[int]) -> tuple[Fault, ...]:
    """Each kind has a rate of its own: many do not occur in a run."""
    faults, numbers = list[Fault](), range(len(topology.parents))
    for kind in (*LINK_FAULTS, *_BROKER_FAULTS):
        targets = range(len(topology.links)) if kind in LINK_FAULTS else numbers
        for _ in range(random.choice((0, 0, 0, 1, 1, 2))):
            start, duration_s = random.uniform(0.0, FAULTY_S), random.choice((0.2, 1.0, 4.0, 12.0))
            rate = random.choice((0.02, 0.1, 0.3, 0.6))
            if kind in MESSAGE_FAULTS:
                start, duration_s = random.choice(((0.0, FAULTY_S), (start, duration_s)))
                rate = random.choice((0.05, 0.2, 0.4))
            end = min(start + duration_s, FAULTY_S)
            faults.append(Fault(kind, random.choice(targets), start, end, rate, random.getrandbits(32)))
    faults += _partition(random, topology) + _special(random, hosts, len(numbers))
    return tuple(sorted(faults, key=lambda fault: (fault.start, fault.kind.value, fault.target)))


def _partition(random: Random, topology: Topology) -> list[Fault]:
    """The network is in two halves for longer than a lease, so registrations in one of them are not known in the
    other."""
    if random.random() < 0.4:
        return []
    half = {n for n in range(len(topology.parents)) if random.random() < 0.5}
    start = random.uniform(0.0, FAULTY_S / 2)
    end = min(start + random.choice((3.0, 8.0, 16.0)), FAULTY_S)
    crossing = [n for n, (a, b) in enumerate(topology.links) if (a in half) != (b in half)]
    return [Fault(FaultKind.PARTITION, link, start, end, 1.0, random.getrandbits(32)) for link in crossing]


def _special(random: Random, hosts: Sequence[int], count: int) -> list[Fault]:
    """A broker begins late, another one loses its disk, and one dies for good."""
    faults = list[Fault]()
    others = [n for n in range(count) if n not in hosts]
    if random.random() < 0.25:
        end = random.uniform(2.0, FAULTY_S)
        faults.append(Fault(FaultKind.STARTED_LATE, random.randrange(count), 0.0, end, 1.0, 0))
    if random.random() < 0.25 and others:
        start, seed = random.uniform(2.0, FAULTY_S - 4), random.getrandbits(32)
        faults.append(Fault(FaultKind.LOST_CACHE, random.choice(others), start, start + 2.0, 1.0, seed))
    if random.random() < 0.3:
        start = random.uniform(FAULTY_S / 3, FAULTY_S)
        faults.append(Fault(FaultKind.ORIGIN_DEAD, random.randrange(count), start, FAULTY_S, 1.0, 0))
    return faults
