"""What happens in a simulated run, drawn from a seed: the brokers with their programs, the links, what is published when,
and which faults occur when. Everything can be left out, so that a failure is shrunk."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

from smile.algebra import mmpl
from smile.horizons import END
from smile.reference.history import parse_json_value
from tests.reference.histories import Histories
from tests.simulation.programs import TOPOLOGIES, Topology, draw_programs, published_streams

FAULTY_S = 24.0
"""For how long events are published and faults occur. Then everything is repaired."""


FINISHED_SHARE = 0.8
"""How many of the publisher-timed streams are finished in the end."""


class FaultKind(Enum):
    LOST = "message lost"
    REPEATED = "message repeated"
    REORDERED = "message reordered"
    DELAYED = "message delayed"
    TRUNCATED = "connection truncated"
    ONE_WAY = "one-way loss"
    PARTITION = "partition"
    SLOW_LINK = "slow link"
    STALLED_READER = "stalled reader"
    KILLED = "broker killed"
    KILLED_IN_COMMIT = "broker killed in a commit"
    POWER_LOST = "unflushed data lost"
    TORN_WRITE = "torn write"
    CLOCK_SKEWED = "clock skewed"
    CLOCK_STEPPED = "clock stepped"
    SILENT_ORIGIN = "origin silent"
    LOST_CACHE = "cache lost"
    PROGRAM_CHANGED = "program changed"
    REVOKED = "grant revoked"
    OLD_VERSION = "old version"


MESSAGE_FAULTS = (FaultKind.LOST, FaultKind.REPEATED, FaultKind.REORDERED, FaultKind.DELAYED)
LINK_FAULTS = (
    *MESSAGE_FAULTS,
    FaultKind.TRUNCATED,
    FaultKind.ONE_WAY,
    FaultKind.PARTITION,
    FaultKind.SLOW_LINK,
    FaultKind.STALLED_READER,
)


@dataclass(frozen=True)
class Fault:
    """`target` is the number of a link or of a broker. `rate` is the share of the messages that it concerns, or how much
    there is of it. `seed` decides its details."""

    kind: FaultKind
    target: int
    start: float
    end: float
    rate: float
    seed: int

    def __str__(self) -> str:
        where = f"link {self.target}" if self.kind in LINK_FAULTS else f"b{self.target}"
        return f"{self.start:6.2f}-{self.end:.2f} s {self.kind.value} at {where}, rate {self.rate:.2f}"


@dataclass(frozen=True)
class PlannedPublication:
    """Events of one stream, each with its values; with the tick in front if the stream is publisher-timed. Without
    events, it is silence up to `silence_to`."""

    time: float
    stream: str
    rows: tuple[tuple[Any, ...], ...]
    silence_to: int | None = None


@dataclass(frozen=True)
class Scenario:
    seed: int
    topology: Topology
    programs: tuple[mmpl.Program, ...]
    publications: tuple[PlannedPublication, ...]
    faults: tuple[Fault, ...]
    idle_ms: int = 2_000
    truncates: bool = False
    """Whether logs are truncated as soon as that is allowed."""
    schedule: int = 0
    """Another one gives other delays with the same publications and faults."""

    @property
    def streams(self) -> Mapping[str, tuple[int, mmpl.StreamDef]]:
        return published_streams(self.programs)


def draw_scenario(seed: int, has_given_ticks: bool = False) -> Scenario:
    """With `has_given_ticks`, the ticks of all streams come from their publishers."""
    random = Random(f"scenario {seed}")
    topology = random.choice(TOPOLOGIES)
    share = 1.0 if has_given_ticks else 0.5
    programs = tuple(draw_programs(topology, random, random.choice((2, 3, 3, 4)), share))
    truncates = random.random() < 0.3
    faults = _draw_faults(random, topology, truncates)
    publications = _draw_publications(random, programs)
    return Scenario(seed, topology, programs, publications, faults, random.choice((500, 2_000, 5_000)), truncates)


def _draw_publications(random: Random, programs: tuple[mmpl.Program, ...]) -> tuple[PlannedPublication, ...]:
    """In the end the publisher-timed streams are finished."""
    streams = published_streams(programs)
    whole = mmpl.Program(tuple(s for _, s in streams.values()), (), ())
    histories = Histories(whole, random)
    publications = list[PlannedPublication]()
    times = sorted(random.uniform(0.5, FAULTY_S) for _ in range(random.choice((4, 10, 10, 20))))
    for time in times:
        for line in [histories.line() for _ in range(random.choice((1, 1, 2, 4)))]:
            publications += _planned(random, time, line, streams)
    for name, (_, stream) in streams.items():
        if stream.publisher_timed and random.random() < FINISHED_SHARE:
            publications.append(PlannedPublication(FAULTY_S, name, (), END))
    return tuple(publications)


def _planned(
    random: Random, time: float, line: Mapping[str, Any], streams: Mapping[str, tuple[int, mmpl.StreamDef]]
) -> list[PlannedPublication]:
    if "event" not in line:
        named = [line["stream"]] if "stream" in line else list(streams)
        silent = [name for name in named if streams[name][1].publisher_timed]
        return [PlannedPublication(time, name, (), line["silence_to"]) for name in silent if line["silence_to"] < END]
    stream = streams[line["stream"]][1]
    values = tuple(parse_json_value(line["event"].get(name), data) for name, data in stream.columns)
    row = (line["at"], *values) if stream.publisher_timed else values
    return [PlannedPublication(time, stream.name, (row,))]


def _draw_faults(random: Random, topology: Topology, truncates: bool) -> tuple[Fault, ...]:
    """Each kind has a rate of its own: many do not occur in a run."""
    faults = list[Fault]()
    importers = [n for n, parents in enumerate(topology.parents) if parents]
    for kind in FaultKind:
        if kind is FaultKind.LOST_CACHE and truncates:
            continue  # what was truncated is gone for a broker that has lost everything
        for _ in range(random.choice((0, 0, 0, 1, 1, 2))):
            start = random.uniform(0.0, FAULTY_S)
            duration_s = random.choice((0.2, 1.0, 4.0, 12.0))
            rate = random.choice((0.02, 0.1, 0.3, 0.6))
            if kind in MESSAGE_FAULTS:
                start, duration_s = random.choice(((0.0, FAULTY_S), (0.0, FAULTY_S), (start, duration_s)))
                rate = random.choice((0.05, 0.2, 0.4))
            targets: list[int] = list(range(len(topology.links if kind in LINK_FAULTS else topology.parents)))
            if kind is FaultKind.LOST_CACHE:
                targets = importers
            elif kind is FaultKind.SILENT_ORIGIN:
                targets = list(topology.homes)
            target = random.choice(targets)
            end = min(start + duration_s, FAULTY_S)
            faults.append(Fault(kind, target, start, end, rate, random.getrandbits(32)))
    return tuple(sorted(faults, key=lambda fault: fault.start))
