"""What happens in a simulated run, drawn from a seed: the brokers with their programs, the links, what is published when,
and which faults occur when. Everything can be left out, so that a failure is shrunk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import Any, Literal, get_args

from smile.algebra import mmpl
from smile.horizons import END
from smile.reference.history import parse_json_value
from tests.reference.histories import Histories
from tests.simulation.compilation import memoized_compilation
from tests.simulation.programs import (
    TOPOLOGIES,
    TOPOLOGY_WEIGHTS,
    Topology,
    draw_programs,
    hosts_of,
    program_text,
    published_streams,
)

FAULTY_S = 14.0
"""For how long events are published and faults occur. Then everything is repaired."""


FINISHED_SHARE = 0.8
"""How many of the publisher-timed streams are finished in the end."""


Truncation = Literal["none", "all", "relays"]
"""Which logs are truncated as soon as that is allowed: none; all, once those who import from them are known; or at once
those of brokers that only pass on, so that others ask through them for what was removed."""


_TRUNCATIONS: tuple[Truncation, ...] = get_args(Truncation)


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
    STARTED_LATE = "broker started late"
    ORIGIN_LEFT = "origin left"
    ORIGIN_FENCED = "origin fenced"
    ORIGIN_DEAD = "origin dead"


ORIGIN_FAULTS = (FaultKind.ORIGIN_LEFT, FaultKind.ORIGIN_FENCED, FaultKind.ORIGIN_DEAD)
"""Of streams with many origins."""
IDLE_MS = (500, 2_000, 5_000)
"""How often an idle broker says that nothing has happened. The least of them costs most."""
FENCE_WAIT_S = 6.0
"""How long a broker is away before somebody fences it."""
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
    events, it is silence up to `silence_to`. `broker` is the number of the broker that they are published at."""

    time: float
    stream: str
    broker: int
    rows: tuple[tuple[Any, ...], ...]
    silence_to: int | None = None

    def __str__(self) -> str:
        what = self.rows if self.silence_to is None else f"silence to {self.silence_to}"
        return f"{self.time:6.2f} s {self.stream} {what}"


@dataclass(frozen=True)
class Scenario:
    seed: int
    topology: Topology
    programs: tuple[mmpl.Program, ...]
    publications: tuple[PlannedPublication, ...]
    faults: tuple[Fault, ...]
    idle_ms: int = 2_000
    truncation: Truncation = "none"
    schedule: int = 0
    """Another one gives other delays with the same publications and faults."""

    @property
    def faulty_s(self) -> float:
        return FAULTY_S

    @property
    def parts(self) -> tuple[str, ...]:
        """The fields of which something can be left out."""
        return "faults", "publications"

    @property
    def program_texts(self) -> tuple[str, ...]:
        return tuple(map(program_text, self.programs))

    @property
    def command(self) -> str:
        """Repeats it."""
        return f"make simulate SEEDS={self.seed}"

    @property
    def dead_brokers(self) -> frozenset[int]:
        """Those that do not come back."""
        return frozenset(fault.target for fault in self.faults if fault.kind is FaultKind.ORIGIN_DEAD)

    @property
    def streams(self) -> Mapping[str, tuple[int, mmpl.StreamDef]]:
        return published_streams(self.programs)


def draw_scenario(seed: int, has_given_ticks: bool = False) -> Scenario:
    """With `has_given_ticks`, the ticks of all streams come from their publishers."""
    random = Random(f"scenario {seed}")
    topology = random.choices(TOPOLOGIES, TOPOLOGY_WEIGHTS)[0]
    share = 1.0 if has_given_ticks else 0.5
    with memoized_compilation():
        programs = tuple[mmpl.Program, ...]()
        while not published_streams(programs):  # a few have constant tables only
            programs = tuple(draw_programs(topology, random, random.choice((2, 2, 3, 4)), share))
    truncation = random.choices(_TRUNCATIONS, (6, 3, 2))[0]
    faults = _draw_faults(random, topology, programs, truncation)
    publications = _draw_publications(random, programs)
    return Scenario(seed, topology, programs, publications, faults, random.choices(IDLE_MS, (1, 3, 3))[0], truncation)


