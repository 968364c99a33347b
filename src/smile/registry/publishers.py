"""Publishers: who offers events of a global stream, and which."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from smile.errors import error
from smile.registry.conditions import Condition
from smile.registry.decoupling import DecoupledCondition, split
from smile.registry.schema import GlobalSchema

PublisherKind = Literal["producer", "republisher"]


@dataclass(frozen=True)
class StreamPublisher:
    """A producer's condition is sound: it publishes no other events. A republisher's is complete as well: it has all
    events that satisfy it. Names are unique in the network. `cost` and `load` are compared where there is a choice."""

    name: str
    kind: PublisherKind
    broker: str
    condition: Condition
    cost: float = 0
    load: float = 0

    @property
    def stream(self) -> GlobalSchema:
        return self.condition.stream

    @property
    def is_producer(self) -> bool:
        return self.kind == "producer"

    @cached_property
    def parts(self) -> DecoupledCondition:
        return split(self.condition)

    def __str__(self) -> str:
        return f"{self.name}: {self.condition}"


def check_publisher(publisher: StreamPublisher) -> None:
    """Raises E176 or E177 if the condition cannot be one of a publisher."""
    measurements = publisher.condition.columns - publisher.stream.key_names
    if publisher.is_producer and measurements:
        names = ", ".join(sorted(measurements))
        hint = (
            "Advertise a condition on key attributes: it says which channels the producer has. Whether an event "
            "satisfies a condition on other columns is known only when it is published."
        )
        raise error("E177", f"the condition of producer {publisher.name} restricts {names}", hint=hint)
    split(publisher.condition)


@dataclass(frozen=True)
class Configuration:
    """All publishers of a global stream at one time, ordered by name."""

    publishers: tuple[StreamPublisher, ...]

    @cached_property
    def by_name(self) -> MappingProxyType[str, StreamPublisher]:
        return MappingProxyType({publisher.name: publisher for publisher in self.publishers})

    def __getitem__(self, name: str) -> StreamPublisher:
        return self.by_name[name]

    def with_publisher(self, publisher: StreamPublisher) -> "Configuration":
        return configuration([*self.publishers, publisher])

    def without(self, name: str) -> "Configuration":
        return Configuration(tuple(p for p in self.publishers if p.name != name))


def configuration(publishers: Iterable[StreamPublisher]) -> Configuration:
    ordered = tuple(sorted(publishers, key=lambda publisher: publisher.name))
    assert len({publisher.name for publisher in ordered}) == len(ordered), "names of publishers are unique"
    return Configuration(ordered)
