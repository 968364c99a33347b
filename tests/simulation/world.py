"""What everything in a simulation shares: the scheduler, the truth, the faults that are active, and what was seen."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from smile.links.messages import LinkMessage
from tests.simulation.scenario import Fault, FaultKind, Scenario
from tests.simulation.scheduler import Scheduler
from tests.simulation.truth import Truth

if TYPE_CHECKING:
    from tests.simulation.durable import DurableSubscriber

Combination = tuple[str, str, str]
"""A fault, the kind of a message, and the state of its import or link."""


class BrokerKilled(BaseException):
    """The simulated process of a broker ends here."""


@dataclass
class TrafficFigures:
    messages: Counter[str] = field(default_factory=Counter)
    data_bytes: int = 0
    """What was sent as events and rows."""
    disturbed_bytes: int = 0
    """What of it was lost, reordered or delayed."""
    repeated_bytes: int = 0
    """What of the events was sent again over the same connection."""


@dataclass
class World:
    scenario: Scenario
    truth: Truth
    scheduler: Scheduler = field(default_factory=Scheduler)
    problems: list[str] = field(default_factory=list)
    trace: list[tuple[float, str, str]] = field(default_factory=list)
    """The time, where, and what."""
    active: list[Fault] = field(default_factory=list)
    combinations: Counter[Combination] = field(default_factory=Counter)
    figures: TrafficFigures = field(default_factory=TrafficFigures)
    durable_subscribers: "list[DurableSubscriber]" = field(default_factory=list)
    is_repaired: bool = False
    dead: set[int] = field(default_factory=set)
    """Brokers that do not come back."""
    stopped_streams: set[str] = field(default_factory=set)
    """Streams of which a broker has events of an origin after the tick at which that was fenced: importing brokers
    stop."""

    @property
    def now(self) -> float:
        return self.scheduler.now

    def random(self, *names: object) -> Random:
        """Randomness of one owner: what others draw has no effect on it."""
        return Random(f"{self.scenario.seed} {self.scenario.schedule} {names}")

    def note(self, where: str, what: str) -> None:
        self.trace.append((self.now, where, what))

    def complain(self, problem: str) -> None:
        self.note("problem", problem)
        self.problems.append(f"at {self.now:.3f} s: {problem}")

    def complain_all(self, problems: list[str], where: str = "") -> None:
        for problem in problems:
            self.complain(f"{where}{problem}")

    def faults_at(self, kind: FaultKind, target: int) -> list[Fault]:
        return [fault for fault in self.active if fault.kind is kind and fault.target == target]

    @property
    def digest(self) -> str:
        """Equal for equal runs."""
        return hashlib.sha256(repr(self.trace).encode()).hexdigest()[:16]


def tag_of(message: LinkMessage) -> str:
    return str(message.__struct_config__.tag)


def message_text(message: LinkMessage, size: int) -> str:
    """A message in a trace."""
    fields: Mapping[str, Any] = {name: getattr(message, name) for name in message.__struct_fields__}
    parts = [f"{name}={value}" for name, value in fields.items() if name not in ("message", "hint", "definition")]
    return f"{tag_of(message)} {' '.join(parts)} ({size} bytes)"