def _draw_publications(random: Random, programs: tuple[mmpl.Program, ...]) -> tuple[PlannedPublication, ...]:
    """In the end the publisher-timed streams are finished."""
    streams = published_streams(programs)
    # Brokers assign the ticks of streams with many origins.
    whole = mmpl.Program(tuple(replace(s, many_origins=False) for _, s in streams.values()), (), ())
    hosts = {name: hosts_of(programs, name) for name in streams}
    histories = Histories(whole, random)
    publications = list[PlannedPublication]()
    times = sorted(random.uniform(0.5, FAULTY_S) for _ in range(random.choice((4, 8, 8, 16))))
    for time in times:
        for line in [histories.line() for _ in range(random.choice((1, 1, 2, 4)))]:
            publications += _planned(random, time, line, streams, hosts)
    for name, (home, stream) in streams.items():
        if stream.publisher_timed and random.random() < FINISHED_SHARE:
            publications.append(PlannedPublication(FAULTY_S, name, home, (), END))
    return tuple(publications)


def _planned(
    random: Random,
    time: float,
    line: Mapping[str, Any],
    streams: Mapping[str, tuple[int, mmpl.StreamDef]],
    hosts: Mapping[str, tuple[int, ...]],
) -> list[PlannedPublication]:
    if "event" not in line:
        named = [line["stream"]] if "stream" in line else list(streams)
        silent = [(streams[name][0], name) for name in named if streams[name][1].publisher_timed]
        silence_to = line["silence_to"]
        return [PlannedPublication(time, name, home, (), silence_to) for home, name in silent if silence_to < END]
    stream = streams[line["stream"]][1]
    values = tuple(parse_json_value(line["event"].get(name), data) for name, data in stream.columns)
    row = (line["at"], *values) if stream.publisher_timed else values
    return [PlannedPublication(time, stream.name, random.choice(hosts[stream.name]), (row,))]


def _draw_faults(
    random: Random, topology: Topology, programs: Sequence[mmpl.Program], truncation: Truncation
) -> tuple[Fault, ...]:
    """Each kind has a rate of its own: many do not occur in a run."""
    faults = list[Fault]()
    targets = _fault_targets(topology, programs, truncation)
    for kind in FaultKind:
        for _ in range(random.choice((0, 0, 0, 1, 1, 2)) if targets[kind] else 0):
            start = random.uniform(0.0, FAULTY_S)
            duration_s = random.choice((0.2, 1.0, 4.0, 8.0))
            rate = random.choice((0.02, 0.1, 0.3, 0.6))
            if kind in MESSAGE_FAULTS:
                start, duration_s = random.choice(((0.0, FAULTY_S), (0.0, FAULTY_S), (start, duration_s)))
                rate = random.choice((0.05, 0.2, 0.4))
            elif kind is FaultKind.STARTED_LATE:
                start = 0.0
            elif kind is FaultKind.ORIGIN_FENCED:
                start, duration_s = start / 2, max(duration_s, 2 * FENCE_WAIT_S)
            elif kind is FaultKind.ORIGIN_DEAD:
                start, duration_s = random.uniform(FAULTY_S / 4, FAULTY_S * 3 / 4), FAULTY_S
            end = min(start + duration_s, FAULTY_S)
            faults.append(Fault(kind, random.choice(targets[kind]), start, end, rate, random.getrandbits(32)))
            if kind is FaultKind.ORIGIN_DEAD:
                # What a broker that begins anew needs may be at the dead one only.
                anew = (FaultKind.LOST_CACHE, FaultKind.STARTED_LATE)
                faults = [fault for fault in faults if fault.kind not in anew]
                break
    return tuple(sorted(faults, key=lambda fault: fault.start))


def _fault_targets(
    topology: Topology, programs: Sequence[mmpl.Program], truncation: Truncation
) -> Mapping[FaultKind, Sequence[int]]:
    """The links or brokers that each kind can concern."""
    numbers = range(len(programs))
    hosts = sorted({n for n, program in enumerate(programs) for stream in program.streams if stream.home is not None})
    homes = sorted({n for n, program in enumerate(programs) for s in program.streams if s.many_origins} - {*hosts})
    publishers = [n for n, program in enumerate(programs) if program.streams]
    special: dict[FaultKind, Sequence[int]] = {
        # What was truncated is gone for a broker that has lost everything.
        FaultKind.LOST_CACHE: [] if truncation == "all" else [n for n in numbers if topology.parents[n]],
        FaultKind.SILENT_ORIGIN: publishers,
        FaultKind.STARTED_LATE: [n for n in numbers if n in hosts or topology.parents[n]],
        FaultKind.ORIGIN_LEFT: [*hosts, *hosts, *homes] if hosts else [],
        FaultKind.ORIGIN_FENCED: hosts,
        FaultKind.ORIGIN_DEAD: [*hosts, *hosts, *homes] if hosts else [],
    }
    links = range(len(topology.links))
    return {kind: special.get(kind, links if kind in LINK_FAULTS else numbers) for kind in FaultKind}
